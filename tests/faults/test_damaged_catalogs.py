"""A damaged snapshot is ignored and reported, and nothing else is lost.

There are two snapshots of an archive that did not change, so that the older one has the same rows.
The newest one is damaged.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kip33.builds import carry_over
from kip33.builds.commit import begin_build
from kip33.catalog.catalog import Catalog, Snapshot, sequence_of
from kip33.catalog.draft import claimed_index_uris
from kip33.errors import CatalogError
from tests.builders.changing_archive import ChangingArchive, batches
from tests.builders.snapshots import commit_path, part_path
from tests.long_forms import one_in

A, B = "broker 1/a-0", "broker 1/b-0"


@pytest.fixture
def archive(tmp_path: Path) -> ChangingArchive:
    """Four segments; two snapshots, the newest with a segment more and of several parts."""
    archive = ChangingArchive(tmp_path)
    for base_offset in (0, 20):
        archive.write(archive.log(A, base_offset), batches(base_offset, 9))
    archive.write(archive.log(B), batches(0, 9))
    archive.build(offset_index=True)
    archive.write(archive.log(B, 20), batches(20, 9))
    archive.build(offset_index=True)
    return archive


def newest(archive: ChangingArchive) -> tuple[Catalog, Snapshot]:
    catalog = Catalog.at(str(archive.catalog))
    snapshot = catalog.require_newest()
    assert len(snapshot.parts) == 2, "one of rows taken over, one of rows read"
    return catalog, snapshot


Damage = Callable[[Catalog, Snapshot], None]


def lose_a_part(catalog: Catalog, snapshot: Snapshot) -> None:
    part_path(catalog, snapshot, 1).unlink()


def lose_the_folder(catalog: Catalog, snapshot: Snapshot) -> None:
    folder = part_path(catalog, snapshot).parent
    folder.rename(folder.with_name("elsewhere"))


def cut_a_part(catalog: Catalog, snapshot: Snapshot) -> None:
    part = part_path(catalog, snapshot)
    part.write_bytes(part.read_bytes()[:-1])


def lengthen_a_part(catalog: Catalog, snapshot: Snapshot) -> None:
    part = part_path(catalog, snapshot)
    part.write_bytes(part.read_bytes() + b"\0")


def empty_a_part(catalog: Catalog, snapshot: Snapshot) -> None:
    part_path(catalog, snapshot).write_bytes(b"")


def zero_a_part(catalog: Catalog, snapshot: Snapshot) -> None:
    part = part_path(catalog, snapshot)
    part.write_bytes(bytes(part.stat().st_size))


def swap_the_parts(catalog: Catalog, snapshot: Snapshot) -> None:
    one, other = part_path(catalog, snapshot, 0), part_path(catalog, snapshot, 1)
    first = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(first)


def flip(position: float) -> Damage:
    def flip_one_bit(catalog: Catalog, snapshot: Snapshot) -> None:
        part = part_path(catalog, snapshot)
        data = bytearray(part.read_bytes())
        data[int(position * (len(data) - 1))] ^= 1
        part.write_bytes(data)

    return flip_one_bit


def a_directory_for_a_part(catalog: Catalog, snapshot: Snapshot) -> None:
    part_path(catalog, snapshot).unlink()
    part_path(catalog, snapshot).mkdir()


def cut_the_commit(catalog: Catalog, snapshot: Snapshot) -> None:
    path = commit_path(catalog, snapshot)
    path.write_bytes(path.read_bytes()[:-20])


def empty_the_commit(catalog: Catalog, snapshot: Snapshot) -> None:
    commit_path(catalog, snapshot).write_bytes(b"")


def commit_of_noise(catalog: Catalog, snapshot: Snapshot) -> None:
    commit_path(catalog, snapshot).write_bytes(bytes(range(256)))


def commit_of_another_shape(catalog: Catalog, snapshot: Snapshot) -> None:
    commit_path(catalog, snapshot).write_text("[1, 2, 3]")


def commit_of_another_snapshot(catalog: Catalog, snapshot: Snapshot) -> None:
    older = commit_path(catalog, catalog.snapshots()[0])
    commit_path(catalog, snapshot).write_bytes(older.read_bytes())


def commit_that_says_more_rows(catalog: Catalog, snapshot: Snapshot) -> None:
    path = commit_path(catalog, snapshot)
    record = json.loads(path.read_text())
    record["parts"][0][1] += 1
    path.write_text(json.dumps(record))


def a_directory_for_the_commit(catalog: Catalog, snapshot: Snapshot) -> None:
    commit_path(catalog, snapshot).unlink()
    commit_path(catalog, snapshot).mkdir()


SEEN_AT_ONCE = [
    lose_a_part, lose_the_folder, cut_a_part, lengthen_a_part, empty_a_part, swap_the_parts,
    a_directory_for_a_part, cut_the_commit, empty_the_commit, commit_of_noise,
    commit_of_another_shape, commit_of_another_snapshot, a_directory_for_the_commit,
]  # fmt: skip
SEEN_WHEN_READ = [
    pytest.param(zero_a_part, id="zeros of the same size"),
    pytest.param(commit_that_says_more_rows, id="a commit that says more rows"),
    *(pytest.param(flip(at), id=f"one bit flipped at {at:.0%}") for at in
      (0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 1)),
]  # fmt: skip
DAMAGES = [*(pytest.param(d, id=d.__name__.replace("_", " ")) for d in SEEN_AT_ONCE),
           *SEEN_WHEN_READ]  # fmt: skip


@pytest.mark.parametrize("damage", one_in(3, DAMAGES))
def test_a_damaged_snapshot_is_reported_and_ignored(
    archive: ChangingArchive, damage: Damage
) -> None:
    undisturbed = archive.outcome()
    catalog, snapshot = newest(archive)
    older = catalog.snapshots()[0]
    damage(catalog, snapshot)

    summary = archive.build(offset_index=True)

    (warning,) = summary.warnings
    assert snapshot.name in warning
    assert "is ignored" in warning
    assert "\n" not in warning
    assert (summary.reused, summary.dropped) == (3, 0), "taken over from the older one"
    assert archive.outcome().files == undisturbed.files
    assert archive.outcome().rows == undisturbed.rows, "the claims say what is ours"
    assert catalog.require_newest().name == summary.snapshot
    assert catalog.read(older).num_rows == 3
    assert archive.build(offset_index=True).reused == 4


@pytest.mark.parametrize("damage", SEEN_AT_ONCE)
def test_readers_use_the_newest_undamaged_snapshot(
    archive: ChangingArchive, damage: Damage
) -> None:
    catalog, snapshot = newest(archive)
    damage(catalog, snapshot)
    assert catalog.require_newest().sequence == snapshot.sequence - 1
    assert len(archive.rows()) == 3


@pytest.mark.parametrize("damage", SEEN_WHEN_READ)
def test_a_reader_of_other_bytes_than_were_committed_is_told(
    archive: ChangingArchive, damage: Damage
) -> None:
    catalog, snapshot = newest(archive)
    damage(catalog, snapshot)
    with pytest.raises(CatalogError, match=r"part-00000\.parquet: "):
        catalog.read(catalog.require_newest())


@pytest.mark.parametrize("damage", one_in(4, DAMAGES))
def test_when_every_snapshot_is_damaged_everything_is_read(
    archive: ChangingArchive, damage: Damage
) -> None:
    catalog, snapshot = newest(archive)
    older = catalog.snapshots()[0]
    part_path(catalog, older).unlink()
    damage(catalog, snapshot)
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
    assert archive.build(offset_index=True).reused == 4


def test_a_newer_schema_version_stops_even_below_a_newer_snapshot(archive: ChangingArchive) -> None:
    """An older snapshot of a later version: it is not asked for as long as a newer one is whole."""
    catalog, _ = newest(archive)
    path = commit_path(catalog, catalog.snapshots()[0])
    record = json.loads(path.read_text())
    path.write_text(json.dumps(record | {"schema_version": 99}))
    assert archive.build(offset_index=True).reused == 4


@pytest.mark.parametrize("damage", [lose_a_part, zero_a_part, flip(0.5)])
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


def test_one_of_hundreds_of_parts_is_damaged(
    archive: ChangingArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(carry_over, "ROWS_PER_PART", 1)
    archive.write(archive.log(A, 40), batches(40, 3))
    archive.build(offset_index=True)
    catalog = Catalog.at(str(archive.catalog))
    snapshot = catalog.require_newest()
    assert sum(part.rows for part in snapshot.parts) == 5
    flip(0.5)(catalog, snapshot)
    summary = archive.build(offset_index=True)
    assert (summary.indexed, summary.reused, len(summary.warnings)) == (1, 4, 1)
