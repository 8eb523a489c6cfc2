"""The disk full at every file that a build writes, on real disks that are small."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kip33.catalog.catalog import Catalog
from tests.cli.console import KIP33, PROJECT, Finished
from tests.faults.builds import Outcome, outcome
from tests.faults.forks import Forks
from tests.faults.nights import LONG, first_day, second_day
from tests.faults.small_disks import KIB, SmallDisks, pages, why_not
from tests.long_forms import one_in

WHY_NOT = why_not()
pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=f"no disk to fill: {WHY_NOT}")

NO_SPACE = "No space left on device"
PARTITIONS = 2


class Archive:
    """An archive on the second day: indexes on one small disk, catalog on another."""

    def __init__(self, folder: Path, disks: SmallDisks, commands: Forks) -> None:
        self.disks, self._commands = disks, commands
        self.source = folder / "archive"
        self.index_disk, self.catalog_disk = folder / "indexes", folder / "catalogs"
        self.index_dir, self.catalog = self.index_disk / "here", self.catalog_disk / "here"
        self._saved = folder / "saved"
        first_day(self.source, PARTITIONS)
        assert self.build().exit_code == 0
        second_day(self.source, PARTITIONS)
        for place in (self.index_dir, self.catalog):
            shutil.copytree(disks.seen(place), self._saved / place.parent.name)
        self.before = self.outcome()
        assert self.build().exit_code == 0
        self.after = self.outcome()
        self.part_sizes = [part.size_bytes for part in self.opened.require_newest().parts]

    def build(self, *program: str, workers: int | None = None) -> Finished:
        """Run `kip33 build`, as it is, with its bins in its own process, or in worker processes."""
        arguments = (
            *("build", self.source, "--index-dir", self.index_dir, "--catalog", self.catalog),
            *("--offset-index", "--index-interval-bytes", "0", "--parallelism", "3"),
            *("--format", "json"),
            *(("--engine", "local", "--workers", workers) if workers else ()),
        )
        if program:
            return self.disks.run(*program, *arguments, cwd=PROJECT)
        return self._commands.run("console", *arguments)

    @property
    def opened(self) -> Catalog:
        return Catalog.at(str(self.disks.seen(self.catalog)))

    def outcome(self) -> Outcome:
        return outcome(self.disks.seen(self.index_dir), self.disks.seen(self.catalog))

    def restore(self) -> None:
        """Make everything what it was before the second day's build."""
        for place in (self.index_dir, self.catalog):
            shutil.rmtree(self.disks.seen(place))
            (self.disks.seen(place.parent) / "ballast").unlink(missing_ok=True)
            shutil.copytree(self._saved / place.parent.name, self.disks.seen(place))

    def unfinished(self) -> list[str]:
        """Return the names of temporary files, wherever they are."""
        places = (self.disks.seen(place) for place in (self.index_dir, self.catalog))
        return [path.name for place in places for path in place.rglob("*.tmp")]


@pytest.fixture(scope="module")
def nightly(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Archive]:
    folder = tmp_path_factory.mktemp("disk-full")
    with (
        SmallDisks(folder / "indexes", folder / "catalogs") as disks,
        Forks(*disks.enter(PROJECT)) as commands,
    ):
        yield Archive(folder, disks, commands)


@pytest.fixture
def archive(nightly: Archive) -> Archive:
    nightly.restore()
    return nightly


@pytest.mark.parametrize(
    ("left", "long_one_fits", "workers"),
    one_in(
        3,
        [
            pytest.param(4 * KIB, False, None, id="what is longer than a page breaks off"),
            pytest.param(0, False, None, id="not a byte is left"),
            pytest.param(0, False, 2, id="not a byte is left, two workers"),
            pytest.param(16 * KIB, True, 2, id="full in the middle, two workers"),
            pytest.param(16 * KIB, True, None, id="full in the middle of the build"),
        ],
    ),
)
def test_index_files(archive: Archive, left: int, long_one_fits: bool, workers: int | None) -> None:
    archive.disks.fill(archive.index_disk, leave=left)
    done = archive.build(workers=workers)
    found = archive.outcome()

    failed = [row for row in found.rows if NO_SPACE in (row["error"] or "")]
    assert failed
    (warning,) = done.stderr.splitlines()
    assert warning.startswith(
        f"Warning: index files of {len(failed)} segments could not be written, for example "
    )
    assert done.exit_code == 1
    assert (done.lines[0]["failed"], done.lines[0]["workers"]) == (len(failed), workers or 1)
    require_rows_name_their_files(archive, failed)
    require_old_or_new(archive, found)
    if workers is None:  # two processes take and free the last pages in any order
        assert any(LONG in row["log_uri"] for row in failed) == (not long_one_fits)
    others = {row["log_uri"]: row for row in found.rows if row not in failed}
    assert others.items() <= {row["log_uri"]: row for row in archive.after.rows}.items()

    archive.disks.make_room(archive.index_disk)
    assert archive.build().exit_code == 0
    assert archive.outcome() == archive.after


