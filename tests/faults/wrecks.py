"""Builds that are killed, one after another at one place, and what they leave."""

import os
import shutil
import signal
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import NamedTuple

from kip33.catalog.catalog import Catalog
from tests.faults.builds import Outcome, build_here, index_files_below, outcome
from tests.faults.forks import Forks
from tests.faults.nights import first_day, second_day


class Night(NamedTuple):
    """What a build begins from and what it leaves when nobody disturbs it."""

    name: str
    before: Outcome
    after: Outcome
    saved: Path  # a copy of the index directory as it is before, catalog included

    @property
    def changed_files(self) -> set[str]:
        """Return the paths of index files that the build writes, replaces or removes."""
        paths = self.before.files.keys() | self.after.files.keys()
        return {p for p in paths if self.before.files.get(p) != self.after.files.get(p)}


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

    def seconds_undisturbed(self, night: Night, forks: Forks) -> float:
        """Return how long a child takes that nobody kills."""
        self.restore(night)
        begin = time.perf_counter()
        assert forks.run(*self.command).exit_code == 0
        return time.perf_counter() - begin

    def kill(self, night: Night, forks: Forks, seconds: float) -> "Wreck":
        """Kill a child so long after its start; see what is there.

        One that has ended by then leaves what an undisturbed build does.
        """
        self.restore(night)
        pid = forks.begin(*self.command)
        time.sleep(seconds)
        os.kill(pid, signal.SIGKILL)
        assert forks.end().exit_code in (0, -signal.SIGKILL)
        return Wreck.at(self.index_dir, night)


class Wreck(NamedTuple):
    """What a killed build left, and what of it a reader sees."""

    changed: set[str]  # index files that are not as before
    broken: set[str]  # of them: neither as before nor as an undisturbed build leaves them
    snapshots: int
    rows: list[dict[str, object]]  # of the newest snapshot, read whole
    drafts: int  # staging folders
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
        changed = {path for path in paths if files.get(path) != night.before.files.get(path)}
        staging = index_dir / "_catalog/staging"
        return cls(
            changed,
            {path for path in changed if files.get(path) != night.after.files.get(path)},
            len(catalog.snapshots()),
            rows,
            len(list(staging.glob("*"))),
            len(list(staging.glob("*/claims.arrow"))),
            len(list(staging.glob("*/part-*.parquet"))),
            len(list(index_dir.rglob(".*.tmp"))),
        )

    def phases(self, night: Night) -> Iterator[str]:
        """Yield what can be said of the moment of the kill."""
        if self.rows == night.after.rows:
            yield "committed"
        elif not self.drafts:
            yield "planning"
        elif not self.changed:
            yield "begun, no index file written"
        elif self.changed < night.changed_files:
            yield "some index files written"
        else:
            yield "all index files written"
        if self.parts:
            yield "parts in staging"
        if self.temporary:
            yield "a temporary file left"


class Lane(NamedTuple):
    """A place of its own: a build that finds a snapshot, and one that finds nothing."""

    place: Place
    nightly: Night
    first: Night


def lanes_below(folder: Path, *, partitions: int, count: int) -> list[Lane]:
    """Make so many places for the builds of one archive, on its second day."""
    source = folder / "archive"
    first_day(source, partitions)
    places = [Place(source, folder / f"lane-{number}") for number in range(count)]
    for place in places:
        place.build()
    second_day(source, partitions)
    nightly = [place.night("nightly") for place in places]
    for place in places:
        place.clear()
    return [
        Lane(place, night, place.night("first"))
        for place, night in zip(places, nightly, strict=True)
    ]


def require_old_or_new(wreck: Wreck, night: Night, where: str = "") -> None:
    """Raise AssertionError unless a reader finds the state before a night or the one after it."""
    assert wreck.broken == set(), where
    assert wreck.rows in (night.before.rows, night.after.rows), where
