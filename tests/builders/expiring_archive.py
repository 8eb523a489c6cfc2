"""An archive of small files, some of them expired, with a catalog: the input of a retention plan.

The files only have the names of segments; their rows are those of a build. No real clock is used.
"""

import errno
import os
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any, Self

from kip33.catalog.catalog import Catalog, Snapshot
from kip33.catalog.draft import Draft, PartWriter
from kip33.retention.apply import Applied, apply_plan
from kip33.retention.evaluation import RetentionRequest
from kip33.retention.make_plan import plan_retention
from kip33.retention.plan import RetentionPlan
from kip33.rules.policies import Policies
from kip33.stores.locations import Location
from tests.builders.snapshots import append_rows, place_of_row, row

DAY_MS = 86_400_000
NOW_MS = 1_700_000_000_000
KINDS = ("log", "index", "timeindex", "txnindex", "snapshot")
A, B = "b1/orders-0", "b2/orders-0"
WEEK = {"defaults": {"cleanup.policy": "delete", "retention.ms": "7d"}}


class ExpiringArchive:
    """Partitions whose segments are a day apart; those older than a week may expire."""

    def __init__(self, folder: Path) -> None:
        """Create an empty archive below `folder`."""
        self.folder = folder
        self.source, self.index_dir = folder / "archive", folder / "indexes"
        self.catalog = Catalog.at(str(folder / "catalog"))
        self.policies = Policies(WEEK)
        self.rows: dict[Path, dict[str, Any]] = {}
        for place in (self.source, self.index_dir):
            place.mkdir(parents=True)

    @classmethod
    def with_two_partitions(cls, folder: Path) -> Self:
        """Return an archive with five segments in A and in B, the oldest four of them expired."""
        archive = cls(folder)
        for path in (A, B):
            archive.partition(path, 5, expired=4, kinds=KINDS)
            archive.write(archive.source / path / "leader-epoch-checkpoint")
        archive.snapshot()
        return archive

    def log(self, base_offset: int, path: str = A) -> Path:
        """Return the path of a log, which need not exist."""
        return self.source / path / f"{base_offset:020d}.log"

    def rewrite(self, path: Path, *, size: int = 0, age_days: float = 1) -> None:
        """Write other bytes to a file, and make it longer or shorter by `size`."""
        self.write(path, b"!" * (path.stat().st_size + size), age_days=age_days)

    def partition(self, path: str, segments: int, *, expired: int, **fields: Any) -> list[Path]:
        """Write a partition's segments, 100 offsets each; return their logs, oldest first."""
        return [
            self.segment(path, number * 100, age_days=expired - number + 7, **fields)
            for number in range(segments)
        ]

    def segment(
        self,
        path: str,
        base_offset: int,
        *,
        age_days: float = 30,
        kinds: tuple[str, ...] = KINDS[:3],
        index_kinds: tuple[str, ...] = ("timeindex", "index"),
        **fields: Any,
    ) -> Path:
        """Write a segment's files, beside the log and in the index directory, and store its row."""
        log = self.source / path / f"{base_offset:020d}.log"
        for kind in kinds:
            self.write(log.with_suffix(f".{kind}"))
        index = self.index_dir / path / log.with_suffix(".timeindex").name
        for kind in index_kinds:
            self.write(index.with_suffix(f".{kind}"))
        sizes = {kind: index.with_suffix(f".{kind}").stat().st_size for kind in index_kinds}
        log_dir, _, name = path.rpartition("/")
        topic, _, number = name.rpartition("-")
        stat = log.stat()
        self.rows[log] = row(
            int(number),
            log_dir=log_dir,
            topic=topic,
            base_offset=base_offset,
            log_uri=log.as_uri(),
            index_uri=index.as_uri() if index_kinds else None,
            index_file="written" if index_kinds else None,
            time_index_bytes=sizes.get("timeindex"),
            offset_index_bytes=sizes.get("index"),
            transaction_index_bytes=sizes.get("txnindex"),
            size_bytes=stat.st_size,
            last_modified_ms=stat.st_mtime_ns // 1_000_000,
            largest_timestamp=int(NOW_MS - age_days * DAY_MS),
            **fields,
        )
        return log

    def write(self, path: Path, data: bytes | None = None, *, age_days: float = 1) -> None:
        """Write a file; without `data` its bytes are unique."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data or str(path.relative_to(self.folder)).encode() * 10)
        os.utime(path, ns=(0, int(NOW_MS - age_days * DAY_MS) * 1_000_000 + 123_456))

    def snapshot(self, *others: dict[str, Any], only_there: bool = True) -> Snapshot:
        """Commit a snapshot of the existing segments and of `others`."""
        rows = [one for log, one in self.rows.items() if not only_there or log.exists()]
        index_dir = Location.of(self.index_dir).uri
        draft = Draft.begin(self.catalog, Location.of(self.source))
        writer = PartWriter(draft.staging, 0)
        append_rows(writer, sorted([*others, *rows], key=place_of_row))
        settings = {"build": "{}", "index_dir": index_dir}
        return draft.commit([writer.publish()], settings=settings, now_ms=NOW_MS)

    def plan(self, **settings: Any) -> RetentionPlan:
        """Plan from the newest snapshot."""
        how: dict[str, Any] = {"policies": self.policies, "now_ms": NOW_MS} | settings
        clock_ms = how.pop("clock_ms", NOW_MS)
        request = RetentionRequest(**how)
        return plan_retention(self.catalog, self.catalog.require_newest(), request, clock_ms)

    def apply(self, plan: RetentionPlan, **settings: Any) -> Applied:
        """Apply a plan a minute after it was made."""
        how: dict[str, Any] = {"clock": clock(), "threads": 2} | settings
        return apply_plan(plan, **how)

    def files(self) -> dict[str, bytes]:
        """Return all files of archive and index directory, by path."""
        return {
            str(path.relative_to(self.folder)): path.read_bytes()
            for root in (self.source, self.index_dir)
            for path in sorted(root.rglob("*"))
            if path.is_file()
        }

    def planned_files(self, plan: RetentionPlan) -> set[str]:
        """Return the paths of a plan's files."""
        return {
            str(Path(file.place.path).relative_to(self.folder))
            for partition in plan.partitions
            for segment in partition.segments
            for file in segment.files
        }

    def trashed(self, plan: RetentionPlan) -> dict[str, bytes]:
        """Return the complete files in the folder `trash` by their former paths."""
        root = self.folder / "trash" / plan.plan_id
        places = {"segments": self.source, "indexes": self.index_dir}
        return {
            str((place / path.relative_to(root / kind)).relative_to(self.folder)): path.read_bytes()
            for kind, place in places.items()
            for path in (root / kind).rglob("*")
            if path.is_file() and not path.name.startswith(".")
        }

    def journal(self, plan: RetentionPlan) -> list[Path]:
        """Return the objects of a plan's journal, by partition and base offset."""
        return sorted((self.folder / "catalog/retention" / plan.plan_id).rglob("*.json"))


def clock(start_ms: int = NOW_MS + 60_000) -> Callable[[], int]:
    """Return a clock that advances by a millisecond whenever a thread reads it."""
    return count(start_ms).__next__


Rename = Callable[[str, str], None]


def only_within_a_directory(rename: Rename) -> Rename:
    """Return a rename for which every directory is a separate disk."""

    def refuse(source: str, target: str) -> None:
        if os.path.dirname(source) != os.path.dirname(target):  # noqa: PTH120
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        rename(source, target)

    return refuse


def event(record: dict[str, Any]) -> str:
    """Return the event in an object of the journal, in one word, and its segment."""
    what = record["outcome"] or record["kind"]
    return f"{what} {record['log_dir']} {record['base_offset']}"
