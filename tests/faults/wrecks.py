"""Builds that are killed, one after another at one place, and what they leave."""

import shutil
from itertools import count
from pathlib import Path
from typing import NamedTuple

from kip33.catalog.catalog import Catalog
from tests.faults.builds import Outcome, build_here, index_files_below, outcome


class Night(NamedTuple):
    """What a build begins from and what it leaves when nobody disturbs it."""

    name: str
    before: Outcome
    after: Outcome
    saved: Path  # a copy of the index directory as it is before, catalog included


class Place:
    """A source and an index directory whose builds are killed."""

    def __init__(self, source: Path, folder: Path) -> None:
        self.source = source
        self.index_dir = folder / "indexes"
        self._folder = folder
        self._count = count()

    def build(self, *, now_ms: int | None = None) -> Outcome:
        """Build in this process, undisturbed."""
        build_here(self.source, self.index_dir, offset_index=True, now_ms=now_ms)
        return outcome(self.index_dir)

    def night(self, name: str) -> Night:
        """Return the night that begins with the index directory as it is, after its build."""
        saved = self._folder / name
        before = Outcome({}, [])
        if self.index_dir.exists():
            before = outcome(self.index_dir)
            shutil.copytree(self.index_dir, saved)
        return Night(name, before, self.build(), saved)

    def clear(self) -> None:
        """Let there be no index directory."""
        if self.index_dir.exists():  # moved away: deleting takes longer than a build
            self.index_dir.rename(self._folder / f"trash-{next(self._count)}")

    def restore(self, night: Night) -> None:
        """Make the index directory what it was before a night."""
        self.clear()
        if night.saved.exists():
            shutil.copytree(night.saved, self.index_dir)

    @property
    def command(self) -> tuple[object, ...]:
        """Return the build here, as a command of `tests.faults.forks`."""
        return "build", self.source, self.index_dir


class Wreck(NamedTuple):
    """What a killed build left, and what of it a reader sees."""

    broken: set[str]  # index files neither as before nor as an undisturbed build leaves them
    snapshots: int
    rows: list[dict[str, object]]  # of the newest snapshot, read whole
    claims: int
    parts: int  # in staging
    temporary: int  # hidden files of builds that did not end

    @classmethod
    def at(cls, index_dir: Path, night: Night) -> "Wreck":
        """Look at an index directory as a reader does, and behind the scenes."""
        catalog = Catalog.at(str(index_dir / "_catalog"))
        if catalog.newest():
            files, rows = outcome(index_dir)
        else:
            files, rows = index_files_below(index_dir), []
        paths = files.keys() | night.before.files.keys() | night.after.files.keys()
        sides = (night.before.files, night.after.files)
        staging = index_dir / "_catalog/staging"
        return cls(
            {path for path in paths if files.get(path) not in [side.get(path) for side in sides]},
            len(catalog.snapshots()),
            rows,
            len(list(staging.glob("*/claims.arrow"))),
            len(list(staging.glob("*/part-*.parquet"))),
            len(list(index_dir.rglob(".*.tmp"))),
        )


def require_old_or_new(wreck: Wreck, night: Night, where: str = "") -> None:
    """Raise AssertionError unless a reader finds the state before a night or the one after it."""
    assert wreck.broken == set(), where
    assert wreck.rows in (night.before.rows, night.after.rows), where
