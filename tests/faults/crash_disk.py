"""A disk that forgets what was not flushed: all states that a power failure can leave.

A file's bytes are certain once the file was flushed; before that they may be there, be short or be
missing. A name (made, replaced by a rename, removed) is certain once its folder was flushed; before
that it may lead to any file that it led to since. Any combination of these is a state, with one
exception: a rename never loses a file, so the old name is there as long as the new one is not.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from tests.faults.traces import Event

MOST_STATES: Final = 200_000  # of one moment, before equal ones count once
Tree = dict[str, bytes]  # the files of a state, by path


class File:
    """A file's bytes, whatever its names are."""

    def __init__(self, data: bytes, *, certain: bool = False) -> None:
        self.data = data
        self._on_disk = data if certain else b""
        self.is_certain = certain

    def change(self, data: bytes) -> None:
        self.data, self.is_certain = data, False

    def flush(self) -> None:
        self._on_disk, self.is_certain = self.data, True

    def possible(self) -> list[bytes]:
        """Return what may be read after a power failure."""
        if self.is_certain:
            return [self.data]
        return list(dict.fromkeys((self.data, self.data[: len(self.data) // 2], self._on_disk)))


class Name(NamedTuple):
    """Where a name may lead; `moved_to` is the other name of a rename that removed this one."""

    file: File | None  # None: no such file
    moved_to: str = ""


class Disk:
    """Files and folders below a root while a recorded program runs."""

    def __init__(self, root: Path) -> None:
        """Begin with what is there now; all of it is certain."""
        self.root = str(root)
        self.names: dict[str, list[Name]] = {}  # the first is certain, each later one may be
        self.folders: dict[str, bool] = {self.root: True}  # whether they are certain to be there
        for path in root.rglob("*"):
            if path.is_dir():
                self.folders[str(path)] = True
            else:
                self.names[str(path)] = [Name(File(path.read_bytes(), certain=True))]

    def file(self, path: str) -> File | None:
        """Return the file that a running program sees."""
        return self.names[path][-1].file if path in self.names else None

    def apply(self, event: Event) -> None:
        """Take one step."""
        getattr(self, f"_{event.what.replace(' ', '_')}")(event)

    def _create(self, event: Event) -> None:
        file = self.file(event.path)
        if file is None:
            self.names.setdefault(event.path, [Name(None)]).append(Name(File(b"")))
        elif event.new == "truncate":
            file.change(b"")

    def _write(self, event: Event) -> None:
        file = self.file(event.path)
        assert file is not None, f"{event.path}: written, but not known"
        file.change(file.data + event.data)

    def _copy(self, event: Event) -> None:
        source = self.file(event.new)
        assert source is not None, f"{event.new}: copied, but not known"
        file = self.file(event.path)
        if file is not None and not file.data:
            file.change(source.data)

    def _rename(self, event: Event) -> None:
        self._link(event)
        self.names[event.path].append(Name(None, event.new))

    def _link(self, event: Event) -> None:
        file = self.file(event.path)
        assert file is not None, f"{event.path}: renamed or linked, but not known"
        self.names.setdefault(event.new, [Name(None)]).append(Name(file))

    def _remove(self, event: Event) -> None:
        if event.path in self.names:
            self.names[event.path].append(Name(None))

    def _mkdir(self, event: Event) -> None:
        self.folders.setdefault(event.path, False)

    def _flush(self, event: Event) -> None:
        file = self.file(event.path)
        if file is not None:
            file.flush()
            return
        for path, names in self.names.items():
            if path.rpartition("/")[0] == event.path:
                del names[:-1]
        for path in self.folders:
            if path.rpartition("/")[0] == event.path:
                self.folders[path] = True

    def _flush_all(self, _: Event) -> None:
        for names in self.names.values():
            del names[:-1]
            if names[0].file:
                names[0].file.flush()
        self.folders = dict.fromkeys(self.folders, True)

    def possible(self, path: str) -> set[bytes | None]:
        """Return what a file may hold after a power failure now; None: it is not there."""
        names = self.names.get(path, [Name(None)])
        found: set[bytes | None] = set()
        for name in names:
            found |= set(name.file.possible()) if name.file else {None}
        if not self._has_certain_folders(path):
            found.add(None)
        return found

    def trees(self, wanted: Callable[[str], bool] = lambda _: True) -> Iterator[Tree]:
        """Yield every state of the wanted files, equal ones once."""
        uncertain = [path for path in self.names if wanted(path)]
        choices = {path: self._choices(path) for path in uncertain}
        certain = {path: options[0] for path, options in choices.items() if len(options) == 1}
        open_paths = [path for path in uncertain if path not in certain]
        folders = [path for path, is_certain in self.folders.items() if not is_certain]
        folders = [path for path in folders if any(one.startswith(path + "/") for one in uncertain)]
        count = 2 ** len(folders)
        for path in open_paths:
            count *= len(choices[path])
        assert count <= MOST_STATES, f"{count} states at one moment: {open_paths}"
        seen: set[frozenset[tuple[str, bytes]]] = set()
        for lost in _subsets(folders):
            for picked in itertools.product(*(choices[path] for path in open_paths)):
                state = certain | dict(zip(open_paths, picked, strict=True))
                if not self._is_possible(state):
                    continue
                tree = _tree(state, lost)
                key = frozenset(tree.items())
                if key not in seen:
                    seen.add(key)
                    yield tree

    def _choices(self, path: str) -> list[tuple[int, bytes | None]]:
        """Return (which of its names, the bytes) for all that may be."""
        return [
            (number, data)
            for number, name in enumerate(self.names[path])
            for data in (name.file.possible() if name.file else [None])
        ]

    def _is_possible(self, state: dict[str, tuple[int, bytes | None]]) -> bool:
        """Return whether no rename lost its file: what left one name has come to the other."""
        for path, (number, _) in state.items():
            name = self.names[path][number]
            if not name.moved_to or number == 0 or name.moved_to not in state:
                continue
            moved = self.names[path][number - 1].file
            new_names = self.names[name.moved_to]
            since = [at for at, new in enumerate(new_names) if new.file is moved]
            if since and state[name.moved_to][0] < since[0]:
                return False
        return True

    def _has_certain_folders(self, path: str) -> bool:
        return all(self.folders.get(str(above), True) for above in Path(path).parents)


def _tree(state: dict[str, tuple[int, bytes | None]], lost: Iterable[str]) -> Tree:
    below = tuple(f"{folder}/" for folder in lost)
    return {
        path: data
        for path, (_, data) in state.items()
        if data is not None and not (below and path.startswith(below))
    }


def _subsets(items: list[str]) -> Iterator[tuple[str, ...]]:
    for size in range(len(items) + 1):
        yield from itertools.combinations(items, size)
