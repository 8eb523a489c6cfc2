"""`.txnindex` files of builds: across segments and nights, and with unknown transactions.

The expected files come from one scan over all segments of a partition as one log. `KIP33_SEED`
chooses other logs.
"""

import os
import random
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from kip33 import build_time_index, verify_segment
from kip33.builds.commit import warnings_of
from kip33.catalog.catalog import Catalog
from kip33.catalog.schema import SCHEMA_VERSION
from kip33.formats.index_kinds import IndexKind
from kip33.formats.producer_snapshot import ProducerSnapshot, ProducerState
from kip33.formats.transaction_index import TransactionIndex
from kip33.indexing.partition_state import PartitionState
from kip33.indexing.published_files import IndexPublisher
from kip33.indexing.tree_verdicts import TreeVerdicts, blocks_of
from kip33.indexing.verify_tree import plan_verify, verify_bin
from kip33.rules.segment_notes import SegmentNote
from kip33.rules.transaction_index import complete_transactions
from kip33.stores.locations import Location
from tests.builders.changing_archive import ChangingArchive, Row, batches
from tests.builders.random_partitions import random_partitions
from tests.builders.segment_builder import Record, end_txn_marker, segment, v2_batch
from tests.builders.snapshots import as_earlier_version
from tests.long_forms import one_in, short_and_long

SEED = os.environ.get("KIP33_SEED") or str(random.SystemRandom().randrange(2**32))
T = "t-0"
P, Q = 5, 6  # producers


def data(offset: int, producer_id: int) -> bytes:
    return v2_batch(
        offset,
        [Record(1000 + offset)],
        transactional=True,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
    )


def abort(offset: int, producer_id: int) -> bytes:
    return end_txn_marker(offset, 1000 + offset, producer_id=producer_id, commit=False)


def commit(offset: int, producer_id: int) -> bytes:
    return end_txn_marker(offset, 1000 + offset, producer_id=producer_id)


FIRST = segment([data(0, P), data(1, Q), commit(2, Q)])  # P is open at its end
SECOND = segment([data(3, Q), abort(4, Q), abort(5, P)])
THIRD = segment([data(6, Q), abort(7, Q)])
SEGMENTS = {0: FIRST, 3: SECOND, 6: THIRD}
ENTRIES = {0: [], 3: [(Q, 3, 4, 0), (P, 0, 5, 6)], 6: [(Q, 6, 7, 8)]}
NOT_KNOWN = "the open transactions at the segment's start are not known"


def wire(base_offset: int) -> bytes:
    return TransactionIndex.from_entries(ENTRIES[base_offset], base_offset=base_offset).to_bytes()


def snapshot(**first_offsets: int) -> bytes:
    states = [
        ProducerState(int(name[1:]), 0, 0, 0, 0, 0, 0, first)
        for name, first in first_offsets.items()
    ]
    return ProducerSnapshot(tuple(states)).to_bytes()


class TransactionalArchive(ChangingArchive):
    """An archive of one partition whose builds write all three index files."""

    def write_segments(self, *base_offsets: int) -> None:
        for base_offset in base_offsets or SEGMENTS:
            self.write(self.log(T, base_offset), SEGMENTS[base_offset])

    def place(self, base_offset: int, suffix: str = ".txnindex") -> Path:
        return self.index(T, base_offset).with_suffix(suffix)

    def built(self, base_offset: int) -> bytes | None:
        """Return the `.txnindex` that is there, None where there is none."""
        place = self.place(base_offset)
        return place.read_bytes() if place.exists() else None

    def error(self, base_offset: int) -> str:
        return self.remarks(T, base_offset)


@pytest.fixture
def archive(tmp_path: Path) -> TransactionalArchive:
    return TransactionalArchive(tmp_path)


@pytest.fixture
def in_place(tmp_path: Path) -> TransactionalArchive:
    return TransactionalArchive(tmp_path, in_place=True)


