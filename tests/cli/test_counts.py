"""The counts of one archive are equal everywhere: build, catalog, report, retention."""

import json
import os
import re
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kip33.archive.leftover_files import LeftoverKind
from kip33.rules.offset_holes import HoleKind
from kip33.rules.segment_summary import SegmentStatus
from tests.builders.changing_archive import START_MS, ChangingArchive
from tests.builders.leftover_archive import add_leftovers, put
from tests.builders.segment_builder import Record, v2_batch
from tests.cli.console import Command

NOW = ("--now", "2026-01-01")
HOUR_MS, OFFSETS = 3_600_000, 10  # of a segment
POLICY = """\
[defaults]
"cleanup.policy" = "delete"
"retention.ms" = "2d"
[topics."compacted"]
"cleanup.policy" = "compact"
"""
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


def write(log_dir: Path, topic: str, *base_offsets: int, step: int = 1) -> list[Path]:
    """Write segments of ten offsets, an hour apart; a compacted topic has some of the records."""
    logs = []
    for base in base_offsets:
        now = START_MS + base // OFFSETS * HOUR_MS
        records = [Record(now + i, offset_delta=i) for i in range(0, OFFSETS, step)]
        batch = v2_batch(base, records, last_offset_delta=OFFSETS - 1)
        logs.append(put(log_dir / f"{topic}-0" / f"{base:020d}.log", batch))
        os.utime(logs[-1], ns=(0, (now + OFFSETS) * 1_000_000))
    return logs


@pytest.fixture
def deleted(tmp_path: Path) -> Path:
    """A segment that is deleted between two builds of an archive that has something of all."""
    (tmp_path / "policy.toml").write_text(POLICY)
    changing = ChangingArchive(tmp_path)
    add_leftovers(changing)
    broker = changing.source / "b1"
    write(broker, "orders", 0, 20)
    write(broker, "compacted", 0, 20, step=3)
    write(broker, "filled", 0, 20)
    write(changing.source / "replica", "filled", 0, 10)
    first, *_ = write(broker, "damaged", 0, 10)
    first.write_bytes(v2_batch(0, [Record(START_MS)]) + b"\xff" * 70)
    *_, last = write(broker, "empty", 0, 10)
    last.write_bytes(b"")
    _, back, _ = write(broker, "invalid", 0, 10, 20)
    large = Record(START_MS, value=bytes(5_000))
    back.write_bytes(b"".join(v2_batch(offset, [large]) for offset in (12, 15, 10)))
    first, *_ = write(broker, "future", 0, 10, 20)  # its record blocks those behind it
    first.write_bytes(v2_batch(0, [Record(START_MS + 10**12, offset_delta=OFFSETS - 1)]))
    return write(broker, "expired", 0, 10)[0]


@pytest.fixture
def counted(command: Command, deleted: Path) -> Counted:
    """What all commands count after a second build."""

    def last(*arguments: object) -> Answer:
        done = command(*arguments)
        assert done.exit_code == 0, done.stderr
        return done.lines[-1]

    build = ("build", "source", "--index-dir", "indexes", "--offset-index")
    last(*build, "--format", "json")
    deleted.unlink()
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
        last("catalog", "holes", catalog, "--format", "json"),
        last("catalog", "holes", catalog, "--policy", "policy.toml", "--format", "json"),
        last("catalog", "orphans", catalog, "--format", "json"),
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


def test_the_counts_are_the_same_everywhere(counted: Counted) -> None:
    require_same_segments(counted)
    require_same_holes(counted)
    require_same_leftovers(counted)
    assert set(counted.build["by_status"]) == {"ok", "empty", "truncated", "invalid"}
    assert (set(counted.retention["by_hole"]), counted.build["orphaned"]) == (set(HoleKind), 2)
    others = {LeftoverKind.TEMPORARY, LeftoverKind.UPLOAD, LeftoverKind.MANIFEST}
    assert set(counted.orphans["by_kind"]) == set(LeftoverKind) - others
    assert counted.retention["deletable_segments"] > 0 < counted.retention["blocked_segments"]
