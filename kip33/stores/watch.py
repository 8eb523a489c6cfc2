"""Tell when a store does not answer: what is tried, for how long, and how long it goes on.

The clients of S3 and HDFS try a request again for half a minute or more, and say nothing meanwhile.
So every operation of a store that kip33 opens goes through a `WatchedStore` inside of
`tell_of_silence`: in a command and in its worker processes. A store is silent while
operations are under way and none of them ended well for some seconds: eight ranges that arrive
slowly, one after another, are no silence. A thread counts the seconds; no clock is read.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:  # a command begins with this module, and may need no pyarrow
    import pyarrow as pa
    from pyarrow import fs

SILENT_TICKS: Final = 5  # until the first line; a tick is a second
_AGAIN_TICKS: Final = 30
_TICK_SECONDS: Final = 1.0
_DOING: Final = {
    "get_file_info": "asking for",
    "open_input_file": "opening",
    "open_input_stream": "opening",
    "open_output_stream": "writing",
    "create_dir": "making the folder",
    "delete_file": "deleting",
    "delete_dir": "deleting",
    "move": "moving",
    "copy_file": "copying",
}
_READING: Final = frozenset(("read", "read_at", "read_buffer", "size"))
_WRITING: Final = frozenset(("write", "close"))


class StoreName(NamedTuple):
    """What is said of a store."""

    host: str  # `http://store:9000`, `hdfs://node:8020`
    patience: str  # how long its client tries


@dataclass
class _StoreState:
    """The operations of a store that are under way."""

    under_way: dict[int, str] = field(default_factory=dict)  # the oldest first
    silent_ticks: int = 0  # since the last answer, or since there are operations
    is_told: bool = False


class StoreWatch:
    """Tells `tell` a line on a store that does not answer, and one when it does."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        """Take who is told."""
        self._tell = tell
        self._lock = threading.Lock()
        self._stores: dict[StoreName, _StoreState] = {}
        self._operations = 0

    @contextmanager
    def waiting(self, name: StoreName, doing: str) -> Iterator[None]:
        """Watch an operation, which is the block."""
        with self._lock:
            self._operations = number = self._operations + 1
            store = self._stores.setdefault(name, _StoreState())
            if not store.under_way and not store.is_told:
                store.silent_ticks = 0
            store.under_way[number] = doing
        is_answer = False
        try:
            yield
            is_answer = True
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError):
            is_answer = True
            raise
        finally:
            with self._lock:
                del store.under_way[number]
                line = _answered(name, store) if is_answer else None
            if line:
                self._tell(line)

    def tick(self) -> None:
        """Count a second, and tell what is silent."""
        lines = []
        with self._lock:
            for name, store in self._stores.items():
                if not store.under_way:
                    continue
                store.silent_ticks += 1
                since = store.silent_ticks - SILENT_TICKS
                if since == 0 or (since > 0 and store.silent_ticks % _AGAIN_TICKS == 0):
                    store.is_told = True
                    lines.append(_silent(name, store))
        for line in lines:
            self._tell(line)


def _answered(name: StoreName, store: _StoreState) -> str | None:
    """Note an answer; return the line for a store that was silent."""
    line = f"{name.host} answers again after {store.silent_ticks} s" if store.is_told else None
    store.silent_ticks, store.is_told = 0, False
    return line


def _silent(name: StoreName, store: _StoreState) -> str:
    first, others = next(iter(store.under_way.values())), len(store.under_way) - 1
    more = f" and {others:,} more" if others else ""
    return (
        f"{name.host} has not answered for {store.silent_ticks} s, still trying: {first}{more}"
        + (f"; {name.patience}" if name.patience else "")
    )


class _Watching:
    watch: StoreWatch | None = None


@contextmanager
def tell_of_silence(tell: Callable[[str], None]) -> Iterator[None]:
    """Call `tell` with a line on each store that does not answer, until the block ends."""
    watch, ended = StoreWatch(tell), threading.Event()

    def count_seconds() -> None:
        while not ended.wait(_TICK_SECONDS):
            watch.tick()

    threading.Thread(target=count_seconds, name="kip33-watch", daemon=True).start()
    before, _Watching.watch = _Watching.watch, watch
    try:
        yield
    finally:
        _Watching.watch = before
        ended.set()


def watched(
    open_store: Callable[[], "fs.FileSystem"], name: Callable[[], StoreName], scheme: str
) -> Any:
    """Return an opened store; while silence is told, one whose operations are watched."""
    watch = _Watching.watch
    if watch is None:
        return open_store()
    with watch.waiting(name(), f"opening {scheme}"):
        store = open_store()
    return WatchedStore(store, watch, name(), scheme)


class WatchedStore:
    """A filesystem of pyarrow, of which each operation and each file is watched."""

    def __init__(
        self, store: "fs.FileSystem", watch: StoreWatch, name: StoreName, scheme: str
    ) -> None:
        """Take the filesystem, and what its paths begin with in a URI."""
        self._store, self._watch, self._name, self._scheme = store, watch, name, scheme

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._store, name)
        if name not in _DOING:
            return member

        def call(target: Any, *others: Any, **options: Any) -> Any:
            doing = "listing" if hasattr(target, "base_dir") else _DOING[name]
            uri = f"{self._scheme}{_path_of(target)}"
            with self._watch.waiting(self._name, f"{doing} {uri}"):
                result = member(target, *others, **options)
            if name.startswith("open_"):
                return _WatchedFile(result, self._watch, self._name, uri)
            return result

        return call


def _path_of(target: Any) -> str:
    if hasattr(target, "base_dir"):  # a FileSelector
        return str(target.base_dir)
    return target if isinstance(target, str) else next(iter(target), "")


class _WatchedFile:
    """A file of pyarrow, of which each operation is watched."""

    def __init__(self, file: "pa.NativeFile", watch: StoreWatch, name: StoreName, uri: str) -> None:
        self._file, self._watch, self._name, self._uri = file, watch, name, uri

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._file, name)
        if name not in _READING and name not in _WRITING:
            return member

        def call(*arguments: Any) -> Any:
            doing = "reading" if name in _READING else "writing"
            with self._watch.waiting(self._name, f"{doing} {self._uri}"):
                return member(*arguments)

        return call

    def __enter__(self) -> "_WatchedFile":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
