"""Build one segment: files that are written, kept, replaced and withdrawn, and the row."""

import zlib
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

import kip33
from kip33.archive.listing import list_tree
from kip33.builds.build_options import BuildSpec
from kip33.builds.task import build_segments
from kip33.catalog.schema import SEGMENTS
from kip33.formats.index_kinds import IndexKind
from kip33.formats.time_index import index_crc32c
from kip33.indexing import published_files
from kip33.indexing.published_files import IndexPublisher, SegmentFiles
from kip33.rules.index_builder import IndexSettings
from kip33.rules.segment_notes import SegmentNote
from kip33.stores.locations import Location
from tests.builders.plans import files_to_read
from tests.builders.segment_builder import Record, v0_message, v1_message, v2_batch, wrapper

BASE = 40
NAME = f"{BASE:020d}"
LOG = v2_batch(BASE, [Record(1000)]) + v2_batch(BASE + 1, [Record(2000), Record(1500)])
TIME_INDEX = bytes.fromhex("00000000000007d0 00000002")
FOREIGN = bytes.fromhex("00000000000007d0 00000001")  # true of the log, but not what we write
WRONG = bytes.fromhex("0000000000000009 00000000")
BROKEN = v2_batch(BASE, [Record(1)], crc=0)
OTHER_SETTINGS = IndexSettings(index_interval_bytes=0)
INVALID = v2_batch(BASE - 1, [Record(1)])
INDEXES = frozenset({IndexKind.TIME, IndexKind.OFFSET, IndexKind.TRANSACTION})


class Built(NamedTuple):
    """The row of one segment, and the figures of its work."""

    row: dict[str, Any]
    bytes_read: int
    files_written: int


class Archive:
    """One segment, and where its index goes."""

    def __init__(self, folder: Path) -> None:
        self.source, self.index_dir = folder / "source", folder / "indexes"
        self.log = self.source / "b1" / "orders-3" / f"{NAME}.log"
        self.time_index = self.index_dir / "b1" / "orders-3" / f"{NAME}.timeindex"
        self.offset_index = self.time_index.with_suffix(".index")
        self.write_log(LOG)

    def write_log(self, data: bytes) -> None:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self.log.write_bytes(data)

    def place(self, data: bytes, offset_index: bytes | None = None) -> None:
        self.time_index.parent.mkdir(parents=True, exist_ok=True)
        self.time_index.write_bytes(data)
        if offset_index is not None:
            self.offset_index.write_bytes(offset_index)

    def build(
        self,
        *,
        ours: bool = False,
        settings: IndexSettings | None = None,
        offset_index: bool = False,
        **how: Any,
    ) -> Built:
        index_dir = Location.of(how.pop("index_dir", self.index_dir))
        listed = list_tree(Location.of(self.source), index_dir).table
        kinds = INDEXES if offset_index else frozenset({IndexKind.TIME})
        settings = settings or IndexSettings()
        build = BuildSpec(Location.of(self.source), index_dir, settings, kinds, **how)
        return build_segment(build, files_to_read(listed, ours=ours))


def build_segment(build: BuildSpec, files: pa.Table) -> Built:
    publisher = build.publisher()
    [(rows, *figures)] = build_segments(build, files, publisher, native=False)
    publisher.finish()
    [row] = rows.select(SEGMENTS.names).to_pylist()
    return Built(row, *figures)


def modified(file: Path) -> int:
    return file.stat().st_mtime_ns // 1_000_000


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    return Archive(tmp_path)


