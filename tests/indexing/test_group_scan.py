"""Logs that are scanned together give what `index_segment` gives of each, or are left to it."""

from random import Random
from typing import Any

import numpy as np
import pytest

from kip33.formats.native import is_ready
from kip33.indexing.segment import BuiltIndexes, index_segment
from kip33.rules.group_scan import GroupScan, scan_logs
from kip33.rules.index_builder import IndexSettings
from kip33.rules.segment_summary import SUMMARY_RECORD, SegmentStatus
from tests.builders.changing_archive import batches
from tests.builders.index_mutants import bases, mutant
from tests.builders.logs_in_memory import read_into_of
from tests.builders.random_entries import random_log
from tests.builders.segment_builder import Record, end_txn_marker, v2_batch
from tests.long_forms import seeds, short_and_long

pytestmark = pytest.mark.skipif(
    not is_ready(scan_logs), reason="there is no shared library for this CPU: logs are not grouped"
)


def random_logs(random: Random, count: int) -> list[bytes]:
    """Return logs of all kinds: plain ones, other formats, markers, damage, nothing."""
    intact = bases()
    made = []
    for _ in range(count):
        kind = random.random()
        if kind < 0.3:
            made.append(batches(random.choice((0, 100)), random.randrange(1, 60)))
        elif kind < 0.5:
            made.append(random.choice(intact).log)
        elif kind < 0.7:
            made.append(random_log(random, entries=random.choice((1, 3, 10)), damaged=0))
        elif kind < 0.8:
            log = random_log(random, entries=3)
            made.append(log + end_txn_marker(10**6, 5, producer_id=5))
        else:
            made.append(mutant(random, random.choice(intact).log))
    return [log for log in made if log]


def indexed(log: bytes, base_offset: int, settings: IndexSettings) -> BuiltIndexes:
    return index_segment(
        read_into_of(log), len(log), base_offset=base_offset, topic="t", settings=settings
    )


def is_plain(index: BuiltIndexes) -> bool:
    """Return whether nothing but its figures is to be said of a log."""
    marked = int(index.summary["marked"])
    whole = index.status == SegmentStatus.OK and index.error is None
    return whole and not marked and len(index.leader_epochs) <= 1 and not index.is_understated


@pytest.mark.parametrize("rounds", short_and_long(3, 200, "KIP33_GROUPS"))
def test_plain_logs_have_the_index_and_the_figures_of_a_scan_alone(rounds: int) -> None:
    plain = 0
    for seed in seeds(rounds):
        random = Random(seed)
        settings = IndexSettings(
            index_interval_bytes=random.choice((0, 100, 4096)), check_crc=random.random() < 0.8
        )
        logs = [*random_logs(random, 60), batches(0, 5_000)]  # more than are held at once
        bases_of = [random.choice((0, 0, 0, 1000)) for _ in logs]
        alone = [indexed(*one, settings) for one in zip(logs, bases_of, strict=True)]
        sizes = np.array([len(log) for log in logs])
        data = np.frombuffer(bytearray(b"".join(logs)), np.uint8)
        starts = np.cumsum(sizes) - sizes
        scanned = GroupScan(settings).scan(data, starts, sizes, np.array(bases_of))
        for number, index in enumerate(alone):
            found = scanned.found[number]
            if not found["is_plain"]:
                assert scanned.time_indexes[number] == b""
                assert not is_plain(index) or index.magics != (2,), (seed, number)
                continue
            plain += 1
            assert is_plain(index), (seed, number, index.error)
            assert scanned.time_indexes[number] == index.time_index_data, (seed, number)
            assert scanned.offset_indexes[number] == index.offset_index_data, (seed, number)
            summary = scanned.summaries[number]
            for name in SUMMARY_RECORD.names or ():
                assert summary[name] == index.summary[name], (seed, number, name)
            magics = tuple(magic for magic in range(3) if found["magics"] >> magic & 1)
            assert magics == index.magics
            epochs = ((found["epoch"], found["epoch_offset"]),) if found["epoch"] >= 0 else ()
            assert epochs == index.leader_epochs
            assert found["batches_crc32"] == index.batches_crc32
    assert plain > 20 * rounds


def in_plain_code(data: Any, *arguments: Any) -> None:
    """Call `scan_logs` with bytes as plain code takes them."""
    *memory, room, times, offsets, ends, check_crc, tables = arguments
    arenas = room.data, times.data, offsets.data
    return scan_logs(data.data, *memory, *arenas, ends, check_crc, tables)


def test_plain_code_finds_what_compiled_code_finds() -> None:
    logs = [log for log in random_logs(Random(1), 40) if len(log) < 2_000]
    sizes = np.array([len(log) for log in logs])
    data = np.frombuffer(bytearray(b"".join(logs)), np.uint8)
    asked = (data, np.cumsum(sizes) - sizes, sizes, np.zeros(len(logs), np.int64))
    scan = GroupScan(IndexSettings(index_interval_bytes=100))
    compiled = scan.scan(*asked)
    scan._scan = in_plain_code
    found, summaries, *indexes = scan.scan(*asked)
    is_plain = found["is_plain"] == 1
    assert is_plain.tolist() == (compiled.found["is_plain"] == 1).tolist()
    assert found[is_plain].tolist() == compiled.found[is_plain].tolist()
    assert summaries[is_plain].tolist() == compiled.summaries[is_plain].tolist()
    assert indexes == [compiled.time_indexes, compiled.offset_indexes]
    assert 5 < np.count_nonzero(is_plain) < len(logs)


def test_what_is_to_be_said_of_a_log_is_left_to_the_scan_of_one() -> None:
    fine = batches(0, 4)
    epochs = v2_batch(0, [Record(5)], leader_epoch=3) + v2_batch(1, [Record(6)], leader_epoch=4)
    logs = {
        "plain": fine,
        "a byte more": fine + b"\x00",
        "a CRC": fine[:-1] + bytes([fine[-1] ^ 1]),
        "two epochs": epochs,
        "understated": v2_batch(0, [Record(9)], max_timestamp=5, base_timestamp=9),
        "a marker": fine + end_txn_marker(100, 5, producer_id=5),
        "below its base offset": batches(0, 2),
        "plain again": fine,
    }
    sizes = np.array([len(log) for log in logs.values()])
    data = np.frombuffer(bytearray(b"".join(logs.values())), np.uint8)
    starts = np.cumsum(sizes) - sizes
    base_offsets = np.array([50 if name.startswith("below") else 0 for name in logs])
    scanned = GroupScan(IndexSettings()).scan(data, starts, sizes, base_offsets)
    plain = [name for name, one in zip(logs, scanned.found, strict=True) if one["is_plain"]]
    assert plain == ["plain", "plain again"]
    assert (
        scanned.time_indexes[0]
        == scanned.time_indexes[-1]
        == indexed(fine, 0, IndexSettings()).time_index_data
    )
