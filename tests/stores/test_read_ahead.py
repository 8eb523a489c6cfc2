"""Ranges that come ahead are the file's bytes, however they are asked for."""

import sys
import threading
import time
import weakref
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kip33.formats.scan import BatchScan
from kip33.stores.concurrently import (
    HELD_BYTES,
    LARGE_FILES_AT_ONCE,
    SMALL_FILE_BYTES,
    SMALL_FILES_AT_ONCE,
    map_in_order,
)
from kip33.stores.locations import Location
from kip33.stores.read_ahead import AHEAD, MOST_HELD_BYTES, reading_ahead
from tests.builders.segment_builder import Record, v2_batch
from tests.cases import each_case

BUCKET = Location("s3a://bucket", "bucket/key")
HDFS = Location("hdfs://name:8020", "/key")


class Store:
    """Bytes that are read by requests."""

    def __init__(self, data: bytes) -> None:
        self.data, self.requests = data, list[tuple[int, int]]()

    def fetch_range(self, position: int, count: int) -> memoryview:
        self.requests.append((position, count))
        return memoryview(self.data)[position : position + count]


@given(
    st.binary(max_size=200),
    st.lists(st.tuples(st.integers(0, 220), st.integers(0, 60)), max_size=8),
    st.integers(1, 50),
)
def test_any_reads_give_the_files_bytes(
    data: bytes, reads: list[tuple[int, int]], range_bytes: int
) -> None:
    store = Store(data)
    with reading_ahead(store.fetch_range, len(data), range_bytes=range_bytes) as (
        read_into,
        view_at,
    ):
        for position, size in reads:
            view = memoryview(bytearray(size))
            copied = read_into(position, view)
            assert bytes(view[:copied]) == data[position : position + size]
            if position < len(data):
                seen = view_at(position)
                assert 0 < len(seen) <= range_bytes
                assert seen == data[position : position + len(seen)]


def test_a_scan_asks_for_each_range_once_and_for_no_more_than_are_ahead() -> None:
    store = Store(bytes(range(100)))
    with reading_ahead(store.fetch_range, 100, range_bytes=10) as (read_into, _):
        for position in range(0, 30, 5):
            assert read_into(position, memoryview(bytearray(5))) == 5
    asked = sorted(store.requests)  # what nobody waits for any more at the end may be left out
    assert asked == [(at, 10) for at in range(0, 10 * len(asked), 10)]
    assert 3 <= len(asked) <= 3 + AHEAD


def test_a_file_that_became_shorter_ends_early() -> None:
    store = Store(b"short")
    with reading_ahead(store.fetch_range, 100, range_bytes=10) as (read_into, _):
        assert read_into(0, memoryview(bytearray(30))) == 5


def test_a_fault_of_the_store_is_raised_by_the_read_that_needs_the_bytes() -> None:
    def fetch_range(position: int, count: int) -> memoryview:
        if position >= 20:
            raise OSError("the store is away")
        return memoryview(bytes(count))

    with reading_ahead(fetch_range, 100, range_bytes=10) as (read, _):
        assert read(0, memoryview(bytearray(20))) == 20
        with pytest.raises(OSError, match="the store is away"):
            read(20, memoryview(bytearray(1)))


class Meeting:
    """Work that ends only when so many of its kind run at once, and counts how many did."""

    def __init__(self, together: int) -> None:
        self.most = self._running = 0
        self._lock, self._all_here = threading.Lock(), threading.Barrier(together)

    def run(self, number: int) -> int:
        with self._lock:
            self._running += 1
            self.most = max(self.most, self._running)
        self._all_here.wait(timeout=300)
        with self._lock:
            self._running -= 1
        return number


AT_ONCE = {
    "empty files": (HDFS, 0, SMALL_FILES_AT_ONCE),
    "small files": (HDFS, 64 << 10, SMALL_FILES_AT_ONCE),
    "large files": (HDFS, 1 << 30, LARGE_FILES_AT_ONCE),
    "files of one range": (HDFS, 8 << 20, 2 * LARGE_FILES_AT_ONCE),
    "small objects": (BUCKET, 64 << 10, LARGE_FILES_AT_ONCE),
    "large objects": (BUCKET, 1 << 30, LARGE_FILES_AT_ONCE),
}


