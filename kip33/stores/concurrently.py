"""Work on several files of a remote store at once, because each one spends its time waiting."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, TypeVar

from kip33.stores.locations import Location

Work = TypeVar("Work")
Done = TypeVar("Done")

FILES_AT_ONCE: Final = 8  # per task; each file holds up to 16 MiB (`stores.read_ahead`)


def map_in_order(
    source: Location, work: Iterable[Work], run: Callable[[Work], Done]
) -> Iterator[Done]:
    """Yield `run(one)` for each of `work`, in order; on a remote store several run at once.

    A local disk is read by one thread: there is no latency to hide, and caches are not shared.
    """
    if source.is_local:
        yield from map(run, work)
        return
    with ThreadPoolExecutor(FILES_AT_ONCE, thread_name_prefix="kip33-file") as pool:
        under_way: deque[Future[Done]] = deque()
        try:
            for one in work:
                under_way.append(pool.submit(run, one))
                if len(under_way) > FILES_AT_ONCE:
                    yield under_way.popleft().result()
            while under_way:
                yield under_way.popleft().result()
        finally:
            for future in under_way:
                future.cancel()
