"""The build of an archive's second day, to which a disk or a permission refuses something."""

import shutil
from collections.abc import Callable
from pathlib import Path

from tests.cli.console import Finished
from tests.faults.builds import Outcome, outcome
from tests.faults.forks import Forks
from tests.faults.nights import first_day, second_day

PARTITIONS = 2


class NightlyBuild:
    """An archive on the second day, an index directory, a catalog elsewhere, and `kip33 build`.

    `seen` tells where this process finds a place of the command.
    """

    def __init__(
        self,
        folder: Path,
        commands: Forks,
        index_dir: Path,
        catalog: Path,
        seen: Callable[[Path], Path] = lambda place: place,
    ) -> None:
        """Build on the first day, and once on the second to know the outcome."""
        self.source, self.index_dir, self.catalog = folder / "archive", index_dir, catalog
        self._commands = commands
        self._places = {seen(index_dir): folder / "saved/1", seen(catalog): folder / "saved/2"}
        first_day(self.source, PARTITIONS)
        assert self.build().exit_code == 0
        second_day(self.source, PARTITIONS)
        for place, saved in self._places.items():
            shutil.copytree(place, saved)
        self.before = self.outcome()
        assert self.build().exit_code == 0
        self.after = self.outcome()

    def arguments(self, workers: int | None = None) -> tuple[object, ...]:
        """Return a command that builds in its own process, or in worker processes."""
        return (
            *("build", self.source, "--index-dir", self.index_dir, "--catalog", self.catalog),
            *("--offset-index", "--index-interval-bytes", "0", "--parallelism", "3"),
            *("--format", "json"),
            *(("--engine", "local", "--workers", workers) if workers else ()),
        )

    def build(self, workers: int | None = None) -> Finished:
        """Run the command."""
        return self._commands.run("console", *self.arguments(workers))

    def outcome(self) -> Outcome:
        """Return what a reader sees."""
        return outcome(*self._places)

    def restore(self) -> None:
        """Make everything what it was before the second day's build."""
        for place, saved in self._places.items():
            shutil.rmtree(place)
            shutil.copytree(saved, place)

    def require_old_or_new(self, found: Outcome) -> None:
        """Raise AssertionError unless each index file is as before or after, and no other there."""
        sides = (self.before.files, self.after.files)
        paths = set().union(found.files, *sides)
        assert all(found.files.get(p) in [side.get(p) for side in sides] for p in paths)
        assert [path for place in self._places for path in place.rglob("*.tmp")] == []

    def require_ended(self, done: Finished, *said: str, exit_code: int = 1) -> None:
        """Raise AssertionError unless a build said in a line why it ended, and changed no row."""
        [line] = done.stderr.splitlines()
        assert (done.exit_code, done.stdout) == (exit_code, "")
        assert line.startswith("Error: ")
        assert [text for text in said if text not in line] == []
        found = self.outcome()
        assert found.rows == self.before.rows
        self.require_old_or_new(found)

    def require_next_build_mends_it(self, workers: int | None = None) -> None:
        """Raise AssertionError unless an undisturbed build leaves what it had left at once."""
        done = self.build(workers)
        assert (done.exit_code, done.stderr) == (0, "")
        assert self.outcome() == self.after