def require_rows_name_their_files(archive: Archive, failed: list[dict[str, Any]]) -> None:
    for row in failed:
        log = Path(row["log_uri"].removeprefix("file://")).relative_to(archive.source)
        stem = (archive.index_dir / log).with_suffix("").as_uri()
        for note in row["error"].split("; "):
            path, _, reason = note.partition(": cannot be written: ")
            assert path in (f"{stem}.timeindex", f"{stem}.index")
            assert reason.endswith(NO_SPACE)
        assert row["index_file"] not in ("written", "kept")


def require_old_or_new(archive: Archive, found: Outcome) -> None:
    sides = (archive.before.files, archive.after.files)
    paths = set().union(found.files, *sides)
    assert all(found.files.get(p) in [side.get(p) for side in sides] for p in paths)
    assert archive.unfinished() == []


FULL_AT: list[tuple[str, Callable[[list[int]], int]]] = [
    # the file that cannot be written, by what is left
    ("claims.arrow", lambda parts: 0),
    ("part-00000.", lambda parts: pages([1])),  # rows that are taken over
    ("part-00001.", lambda parts: pages([1, parts[0]])),
    ("part-00003.", lambda parts: pages([1, *parts[:-1]])),
    (".arrow", lambda parts: pages([1, *parts])),  # the list of orphaned files
    (".json", lambda parts: pages([1, *parts, 1])),
]


def test_the_catalog(archive: Archive, subtests: pytest.Subtests) -> None:
    for named, left in FULL_AT:
        with subtests.test(named):
            archive.restore()
            archive.disks.fill(archive.catalog_disk, leave=left(archive.part_sizes))
            done = archive.build()
            require_one_line(done, named)
            require_previous_snapshot(archive)
    archive.disks.make_room(archive.catalog_disk)
    assert archive.build().exit_code == 0
    assert archive.outcome() == archive.after


def test_a_part_in_a_worker(archive: Archive) -> None:
    archive.disks.fill(archive.catalog_disk, leave=pages([1, archive.part_sizes[0]]))
    done = archive.build(workers=2)

    require_one_line(done, "part-0000")
    require_previous_snapshot(archive)

    archive.disks.make_room(archive.catalog_disk)
    assert archive.build(workers=2).exit_code == 0
    assert archive.outcome() == archive.after


@pytest.mark.spark
@pytest.mark.integration
def test_a_part_in_a_spark_task(archive: Archive) -> None:
    archive.disks.fill(archive.catalog_disk, leave=pages([1, archive.part_sizes[0]]))
    done = archive.build(KIP33)

    require_one_line(done, "part-0000")
    require_previous_snapshot(archive)

    archive.disks.make_room(archive.catalog_disk)
    assert archive.build(KIP33).exit_code == 0
    assert archive.outcome() == archive.after


def require_one_line(done: Finished, named: str) -> None:
    """Raise AssertionError unless a command said once what happened, where, and what to do."""
    [line] = done.stderr.splitlines()
    assert (done.exit_code, done.stdout) == (1, "")
    assert line.startswith("Error: ")
    assert named in line.partition(": cannot be written: ")[0]
    advice = "the newest snapshot does not change: fix it and run the command again"
    assert f"{NO_SPACE}; {advice}" in line


def require_previous_snapshot(archive: Archive) -> None:
    """Raise AssertionError unless a reader finds the first day's snapshot and whole files."""
    found = archive.outcome()
    assert found.rows == archive.before.rows
    require_old_or_new(archive, found)
