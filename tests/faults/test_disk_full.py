"""The disk full at every file that a build writes, on real disks that are small."""

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from kip33.catalog.catalog import Catalog
from tests.cli.console import KIP33, PROJECT, Finished
from tests.faults.forks import Forks
from tests.faults.nightly_builds import NightlyBuild
from tests.faults.nights import LONG
from tests.faults.small_disks import KIB, SmallDisks, pages, why_not
from tests.long_forms import one_in

WHY_NOT = why_not()
pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=f"no disk to fill: {WHY_NOT}")

NO_SPACE = "No space left on device"


class Archive(NightlyBuild):
    """Such a build with its indexes on one small disk and its catalog on another."""

    def __init__(self, folder: Path, disks: SmallDisks, commands: Forks) -> None:
        self.disks = disks
        self.index_disk, self.catalog_disk = folder / "indexes", folder / "catalogs"
        places = (self.index_disk / "here", self.catalog_disk / "here")
        super().__init__(folder, commands, *places, seen=disks.seen)
        newest = Catalog.at(str(disks.seen(self.catalog))).require_newest()
        self.part_sizes = [part.size_bytes for part in newest.parts]

    def restore(self) -> None:
        for disk in (self.index_disk, self.catalog_disk):
            (self.disks.seen(disk) / "ballast").unlink(missing_ok=True)
        super().restore()


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
    done = archive.build(workers)
    found = archive.outcome()

    failed = [row for row in found.rows if NO_SPACE in (row["index_error"] or "")]
    assert failed
    warning, *_, last = done.stderr.splitlines()
    assert last.startswith("exit 1: unwritten: ")
    assert warning.startswith(
        f"Warning: index files of {len(failed)} segments could not be written, for example "
    )
    assert done.exit_code == 1
    assert (done.lines[0]["failed"], done.lines[0]["workers"]) == (len(failed), workers or 1)
    for row in failed:
        require_row_names_its_files(archive, row)
    archive.require_old_or_new(found)
    if workers is None:  # two processes take and free the last pages in any order
        assert any(LONG in row["log_uri"] for row in failed) == (not long_one_fits)
    others = {row["log_uri"]: row for row in found.rows if row not in failed}
    assert others.items() <= {row["log_uri"]: row for row in archive.after.rows}.items()

    archive.disks.make_room(archive.index_disk)
    archive.require_next_build_mends_it()


def require_row_names_its_files(archive: Archive, row: dict[str, Any]) -> None:
    log = Path(row["log_uri"].removeprefix("file://")).relative_to(archive.source)
    stem = (archive.index_dir / log).with_suffix("").as_uri()
    for note in row["index_error"].split("; "):
        path, _, reason = note.partition(": cannot be written: ")
        assert path in (f"{stem}.timeindex", f"{stem}.index")
        assert reason.endswith(NO_SPACE)
    assert row["index_file"] not in ("written", "kept")


FULL_AT = [  # the files that cannot be written, with more and more room
    "claims.arrow",
    *(f"part-0000{number}" for number in range(4)),  # copied rows, of two tasks, of transactions
    "part-00000",  # all of them in order
    "/orphaned/",
    ".json",
]
ADVICE = "the newest snapshot does not change: fix it and run the command again"


def test_the_catalog(archive: Archive) -> None:
    full_at: list[str] = []
    for left in range(100):
        archive.restore()
        archive.disks.fill(archive.catalog_disk, leave=pages([1] * left))
        done = archive.build()
        if done.exit_code == 0:
            break
        require_one_line(archive, done, "")
        place = done.stderr.partition(": cannot be written: ")[0]
        full_at.append(next(name for name in FULL_AT[::-1] if name in place))
    assert [name for name, _ in groupby(full_at)] == FULL_AT
    archive.disks.make_room(archive.catalog_disk)
    assert archive.outcome() == archive.after


@pytest.mark.parametrize(
    "on_spark",
    [False, pytest.param(True, marks=[pytest.mark.spark, pytest.mark.integration])],
    ids=["workers", "spark"],
)
def test_a_part_in_another_process(archive: Archive, on_spark: bool) -> None:
    def build() -> Finished:
        if on_spark:
            return archive.disks.run(KIP33, *archive.arguments(), cwd=PROJECT)
        return archive.build(2)

    archive.disks.fill(archive.catalog_disk, leave=pages([1, archive.part_sizes[0]]))
    require_one_line(archive, build(), "part-0000")

    archive.disks.make_room(archive.catalog_disk)
    assert build().exit_code == 0
    assert archive.outcome() == archive.after


def require_one_line(archive: Archive, done: Finished, named: str) -> None:
    """Raise AssertionError unless a command said once what happened, where, and what to do."""
    archive.require_ended(done, f"{NO_SPACE}; {ADVICE}")
    assert named in done.stderr.partition(": cannot be written: ")[0]
