"""An archive that a test changes between builds, and the results of its builds.

No real clock is used: `now_ms` advances by a day with every build, and the test sets the age of
each file. `fresh()` is the result of a build of the current archive into a new directory.
"""

import itertools
import os
import shutil
from pathlib import Path
from typing import Any

from kip33.builds.commit import BuildSummary
from kip33.builds.plan import BuildPlan
from kip33.catalog.catalog import Catalog
from kip33.rules.segment_notes import SegmentNote, with_remarks
from tests.builders.plans import plan_build
from tests.builders.segment_builder import Record, segment, v2_batch
from tests.faults.builds import Outcome, build_here, outcome

DAY_MS = 86_400_000
START_MS = 1_700_000_000_000
INTERVAL = 200  # bytes between index entries: a small log has several entries
Row = dict[str, Any]


def batches(base_offset: int, count: int, *, first_ms: int = START_MS, step_ms: int = 7) -> bytes:
    """Return a log of `count` batches of two records, one offset and `step_ms` apart."""
    return segment(
        v2_batch(
            base_offset + 2 * number,
            [Record(first_ms + number * step_ms, b"k"), Record(first_ms + number * step_ms - 3)],
        )
        for number in range(count)
    )


class ChangingArchive:
    """A source of segments, the directory of their indexes, and a clock."""

    def __init__(self, folder: Path, *, in_place: bool = False) -> None:
        """Begin empty, below `folder`."""
        self.folder = folder
        self.source = folder / "source"
        self.index_dir = None if in_place else folder / "indexes"
        self.catalog = folder / "catalog"
        self.now_ms = START_MS + 100 * DAY_MS
        self._fresh_places = itertools.count()

    def log(self, partition: str, base_offset: int = 0) -> Path:
        """Return the path of a segment, which need not exist."""
        return self.source / partition / f"{base_offset:020d}.log"

    def index(self, partition: str, base_offset: int = 0) -> Path:
        """Return the path where a build writes the segment's `.timeindex`."""
        return self.index_of(self.log(partition, base_offset))

    def index_of(self, log: Path) -> Path:
        """Return the path where a build writes a log's `.timeindex`."""
        root = self.index_dir or self.source
        return root / log.relative_to(self.source).with_suffix(".timeindex")

    def write(self, log: Path, data: bytes, *, age_ms: int = DAY_MS // 2) -> None:
        """Write a segment that was modified `age_ms` before the clock's time."""
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_bytes(data)
        self.touch(log, age_ms=age_ms)

    def touch(self, log: Path, *, age_ms: int = DAY_MS // 2) -> None:
        """Set a segment's modification time."""
        os.utime(log, ns=(0, (self.now_ms - age_ms) * 1_000_000))

    def rewrite_unseen(self, log: Path, data: bytes) -> None:
        """Write a segment and restore its modification time, like a clock with long ticks."""
        modified_ns = log.stat().st_mtime_ns
        log.write_bytes(data)
        os.utime(log, ns=(0, modified_ns))

    def build(self, **settings: Any) -> BuildSummary:
        """Build at the clock's time; then advance the clock by a day."""
        index_dir, how = self._arguments(settings)
        summary = build_here(self.source, index_dir, **how)
        self.now_ms += DAY_MS
        return summary

    def plan(self, **settings: Any) -> BuildPlan:
        """Plan what `build` would do."""
        index_dir, how = self._arguments(settings)
        return plan_build(str(self.source), str(index_dir) if index_dir else None, **how)

    def _arguments(self, settings: dict[str, Any]) -> tuple[Path | None, dict[str, Any]]:
        how = {"index_interval_bytes": INTERVAL, "catalog": str(self.catalog)}
        how |= {"in_place": self.index_dir is None, "now_ms": self.now_ms} | settings
        return (self.index_dir if how.get("index_files", True) else None), how

    def rows(self) -> list[Row]:
        """Return the newest snapshot's rows, every column, sorted by log."""
        catalog = Catalog.at(str(self.catalog))
        rows: list[Row] = catalog.read(catalog.require_newest()).to_pylist()
        return sorted(rows, key=lambda row: row["log_uri"])

    def row(self, partition: str, base_offset: int = 0) -> Row:
        """Return the row of one segment."""
        uri = self.log(partition, base_offset).as_uri()
        (row,) = [row for row in self.rows() if row["log_uri"] == uri]
        return row

    def remarks(self, partition: str, base_offset: int = 0) -> str:
        """Return what people are shown of a segment besides its status."""
        return with_remarks(self.row(partition, base_offset), ["error"])["error"] or ""

    def outcome(self) -> Outcome:
        """Return the rows, with index paths relative to `INDEX`, and their index files."""
        return named_by_rows(
            outcome(self.index_root, self.catalog),
            self.index_root,
            in_place=self.index_dir is None,
        )

    def fresh(self, **settings: Any) -> Outcome:
        """Return the outcome of a build into a new directory, which reads everything."""
        place = self.folder / f"fresh-{next(self._fresh_places)}"
        settings = {"index_interval_bytes": INTERVAL, "now_ms": self.now_ms} | settings
        build_here(self.source, place, **settings)
        result = named_by_rows(outcome(place), place, in_place=self.index_dir is None)
        shutil.rmtree(place)
        return result

    @property
    def index_root(self) -> Path:
        """Return the root directory of the index files."""
        return self.index_dir or self.source


class KeptArchive:
    """An archive that many tests change: each begins with a copy at the same place."""

    def __init__(self, archive: ChangingArchive) -> None:
        """Keep a copy; URIs in its catalog name the place, so that place is used again."""
        self._archive = archive
        self._saved = archive.folder.with_name(f"{archive.folder.name}-saved")
        shutil.copytree(archive.folder, self._saved, symlinks=True)

    def again(self) -> ChangingArchive:
        """Return the archive as it was kept, without what tests have done to it."""
        folder = self._archive.folder
        shutil.rmtree(folder)
        shutil.copytree(self._saved, folder, symlinks=True)
        archive = ChangingArchive(folder, in_place=self._archive.index_dir is None)
        archive.now_ms = self._archive.now_ms
        return archive


def named_by_rows(seen: Outcome, root: Path, *, in_place: bool = False) -> Outcome:
    """Return the outcome with the files that rows name, and index URIs relative to `INDEX`.

    `in_place`: remove what a build in place does differently, to compare it with another build.
    """
    prefix = root.as_uri()
    rows, named = [], set()
    for row in seen.rows:
        if in_place:
            row = without_what_differs_in_place(row)
        uri = row["index_uri"]
        if uri and uri.startswith(prefix):
            rows.append(row | {"index_uri": "INDEX" + uri.removeprefix(prefix)})
            named.add(uri)
            if row["offset_index_bytes"] is not None:
                named.add(uri.removesuffix(".timeindex") + ".index")
            if row["transaction_index_bytes"] is not None:
                named.add(uri.removesuffix(".timeindex") + ".txnindex")
        else:
            rows.append(row)
    files = {name: data for name, data in seen.files.items() if (root / name).as_uri() in named}
    return Outcome(files, rows)


IN_PLACE = {
    *(SegmentNote.BROKER_CUTS, SegmentNote.BROKER_SPLITS),
    *(SegmentNote.STARTS_BY_INDEX, SegmentNote.MAY_NOT_START),
}


def without_what_differs_in_place(row: Row) -> Row:
    """Return a row without the differences between a build in place and one into a directory.

    In place there is no `.index` beside a `truncated` log, our own stays beside an `invalid` log,
    and the row says what a broker does with such logs.
    """
    row = row | {"notes": [note for note in row["notes"] or () if note not in IN_PLACE] or None}
    row["decided_by"] = [*row["decided_by"][:2], None, None]  # without the files of a broker
    if row["status"] in ("truncated", "invalid"):
        row |= dict.fromkeys(name for name in row if name.startswith("offset_index_"))
    if row["status"] == "invalid" and row["index_file"] == "stale":
        row |= {"index_uri": None, "index_file": None}
    return row


ORDERS, CLICKS = "b1/orders-0", "b1/clicks-0"


def built_archive(folder: Path) -> ChangingArchive:
    """Return two partitions with two segments each, built with all kinds of index files."""
    archive = ChangingArchive(folder)
    for partition in (ORDERS, CLICKS):
        for base_offset in (0, 40):
            archive.write(archive.log(partition, base_offset), batches(base_offset, 20))
    archive.build(offset_index=True)
    return archive
