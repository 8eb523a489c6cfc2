"""`.snapshot` files of builds with `--producer-snapshots`: across segments and nights.

The expected files come from one replay over all segments of a partition.
"""

import json
import os
import random
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kip33.cli.verify import verify
from kip33.formats.producer_snapshot import ProducerSnapshot, ProducerState
from kip33.indexing.partition_fold import snapshot_beside
from kip33.indexing.partition_replay import LogToReplay, replay_partition
from kip33.indexing.tree_verdicts import TreeVerdicts, blocks_of
from kip33.indexing.verify_tree import plan_verify, verify_bin
from kip33.stores.locations import Location
from tests.builders.changing_archive import ChangingArchive
from tests.builders.random_partitions import random_partitions
from tests.builders.segment_builder import Record, segment, v2_batch
from tests.long_forms import short_and_long

SEED = os.environ.get("KIP33_SEED") or str(random.SystemRandom().randrange(2**32))
T = "t-0"


def of_producer(base: int, producer: int, count: int = 10) -> bytes:
    records = [Record(1000 + base + number) for number in range(count)]
    return segment(
        [v2_batch(base, records, producer_id=producer, producer_epoch=0, base_sequence=base)]
    )


OTHER = ProducerState(99, 0, 4, 4, 0, 1000, -1, -1)
SEGMENTS = {0: of_producer(0, 5), 10: of_producer(10, 6), 20: of_producer(20, 5)}


class ProducerArchive(ChangingArchive):
    """An archive of one partition whose builds write all kinds of files."""

    def write_segments(self, *base_offsets: int) -> None:
        for base_offset in base_offsets or SEGMENTS:
            self.write(self.log(T, base_offset), SEGMENTS[base_offset])

    def night(self, **settings: bool) -> int:
        """Build and return how many rows were reused."""
        return self.build(offset_index=True, producer_snapshots=True, **settings).reused

    def place(self, base_offset: int) -> Path:
        return self.index(T, base_offset).with_suffix(".snapshot")

    def built(self) -> dict[int, bytes]:
        folder = self.place(0).parent
        return {int(path.stem): path.read_bytes() for path in sorted(folder.glob("*.snapshot"))}

    def producers(self, base_offset: int) -> dict[int, int]:
        """Return the last offset of each producer in a `.snapshot`."""
        snapshot = ProducerSnapshot.from_bytes(self.place(base_offset).read_bytes())
        return {one.producer_id: one.last_offset for one in snapshot.producers}

    def replayed(self, *base_offsets: int) -> dict[int, bytes]:
        """Return the files of one pass over the logs."""
        bases = base_offsets or tuple(
            sorted(int(path.stem) for path in self.log(T).parent.glob("*.log"))
        )
        logs = [LogToReplay(base, Location.of(self.log(T, base))) for base in bases]
        found = replay_partition(logs, wanted=bases).snapshots
        return {base: data for base, data in found.items() if base in bases}


@pytest.fixture
def archive(tmp_path: Path) -> ProducerArchive:
    return ProducerArchive(tmp_path)


def test_a_night_that_reads_only_new_segments_continues(archive: ProducerArchive) -> None:
    for number, base_offset in enumerate(SEGMENTS):
        archive.write_segments(base_offset)
        assert archive.night() == number
        expected = archive.fresh(offset_index=True, producer_snapshots=True)
        assert archive.outcome() == expected
    assert archive.night() == 3
    right = archive.replayed()
    assert archive.built() == right
    assert [archive.producers(base) for base in (10, 20)] == [{5: 9}, {5: 9, 6: 19}]
    rows = archive.rows()
    assert [row["producer_snapshot_bytes"] for row in rows] == [None, 56, 102]
    assert {(row["index_file"], row["index_error"]) for row in rows} == {("written", None)}

    archive.place(10).unlink()
    archive.place(20).write_bytes(b"zeros")
    archive.night()
    assert archive.built() == right, "what was deleted or changed is written again"


def test_a_changed_segment_changes_the_files_of_later_ones(archive: ProducerArchive) -> None:
    archive.write_segments()
    archive.night()
    archive.write(archive.log(T, 0), of_producer(0, 7))
    assert archive.night() == 0
    assert archive.producers(20) == {7: 9, 6: 19}
    assert archive.built() == archive.replayed()


def test_a_foreign_file_is_kept(archive: ProducerArchive) -> None:
    archive.write_segments()
    archive.place(10).parent.mkdir(parents=True)
    archive.place(10).write_bytes(b"another program's")
    archive.night()
    assert archive.place(10).read_bytes() == b"another program's"
    assert archive.row(T, 10)["notes"] == ["producer_snapshot_kept"]
    assert archive.producers(20) == {5: 9, 6: 19}


def test_the_files_of_deleted_logs_are_orphans(archive: ProducerArchive) -> None:
    archive.write_segments()
    archive.night()
    archive.log(T, 10).unlink()
    summary = archive.build(offset_index=True, producer_snapshots=True)
    assert summary.orphaned == 3  # .timeindex, .index, .snapshot
    assert archive.producers(20) == {5: 9, 6: 19}, "retention deletes no producer"
    archive.write_segments(10)
    summary = archive.build(offset_index=True, producer_snapshots=True)
    assert (summary.orphaned, summary.written) == (0, 3)
    assert archive.built() == archive.replayed()