def test_a_log_that_can_be_read_again_gives_later_segments_their_files(
    archive: TransactionalArchive,
) -> None:
    archive.write_segments()
    how = {"offset_index": True}
    log, moved = archive.log(T, 0), archive.folder / "moved"
    log.rename(moved)
    os.mkfifo(log)
    archive.build(**how)
    assert NOT_KNOWN in archive.error(6)
    assert archive.build(**how).indexed == 1, "only the log that cannot be read is tried again"
    moved.replace(log)
    assert archive.build(**how).indexed == 3
    assert [archive.built(base) for base in SEGMENTS] == [None, wire(3), wire(6)]
    assert archive.outcome() == archive.fresh(**how)
    assert archive.build(**how).indexed == 0


def test_a_file_beside_a_segment_without_transactions_breaks_no_chain(
    archive: TransactionalArchive,
) -> None:
    archive.write(archive.log(T, 3), batches(3, 2))
    archive.write(archive.log(T, 7), segment([abort(7, P)]))
    archive.log(T, 3).with_suffix(".snapshot").write_bytes(snapshot(p5=0))
    archive.place(3).parent.mkdir(parents=True)
    archive.place(3).write_bytes(b"broker's")
    archive.build(offset_index=True)
    assert archive.row(T, 3)["open_transactions"] == '"unchanged"'
    found = TransactionIndex.from_bytes(archive.built(7) or b"", base_offset=7)
    assert list(found) == [(P, 0, 7, 8)]


def test_a_night_that_reads_only_new_segments_carries_on(archive: TransactionalArchive) -> None:
    for number, base_offset in enumerate(SEGMENTS):
        archive.write_segments(base_offset)
        assert archive.build(offset_index=True).reused == number
        assert archive.outcome() == archive.fresh(offset_index=True)
    assert [archive.built(base) for base in SEGMENTS] == [None, wire(3), wire(6)]
    rows: list[Row] = archive.rows()
    assert [row["open_transactions"] for row in rows] == ['{"5": 0}', "{}", "{}"]
    assert [row["transaction_index_bytes"] for row in rows] == [None, 68, 34]
    assert rows[1]["transaction_index_modified_ms"] == archive.place(3).stat().st_mtime_ns // 10**6
    assert {(row["index_file"], row["index_error"]) for row in rows} == {("written", None)}
    assert archive.build(offset_index=True).reused == 3


def test_without_offset_index_there_are_only_time_indexes(archive: TransactionalArchive) -> None:
    archive.write_segments()
    archive.build()
    assert {path.suffix for path in archive.index_root.rglob("*.*index")} == {".timeindex"}
    assert {row["open_transactions"] for row in archive.rows()} == {None}


@pytest.mark.parametrize("logs", short_and_long(3, 60, "KIP33_LOGS"))
def test_random_logs_night_after_night(tmp_path: Path, logs: int) -> None:
    print(f"KIP33_SEED={SEED}")
    for log in random_partitions(seed=SEED, count=100_000):
        dice, whole = random.Random(f"{SEED}/{log.number}"), tmp_path / f"{min(log.segments)}.log"
        segments = {base: segment(one.data for one in some) for base, some in log.segments.items()}
        whole.write_bytes(b"".join(segments.values()))
        summary = build_time_index(str(whole)).transactions
        assert summary is not None
        entries = complete_transactions(summary, {}, base_offset=min(segments)).aborted or ()
        ends = [*segments, 2**63]
        follows = [some[-1].last_offset + 1 for some in log.segments.values() if some]
        are_missing = not {*segments} <= {min(segments), *follows}  # offsets between segments
        spans = [(one.first_offset, one.last_offset) for one in entries]
        if are_missing or not any(
            a < base and end <= b for base, end in pairwise(ends) for a, b in spans
        ):
            continue  # the transactions of a whole segment are to be carried on
        archive = TransactionalArchive(tmp_path / f"archive {log.number}")
        if min(segments):
            first = archive.log(T, min(segments))
            first.parent.mkdir(parents=True)
            first.with_suffix(".snapshot").write_bytes(snapshot())
        for base_offset, wrote in segments.items():
            archive.write(archive.log(T, base_offset), wrote)
            if dice.random() < 0.4:
                archive.build(offset_index=True)
        archive.build(offset_index=True)
        for base_offset, end in pairwise(ends):
            mine = [one for one in entries if base_offset <= one.last_offset < end]
            expected = TransactionIndex.from_entries(mine, base_offset=base_offset).to_bytes()
            assert (archive.built(base_offset) or b"") == expected, f"{log}, {base_offset}"
        logs -= 1
        if not logs:
            break
    assert logs == 0


