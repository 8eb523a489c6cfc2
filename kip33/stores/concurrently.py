"""Work on several files of a remote store at once, because each one spends its time waiting.

A large file fills a link and takes memory, so a few at once are enough. On HDFS a small file is
nearly all waiting: hdfs-native asks the name node whether a new file is complete, and if it is not
yet, again after half a second. So many small files are under way there. On an object store they are
as few as the large ones: Arrow's client fills 10 MiB of memory for each file it writes.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, TypeVar

from kip33.stores.locations import Location
from kip33.stores.read_ahead import MOST_HELD_BYTES

Work = TypeVar("Work")
Done = TypeVar("Done")

LARGE_FILES_AT_ONCE: Final = 8  # per task; each holds MOST_HELD_BYTES
SMALL_FILES_AT_ONCE: Final = 128  # per task on HDFS, each with a thread and a connection
HELD_BYTES: Final = LARGE_FILES_AT_ONCE * MOST_HELD_BYTES
SMALL_FILE_BYTES: Final = HELD_BYTES // SMALL_FILES_AT_ONCE  # up to here a file counts as small


def map_in_order(
    source: Location,
    work: Iterable[Work],
    run: Callable[[Work], Done],
    *,
    held_bytes: Callable[[Work], int] | None = None,
) -> Iterator[Done]:
    """Yield `run(item)` for each item of `work`, in order; on a remote store several run at once.

    `held_bytes` returns the size of the file that is read for an item; without it each counts
    as a small file. The files under way hold at most HELD_BYTES together; of an object store they
    are at most LARGE_FILES_AT_ONCE.

    A local disk is read by one thread: there is no latency to hide, and caches are not shared.
    """
    if source.is_local:
        yield from map(run, work)
        return
    least = MOST_HELD_BYTES if source.is_object_store else SMALL_FILE_BYTES
    with ThreadPoolExecutor(SMALL_FILES_AT_ONCE, thread_name_prefix="kip33-file") as pool:
        under_way: deque[tuple[Future[Done], int]] = deque()
        held = 0
        try:
            for item in work:
                size_bytes = held_bytes(item) if held_bytes else 0
                counts = max(least, min(size_bytes, MOST_HELD_BYTES))
                while held + counts > HELD_BYTES:
                    done, counted = under_way.popleft()
                    held -= counted
                    yield done.result()
                under_way.append((pool.submit(run, item), counts))
                held += counts
            while under_way:
                yield under_way.popleft()[0].result()
        finally:
            for done, _ in under_way:
                done.cancel()
