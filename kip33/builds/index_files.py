"""Publish a segment's index files, and determine the catalog's column `index_file`.

`catalog.schema` defines the states. A `stale` row is never reused: the next build tries again.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

from kip33.catalog.schema import SEGMENTS, IndexFileState
from kip33.errors import is_of_the_machine
from kip33.formats.index_kinds import IndexKind
from kip33.formats.time_index import index_crc32c
from kip33.indexing.segment import BuiltIndexes
from kip33.rules.broker_start import CUT, offset_index_note
from kip33.rules.segment_notes import KEPT, SegmentNote
from kip33.stores.file_owners import correct_owner, publish_beside
from kip33.stores.files import FileStatus, one_line, read_whole, status_of
from kip33.stores.locations import Location
from kip33.stores.own_files import publish, remove

_NO_FILE: Final = (None, None)
_COLUMNS: Final = {
    kind: [
        (column, what)
        for what in ("size_bytes", "modified_ms", "matches", "crc32c")
        if (column := f"{kind}_{what.removeprefix('size_')}") in SEGMENTS.names
    ]
    for kind in IndexKind
}
"""The columns of a kind's file, each with its field of PublishedFile."""


class TargetIndexFile(NamedTuple):
    """One index file and the bytes it should have; with `good_entries` it is left unchanged."""

    kind: IndexKind
    place: Location
    data: bytes | None  # None: the log gives no index
    seen: FileStatus | None = None  # of the file that existed before this build began
    good_entries: int | None = None
    good_matches: bool | None = None  # `PublishedFile.matches` of the file that is left
    before_log: bool = False  # the file existed before this catalog knew its log
    flush_first: bool = False  # flush its bytes before it gets its name
    reads_back: bool = True  # else the time of a file in a bucket stays unknown: `WaitingPuts`


class PublishedFile(NamedTuple):
    """An index file after a build."""

    size_bytes: int
    modified_ms: int | None
    matches: bool | None  # it has the bytes that the settings give from the log; None: unknown
    crc32c: int | None  # None: its bytes were not read


def record(row: dict[str, Any], kind: IndexKind, file: PublishedFile | None) -> None:
    """Put a segment's index file into its catalog row."""
    for column, field in _COLUMNS[kind]:
        row[column] = getattr(file, field, None)


def add_notes(row: dict[str, Any], *notes: SegmentNote) -> None:
    """Add notes to a catalog row."""
    if notes:
        row["notes"] = list(dict.fromkeys((*(row.get("notes") or ()), *notes)))


def add_problems(row: dict[str, Any], *problems: str) -> None:
    """Add to the `index_error` of a catalog row."""
    if problems:
        row["index_error"] = "; ".join(filter(None, (row.get("index_error"), *problems)))


def cannot_be_written(place: Location, why: object) -> str:
    """Return the `index_error` of a file that cannot be written."""
    return f"{place.uri}: cannot be written: {why}"


FILES_WRITTEN: Final = "files_written"  # of a row in work: the index files that this build put


def add_written(row: dict[str, Any], files: int) -> None:
    """Add to the number of files that this build put for a catalog row; no part has it."""
    row[FILES_WRITTEN] = row.get(FILES_WRITTEN, 0) + files


def state_together(states: Iterable[IndexFileState | None]) -> IndexFileState | None:
    """Return the state of a segment's index files from those of each file: `Published.state`."""
    states = set(states)
    is_ours = IndexFileState.KEPT not in states
    if is_ours and (IndexFileState.STALE in states or states == {IndexFileState.WRITTEN, None}):
        return IndexFileState.STALE
    if not states or None in states:
        return None
    return IndexFileState.WRITTEN if states == {IndexFileState.WRITTEN} else IndexFileState.KEPT