def test_the_whole_row(archive: Archive) -> None:
    built = archive.build()
    modified_ms = modified(archive.log)
    assert built.row == dict.fromkeys(SEGMENTS.names) | {
        "log_dir": "b1", "topic": "orders", "partition": 3, "base_offset": BASE,
        "last_offset": BASE + 2, "log_uri": archive.log.as_uri(),
        "index_uri": archive.time_index.as_uri(), "size_bytes": len(LOG),
        "valid_bytes": len(LOG), "batch_count": 2, "record_count": 3,
        "first_batch_timestamp": 1000, "max_timestamp": 2000, "smallest_timestamp": None,
        "offset_of_max_timestamp": BASE + 2, "largest_timestamp": 2000,
        "largest_timestamp_source": "log", "last_modified_ms": modified_ms,
        "timestamp_types": ["CreateTime"], "magics": [2], "codecs": ["none"],
        "out_of_order_batches": 0, "time_index_entries": 1, "active_segment": True,
        "dialect": "recover", "index_interval_bytes": 4096, "segment_index_bytes": 10485760,
        "check_crc": True, "untimestamped": "none", "offset_index": False,
        "bytes_version": 1, "status": "ok", "error": None,
        "index_file": "written", "time_index_bytes": 12, "time_index_matches": True,
        "time_index_modified_ms": modified(archive.time_index),
        "kip33_version": kip33.__version__,
        "time_index_crc32c": index_crc32c(TIME_INDEX),
        "topic_id": None, "partition_metadata_modified_ms": None,
        "leader_epochs": [0], "leader_epoch_offsets": [BASE],
        "batches_crc32": zlib.crc32(LOG[17:21] + LOG[68 + 17 : 68 + 21]), "epochs_fall": False,
        "decided_by": [None] * 4,
    }  # fmt: skip
    assert (built.bytes_read, built.files_written) == (len(LOG), 1)
    assert archive.time_index.read_bytes() == TIME_INDEX
    assert not archive.offset_index.exists()
    again = archive.build(ours=True)
    assert again == built._replace(files_written=0)


def test_both_indexes(archive: Archive) -> None:
    settings = IndexSettings(index_interval_bytes=0)
    built = archive.build(offset_index=True, settings=settings)
    assert archive.time_index.read_bytes() == TIME_INDEX
    assert archive.offset_index.read_bytes() == bytes.fromhex("00000002 00000044")
    assert built.row["index_file"] == "written"
    assert (built.row["time_index_bytes"], built.row["offset_index_bytes"]) == (12, 8)
    assert built.row["index_interval_bytes"] == 0
    assert built.row["time_index_matches"] and built.row["offset_index_matches"]


class Existing(NamedTuple):
    """What is there, and what a build leaves there and says."""

    before: bytes | None
    after: bytes
    says: str
    ours: bool = False
    overwrite: bool = False


EXISTING = {
    "nothing there: written": Existing(None, TIME_INDEX, "written"),
    "somebody else's: kept": Existing(FOREIGN, FOREIGN, "kept"),
    "somebody else's: overwritten": Existing(FOREIGN, TIME_INDEX, "written", overwrite=True),
    "somebody else's, the same": Existing(TIME_INDEX, TIME_INDEX, "kept"),
    "somebody else's empty file": Existing(b"", b"", "kept"),
    "ours: replaced": Existing(FOREIGN, TIME_INDEX, "written", ours=True),
    "ours and the same": Existing(TIME_INDEX, TIME_INDEX, "written", ours=True),
    "overwritten by the same": Existing(TIME_INDEX, TIME_INDEX, "written", overwrite=True),
}


def test_an_existing_file_is_published_kept_or_removed(
    tmp_path: Path, subtests: pytest.Subtests
) -> None:
    for name, case in EXISTING.items():
        with subtests.test(name):
            archive = Archive(tmp_path / name)
            if case.before is not None:
                archive.place(case.before)
            is_same = case.before == TIME_INDEX
            inode = archive.time_index.stat().st_ino if is_same else None
            row = archive.build(ours=case.ours, overwrite=case.overwrite).row
            assert archive.time_index.read_bytes() == case.after
            assert (row["status"], row["index_file"]) == ("ok", case.says)
            assert row["time_index_matches"] == (True if case.after == TIME_INDEX else None)
            assert row["time_index_modified_ms"] == modified(archive.time_index)
            assert row.get("notes") == (None if case.after == TIME_INDEX else ["time_index_kept"])
            assert inode is None or archive.time_index.stat().st_ino == inode


def test_one_of_two_files_kept_is_kept(archive: Archive) -> None:
    archive.place(TIME_INDEX, offset_index=b"12345678")
    archive.time_index.unlink()
    row = archive.build(offset_index=True).row
    assert archive.time_index.read_bytes() == TIME_INDEX
    assert archive.offset_index.read_bytes() == b"12345678"
    assert row["index_file"] == "kept"
    assert row["notes"] == ["offset_index_kept"]
    assert (row["time_index_matches"], row["offset_index_matches"]) == (True, None)
    assert row["offset_index_modified_ms"] == modified(archive.offset_index)