@each_case(("source", "size_bytes", "together"), AT_ONCE)
def test_results_come_in_order_and_as_many_run_as_memory_holds(
    source: Any, size_bytes: Any, together: Any
) -> None:
    meeting = Meeting(together)
    numbers = range(2 * together)
    held_bytes = dict.fromkeys(numbers, size_bytes).__getitem__
    done = map_in_order(source, numbers, meeting.run, held_bytes=held_bytes)
    assert list(done) == list(numbers)
    assert meeting.most == together


def waits_for_a_result(thread: threading.Thread) -> bool:
    """Return whether a thread is in `Future.result`."""
    frame = sys._current_frames().get(thread.ident or 0)
    while frame and frame.f_code is not Future.result.__code__:
        frame = frame.f_back
    return frame is not None


def test_small_files_wait_for_the_memory_of_large_ones() -> None:
    """Large and small files take turns, and none ends until no more of them are taken."""
    sizes = [MOST_HELD_BYTES, 0] * 50
    taken, done = list[int](), list[int]()
    may_end = threading.Event()

    def work() -> Iterator[int]:
        for size in sizes:
            taken.append(size)
            yield size

    def run(size_bytes: int) -> int:
        assert may_end.wait(timeout=300)
        return size_bytes

    def take_all() -> None:
        done.extend(map_in_order(HDFS, work(), run, held_bytes=lambda size: size))

    taker = threading.Thread(target=take_all)
    taker.start()
    while taker.is_alive() and not waits_for_a_result(taker):
        time.sleep(0.001)
    started = taken[:-1]  # the last one waits for memory
    may_end.set()
    taker.join()
    assert sum(max(size, SMALL_FILE_BYTES) for size in started) <= HELD_BYTES
    assert started.count(MOST_HELD_BYTES) == LARGE_FILES_AT_ONCE - 1
    assert done == sizes


def test_a_file_of_one_range_is_read_in_the_thread_that_wants_it() -> None:
    threads = []

    def fetch_range(position: int, count: int) -> memoryview:
        threads.append(threading.current_thread())
        return memoryview(bytes(count))

    with reading_ahead(fetch_range, 100) as (read_into, view_at):
        assert read_into(10, memoryview(bytearray(60))) == 60
        assert len(view_at(90)) == 10
    assert threads == [threading.current_thread()]


def test_on_local_disk_one_runs_after_the_other(tmp_path: Path) -> None:
    threads = map_in_order(
        Location.of(tmp_path), range(3), lambda _: threading.current_thread().name
    )
    assert set(threads) == {threading.current_thread().name}


def test_the_first_failure_ends_the_work() -> None:
    def run(number: int) -> int:
        if number == 2:
            raise OSError("two")
        return number

    done = map_in_order(HDFS, range(100), run)
    with pytest.raises(OSError, match="two"):
        list(done)


def test_a_scan_holds_one_range_and_those_that_are_read_ahead() -> None:
    data = b"".join(v2_batch(n, [Record(1000 + n, None, bytes(900))]) for n in range(200))
    held: weakref.WeakSet[Any] = weakref.WeakSet()
    most = 0

    class Range(np.ndarray):  # type: ignore[type-arg]  # a bytes object has no weak references
        __hash__ = object.__hash__

    def fetch_range(position: int, count: int) -> memoryview:
        fetched = np.frombuffer(bytearray(data[position : position + count]), np.uint8).view(Range)
        held.add(fetched)
        return memoryview(fetched)

    with reading_ahead(fetch_range, len(data), range_bytes=1 << 14) as (read_into, view_at):
        scan = BatchScan(read_into, len(data), view_at=view_at, native=False, rows=8)
        for _ in scan:
            most = max(most, len(held))
    assert scan.damage is None
    assert 0 < most <= 1 + AHEAD
