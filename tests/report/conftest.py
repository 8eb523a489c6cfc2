"""A report on a made catalog of 10,000 segments with all that a report can say."""

from pathlib import Path
from typing import NamedTuple

import pytest

from kip33.catalog.catalog import Catalog, choose
from kip33.report.facts import Report
from kip33.report.make_report import ReportRequest, make_report
from kip33.report.page import page_of
from kip33.retention.policy_files import load_policies
from tests.builders.report_catalog import NOW_MS, POLICY, make_catalog


class MadeReport(NamedTuple):
    """A catalog, and the report on it."""

    catalog: Catalog
    policy: Path
    report: Report
    page: str


@pytest.fixture(scope="package")
def made(tmp_path_factory: pytest.TempPathFactory) -> MadeReport:
    return made_report(tmp_path_factory.mktemp("report"))


def made_report(folder: Path, *, judged: bool = True, **size: int) -> MadeReport:
    """Return a new catalog and the report on it."""
    catalog = make_catalog(folder, **size)
    policy = folder / "policy.toml"
    policy.write_text(POLICY)
    asked = ReportRequest(
        load_policies(str(policy)) if judged else None,
        ("--policy", str(policy)) if judged else (),
        NOW_MS,
        NOW_MS,
        30,
    )
    report = make_report(catalog, choose(catalog, None), asked)
    return MadeReport(catalog, policy, report, page_of(report))