@pytest.mark.parametrize("ours", [False, True], ids=["another's stays", "ours is withdrawn"])
def test_an_index_of_a_log_that_gives_none(archive: Archive, ours: bool) -> None:
    archive.write_log(INVALID)
    archive.place(WRONG, offset_index=b"12345678")
    row = archive.build(ours=ours, overwrite=True, offset_index=True).row
    stays = not ours
    assert (archive.time_index.exists(), archive.offset_index.exists()) == (stays, stays)
    assert (row["status"], row["index_file"]) == ("invalid", None)
    assert row.get("index_uri") is None
    assert row.get("time_index_entries") is None
    assert row.get("largest_timestamp") is None


def test_an_unreadable_log_proves_nothing(archive: Archive) -> None:
    archive.place(WRONG)
    index_dir = Location.of(archive.index_dir)
    listed = list_tree(Location.of(archive.source), index_dir).table
    archive.log.unlink()
    build = BuildSpec(Location.of(archive.source), Location.of(archive.index_dir), IndexSettings())
    row = build_segment(build, files_to_read(listed, ours=True)).row
    assert row["status"] == "unreadable"
    assert archive.time_index.read_bytes() == WRONG
    assert row["index_file"] == "written", "what is ours stays ours"
    assert row["time_index_matches"] is None, "nothing says that it is still true"
    assert row["index_uri"] == Location.of(archive.time_index).uri
    assert build_segment(build, files_to_read(listed)).row["index_file"] is None
    assert (row["size_bytes"], row["base_offset"]) == (len(LOG), BASE)
    assert row["error"]


def test_what_a_row_lacks_of_an_empty_log_of_old_messages_and_of_a_wrapper(
    archive: Archive,
) -> None:
    archive.write_log(b"")
    row = archive.build().row
    assert (row["status"], archive.time_index.read_bytes()) == ("empty", b"")
    assert (row["batch_count"], row["record_count"], row["max_timestamp"]) == (0, 0, -1)
    assert row["largest_timestamp"] == row["last_modified_ms"]
    assert row["largest_timestamp_source"] == "last_modified"
    lacking = ("last_offset", "first_batch_timestamp", "offset_of_max_timestamp")
    assert [row[name] for name in lacking] == [None] * 3

    archive.write_log(v0_message(BASE))
    row = archive.build(ours=True).row
    assert (row["max_timestamp"], row["first_batch_timestamp"]) == (-1, -1)
    assert row["largest_timestamp_source"] == "last_modified"
    assert (row["time_index_entries"], row["timestamp_types"]) == (0, ["NoTimestampType"])

    archive.write_log(wrapper(BASE + 1, [v1_message(0, 5), v1_message(1, 6)]))
    row = archive.build(ours=True).row
    assert (row["record_count"], row["batch_count"]) == (None, 1), "those in a wrapper"
    assert (row["magics"], row["codecs"]) == ([1], ["gzip"])


ONLY_DAMAGED = {
    # A leader of 3.6 records the first record with the max: FOREIGN is consistent with the log.
    "true: left as it is, whoever wrote it": Existing(FOREIGN, FOREIGN, "kept"),
    "identical": Existing(TIME_INDEX, TIME_INDEX, "kept"),
    "wrong: replaced": Existing(WRONG, TIME_INDEX, "written"),
    "incomplete: replaced": Existing(b"", TIME_INDEX, "written"),
    "padded: replaced": Existing(bytes(1200), TIME_INDEX, "written"),
    "malformed: replaced": Existing(b"abc", TIME_INDEX, "written"),
    "missing: written": Existing(None, TIME_INDEX, "written"),
}


@pytest.mark.parametrize("ours", [False, True])
def test_only_damaged(tmp_path: Path, ours: bool, subtests: pytest.Subtests) -> None:
    for name, (before, after, says, *_) in ONLY_DAMAGED.items():
        with subtests.test(name):
            archive = Archive(tmp_path / name)
            if before is not None:
                archive.place(before)
            row = archive.build(only_damaged=True, overwrite=True, ours=ours).row
            assert archive.time_index.read_bytes() == after
            assert row["index_file"] == ("written" if ours else says)
            assert row["time_index_entries"] == len(after) // 12
            assert row["time_index_matches"] == (True if after == TIME_INDEX else None)
            assert row["time_index_modified_ms"] == modified(archive.time_index)


