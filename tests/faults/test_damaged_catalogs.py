"""A damaged snapshot is ignored and reported, and nothing else is lost.

There are two snapshots of an archive that did not change, so that the older one has the same rows.
The newest one is damaged.
"""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kip33.builds.commit import begin_build
from kip33.catalog.catalog import Catalog, Snapshot, sequence_of
from kip33.catalog.draft import claimed_index_uris
from kip33.errors import CatalogError
from tests.builders.changing_archive import ChangingArchive, KeptArchive, batches
from tests.builders.snapshots import commit_path, part_path
from tests.long_forms import short_and_long

A, B = "broker 1/a-0", "broker 1/b-0"


@pytest.fixture(scope="module")
def two_snapshots(tmp_path_factory: pytest.TempPathFactory) -> KeptArchive:
    """Four segments; two snapshots, the newest with a segment more and of several parts."""
    archive = ChangingArchive(tmp_path_factory.mktemp("two snapshots"))
    for base_offset in (0, 20):
        archive.write(archive.log(A, base_offset), batches(base_offset, 9))
    archive.write(archive.log(B), batches(0, 9))
    archive.build(offset_index=True)
    archive.write(archive.log(B, 20), batches(20, 9))
    archive.build(offset_index=True)
    return KeptArchive(archive)


@pytest.fixture
def archive(two_snapshots: KeptArchive) -> ChangingArchive:
    return two_snapshots.again()


def newest(archive: ChangingArchive) -> tuple[Catalog, Snapshot]:
    catalog = Catalog.at(str(archive.catalog))
    snapshot = catalog.require_newest()
    assert len(snapshot.parts) == 2, "one of rows taken over, one of rows read"
    return catalog, snapshot


Damage = Callable[[Catalog, Snapshot], object]


def a_part(change: Callable[[Path], object], number: int = 0) -> Damage:
    return lambda catalog, snapshot: change(part_path(catalog, snapshot, number))


def the_commit(change: Callable[[Path], object]) -> Damage:
    return lambda catalog, snapshot: change(commit_path(catalog, snapshot))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def swap_the_parts(catalog: Catalog, snapshot: Snapshot) -> None:
    one, other = part_path(catalog, snapshot, 0), part_path(catalog, snapshot, 1)
    first = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(first)


def flip(position: float) -> Damage:
    def flip_one_bit(part: Path) -> None:
        data = bytearray(part.read_bytes())
        data[int(position * (len(data) - 1))] ^= 1
        part.write_bytes(data)

    return a_part(flip_one_bit)


def commit_of_another_snapshot(catalog: Catalog, snapshot: Snapshot) -> None:
    older = commit_path(catalog, catalog.snapshots()[0])
    commit_path(catalog, snapshot).write_bytes(older.read_bytes())


lose_a_part = a_part(Path.unlink, 1)
DAMAGES: dict[str, Damage] = {
    "a part is lost": lose_a_part,
    "a part is cut": a_part(cut),
    "the commit is cut": the_commit(cut),
    "the parts are swapped": swap_the_parts,
    "a part is longer": a_part(lambda path: path.write_bytes(path.read_bytes() + b"\0")),
    "a part is a directory": a_part(directory),
    "the commit is noise": the_commit(lambda path: path.write_bytes(bytes(range(256)))),
    "the commit has another shape": the_commit(lambda path: path.write_text("[1, 2, 3]")),
    "the commit is of another snapshot": commit_of_another_snapshot,
    "the commit is a directory": the_commit(directory),
    "zeros of the same size": a_part(lambda path: path.write_bytes(bytes(path.stat().st_size))),
    **{f"one bit flipped at {at:.0%}": flip(at) for at in (0.5, 0, 0.1, 0.25, 0.75, 0.9, 0.99, 1)},
}


