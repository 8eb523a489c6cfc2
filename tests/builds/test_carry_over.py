"""Rows copied from one snapshot to the next: many of them, in parts, from paths of any kind."""

import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from kip33.builds.commit import execute_build
from kip33.catalog import draft as part_writer
from kip33.catalog import ordered_parts
from kip33.catalog.catalog import Catalog
from kip33.local.local_engine import LocalEngine
from tests.builders.changing_archive import ChangingArchive, batches
from tests.long_forms import one_in

NAMES = [
    "plain", "two words", "100%", "%41", "a%2Fb", "grüße", "日本", "semi;colon,comma", "plus+and&",
    "hash#question?", "[brackets]{braces}", "quote'\"", "dot.dot..", "tab\there", "~tilde", "a:b",
]  # fmt: skip


@pytest.mark.parametrize("in_place", one_in(2, [False, True]))
def test_paths_of_every_kind_are_known_again(tmp_path: Path, in_place: bool) -> None:
    archive = ChangingArchive(tmp_path / "odd % ü #?", in_place=in_place)
    for name in NAMES:
        archive.write(archive.log(f"{name}/t-0"), batches(0, 4))
    assert archive.build(offset_index=True).indexed == len(NAMES)
    before = archive.outcome()

    assert archive.build(offset_index=True).reused == len(NAMES)

    assert archive.outcome() == before == archive.fresh(offset_index=True)
    archive.build(offset_index=True, topics=["nothing", "t"])
    shutil.rmtree(archive.source / "%41")
    summary = archive.build(offset_index=True)
    assert (summary.reused, summary.dropped) == (len(NAMES) - 1, 1)
    for name in ("grüße", "two words", "a%2Fb"):  # lost directories
        (archive.source / name).rename(tmp_path / name.replace("/", "-"))
        (archive.source / name).symlink_to(archive.source)
    summary = archive.build(offset_index=True)
    assert (summary.carried, summary.dropped) == (3, 0)


def test_names_that_differ_only_in_their_quoting_are_two(tmp_path: Path) -> None:
    archive = ChangingArchive(tmp_path)
    archive.write(archive.log("%41/t-0"), batches(0, 4))
    archive.write(archive.log("A/t-0"), batches(0, 6))
    archive.build()
    archive.write(archive.log("A/t-0"), batches(0, 7))
    assert archive.build().reused == 1
    assert archive.outcome() == archive.fresh()


@pytest.mark.parametrize(
    ("rows_per_part", "rows_per_group"),
    [(16, 7), *(pytest.param(*one, marks=pytest.mark.long) for one in ((1, 7), (250_000, 7)))],
)
def test_many_rows_in_as_many_parts_as_you_like(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows_per_part: int, rows_per_group: int
) -> None:
    monkeypatch.setattr(ordered_parts, "ROWS_PER_PART", rows_per_part)
    monkeypatch.setattr(part_writer, "ROWS_PER_GROUP", rows_per_group)
    archive = ChangingArchive(tmp_path)
    for number in range(70):
        archive.write(archive.log(f"b/t{number % 7}-{number % 20}", number), batches(number, 1))
    archive.build()
    gone = archive.log("b/t0-0", 0)
    gone.unlink()
    archive.write(archive.log("b/t1-1", 1), batches(1, 2))
    catalog = Catalog.at(str(archive.catalog))

    for indexed, dropped in ((1, 1), (0, 0), (0, 0)):
        summary = archive.build()
        assert (summary.indexed, summary.dropped) == (indexed, dropped)
        assert summary.reused == 69 - indexed
        snapshot = catalog.require_newest()
        names = [part.name for part in snapshot.parts]
        assert names == sorted(set(names))
        assert all(part.rows for part in snapshot.parts)
        if rows_per_part == 250_000:
            assert len(names) == 1
        if rows_per_part == 16:
            assert len(names) >= 3

    assert archive.outcome() == archive.fresh()


def test_many_bins_make_few_parts_and_few_row_groups(tmp_path: Path) -> None:
    archive = ChangingArchive(tmp_path)
    for number in range(40):
        archive.write(archive.log(f"b/t-{number}"), batches(0, 1))
    catalog = Catalog.at(str(archive.catalog))

    def shape() -> list[tuple[int, int]]:
        newest = catalog.require_newest()
        folder = archive.catalog / "snapshots" / newest.name
        files = [pq.ParquetFile(folder / part.name) for part in newest.parts]
        return [(file.metadata.num_rows, file.num_row_groups) for file in files]

    for indexed in (40, 3, 0):
        for number in range(indexed):
            archive.write(archive.log(f"b/t-{number}"), batches(0, indexed))
        summary = execute_build(archive.plan(), LocalEngine(1, parallelism=40))
        assert (summary.indexed, summary.segments) == (indexed, 40)
        assert len(shape()) == (1 if indexed in (0, 40) else 4), "few small ones stay as they are"
        assert all(groups == 1 for _, groups in shape())
    assert archive.outcome() == archive.fresh()
