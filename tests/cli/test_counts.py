"""The counts of one archive are equal everywhere: build, catalog, report, retention.

The short form has a small archive, the integration tests have one of 10,000 segments.
"""

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kip33.archive.leftover_files import LeftoverKind
from kip33.rules.offset_holes import HoleKind
from kip33.rules.segment_summary import SegmentStatus
from tests.builders.counted_archive import POLICY, Expected, counted_archive
from tests.cli.console import Command

NOW = ("--now", "2026-01-01")
DATA = re.compile(r'<data id="(\w+)" value="(\d+)">')
STATUS = re.compile(r'<span data-status="(\w+)"><data value="(\d+)">')
Answer = dict[str, Any]


class Counted(NamedTuple):
    """What each command counted in one archive."""

    build: Answer
    retention: Answer
    rows: list[Answer]  # of retention: partitions and segments
    report: Answer
    page: dict[str, int]
    page_statuses: dict[str, int]
    page_orphans: int
    catalog: Answer
    holes: Answer
    judged_holes: Answer
    orphans: Answer


@pytest.fixture(
    params=[
        pytest.param((10, 6), id="small"),
        pytest.param((100, 96), id="ten thousand", marks=pytest.mark.integration),
    ]
)
def expected(request: pytest.FixtureRequest, tmp_path: Path) -> Expected:
    """What is known of an archive in ./logs."""
    partitions, segments = request.param
    (tmp_path / "policy.toml").write_text(POLICY)
    return counted_archive(tmp_path / "logs", partitions=partitions, segments=segments)


@pytest.fixture
def counted(command: Command, expected: Expected) -> Counted:
    """What all commands count after a second build."""

    def last(*arguments: object) -> Answer:
        done = command(*arguments)
        assert done.exit_code == 0, done.stderr
        return done.lines[-1]

    build = ("build", "logs", "--index-dir", "indexes", "--offset-index")
    last(*build, "--format", "json")
    for log in expected.deleted_logs:
        log.unlink()
    last(*build, "--format", "json", "--summary", "b.json")
    catalog = "indexes/_catalog"
    judge = ("retention", catalog, "--policy", "policy.toml", *NOW)
    done = command(*judge, "--format", "jsonl", "--summary", "r.json")
    assert done.exit_code == 0, done.stderr
    assert command("report", *judge[1:], "--output", "out.html").exit_code == 0
    page = Path("out.html").read_text()
    orphans = re.findall(
        r'data-count="(\d+)">(?:(?!data-count).)*of kip33 without', page, re.DOTALL
    )
    return Counted(
        json.loads(Path("b.json").read_text()),
        json.loads(Path("r.json").read_text()),
        done.lines[:-1],
        json.loads(Path("out.json").read_text())["totals"],
        {name: int(value) for name, value in DATA.findall(page)},
        {name: int(value) for name, value in STATUS.findall(page)},
        int(orphans[0]) if orphans else 0,
        last("catalog", catalog, "--format", "json"),
        last("catalog", catalog, "--holes", "--format", "json"),
        last("catalog", catalog, "--holes", "--policy", "policy.toml", "--format", "json"),
        last("catalog", catalog, "--orphans", "--format", "json"),
    )


def are_equal(*values: object) -> None:
    assert list(values) == [values[0]] * len(values)


def require_same_segments(counted: Counted) -> None:
    build, retention, page = counted.build, counted.retention, counted.page
    [newest, _] = counted.catalog["snapshots"]
    topics = counted.catalog["topics"]
    segments = [row for row in counted.rows if row["kind"] == "segment"]

    are_equal(
        *(build["segments"], retention["segments"], page["segments"], newest["segments"]),
        *(sum(one["segments"] for one in topics), len(segments)),
    )
    are_equal(build["by_status"], counted.page_statuses, Counter(row["status"] for row in segments))
    not_ok: Counter[str] = Counter()
    for one in topics:
        not_ok.update(one["not_ok"])
    fine = (SegmentStatus.OK, SegmentStatus.EMPTY)
    are_equal({name: n for name, n in build["by_status"].items() if name not in fine}, not_ok)
    are_equal(
        *(build["log_bytes"], retention["bytes"], page["log_bytes"]),
        *(sum(one["log_bytes"] for one in topics), sum(row["size_bytes"] or 0 for row in segments)),
    )


def require_same_holes(counted: Counted) -> None:
    retention, report = counted.retention, counted.report
    are_equal(counted.build["by_hole"], counted.holes["by_hole"])
    are_equal(retention["by_hole"], report["by_hole"], counted.judged_holes["by_hole"])
    are_equal(
        *(counted.build["missing_offsets"], retention["missing_offsets"]),
        *(report["missing_offsets"], counted.page["missing_offsets"]),
        *(counted.holes["missing_offsets"], counted.judged_holes["missing_offsets"]),
        *(
            sum(one["missing_offsets"] for one in holes["holes"] if one["hole"] != HoleKind.FILLED)
            for holes in (counted.holes, counted.judged_holes)
        ),
    )


def require_same_leftovers(counted: Counted) -> None:
    build, report = counted.build, counted.report
    [newest, _] = counted.catalog["snapshots"]
    by_kind = counted.orphans["by_kind"]
    ours = by_kind[LeftoverKind.ORPHAN]
    are_equal(
        *(build["orphaned"], newest["orphaned"], report["orphaned_index_files"]),
        *(ours["files"], counted.page_orphans),
    )
    are_equal(
        *(build["orphaned_bytes"], newest["orphaned_bytes"], report["orphaned_bytes"]),
        ours["size_bytes"],
    )
    listed: dict[str, Counter[str]] = {}
    for one in counted.orphans["leftovers"]:
        total = listed.setdefault(one["leftover"], Counter())
        total.update(files=one["files"], size_bytes=one["size_bytes"])
    are_equal(by_kind, {kind: dict(total) for kind, total in listed.items()})
    skipped = build["passed_over"]
    for kind in (LeftoverKind.DELETED, LeftoverKind.CLEANED, LeftoverKind.SWAP):
        are_equal(by_kind.get(kind, {}).get("files", 0), skipped.get(f"{kind}s", 0))


def require_expected(counted: Counted, expected: Expected) -> None:
    assert counted.build["segments"] == expected.segments
    assert counted.build["by_status"] == dict(sorted(expected.by_status.items()))
    assert counted.retention["by_hole"] == dict(sorted(expected.by_hole.items()))
    assert set(expected.by_hole) == set(HoleKind)
    assert counted.retention["missing_offsets"] == expected.missing_offsets
    found = {
        kind: (total["files"], total["size_bytes"])
        for kind, total in counted.orphans["by_kind"].items()
        if kind != LeftoverKind.ORPHAN
    }
    assert found == expected.leftovers
    assert counted.build["orphaned"] == 2 * len(expected.deleted_logs)
    assert counted.retention["deletable_segments"] > 0 < counted.retention["blocked_segments"]


def test_the_counts_are_the_same_everywhere(counted: Counted, expected: Expected) -> None:
    require_same_segments(counted)
    require_same_holes(counted)
    require_same_leftovers(counted)
    require_expected(counted, expected)