def test_transactions_before_the_first_segment_are_unknown_without_a_snapshot_beside_it(
    archive: TransactionalArchive,
) -> None:
    archive.write_segments(3, 6)
    archive.build(offset_index=True)
    assert [archive.built(3), archive.built(6)] == [None, None]
    assert f"the .txnindex is not written: {NOT_KNOWN}" in archive.error(3)
    assert NOT_KNOWN in archive.error(6)
    assert archive.row(T, 3)["open_transactions"] is None
    assert archive.place(3, ".index").exists()
    assert archive.build(offset_index=True).reused == 2
    archive.log(T, 3).with_suffix(".snapshot").write_bytes(snapshot(p5=0, p7=-1))
    archive.build(offset_index=True, full=True)
    assert [archive.built(3), archive.built(6)] == [wire(3), wire(6)]
    assert archive.error(3) == ""


IMPOSSIBLE = {
    "empty": b"",
    "cut short": snapshot(p5=0)[:-1],
    "of a transaction that begins later": snapshot(p5=9),
    "of two that begin together": snapshot(p5=1, p7=1),
}


def test_an_impossible_snapshot_is_ignored(
    archive: TransactionalArchive, subtests: pytest.Subtests
) -> None:
    archive.write_segments(3)
    for name, damaged in IMPOSSIBLE.items():
        with subtests.test(name):
            archive.log(T, 3).with_suffix(".snapshot").write_bytes(damaged)
            archive.build(offset_index=True, full=True)
            assert archive.built(3) is None
            assert "the .txnindex is not written" in archive.error(3)


def test_transactions_after_a_gap_are_unknown(archive: TransactionalArchive) -> None:
    """A segment is missing, then the end of one."""
    archive.write_segments(0, 6)
    for _ in range(2):
        archive.build(offset_index=True)
        assert archive.built(6) is None
        assert NOT_KNOWN in archive.error(6)
        archive.write(archive.log(T, 3), SECOND[:-1])


def test_later_segments_are_read_again_after_a_changed_one(
    archive: TransactionalArchive,
) -> None:
    archive.write_segments()
    archive.write(archive.log(T, 8), batches(8, 2))
    archive.build(offset_index=True)
    archive.write(archive.log(T), segment([data(0, P), data(1, Q), commit(2, P)]))
    summary = archive.build(offset_index=True)
    assert (summary.indexed, summary.reused) == (3, 1)  # the one without transactions holds
    assert archive.outcome() == archive.fresh(offset_index=True)
    found = TransactionIndex.from_bytes(archive.built(3) or b"", base_offset=3)
    assert list(found) == [(Q, 1, 4, 5)]


def test_a_transaction_index_that_is_not_as_it_was_left_is_built_again(
    archive: TransactionalArchive, subtests: pytest.Subtests
) -> None:
    archive.write_segments()
    archive.build(offset_index=True)
    changes: dict[str, Callable[[Path], object]] = {
        "deleted": Path.unlink,
        "changed": lambda file: file.write_bytes(bytes(34)),
        "touched": lambda file: os.utime(file, (1, 1)),
    }
    for name, change in changes.items():
        with subtests.test(name):
            change(archive.place(3))
            assert archive.build(offset_index=True).indexed >= 1
            assert archive.built(3) == wire(3)
    assert archive.outcome() == archive.fresh(offset_index=True)


