"""The `kip33 build` command, in a session of its own, and what it leaves behind."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kip33.catalog.catalog import Catalog
from tests.cli.console import KIP33, Finished, of_any_machine
from tests.faults.builds import outcome
from tests.faults.nights import first_day, second_day
from tests.faults.processes import Process, of_session, wait_until
from tests.faults.wrecks import Night, Place, Wreck, require_old_or_new


def first_night(folder: Path, partitions: int) -> Place:
    """Make an archive and build it once."""
    first_day(folder / "archive", partitions)
    place = Place(folder / "archive", folder)
    place.build()
    return place


def second_night(place: Place, partitions: int) -> Night:
    """Change the archive; return what a build has before it, and would leave undisturbed."""
    second_day(place.source, partitions)
    return place.night("before the second night")


class BuildUnderWay:
    """A build under way."""

    def __init__(self, place: Place, night: Night, process: "subprocess.Popen[bytes]") -> None:
        self._place, self._process = place, process
        self._new = [place.index_dir / p for p in night.after.files.keys() - night.before.files]

    @property
    def pid(self) -> int:
        """Return the pid of the driver's Python; its session and process group have it as id."""
        return self._process.pid

    @property
    def processes(self) -> list[Process]:
        """Return what runs of it: the driver, its JVM, executors, Python workers."""
        return of_session(self.pid)

    @property
    def ended(self) -> bool:
        """Return whether the driver has ended."""
        return self._process.poll() is not None

    @property
    def progress(self) -> float:
        """Return the share of index files that were not there before and are now."""
        return sum(path.exists() for path in self._new) / len(self._new)

    @property
    def staged_parts(self) -> list[Path]:
        """Return the parts that tasks have written: part 0 has the rows that are taken over."""
        return list(self._place.index_dir.glob("_catalog/staging/*/part-*[1-9].*.parquet"))

    def wait_for_progress(self, share: float) -> None:
        """Wait until this share of the new index files is there, or the build has ended."""
        wait_until(f"{share:.0%} built", lambda: self.progress >= share or self.ended)

    def finish(self, *, seconds: float = 900) -> Finished:
        """Wait for the driver's end; return what it printed, without lines of progress."""
        exit_code = self._process.wait(timeout=seconds)
        logs = self._place.index_dir.parent
        said = of_any_machine((logs / "stderr").read_text())
        return Finished(exit_code, (logs / "stdout").read_text(), said)

    def wait_until_all_are_gone(self, *, seconds: float = 600) -> float:
        """Wait until nothing of it runs any more; return after how many seconds."""
        return wait_until("every process gone", lambda: not self.processes, seconds=seconds)


@contextmanager
def started(
    place: Place, night: Night, *options: str, spark_home: Path | None = None
) -> Iterator[BuildUnderWay]:
    """Run `kip33 build` on the place as it was before the night; at the end nothing of it runs."""
    place.restore(night)
    logs = place.index_dir.parent
    where = ("--index-dir", str(place.index_dir), "--offset-index", "--format", "json")
    temporary = logs / "temporary"  # what is killed does not clear it
    temporary.mkdir(exist_ok=True)
    environment = os.environ | {"TMPDIR": str(temporary), "SPARK_LOCAL_DIRS": str(temporary)}
    if spark_home:
        environment["SPARK_HOME"] = str(spark_home)
    with (logs / "stdout").open("wb") as stdout, (logs / "stderr").open("wb") as stderr:
        process = subprocess.Popen(
            [KIP33, "build", str(place.source), *where, *options],
            stdout=stdout,
            stderr=stderr,
            env=environment,
            start_new_session=True,
        )
    build = BuildUnderWay(place, night, process)
    try:
        yield build
    finally:
        for left in build.processes:
            left.signal(signal.SIGKILL)
        process.wait()


def require_undisturbed(place: Place, night: Night) -> None:
    """Fail unless a build left what one that nobody disturbed leaves, and nothing else."""
    after = outcome(place.index_dir)
    assert after.files == night.after.files
    assert after.rows == night.after.rows
    assert "kept" not in {row["index_file"] for row in after.rows}, "every file is ours"
    catalog = Catalog.at(str(place.index_dir / "_catalog"))
    newest = catalog.require_newest()
    folder = place.index_dir / "_catalog/snapshots" / newest.name
    assert sorted(path.name for path in folder.iterdir()) == [part.name for part in newest.parts]


def require_nothing_staged(place: Place) -> None:
    """Fail if a build that has committed left anything in staging."""
    assert not list(place.index_dir.glob("_catalog/staging/*"))


def require_as_before(place: Place, night: Night) -> None:
    """Fail unless the previous snapshot is newest and whole, and every index file old or new."""
    left = Wreck.at(place.index_dir, night)
    require_old_or_new(left, night)
    assert left.rows == night.before.rows
