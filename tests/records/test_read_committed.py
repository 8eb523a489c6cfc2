"""`read_committed` compared with a model: a log as a list of what producers did."""

import warnings
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest

import kip33
from kip33.errors import CorruptSegmentError
from kip33.records.segment_reader import UNDECIDED_WHY
from tests.builders.segment_builder import Record, end_txn_marker, v2_batch, with_broken_crc
from tests.long_forms import seeds, short_and_long
from tests.records.test_levels import build

T = 1_700_000_000_000


class Event(NamedTuple):
    """A batch of records, or a marker; producer -1 writes outside of transactions."""

    offset: int
    count: int
    producer: int
    marker: str = ""

    @property
    def wire(self) -> bytes:
        if self.marker:
            commit = self.marker == "commit"
            return end_txn_marker(self.offset, T, producer_id=self.producer, commit=commit)
        return v2_batch(
            *(self.offset, [Record(T, None, b"%d" % i) for i in range(self.count)]),
            transactional=self.producer >= 0,
            producer_id=self.producer,
            producer_epoch=0 if self.producer >= 0 else -1,
        )


def random_events(random: Random, count: int) -> list[Event]:
    events, offset, open_now = [], random.choice((0, 500)), set()
    for _ in range(count):
        producer = random.randrange(-1, 4)
        if producer in open_now and random.random() < 0.4:
            marker = random.choice(("commit", "abort"))
            events.append(Event(offset, 1, producer, marker))
            open_now.discard(producer)
        else:
            events.append(Event(offset, random.choice((1, 3)), producer))
            open_now |= {producer} - {-1}
        offset += events[-1].count
    return events


def committed(events: list[Event]) -> list[int]:
    """Return the offsets that a consumer reads, by the rules of KIP-98."""
    kept: list[int] = []
    first_open: dict[int, int] = {}
    pending: dict[int, list[int]] = {}
    for event in events:
        offsets = [*range(event.offset, event.offset + event.count)]
        if event.marker:
            first_open.pop(event.producer)
            kept += pending.pop(event.producer) if event.marker == "commit" else []
            pending.pop(event.producer, None)
        elif event.producer < 0:
            kept += offsets
        else:
            first_open.setdefault(event.producer, event.offset)
            pending.setdefault(event.producer, []).extend(offsets)
    stable = min(first_open.values(), default=1 << 62)
    return sorted(offset for offset in kept if offset < stable)


def write(partition: Path, events: list[Event], cuts: list[int]) -> None:
    """Write the events as segments that begin at these numbers of events."""
    partition.mkdir(parents=True)
    for first, end in zip([0, *cuts], [*cuts, len(events)], strict=True):
        log = partition / f"{events[first].offset:020d}.log"
        log.write_bytes(b"".join(event.wire for event in events[first:end]))


IGNORED = "ignore:.*still open at the end of the log"


def offsets(source: Any, **options: Any) -> list[int]:
    reader = kip33.read_arrow(source, isolation="read_committed", **({"on_error": "row"} | options))
    rows = reader.read_all()
    assert rows["_undecided"].null_count == rows["_corrupt"].null_count == len(rows)
    found: list[int] = rows["offset"].to_pylist()
    return found


@pytest.mark.filterwarnings(IGNORED)
@pytest.mark.parametrize("logs", short_and_long(12, 500, "KIP33_RECORD_LOGS"))
def test_random_transactions(tmp_path: Path, logs: int) -> None:
    for seed in seeds(logs):
        random, place = Random(seed), tmp_path / str(seed)
        events = random_events(random, random.choice((3, 10, 40)))
        some = min(len(events) - 1, random.randrange(4))
        write(place / "orders-0", events, sorted(random.sample(range(1, len(events)), some)))
        expected = committed(events)
        assert offsets(place) == expected, seed
        start, end = sorted(random.choices(range(events[0].offset, events[-1].offset + 3), k=2))
        wanted = [offset for offset in expected if start <= offset < end]
        assert offsets(place, start_offset=start, end_offset=end) == wanted, seed


def compacted(events: list[Event], random: Random) -> list[Event]:
    """Return what a cleaner may leave: it stops before the oldest open transaction.

    A marker stays while a batch of its transaction is there.
    """
    open_now: dict[int, list[Event]] = {}
    markers: dict[Event, list[Event]] = {}
    for event in events:
        if event.marker:
            markers[event] = open_now.pop(event.producer)
        elif event.producer >= 0:
            open_now.setdefault(event.producer, []).append(event)
    end = min((batches[0].offset for batches in open_now.values()), default=events[-1].offset)
    gone = {event for event in events if event.offset < end and random.random() < 0.6}
    needed = {marker for marker, batches in markers.items() if not gone.issuperset(batches)}
    return [event for event in events if event not in gone or event in needed]


@pytest.mark.filterwarnings(IGNORED)
@pytest.mark.parametrize("logs", short_and_long(12, 500, "KIP33_RECORD_LOGS"))
def test_random_compaction_hides_no_marker(tmp_path: Path, logs: int) -> None:
    for seed in seeds(logs):
        random, place = Random(seed), tmp_path / str(seed)
        events = [Event(0, 1, -1), Event(1, 1, -1)]  # of which compaction leaves the second
        events += [one._replace(offset=one.offset + 2) for one in random_events(random, 30)]
        kept = [events[1], *compacted(events[2:], random)]
        cuts = sorted(random.sample(range(2, len(events)), 4))
        bases = [0, *(events[cut].offset for cut in cuts), 1 << 62]
        (place / "archive/orders-0").mkdir(parents=True)
        for base, end in pairwise(bases):
            if data := b"".join(one.wire for one in kept if base <= one.offset < end):
                (place / f"archive/orders-0/{base:020d}.log").write_bytes(data)
        present = {one.offset + i for one in kept for i in range(one.count)}
        expected = [offset for offset in committed(events) if offset in present]
        assert offsets(place / "archive") == expected, seed
        catalog = build(place / "archive", place)
        problems = kip33.open_catalog(catalog).segments()["index_error"]
        assert problems.null_count == len(problems), seed
        assert offsets(catalog) == expected, seed
        start = random.choice(events).offset
        assert offsets(catalog, start_offset=start) == [one for one in expected if one >= start]