def test_our_file_is_removed_if_its_log_gives_none_any_more(
    archive: TransactionalArchive, subtests: pytest.Subtests
) -> None:
    archive.write_segments()
    archive.build(offset_index=True)
    nothing_aborted = [data(3, Q), commit(5, P)]
    invalid = [data(3, P), v2_batch(4, [Record(1)], producer_id=P)]
    for name, written in (("nothing is aborted", nothing_aborted), ("invalid", invalid)):
        with subtests.test(name):
            archive.write(archive.log(T, 3), segment(written))
            archive.build(offset_index=True)
            assert archive.built(3) is None
            assert archive.outcome() == archive.fresh(offset_index=True)
    assert archive.built(6) is None, "what is open there is not known any more"


def test_a_transaction_index_that_kip33_did_not_write_stays(archive: TransactionalArchive) -> None:
    archive.write_segments()
    archive.place(3).parent.mkdir(parents=True)
    archive.place(3).write_bytes(b"broker's")
    archive.place(0).write_bytes(b"broker's")
    archive.build(offset_index=True)
    for base_offset in (0, 3):
        assert archive.built(base_offset) == b"broker's"
        assert "kip33 did not write it; --overwrite replaces it" in archive.error(base_offset)
        assert archive.row(T, base_offset)["index_file"] == "kept"
        assert archive.row(T, base_offset)["transaction_index_bytes"] == 8
    assert archive.build(offset_index=True).reused == 3
    archive.build(offset_index=True, overwrite=True)
    assert [archive.built(base) for base in SEGMENTS] == [b"", wire(3), wire(6)]
    assert archive.error(0) == archive.error(3) == ""


@pytest.mark.parametrize("version", [4, SCHEMA_VERSION])
def test_a_foreign_transaction_index_does_not_become_ours(
    archive: TransactionalArchive, version: int
) -> None:
    """The row names it, for a later change shows; a build that knows more does not replace it."""
    archive.write_segments(3, 6)  # which transactions are open at 3 is not known
    archive.place(3).parent.mkdir(parents=True)
    archive.place(3).write_bytes(b"broker's")
    archive.build(offset_index=True)
    assert archive.row(T, 3)["notes"] == [SegmentNote.NOT_JUDGED]
    if version < SCHEMA_VERSION:
        catalog = Catalog.at(str(archive.catalog))
        as_earlier_version(catalog, catalog.require_newest(), version)
    archive.write_segments(0)
    archive.build(offset_index=True)
    assert archive.built(3) == b"broker's"
    assert archive.row(T, 3)["index_file"] == "kept"
    assert archive.built(6) == wire(6)


def test_in_place_there_is_no_index_without_its_transaction_index(
    in_place: TransactionalArchive,
) -> None:
    in_place.write_segments(3)
    in_place.build(offset_index=True)
    assert in_place.built(3) is None
    assert not in_place.place(3, ".index").exists()
    assert in_place.row(T, 3)["notes"] == [SegmentNote.LEFT_TO_BROKER]
    assert in_place.build(offset_index=True).reused == 1
    in_place.log(T, 3).with_suffix(".snapshot").write_bytes(snapshot(p5=0))
    in_place.build(offset_index=True, full=True)
    assert in_place.built(3) == wire(3)
    assert in_place.place(3, ".index").exists()