def test_a_log_that_begins_late_takes_the_state_beside_it(archive: ProducerArchive) -> None:
    state = ProducerState(9, 0, 4, 4, 0, 1000, -1, -1)
    archive.write_segments(10, 20)
    data = ProducerSnapshot((state,)).to_bytes()
    archive.log(T, 10).with_suffix(".snapshot").write_bytes(data)
    archive.night()
    assert archive.place(10).read_bytes() == data
    assert archive.producers(20) == {9: 4, 6: 19}


def test_after_a_damaged_log_the_states_are_unknown(archive: ProducerArchive) -> None:
    archive.write_segments()
    archive.write(archive.log(T, 10), of_producer(0, 6, count=5))  # below its base
    archive.night()
    assert archive.built() == {}
    assert "the .snapshot is not written: the producers of" in archive.row(T, 20)["index_error"]


REFUSED: dict[str, dict[str, Any]] = {
    "requires --offset-index": {},
    "requires --index-dir": {"offset_index": True, "in_place": True},
    "cannot be combined with --read tail": {"offset_index": True, "read": "tail"},
}


def test_what_it_is_not_combined_with(archive: ProducerArchive, subtests: pytest.Subtests) -> None:
    archive.write_segments()
    for why, options in REFUSED.items():
        with subtests.test(why), pytest.raises(ValueError, match=why):
            archive.plan(producer_snapshots=True, **options)


@pytest.mark.parametrize("partitions", short_and_long(2, 40, "KIP33_PARTITIONS"))
def test_random_partitions_night_after_night(tmp_path: Path, partitions: int) -> None:
    print(f"KIP33_SEED={SEED}")
    dice = random.Random(SEED)
    for partition in random_partitions(seed=SEED, count=partitions):
        archive = ProducerArchive(tmp_path / str(partition.number))
        for base, written in partition.segments.items():
            archive.write(archive.log(T, base), b"".join(batch.data for batch in written))
            if dice.random() < 0.6:
                archive.night()
        archive.night()
        assert archive.built() == archive.replayed(), str(partition)


def verdicts(archive: ProducerArchive, *, beside_logs: bool = False) -> list[str | None]:
    """Return the verdicts on `.snapshot` files of a tree, as `kip33 verify` gives them."""
    plan = plan_verify(
        str(archive.source),
        None if beside_logs else str(archive.index_dir),
        producer_snapshots=True,
    )
    found = [*TreeVerdicts.of(blocks_of(verify_bin(plan.verify, 0, plan.files)))]
    return [one.producer_snapshot_verdict for one in found]


def test_verify_checks_the_files_of_a_build(archive: ProducerArchive) -> None:
    archive.write_segments()
    archive.night()
    assert verdicts(archive) == [None, "identical", "identical"]
    archive.place(20).write_bytes(archive.place(10).read_bytes())  # producer 6 is forgotten
    assert verdicts(archive) == [None, "identical", "consistent"]
    archive.place(10).write_bytes(b"torn")
    archive.place(20).unlink()
    assert verdicts(archive) == [None, "malformed", "missing"]

    arguments = [str(archive.source), "--index-dir", str(archive.index_dir), "--engine", "local"]
    arguments += ["--workers", "1", "--producer-snapshots", "--format", "json"]
    result = CliRunner().invoke(verify, [*arguments, "--fail-on", "malformed"])
    found = json.loads(result.stdout)["by_producer_snapshot_verdict"]
    assert (result.exit_code, found) == (3, {"malformed": 1, "missing": 1})
    share = CliRunner().invoke(verify, [*arguments, "--share", "1/7"])
    assert (share.exit_code, "needs the logs of all segments" in share.output) == (2, True)


def test_verify_finds_another_state_and_a_lost_transaction(archive: ProducerArchive) -> None:
    archive.write_segments()
    transactional = v2_batch(
        10,
        [Record(2000)] * 10,
        producer_id=6,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )
    archive.write(archive.log(T, 10), segment([transactional]))
    archive.night()
    right = ProducerSnapshot.from_bytes(archive.place(20).read_bytes()).producers
    assert [one.first_offset for one in right] == [-1, 10]
    for wrong in (right[:1], (right[0]._replace(last_sequence=3), right[1]), (*right, OTHER)):
        archive.place(20).write_bytes(ProducerSnapshot(wrong).to_bytes())
        assert verdicts(archive) == [None, "identical", "wrong"]


def test_verify_takes_producers_of_deleted_segments_as_true(archive: ProducerArchive) -> None:
    archive.write_segments(10, 20)
    beside = archive.log(T, 20).with_suffix(".snapshot")
    right = archive.replayed()[20]
    (state,) = ProducerSnapshot.from_bytes(right).producers
    beside.write_bytes(ProducerSnapshot((state, OTHER)).to_bytes())
    assert verdicts(archive, beside_logs=True) == [None, "consistent"]


def test_the_snapshot_of_tiered_storage_is_at_the_end(tmp_path: Path) -> None:
    log = tmp_path / f"{10:020d}-bn9RMmT4REWVDFQzf3IUaQ.log"
    log.with_suffix(".snapshot").write_bytes(ProducerSnapshot((OTHER,)).to_bytes())
    assert snapshot_beside(Location.of(log)) is None
    plain = tmp_path / f"{10:020d}.log"
    plain.with_suffix(".snapshot").write_bytes(ProducerSnapshot((OTHER,)).to_bytes())
    found = snapshot_beside(Location.of(plain))
    assert found and (found.producers, found.open_transactions) == ((OTHER,), {})