class Published:
    """The results for a segment's index files, the `.timeindex` first."""

    def __init__(
        self, log: Location | None = None, *, log_changed: Callable[[], bool] = lambda: False
    ) -> None:
        """Start without files. `log`: in place, the log beside the files.

        `log_changed` returns whether the log differs from its listing.
        """
        self._log_changed = log_changed
        self.notes: list[SegmentNote] = []
        self.problems: list[str] = []  # for `index_error`
        self._log = log
        self.written = 0  # files that were put
        self._states: list[IndexFileState | None] = []
        self._files: list[PublishedFile | None] = []
        self._are_right: list[bool] = []

    @property
    def state(self) -> IndexFileState | None:
        """Return WRITTEN if all files are ours, KEPT if one is not, None if one is missing.

        STALE: we own the files, but at least one is wrong; the next build tries again.
        """
        return state_together(self._states)

    @property
    def files(self) -> tuple[PublishedFile | None, PublishedFile | None]:
        """Return the current `.timeindex` and `.index`, None for a missing file."""
        time_index, offset_index = (*self._files, None, None)[:2]
        return time_index, offset_index

    @property
    def is_first_right(self) -> bool:
        """Return whether the first file matches the log: a foreign file that was kept may not."""
        return self._are_right[:1] == [True]

    def add(
        self, file: TargetIndexFile, *, ours: bool, overwrite: bool, proves_nothing: bool = False
    ) -> None:
        """Publish, keep or withdraw one file; a fault of the store is a problem.

        A file that did not exist when the build began is also ours: another attempt of this task or
        a concurrent build wrote it.
        """
        built_before = ours
        ours = ours or file.seen is None
        state: IndexFileState | None
        published: PublishedFile | None = None
        try:
            if file.data is None:
                state, published = _withdraw(file.place, ours=ours, proves_nothing=proves_nothing)
            elif file.good_entries is not None:
                state = IndexFileState.WRITTEN if ours else IndexFileState.KEPT
                same = file.data if file.good_matches else None  # the file has the same bytes
                published = _as_published(status_of(file.place), file.good_matches, same)
            else:
                state, published = self._place(file, file.data, ours=ours, overwrite=overwrite)
        except OSError as error:
            if is_of_the_machine(error):
                raise
            state = IndexFileState.STALE if built_before else None
            why = one_line(error)
            kept = f"{file.place.uri}: cannot be removed, though the log gives none: {why}"
            self.problems.append(kept if file.data is None else cannot_be_written(file.place, why))
        self._states.append(state)
        self._files.append(published)
        is_same = published is not None and published.matches is not None
        is_good = published is not None and file.good_entries is not None
        self._are_right.append(state == IndexFileState.WRITTEN or is_same or is_good)

    def _place(
        self, file: TargetIndexFile, data: bytes, *, ours: bool, overwrite: bool
    ) -> tuple[IndexFileState, PublishedFile | None]:
        """Publish `data` unless the place has the same bytes or a file of another program."""
        place = file.place
        # A put over our own file is cheaper than a question.
        asks = file.seen is not None or not place.is_object_store
        there = status_of(place) if asks else None
        same_size = there is not None and there.size_bytes == len(data)
        bytes_there = read_whole(place, most_bytes=len(data)) if same_size else None
        if bytes_there == data:
            if self._log and ours:
                self._add_owners(correct_owner(place, self._log))
            state = IndexFileState.WRITTEN if ours or overwrite else IndexFileState.KEPT
            return state, _as_published(there, True, data)
        if there and not ours and not overwrite:
            self.notes += [KEPT[file.kind], *([SegmentNote.BEFORE_LOG] if file.before_log else ())]
            return IndexFileState.KEPT, _as_published(there, None, bytes_there)
        if there and there != file.seen and self._log_changed():
            self.notes.append(SegmentNote.OF_ANOTHER_BUILD)
            return IndexFileState.STALE, _as_published(there, None)
        if self._log:
            owners: list[str] = []
            status = publish_beside(
                place,
                data,
                self._log,
                owners,
                ours=ours,
                durable=there is not None,
                flush_first=file.flush_first,
                reads_back=file.reads_back,
            )
            self._add_owners(owners)
        else:
            durable = there is not None
            status = publish(place, data, durable=durable, reads_back=file.reads_back)
        self.written += 1
        return IndexFileState.WRITTEN, _as_published(status, True, data)

    def _add_owners(self, problems: Sequence[str]) -> None:
        if problems:
            self.notes.append(SegmentNote.OWNER_NOT_GIVEN)
            self.problems += problems

    def add_to(self, row: dict[str, Any]) -> None:
        """Add to a catalog row what is to be said of the files, and how many were put."""
        add_notes(row, *self.notes)
        add_problems(row, *self.problems)
        add_written(row, self.written)

    def withhold(self, place: Location, index: BuiltIndexes, *, ours: bool, asked: bool) -> None:
        """In place, handle the `.index` of a log that a broker's recovery would change.

        No `.index` is written. Ours is removed if a broker then recovers the log; any other stays,
        and a note says what to do. `asked`: the build writes `.index` files.
        """
        try:
            there = status_of(place)
            if there and ours and asked and index.recovered_status == CUT:
                remove(place)
                there = None
        except OSError as error:
            if is_of_the_machine(error):
                raise
            self.problems.append(f"{place.uri}: cannot be read or removed: {one_line(error)}")
            return
        note = offset_index_note(
            index.recovered_status, is_there=there is not None, is_split=index.is_split
        )
        self.notes += [note] if note else []
        if there and asked:
            self._states.append(IndexFileState.STALE if ours else IndexFileState.KEPT)
            self._files.append(_as_published(there, None))
            self._are_right.append(False)


def _withdraw(
    place: Location, *, ours: bool, proves_nothing: bool
) -> tuple[IndexFileState | None, PublishedFile | None]:
    """Delete our index if the log no longer gives one; an unreadable log proves nothing."""
    there = status_of(place)
    if there is None or not ours:
        return _NO_FILE
    if proves_nothing:
        return IndexFileState.WRITTEN, _as_published(there, None)  # the file stays ours
    remove(place)
    return _NO_FILE


def log_has_changed(log: Location, size_bytes: int | None, modified_ms: int | None) -> bool:
    """Return whether a log differs from its size and time in an earlier listing.

    OSError as the store does.
    """
    now = status_of(log)
    if now is None or modified_ms is None or now.modified_ms is None:
        return True
    ticks_ms = 1000 if log.is_object_store else 1
    if now.modified_ms // ticks_ms != modified_ms // ticks_ms:
        return True
    return not log.inside and now.size_bytes != size_bytes


def _as_published(
    status: FileStatus | None, matches: bool | None, data: bytes | None = None
) -> PublishedFile | None:
    """Return an existing file; `data`: its bytes, if they are known."""
    if status is None:
        return None
    return PublishedFile(*status, matches, None if data is None else index_crc32c(data))