@pytest.mark.parametrize("whose", ["a broker's", "of kip33"])
def test_in_place_an_index_that_hides_aborts_is_named(
    in_place: TransactionalArchive, whose: str
) -> None:
    index = in_place.place(3, ".index")
    in_place.write_segments(3)
    if whose == "of kip33":
        in_place.log(T, 3).with_suffix(".snapshot").write_bytes(snapshot(p5=0))
        in_place.build(offset_index=True)
        in_place.place(3).unlink()
        in_place.log(T, 3).with_suffix(".snapshot").unlink()
    else:
        index.write_bytes(b"")

    summary = in_place.build(offset_index=True, full=True)

    assert (in_place.built(3), index.exists()) == (None, True)
    assert in_place.error(3).endswith(
        "the .index keeps a broker from writing the .txnindex of this log, so read_committed "
        "consumers may read aborted records: stop the broker, remove the .index, start the broker"
    )
    assert summary.aborts_hidden == 1
    [warning] = warnings_of(summary)
    assert warning.startswith("1 log with an .index that keeps a broker from writing")

    index.unlink()
    assert in_place.build(offset_index=True).aborts_hidden == 0
    assert not index.exists(), "a broker that starts now writes both"


@pytest.mark.parametrize("left", one_in(2, [None, b""]), ids=["lost", "emptied"])
def test_in_place_a_lost_transaction_index_is_named_without_offset_index(
    in_place: TransactionalArchive, left: bytes | None
) -> None:
    """Also by builds that read no log again, until the `.txnindex` is there."""
    in_place.write_segments()
    for base_offset in SEGMENTS:
        in_place.place(base_offset, ".index").write_bytes(b"")
    for base_offset in (3, 6):
        in_place.place(base_offset).write_bytes(wire(base_offset))
    assert in_place.build(full=True).aborts_hidden == 0
    in_place.place(6).unlink()
    if left is not None:
        in_place.place(6).write_bytes(left)

    first = in_place.build(full=True)
    again = in_place.build()

    for summary in (first, again):
        assert summary.aborts_hidden == 1
        [warning] = warnings_of(summary)
        assert "run kip33 repair --apply" in warning
    assert (again.indexed, again.reused) == (0, 3)
    assert in_place.row(T, 6)["notes"] == [SegmentNote.HIDES_ABORTS]
    assert [in_place.error(base_offset) for base_offset in (0, 3)] == ["", ""]

    in_place.place(6).write_bytes(wire(6))
    assert in_place.build().aborts_hidden == 0
    assert in_place.error(6) == ""
    assert in_place.build().reused == 3


def test_in_place_a_marker_alone_is_no_lost_transaction_index(
    in_place: TransactionalArchive,
) -> None:
    """It may have aborted nothing: then Kafka writes no entry."""
    in_place.write(in_place.log(T), segment([data(0, Q), abort(1, P)]))
    in_place.place(0, ".index").write_bytes(b"")
    assert in_place.build().aborts_hidden == 0


def test_in_place_a_brokers_own_transaction_index_is_no_finding_and_gets_an_index_beside_it(
    in_place: TransactionalArchive,
) -> None:
    in_place.write_segments(3)
    in_place.place(3).write_bytes(wire(3))
    for _ in range(2):
        assert in_place.build(offset_index=True).aborts_hidden == 0
        assert in_place.built(3) == wire(3)
        assert in_place.place(3, ".index").exists()
        in_place.place(3, ".index").write_bytes(b"")


def test_in_place_there_is_no_index_beside_a_wrong_transaction_index_that_is_kept(
    in_place: TransactionalArchive,
) -> None:
    in_place.write_segments()
    in_place.place(3).write_bytes(bytes(12))
    in_place.build(offset_index=True)
    assert [in_place.place(base, ".index").exists() for base in SEGMENTS] == [True, False, True]
    assert in_place.row(T, 3)["index_file"] == "kept"
    assert SegmentNote.LEFT_TO_BROKER in in_place.row(T, 3)["notes"]


