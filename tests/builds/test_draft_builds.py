"""Builds with a draft of KIP-33: files of their own names, owned, reused and orphaned as others."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kip33.catalog.catalog import Catalog
from kip33.catalog.orphan_list import read_orphans
from kip33.drafts.designs import DRAFTS, DraftBuilder, design_of
from kip33.errors import CatalogError
from kip33.formats.batch import BATCH
from kip33.rules.index_builder import IndexBuilder, IndexSettings
from kip33.rules.index_entries import RECOVER
from tests.builders.changing_archive import DAY_MS, INTERVAL, START_MS, ChangingArchive, batches
from tests.builders.generated_segments import Written, plain_batch, rows_of, wire_of
from tests.faults.builds import outcome
from tests.long_forms import one_in

A, B = "broker 1/a-0", "broker 1/b-0"
MINUTE = 60_000
KAFKA_FILES = (".timeindex", ".index", ".txnindex")


@pytest.fixture
def archive(tmp_path: Path) -> ChangingArchive:
    archive = ChangingArchive(tmp_path / "odd % ü #")
    for number, base_offset in enumerate((0, 40, 80)):
        first_ms = START_MS + number * 20 * MINUTE
        log = batches(base_offset, 20, first_ms=first_ms, step_ms=MINUTE)
        archive.write(archive.log(A, base_offset), log)
    archive.write(archive.log(B), batches(0, 5))
    return archive


def draft_file(archive: ChangingArchive, name: str, base_offset: int = 0) -> Path:
    return archive.index(A, base_offset).with_suffix(f".{design_of(name).file}")


def index_files(archive: ChangingArchive) -> dict[str, bytes]:
    return outcome(archive.index_root, archive.catalog).files


def expected_file(name: str, entries: list[Written], base_offset: int, before: int = -1) -> bytes:
    builder = DraftBuilder(DRAFTS[name], base_offset=base_offset, largest_before=before)
    settings = IndexSettings(index_interval_bytes=INTERVAL)
    indexes = IndexBuilder(RECOVER, settings, base_offset=base_offset, topic="a", others=(builder,))
    indexes.append(np.array(rows_of(entries), BATCH))
    indexes.close(0)
    return builder.data


@pytest.mark.parametrize("name", one_in(4, DRAFTS))
def test_each_draft_has_its_own_files_and_none_of_kafkas(
    archive: ChangingArchive, name: str
) -> None:
    entries = [plain_batch(n, [START_MS + n * 7 * MINUTE], bytes(90)) for n in range(0, 60, 2)]
    archive.write(archive.log("broker 1/c-0"), wire_of(entries))

    archive.build(dialect=name)

    files = index_files(archive)
    assert {Path(file).name.partition(".")[2] for file in files} == {design_of(name).file}
    assert len(files) == 5
    own = f"broker 1/c-0/{0:020d}.{design_of(name).file}"
    assert files[own] == expected_file(name, entries, 0) != b""
    row = archive.row("broker 1/c-0")
    assert row["index_uri"].endswith(own.rpartition("/")[2])
    assert row["time_index_bytes"] == len(files[own])
    entry_bytes = DRAFTS[name].entry.itemsize
    assert row["time_index_entries"] == len(files[own]) // entry_bytes


@pytest.mark.parametrize("name", one_in(4, DRAFTS))
def test_files_of_other_programs_are_kept_and_overwrite_replaces_only_the_drafts(
    archive: ChangingArchive, name: str
) -> None:
    archive.index(A).parent.mkdir(parents=True)
    kafkas = [archive.index(A).with_suffix(suffix) for suffix in KAFKA_FILES]
    place = draft_file(archive, name)
    for file in (*kafkas, place):
        file.write_bytes(b"of another program")

    archive.build(dialect=name)

    assert place.read_bytes() == b"of another program"
    assert archive.row(A)["index_file"] == "kept"
    assert archive.row(A)["notes"] == ["time_index_kept"]
    archive.build(dialect=name, overwrite=True)
    assert place.read_bytes() != b"of another program"
    assert archive.row(A)["index_file"] == "written"
    archive.log(A).unlink()
    archive.build(dialect=name)
    assert {file.read_bytes() for file in kafkas} == {b"of another program"}


@pytest.mark.parametrize("name", one_in(4, DRAFTS))
def test_a_second_build_reads_what_changed_and_gives_what_a_new_one_gives(
    archive: ChangingArchive, name: str
) -> None:
    how: dict[str, Any] = {"dialect": name, "offset_index": True}
    archive.build(**how)
    assert archive.build(**how).indexed == 0
    draft_file(archive, name, 40).unlink()
    draft_file(archive, name, 80).write_bytes(b"")
    archive.write(archive.log(B), batches(0, 9))
    archive.write(archive.log(B, 20), batches(20, 9, first_ms=START_MS + DAY_MS))

    summary = archive.build(**how)

    assert (summary.indexed, summary.reused) == (4, 1)
    assert archive.outcome().rows == archive.fresh(**how).rows
    files = index_files(archive)
    archive.index_dir = archive.folder / "other"
    archive.catalog = archive.folder / "other catalog"
    archive.build(**how)
    assert index_files(archive) == files


@pytest.mark.parametrize("name", one_in(4, DRAFTS))
def test_a_file_whose_log_is_deleted_is_orphaned_and_used_again(
    archive: ChangingArchive, name: str
) -> None:
    archive.build(dialect=name)
    log, modified_ns = archive.log(A, 80).read_bytes(), archive.log(A, 80).stat().st_mtime_ns
    archive.log(A, 80).unlink()

    archive.build(dialect=name)

    catalog = Catalog.at(str(archive.catalog))
    orphans, _ = read_orphans(catalog, catalog.require_newest())
    assert orphans["index_uri"].to_pylist() == [draft_file(archive, name, 80).as_uri()]
    archive.log(A, 80).write_bytes(log)
    os.utime(archive.log(A, 80), ns=(0, modified_ns))
    archive.build(dialect=name)
    orphans, _ = read_orphans(catalog, catalog.require_newest())
    assert orphans.num_rows == 0
    assert archive.row(A, 80)["index_file"] == "written"


def test_a_catalog_has_one_kind_of_index_files(archive: ChangingArchive) -> None:
    archive.build(dialect="minute")
    before = index_files(archive)

    with pytest.raises(CatalogError) as refused:
        archive.build(dialect="kip33")

    assert str(refused.value) == (
        f"{archive.catalog.as_uri()}: built with --dialect minute, whose files end in "
        f".{design_of('minute').file}, not .{design_of('kip33').file}; a catalog has one kind of "
        "index files: give another --catalog"
    )
    assert index_files(archive) == before


REFUSED: dict[str, dict[str, Any]] = {
    "--in-place: the dialect 'minute' is a draft of KIP-33": {"in_place": True},
    "--only damaged is for .timeindex files": {"only_damaged": True},
    "--read tail is for .timeindex files": {"read": "tail"},
}


def test_options_that_make_no_sense_for_a_draft_are_refused(
    tmp_path: Path, subtests: pytest.Subtests
) -> None:
    for message, options in REFUSED.items():
        archive = ChangingArchive(tmp_path, in_place="in_place" in options)
        archive.write(archive.log(A), batches(0, 5))
        with subtests.test(message), pytest.raises(ValueError, match=message):
            archive.plan(dialect="minute", **options)


def test_a_bucket_index_leaves_out_what_earlier_segments_have(archive: ChangingArchive) -> None:
    archive.build(dialect="bucket")
    sizes = [draft_file(archive, "bucket", base).stat().st_size // 12 for base in (0, 40, 80)]
    assert sizes == [21, 20 + 1, 20 + 1]

    late = batches(0, 20, first_ms=START_MS + 30 * MINUTE, step_ms=MINUTE)
    archive.write(archive.log(A), late)
    summary = archive.build(dialect="bucket")

    assert (summary.indexed, summary.reused) == (3, 1)
    sizes = [draft_file(archive, "bucket", base).stat().st_size // 12 for base in (0, 40, 80)]
    assert sizes == [21, 0, 10 + 1]
    archive.log(A).unlink()
    assert archive.build(dialect="bucket").reused == 1
    assert draft_file(archive, "bucket", 40).stat().st_size == 12 * 21, "no later segment before it"
