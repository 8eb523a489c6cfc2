"""Read a file of a remote store from start to end: the next range is fetched while one is used.

A range is one request to the store. Bytes that are read out of order are fetched again, so this is
for scans; a search fetches its few ranges itself.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Final, TypeAlias

from kip33.formats.byte_sources import ReadInto, ViewAt

FetchRange: TypeAlias = Callable[[int, int], memoryview]
"""`(position, count) -> bytes`: fewer than `count` only at the end; never changed afterwards."""

RANGE_BYTES: Final = 8 << 20
AHEAD: Final = 1  # ranges in flight while one is used
MOST_HELD_BYTES: Final = (1 + AHEAD) * RANGE_BYTES  # per file, whatever its size


@contextmanager
def reading_ahead(
    fetch_range: FetchRange, size_bytes: int, *, range_bytes: int = RANGE_BYTES
) -> Iterator[tuple[ReadInto, ViewAt]]:
    """Yield two ways to read a file of `size_bytes`: by copying, and as views of the ranges.

    One thread calls `fetch_range`, another calls the yielded functions. They raise its errors. A
    file of one range has nothing to fetch ahead, so one thread does both.
    """
    if size_bytes <= range_bytes:
        yield _one_range(fetch_range, size_bytes)
        return
    with ThreadPoolExecutor(1, thread_name_prefix="kip33-read") as pool:
        ranges: dict[int, Future[memoryview]] = {}

        def fetch(number: int) -> memoryview:
            begin = number * range_bytes
            return fetch_range(begin, min(range_bytes, size_bytes - begin))

        def piece(number: int) -> memoryview:
            last = (size_bytes - 1) // range_bytes
            wanted = range(number, min(number + AHEAD, last) + 1)
            for gone in ranges.keys() - set(wanted):
                ranges.pop(gone).cancel()
            for needed in wanted:
                if needed not in ranges:
                    ranges[needed] = pool.submit(fetch, needed)
            return ranges[number].result()

        def view_at(position: int) -> memoryview:
            number, within = divmod(position, range_bytes)
            return piece(number)[within:]

        def read_ahead(position: int, view: memoryview) -> int:
            copied = 0
            while copied < len(view) and position < size_bytes:
                data = view_at(position)[: len(view) - copied]
                if not data:  # the file has become shorter
                    break
                view[copied : copied + len(data)] = data
                copied += len(data)
                position += len(data)
            return copied

        try:
            yield read_ahead, view_at
        finally:
            for future in ranges.values():
                future.cancel()


def _one_range(fetch_range: FetchRange, size_bytes: int) -> tuple[ReadInto, ViewAt]:
    """Return the two ways to read a file that is fetched by one request, when it is asked for."""
    fetched: list[memoryview] = []

    def view_at(position: int) -> memoryview:
        if not fetched:
            fetched.append(fetch_range(0, size_bytes) if size_bytes else memoryview(b""))
        return fetched[0][position:]

    def read(position: int, view: memoryview) -> int:
        data = view_at(position)[: len(view)]
        view[: len(data)] = data
        return len(data)

    return read, view_at