def test_in_place_the_files_of_a_newer_build_stay(
    in_place: TransactionalArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the `.txnindex` is written, the log grows and another build writes all its files."""
    publish = IndexPublisher.publish
    newer: dict[str, bytes] = {}

    def publish_after_another_build(*arguments: Any) -> Any:
        kinds = {file.kind for one in arguments[1] for file in one.files}
        if kinds == {IndexKind.TRANSACTION} and not newer:
            newer["begun"] = b""
            grown = THIRD + segment([data(8, Q), abort(9, Q)])
            in_place.write(in_place.log(T, 6), grown, age_ms=0)
            catalog, in_place.catalog = in_place.catalog, in_place.folder / "another catalog"
            in_place.build(offset_index=True, overwrite=True)
            in_place.catalog = catalog
            del newer["begun"]
            for suffix in (".txnindex", ".index"):
                newer[suffix] = in_place.place(6, suffix).read_bytes()
        return publish(*arguments)

    in_place.write_segments()
    monkeypatch.setattr(IndexPublisher, "publish", publish_after_another_build)
    in_place.build(offset_index=True)
    assert {suffix: in_place.place(6, suffix).read_bytes() for suffix in newer} == newer
    assert in_place.row(T, 6)["index_file"] == "stale"
    assert SegmentNote.OF_ANOTHER_BUILD in in_place.row(T, 6)["notes"]


def test_a_transaction_index_that_cannot_be_written_is_tried_again(
    archive: TransactionalArchive,
) -> None:
    archive.write_segments()
    archive.place(3).mkdir(parents=True)
    archive.build(offset_index=True)
    assert "cannot be" in archive.error(3)
    archive.place(3).rmdir()
    archive.build(offset_index=True)
    assert archive.outcome() == archive.fresh(offset_index=True)


def verdicts(archive: TransactionalArchive) -> list[str | None]:
    """Return the verdicts on `.txnindex` files of a tree, as the verify job gives them."""
    index_dir = str(archive.index_dir) if archive.index_dir else None
    plan = plan_verify(str(archive.source), index_dir)
    seen = reversed([*verify_bin(plan.verify, 0, plan.files)])
    return [one.transaction_index_verdict for one in TreeVerdicts.of(blocks_of(seen))]


def test_verify_judges_transaction_indexes(archive: TransactionalArchive) -> None:
    archive.write_segments()
    archive.build(offset_index=True)
    assert verdicts(archive) == [None, "identical", "identical"]
    archive.place(3).unlink()
    archive.place(6).write_bytes(wire(3))
    assert verdicts(archive) == [None, "missing", "wrong"]
    archive.place(3, ".index").unlink()
    assert verdicts(archive) == [None, None, "wrong"]
    archive.place(6).write_bytes(wire(6))
    archive.log(T).unlink()
    assert verdicts(archive) == [None, "unknown"]


def test_verify_of_one_segment_knows_transactions_from_a_snapshot(
    in_place: TransactionalArchive,
) -> None:
    in_place.write_segments()
    in_place.build(offset_index=True)
    log = in_place.log(T, 3)
    assert verify_segment(str(in_place.log(T))).transaction_index_verdict is None
    found = verify_segment(str(log))
    assert found.transaction_index_verdict == "unknown"
    assert found.problems[-1].startswith(".txnindex: the open transactions")
    log.with_suffix(".snapshot").write_bytes(snapshot(p5=0))
    assert verify_segment(str(log)).transaction_index_verdict == "identical"


def test_the_snapshot_of_tiered_storage_is_at_the_end(tmp_path: Path) -> None:
    log = tmp_path / f"{10:020d}-bn9RMmT4REWVDFQzf3IUaQ.log"
    log.with_suffix(".snapshot").write_bytes(snapshot(p5=0))
    assert PartitionState.beside(Location.of(log), 10) is None
    plain = tmp_path / f"{10:020d}.log"
    plain.with_suffix(".snapshot").write_bytes(snapshot(p5=0))
    found = PartitionState.beside(Location.of(plain), 10)
    assert found and found.producers.open_transactions == {P: 0}