@pytest.mark.filterwarnings(IGNORED)
def test_a_catalog_tells_what_is_open_at_a_segment(tmp_path: Path) -> None:
    for seed in range(2):
        random = Random(seed)
        events = random_events(random, 40)
        here = tmp_path / str(seed)
        write(here / "archive/orders-0", events, [10, 20, 30])
        catalog = build(here / "archive", here)
        assert offsets(catalog) == committed(events)
        later = events[20].offset
        wanted = [offset for offset in committed(events) if offset >= later]
        for log in (here / "archive/orders-0").glob("*.log"):
            if int(log.stem) < later and events[0].offset == 0:
                log.write_bytes(b"not read")
        assert offsets(catalog, start_offset=later) == wanted


def test_a_log_says_once_that_an_open_transaction_ends_it(
    tmp_path: Path, subtests: pytest.Subtests
) -> None:
    open_at_2 = [Event(0, 1, -1), Event(1, 1, -1), Event(2, 2, 7), Event(4, 1, 8), Event(5, 1, -1)]
    write(tmp_path / "orders-0", open_at_2, [1, 4])
    write(tmp_path / "orders-1", [Event(0, 1, 7), Event(1, 1, 7, "abort"), Event(2, 1, -1)], [])
    log = (tmp_path / "orders-0" / f"{1:020d}.log").as_uri()
    expected = f"{log}: at offset 2 producer 7 begins a transaction that is still open at the end"
    cases: dict[str, tuple[dict[str, Any], bool]] = {
        "one process": ({}, True),
        "two processes": ({"workers": 2}, True),
        "from an offset behind it": ({"start_offset": 4}, True),
        "up to the offset before it": ({"end_offset": 2}, False),
        "uncommitted": ({"isolation": "read_uncommitted"}, False),
    }
    for name, (options, is_said) in cases.items():
        for on_error in ("row", "fail", "skip"):
            with (
                subtests.test(name, on_error=on_error),
                warnings.catch_warnings(record=True) as seen,
            ):
                warnings.simplefilter("always")
                asked = {"isolation": "read_committed", "on_error": on_error, **options}
                kip33.read_arrow(tmp_path, **({"on_error": "row"} | asked)).read_all()
                lines = [str(one.message) for one in seen]
                assert [line.startswith(expected) for line in lines] == [True] * is_said


@pytest.mark.filterwarnings(IGNORED)
def test_batches_of_aborted_transactions(tmp_path: Path) -> None:
    events = [Event(0, 2, 7), Event(2, 1, -1), Event(3, 1, 7, "abort"), Event(4, 1, 7)]
    write(tmp_path / "orders-0", events, [])
    common = {"level": "batches", "columns": ["first_offset"]}
    rows = kip33.read_arrow(
        tmp_path, isolation="read_committed", **({"on_error": "row"} | common)
    ).read_all()
    assert rows.to_pylist() == [{"first_offset": 2}]


def undecided(source: Path) -> list[tuple[int | None, bool]]:
    """Return each offset and whether its transaction is undecided; None for damage."""
    rows = (
        kip33.read_arrow(source, isolation="read_committed", on_error="row").read_all().to_pylist()
    )
    return [(row["offset"], row["_undecided"] is not None) for row in rows]


def test_a_marker_that_may_be_lost_in_a_gap(tmp_path: Path) -> None:
    before = [Event(0, 1, 7), Event(1, 1, 8), Event(2, 1, 8, "abort"), Event(3, 1, -1)]
    after = [Event(9, 1, 7), Event(10, 1, 7, "abort"), Event(11, 1, -1)]
    write(tmp_path / "orders-0", [*before, *after], [4])
    assert undecided(tmp_path) == [(0, True), (3, False), (11, False)]


def test_a_marker_that_may_be_lost_in_damage(tmp_path: Path) -> None:
    events = [Event(0, 1, 7), Event(1, 1, 7, "commit"), Event(2, 1, 7), Event(3, 1, 7, "abort")]
    write(tmp_path / "orders-0", events, [2])
    log = tmp_path / "orders-0" / f"{0:020d}.log"
    log.write_bytes(events[0].wire + with_broken_crc(events[1].wire))
    assert undecided(tmp_path) == [(0, True), (None, False)]


def test_a_marker_that_may_be_lost_is_an_error_on_request(tmp_path: Path) -> None:
    write(tmp_path / "orders-0", [Event(0, 1, 7), Event(5, 1, -1), Event(6, 1, -1)], [1])
    log = tmp_path / "orders-0" / f"{0:020d}.log"
    for level in ("records", "batches"):
        options = {"level": level, "isolation": "read_committed", "on_error": "fail"}
        with pytest.raises(CorruptSegmentError) as error:
            kip33.read_arrow(tmp_path, **({"on_error": "row"} | options)).read_all()
        assert str(error.value) == f"{log.as_uri()}: batch at position 0: {UNDECIDED_WHY}"
        assert (
            len(
                kip33.read_arrow(
                    tmp_path, **({"on_error": "row"} | options), start_offset=5
                ).read_all()
            )
            == 2
        )
