"""The counts of one archive are equal everywhere: build, catalog, report, retention.

The short form has the demo archive, a small made one and uploads. The long form has 10,000 segments
and the segments of real brokers.
"""

import json
import re
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kip33.archive.leftover_files import LeftoverKind
from kip33.demo import make_archive, make_sensors
from kip33.rules.offset_holes import HoleKind
from kip33.rules.segment_summary import SegmentStatus
from tests.builders.counted_archive import POLICY, Expected, counted_archive
from tests.builders.layouts import Stored, aiven, aiven_stem
from tests.builders.segment_builder import Record, segment, v2_batch
from tests.cli.console import PROJECT, Command
from tests.formats.real_segments import FOLDER, needs_real_segments

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


class Made(NamedTuple):
    """An archive, its policy, and what is known of it."""

    policy: str
    options: tuple[str, ...]
    expected: Expected | None
    forget: list[Path]  # logs that are deleted after a first build


def demo(root: Path) -> Made:
    make_archive(root)
    make_sensors(root)
    (root / "broker-2/orders-0" / f"{4000:020d}.log").unlink()  # the other broker has it
    gone = [root / "broker-1/sensors-0" / f"{400:020d}.log"]
    (root / "broker-1/loop").symlink_to(root)
    return Made((PROJECT / "conf/retention.toml").read_text(), (), None, gone)


def small(root: Path) -> Made:
    expected = counted_archive(root, partitions=10, segments=6)
    return Made(POLICY, (), expected, expected.deleted_logs)


def ten_thousand(root: Path) -> Made:
    expected = counted_archive(root, partitions=100, segments=96)
    assert expected.segments > 10_000
    return Made(POLICY, (), expected, expected.deleted_logs)


def uploads(root: Path) -> Made:
    """Segments in the layout of Aiven, of which two were not uploaded completely."""
    logs = {
        base: segment([v2_batch(base, [Record(1_700_000_000_000 + base)])]) for base in range(6)
    }
    stored = [Stored("t", 0, base, log, bytes(12), bytes(8)) for base, log in logs.items()]
    aiven(root, stored)
    stems = [aiven_stem(root, one) for one in stored]
    stems[2].with_name(f"{stems[2].name}.rsm-manifest").unlink()
    stems[4].with_name(f"{stems[4].name}.log").unlink()
    return Made(POLICY, ("--layout", "aiven"), None, [stems[5].with_name(f"{stems[5].name}.log")])


def real_brokers(root: Path) -> Made:
    """The segments of real brokers, with a hole and a log that is deleted."""
    shutil.copytree(FOLDER, root, ignore=shutil.ignore_patterns("MANIFEST.csv"))
    logs = sorted(root.rglob("*.log"))
    by_partition: dict[Path, list[Path]] = {}
    for log in logs:
        by_partition.setdefault(log.parent, []).append(log)
    for several in by_partition.values():
        if len(several) > 2:
            several[1].unlink()
    return Made(POLICY, (), None, [logs[0]])


@pytest.fixture(
    params=[
        demo,
        small,
        uploads,
        pytest.param(ten_thousand, marks=pytest.mark.integration),
        pytest.param(real_brokers, marks=[pytest.mark.integration, needs_real_segments]),
    ],
    ids=lambda make: make.__name__,
)
def made(request: pytest.FixtureRequest, tmp_path: Path) -> Made:
    """An archive in ./logs."""
    make: Callable[[Path], Made] = request.param
    found = make(tmp_path / "logs")
    (tmp_path / "policy.toml").write_text(found.policy)
    return found


@pytest.fixture
def counted(command: Command, made: Made) -> Counted:
    """What all commands count after a second build."""

    def last(*arguments: object) -> Answer:
        done = command(*arguments)
        assert done.exit_code == 0, done.stderr
        return done.lines[-1]

    build = ("build", "logs", "--index-dir", "indexes", "--offset-index", *made.options)
    last(*build, "--format", "json")
    for log in made.forget:
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


def require_same_leftovers(counted: Counted, made: Made) -> None:
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
    assert ours["files"] >= 2 * len(made.forget) - 1
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


def test_the_counts_are_the_same_everywhere(counted: Counted, made: Made) -> None:
    require_same_segments(counted)
    require_same_holes(counted)
    require_same_leftovers(counted, made)
    if made.expected:
        require_expected(counted, made.expected)
