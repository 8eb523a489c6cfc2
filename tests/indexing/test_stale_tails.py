"""`--read tail` where the last segment's index ends before its log: its row, and what search finds.

The index file was closed, and the log went on: a copy of a log that was being written, an upload
that was done again for the log only, an index of the same log from before. Times of files tell it
where they are those of the writes. Copies may have other times.
"""

import os
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from kip33.catalog.catalog import Catalog
from kip33.indexing.segment import index_file
from kip33.rules.index_builder import IndexSettings
from kip33.search.answers import SearchOptions
from kip33.search.partition_search import search_partition
from kip33.search.replica_search import replicas_of
from kip33.stores.locations import Location
from tests.builders.generated_segments import Written, plain_batch, wire_of
from tests.builders.searched_segments import brute
from tests.faults.builds import build_here
from tests.long_forms import short_and_long

SEED = os.environ.get("KIP33_SEED", "1")
START_MS, HOUR_MS, DAY_MS = 1_700_000_000_000, 3_600_000, 86_400_000
PARTITIONS_A_BUILD = 150


class Case(NamedTuple):
    """One partition as it was written."""

    log: Path  # of the last segment
    records: list[tuple[int, int]]  # of all segments
    largest: int  # timestamp of the last segment
    says_so: bool  # the index file is older than its log


def batches(random: Random, base_offset: int, count: int) -> list[Written]:
    entries, offset = [], base_offset
    for at in range(count):
        late = random.choice((0, 0, 0, 40, -40))
        times = [START_MS + base_offset + 10 * at + late + step for step in (0, 3)]
        entries.append(plain_batch(offset, times, bytes(random.choice((0, 50)))))
        offset += 2
    return entries


def write(path: Path, entries: list[Written], indexed: int, interval: int) -> None:
    """Write a log, and the index files of its first batches."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(wire_of(entries[:indexed]))
    place, settings = Location.of(path), IndexSettings("recover", interval)
    built = index_file(place, base_offset=int(path.stem), topic="t", settings=settings)
    assert built.time_index_data is not None and built.offset_index_data is not None
    path.with_suffix(".timeindex").write_bytes(built.time_index_data)
    path.with_suffix(".index").write_bytes(built.offset_index_data)
    path.write_bytes(wire_of(entries))


def partition(random: Random, folder: Path) -> Case:
    """Write closed segments and a last one, whose index may be of an earlier time."""
    base, records, entries = 0, [], []
    interval = random.choice((0, 100, 1000))
    last = random.randint(0, 2)
    for number in range(last + 1):
        entries = batches(random, base, random.randint(1, 12))
        indexed = len(entries)
        if number == last and random.random() < 0.7:
            indexed = random.randint(1, len(entries))
        log = folder / f"{base:020d}.log"
        write(log, entries, indexed, interval)
        records += [record for entry in entries for record in entry.records]
        base = entries[-1].last_offset + 1
        written_ms = START_MS + DAY_MS + number * HOUR_MS
        index_ms = written_ms
        if indexed < len(entries) and random.random() < 0.7:
            index_ms -= random.choice((1, 1000, HOUR_MS))  # the times of the writes
        elif random.random() < 0.3:
            index_ms += random.choice((1, HOUR_MS))  # a copy that wrote the index file later
        for suffix, when in ((".log", written_ms), (".timeindex", index_ms), (".index", index_ms)):
            os.utime(log.with_suffix(suffix), ns=(0, when * 1_000_000))
    return Case(log, records, max(entry.max_timestamp for entry in entries), index_ms < written_ms)


@pytest.mark.parametrize("cases", short_and_long(150, 3_000, "KIP33_STALE_TAILS"))
def test_a_stale_index_gives_no_wrong_row_and_no_wrong_answer(
    cases: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = {"read": 0, "unverified, right": 0, "unverified, stale": 0}
    for build in range(-(-cases // PARTITIONS_A_BUILD)):
        random = Random(f"{SEED}/{build}")
        root = tmp_path / f"{build}"
        written = {
            number: partition(random, root / f"source/broker 1/t-{number}")
            for number in range(PARTITIONS_A_BUILD)
        }
        catalog = root / "catalog"
        build_here(
            *(root / "source", root / "indexes"),
            catalog=str(catalog),
            read="tail",
            now_ms=START_MS + 100 * DAY_MS,
        )
        opened = Catalog.at(str(catalog))
        rows: dict[int, list[dict[str, object]]] = {}
        for row in opened.read(opened.require_newest()).to_pylist():
            rows.setdefault(row["partition"], []).append(row)
        for number, case in written.items():
            where = f"KIP33_SEED={SEED}: build {build}, partition {number}"
            [row] = [one for one in rows[number] if one["log_uri"] == case.log.as_uri()]
            is_right = row["max_timestamp"] == case.largest
            if row["status"] != "unverified":
                assert (row["status"], is_right) == ("ok", True), where
                seen["read"] += 1
            else:
                assert not case.says_so, where
                seen["unverified, right" if is_right else "unverified, stale"] += 1
            [segments] = replicas_of(rows[number]).values()
            times = [time for _, time in case.records]
            targets = [max(times), max(times) + 1, *random.sample(times, min(3, len(times)))]
            for target, answer in zip(targets, search_partition(segments, targets), strict=True):
                assert answer[1:4] == brute(case.records, target), f"{where}, time {target}"
            [promise] = search_partition(segments, [max(times)], SearchOptions(index_only=True))
            true = brute(case.records, max(times))[0]
            assert promise.offset is not None and true is not None and promise.offset <= true, where
    with capsys.disabled():
        print(f"\nKIP33_SEED={SEED}: {seen}", end=" ")
    assert all(count > cases / 20 for count in seen.values())
