"""Where a build may put its files, and which topics it takes: decided by the plan alone."""

from pathlib import Path
from typing import Any

import pytest

from kip33.builds.plan import BuildPlan
from kip33.errors import LocationError
from tests.builders.log_file import write_log
from tests.builders.plans import plan_build as plan_build_at

NOW_MS = 1_800_000_000_000
BROKERS_FILES = (
    *("meta.properties", ".kafka_cleanshutdown", "recovery-point-offset-checkpoint"),
    *("log-start-offset-checkpoint", "replication-offset-checkpoint", "cleaner-offset-checkpoint"),
)


def plan_build(*places: str, **settings: Any) -> BuildPlan:
    return plan_build_at(*places, now_ms=NOW_MS, **settings)


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    for partition in ("broker-1/orders-0", "broker-1/audit.v1-0", "broker-2/orders-0"):
        write_log(tmp_path / "archive" / partition, 0)
    return tmp_path / "archive"


REFUSED: list[tuple[dict[str, str], str]] = [
    ({"catalog": "archive/broker-1/_catalog"}, "the catalog is inside the log directory"),
    ({"catalog": "archive/broker-1"}, "the catalog is inside the log directory"),
    ({"catalog": "archive/broker-2/orders-0/c"}, "the catalog is inside the log directory"),
    ({"index_dir": "archive/broker-1/indexes"}, "the index directory is inside the log"),
    ({"index_dir": "archive"}, "the index directory contains SOURCE"),
    ({"index_dir": "."}, "the index directory contains SOURCE"),
    ({"index_dir": "a file"}, "the index directory is a file"),
    ({"index_dir": "indexes", "catalog": "a file"}, "the catalog is a file"),
]


def test_a_place_that_a_broker_or_a_reader_would_trip_over_is_refused(
    archive: Path, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    (tmp_path / "a file").touch()
    for settings, problem in REFUSED:
        places = {name: str(tmp_path / place) for name, place in settings.items()}
        with subtests.test(str(settings)), pytest.raises(LocationError, match=problem):
            plan_build(str(archive), in_place="index_dir" not in settings, **places)


@pytest.mark.parametrize("source", ["archive/broker-2/orders-0", "archive/broker-1"])
def test_no_folder_comes_into_a_log_directory_that_the_listing_does_not_show(
    archive: Path, tmp_path: Path, source: str, subtests: pytest.Subtests
) -> None:
    """SOURCE is one partition of it, or another log directory; and it may be behind a link."""
    log_dir = archive / "broker-2" if source.endswith("orders-0") else tmp_path / "empty"
    log_dir.mkdir(exist_ok=True)
    (tmp_path / "link").symlink_to(log_dir)
    outside = str(tmp_path / "outside")
    for file in BROKERS_FILES:
        (log_dir / file).touch()
        for place in map(str, (log_dir / "new", log_dir / "new/a/b", tmp_path / "link/new")):
            for places in ({"index_dir": place}, {"index_dir": outside, "catalog": place}):
                with subtests.test(f"{file}: {places}"):
                    with pytest.raises(LocationError, match="is inside the log dir") as refusal:
                        plan_build(str(tmp_path / source), **places)
                    assert "\n" not in str(refusal.value)
        assert plan_build(str(tmp_path / source), outside).files.num_rows
        (log_dir / file).unlink()


def test_a_log_directory_as_source_keeps_its_catalog_outside(archive: Path) -> None:
    source = archive / "broker-1"
    with pytest.raises(LocationError, match="is inside the log directory"):
        plan_build(str(source), in_place=True, catalog=str(source / "_catalog"))

    plan = plan_build(str(source), in_place=True, catalog=str(archive / "_catalog"))

    assert plan.files["log_dir"].to_pylist() == ["", ""]


def test_topics_that_nothing_matches_are_wrong_usage(archive: Path, tmp_path: Path) -> None:
    with pytest.raises(LocationError, match="no segments of topics nothing, 0 found"):
        plan_build(str(archive), str(tmp_path / "indexes"), topics=["nothing", "0"])