@pytest.mark.parametrize("step", short_and_long(7, 1, "KIP33_STEP"))
def test_a_damaged_snapshot_is_reported_and_ignored(
    two_snapshots: KeptArchive, step: int, subtests: pytest.Subtests
) -> None:
    for name, damage in [*DAMAGES.items()][::step]:
        archive = two_snapshots.again()
        undisturbed = archive.outcome()
        catalog, snapshot = newest(archive)
        older = catalog.snapshots()[0]
        damage(catalog, snapshot)

        summary = archive.build(offset_index=True)

        with subtests.test(name):
            (warning,) = summary.warnings
            assert re.search(rf"snapshot {snapshot.sequence:020d}(-\w+)? is ignored", warning)
            assert "\n" not in warning
            assert (summary.reused, summary.dropped) == (3, 0), "taken over from the older one"
            assert archive.outcome() == undisturbed, "the claims say what is ours"
            assert catalog.require_newest().name == summary.snapshot
            assert catalog.read(older).num_rows == 3
            assert archive.build(offset_index=True).reused == 4


def test_when_every_snapshot_is_damaged_everything_is_read(archive: ChangingArchive) -> None:
    catalog, snapshot = newest(archive)
    part_path(catalog, catalog.snapshots()[0]).unlink()
    lose_a_part(catalog, snapshot)
    summary = archive.build(offset_index=True)
    assert (summary.indexed, summary.reused, len(summary.warnings)) == (4, 0, 2)
    assert archive.outcome() == archive.fresh(offset_index=True)


def test_what_a_lost_snapshot_owned_stays_ours_until_it_is_listed_again(
    archive: ChangingArchive,
) -> None:
    lose_a_part(*newest(archive))
    for _ in range(2):
        archive.build(offset_index=True, topics=["a"])
    archive.build(offset_index=True)
    assert archive.outcome() == archive.fresh(offset_index=True)
    catalog, snapshot = Catalog.at(str(archive.catalog)), archive.build(offset_index=True).snapshot
    assert len(claimed_index_uris(catalog, since=sequence_of(snapshot) or 0, above=snapshot)) == 0


def test_without_snapshots_and_claims_every_file_is_anothers(archive: ChangingArchive) -> None:
    for name in ("snapshots", "claims"):
        shutil.rmtree(archive.catalog / name)
    archive.build(offset_index=True)
    assert {row["index_file"] for row in archive.rows()} == {"kept"}
    archive.build(offset_index=True, overwrite=True)
    assert archive.outcome() == archive.fresh(offset_index=True)


def files_and_times(archive: ChangingArchive) -> dict[Path, tuple[int, int]]:
    stats = {path: path.stat() for path in archive.folder.rglob("*")}
    return {path: (stat.st_size, stat.st_mtime_ns) for path, stat in stats.items()}


def test_a_catalog_of_a_newer_schema_version_stops_the_build_and_nothing_is_touched(
    archive: ChangingArchive,
) -> None:
    catalog, snapshot = newest(archive)
    path = commit_path(catalog, snapshot)
    record = json.loads(path.read_text())
    path.write_text(json.dumps(record | {"schema_version": 99}))
    archive.write(archive.log(A, 40), batches(40, 3))
    before = files_and_times(archive)

    with pytest.raises(
        CatalogError, match="schema version 99 found, this kip33 reads versions up to"
    ):
        archive.build(offset_index=True)

    assert files_and_times(archive) == before
    path.write_text(json.dumps(record))
    older = commit_path(catalog, catalog.snapshots()[0])
    older.write_text(json.dumps(json.loads(older.read_text()) | {"schema_version": 99}))
    assert archive.build(offset_index=True).reused == 4, "not asked for if a newer one is whole"


@pytest.mark.parametrize("damage", [flip(0.5), lose_a_part], ids=["a flipped bit", "a lost part"])
def test_a_snapshot_that_is_damaged_after_the_plan_stops_the_build(
    archive: ChangingArchive, damage: Damage
) -> None:
    catalog, snapshot = newest(archive)
    archive.write(archive.log(A, 40), batches(40, 3))
    plan = archive.plan(offset_index=True)
    damage(catalog, snapshot)
    names = catalog.commit_names()

    with pytest.raises(CatalogError, match=r"part-0000\d\.parquet: "):
        begin_build(plan)

    assert catalog.commit_names() == names
    summary = archive.build(offset_index=True)
    assert (summary.indexed, summary.reused, len(summary.warnings)) == (2, 3, 1)