@pytest.mark.parametrize("ours", [False, True])
def test_what_is_left_as_another_dialect_gives_it_is_not_known_to_match(
    archive: Archive, ours: bool
) -> None:
    archive.place(FOREIGN, offset_index=b"")
    row = archive.build(only_damaged=True, overwrite=True, offset_index=True, ours=ours).row
    assert archive.time_index.read_bytes() == FOREIGN
    assert (row["time_index_matches"], row["offset_index_matches"]) == (None, True)
    row = archive.build(only_damaged=True, settings=IndexSettings("live"), ours=ours).row
    assert (row["time_index_matches"], row["dialect"]) == (True, "live")

    archive.place(TIME_INDEX, offset_index=b"")
    how = {"only_damaged": True, "offset_index": True, "ours": ours}
    row = archive.build(settings=OTHER_SETTINGS, **how).row
    assert archive.offset_index.read_bytes() == b"", "of another interval"
    assert (row["time_index_matches"], row["index_interval_bytes"]) == (True, 0)
    assert row["offset_index_matches"] is None


def test_only_damaged_looks_at_each_of_the_two_files(archive: Archive) -> None:
    archive.place(FOREIGN, offset_index=b"\xff" * 8)
    row = archive.build(only_damaged=True, offset_index=True).row
    assert archive.offset_index.read_bytes() == b"\xff" * 8, "of another program: kept"
    assert row["index_file"] == "kept"
    row = archive.build(only_damaged=True, overwrite=True, offset_index=True).row
    assert archive.time_index.read_bytes() == FOREIGN
    assert archive.offset_index.read_bytes() == b""
    assert row["index_file"] == "kept"


def test_a_header_that_claims_less_than_its_record_is_a_note_of_the_row(archive: Archive) -> None:
    archive.write_log(LOG + v2_batch(BASE + 3, [Record(3000)], max_timestamp=5))
    row = archive.build().row
    assert (row["status"], row["error"], row["notes"]) == ("ok", None, [SegmentNote.UNDERSTATED])


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> list[list[SegmentFiles]]:
    """Return what is published, a group at a time."""
    seen: list[list[SegmentFiles]] = []
    publish = IndexPublisher.publish

    def watched(self: IndexPublisher, group: list[SegmentFiles]) -> Any:
        seen.append(group)
        return publish(self, group)

    monkeypatch.setattr(IndexPublisher, "publish", watched)
    return seen


def test_a_transaction_index_to_take_away_is_looked_for_where_it_was_listed(
    archive: Archive, groups: list[list[SegmentFiles]]
) -> None:
    """In a bucket a file that was not listed is not asked for."""
    archive.write_log(INVALID)
    archive.place(WRONG)
    archive.time_index.with_suffix(".txnindex").write_bytes(bytes(34))
    archive.build(ours=True, offset_index=True)
    [[segment]] = groups
    [file] = [one for one in segment.files if one.kind is IndexKind.TRANSACTION]
    assert file.seen is not None
    assert not archive.time_index.with_suffix(".txnindex").exists()


def test_a_group_is_cut_by_the_bytes_of_its_index_files(
    archive: Archive, groups: list[list[SegmentFiles]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In place, those of a new `.index` wait, and count, too."""
    monkeypatch.setattr(published_files, "_MOST_INDEX_BYTES", 12 + 8 + 12)
    for base in (BASE + 3, BASE + 6):
        log = v2_batch(base, [Record(1000)]) + v2_batch(base + 1, [Record(2000), Record(1500)])
        (archive.log.parent / f"{base:020d}.log").write_bytes(log)
    source = Location.of(archive.source)
    build = BuildSpec(source, source, OTHER_SETTINGS, INDEXES)
    publisher = build.publisher()
    built = [*build_segments(build, files_to_read(list_tree(source).table), publisher)]
    publisher.finish()
    assert [one.rows.num_rows for one in built] == [2, 1]
    assert [len(group) for group in groups] == [2, 1]
