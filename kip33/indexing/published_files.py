"""Publish the index files of a group of segments: one routine for all stores and all commands.

For each file it looks what is there, `rules.publication` decides, and the file is kept, written or
removed. Files are renamed first; then a few threads flush some files each, one after the other: the
file system writes files of several threads together, and the next group is scanned meanwhile. At
the end the folders are flushed, so that the names are safe, too.

**In place, a new `.index` is written last.** A broker builds the index files of an old segment only
while its `.index` is missing. If a power failure kept only the `.index`, the broker would use an
empty `.timeindex` from then on. So the other files of the group and their folders are flushed
first, and each `.index` is flushed before its rename. It also makes a broker trust the files beside
it, so it is not written if one of them does not match the log. On a remote store a file is safe
once it is written.

**In a bucket, a group's files are listed.** A put does not say when the store received a file, and
a size that is read back shows that the store kept all bytes. One request for each file answers
both, and a listing answers for a thousand files. A folder with many older files takes many requests
to list, so files are asked for one by one unless most of the archive is new.

After a failed flush a file's bytes can be in memory only, and a later flush of them succeeds. The
next run would find the expected bytes and write nothing. So our files that could not be flushed are
deleted: the next run writes them again.
"""

import os
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple, TypeVar

from kip33.archive.index_listing import UNKNOWN_STATUS
from kip33.errors import FileReadError, PublishError, is_of_the_machine
from kip33.formats.index_kinds import IndexKind
from kip33.formats.time_index import index_crc32c
from kip33.rules.publication import (
    Action,
    FileDecision,
    IndexFileState,
    Owner,
    There,
    Wanted,
    decide,
    state_together,
)
from kip33.rules.segment_notes import SegmentNote
from kip33.stores.concurrently import LARGE_FILES_AT_ONCE, map_in_order
from kip33.stores.file_owners import correct_owner, publish_beside
from kip33.stores.files import (
    FileStatus,
    entries_of,
    is_as_listed,
    is_file,
    listed_status,
    one_line,
    read_whole,
    status_of,
)
from kip33.stores.locations import Location
from kip33.stores.own_files import (
    flush,
    flush_filesystems,
    is_flushing,
    publish,
    remove,
    require_file_or_nothing,
)

MOST_SEGMENTS_TOGETHER: Final = 256  # of a group
_MOST_INDEX_BYTES: Final = 32 << 20  # of its files
FLUSHING_THREADS: Final = 8
FILES_AT_ONCE: Final = 32  # of one thread's work: handing over files one by one costs more CPU
MOST_WAITING: Final = 1024  # files; with more, the scan waits for the oldest
LEAST_LISTED: Final = 3  # files of a folder: for fewer a listing saves nothing
_MOST_LISTED: Final = 4096  # files that were put into a folder: each group lists it again
_WITH_DATA: Final = (Wanted.BYTES, Wanted.EMPTY)
_NEVER_WRITTEN: Final = (Wanted.CUT, Wanted.REFUSED, Wanted.SPLIT)  # by any build of kip33
Item = TypeVar("Item")
_PROMISED: Final = frozenset({IndexFileState.WRITTEN, IndexFileState.KEPT})


class TargetFile(NamedTuple):
    """An index file that a segment should have, or should not."""

    kind: IndexKind
    place: Location
    wanted: Wanted
    data: bytes | None = None  # the wanted bytes; of a GOOD file: those of the log
    is_ours: bool = False  # kip33 wrote the existing file, as far as the catalog knows
    seen: FileStatus | None = None  # of the file that existed before this run began
    matches: bool | None = None  # of a GOOD file: whether it has `data`
    crc32c: int | None = None  # of `data`, if it is known already


class SegmentFiles(NamedTuple):
    """The index files of one segment, the `.timeindex` first."""

    log: Location
    files: Sequence[TargetFile] = ()
    new_index: TargetFile | None = None  # in place: an `.index` that waits for the others
    is_beside_right: bool = True  # whether those that are there already let it be written
    beside: Sequence[str] = ()  # paths of our other files: they go if these cannot be flushed
    size_bytes: int | None = None  # of the log, when it was listed
    last_modified_ms: int | None = None
    before_log: bool = False  # its files existed before this catalog knew the log

    def every(self) -> Iterator[TargetFile]:
        """Yield its files, the one that waits last."""
        yield from self.files
        if self.new_index:
            yield self.new_index


class PublishedFile(NamedTuple):
    """An index file after it was published."""

    size_bytes: int
    modified_ms: int | None
    matches: bool | None  # it has the bytes that the settings give from the log; None: unknown
    crc32c: int | None  # None: its bytes were not read


@dataclass
class PublishedFiles:
    """What became of the index files of one segment."""

    files: dict[IndexKind, PublishedFile] = field(default_factory=dict)  # that are there
    states: list[IndexFileState | None] = field(default_factory=list)
    notes: list[SegmentNote] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)  # for `index_error`
    is_right: bool = True  # each file matches the log, or a broker is not misled by it
    written: int = 0  # files that were put

    @property
    def state(self) -> IndexFileState | None:
        """Return the state of all files together, None if one is missing."""
        return state_together(self.states)

    @property
    def are_there(self) -> bool:
        """Return whether no file is missing, and none is to be written again."""
        return _PROMISED.issuperset(self.states)

    def matches(self, kind: IndexKind) -> bool:
        """Return whether a file is there and has the bytes that the log gives."""
        return kind in self.files and bool(self.files[kind].matches)

    def add(self, kind: IndexKind, decision: FileDecision, file: PublishedFile | None) -> None:
        """Add a file that was dealt with."""
        if file:
            self.files[kind] = file
        if decision.counts:
            self.states.append(decision.state)
        if decision.note:
            self.notes.append(decision.note)
        self.written += decision.action is Action.WRITE
        self.is_right &= decision.is_right


def in_groups(
    items: Iterable[Item], files_of: Callable[[Item], SegmentFiles]
) -> Iterator[list[Item]]:
    """Yield consecutive items in lists, each of segments whose files are published together."""
    group: list[Item] = []
    held_bytes = 0
    for item in items:
        group.append(item)
        held_bytes += sum(len(file.data or b"") for file in files_of(item).every())
        if len(group) >= MOST_SEGMENTS_TOGETHER or held_bytes >= _MOST_INDEX_BYTES:
            yield group
            group, held_bytes = [], 0
    if group:
        yield group


def cannot_be_written(place: Location, why: object) -> str:
    """Return the `index_error` of a file that cannot be written."""
    return f"{place.uri}: cannot be written: {why}"


class IndexPublisher:
    """Publishes the index files of one group of segments after another."""

    def __init__(
        self,
        index_dir: Location,
        *,
        in_place: bool,
        others: Owner = Owner.ANOTHERS,
        lists_puts: bool = False,
        if_not_flushed: str = "fix it and run the command again",
    ) -> None:
        """Take the directory of the index files, and what a command is asked.

        `others`: what a file of another program is to it. `lists_puts`: in a bucket, list folders
        instead of asking for each new file. `if_not_flushed`: what to do if the disk fails.
        """
        self._index_dir, self._in_place, self._others = index_dir, in_place, others
        self._lists_puts = lists_puts
        self._put: Counter[str] = Counter()  # into each folder of a bucket
        self._flusher = _Flusher(if_not_flushed)

    def publish(self, group: Sequence[SegmentFiles]) -> list[PublishedFiles]:
        """Publish the files of some segments; return what became of them, in order.

        A fault of the store is a problem of its segment. Raises PublishError if files cannot be
        flushed, also those of an earlier group.
        """
        listed = self._listed_folders(group)
        published = [*map_in_order(self._index_dir, group, partial(self._publish, listed))]
        for segment, done in zip(group, published, strict=True):
            self._flusher.add(segment, done)
        each = zip(group, published, strict=True)
        waiting = [one for one in each if one[0].new_index]
        if waiting:
            self._flusher.wait()
            with ThreadPoolExecutor(FLUSHING_THREADS, thread_name_prefix="kip33-index") as pool:
                for place in pool.map(partial(self._publish_index, listed), waiting):
                    self._flusher.add_folder(place)
        if listed:
            _look_up_times(group, published)
        return published

    def finish(self) -> None:
        """Wait until all files and folders are on the disk; PublishError if that fails."""
        self._flusher.finish()

    def _listed_folders(self, group: Sequence[SegmentFiles]) -> frozenset[str]:
        """Return the folders of a bucket that are listed after files were put into them."""
        if not self._lists_puts:
            return frozenset()
        files = Counter(_folder(file.place) for segment in group for file in segment.every())
        self._put += files
        return frozenset(
            folder
            for folder, count in files.items()
            if count >= LEAST_LISTED and self._put[folder] <= _MOST_LISTED
        )

    def _publish(self, listed: frozenset[str], segment: SegmentFiles) -> PublishedFiles:
        done = PublishedFiles()
        for file in segment.files:
            self._publish_file(segment, file, done, listed)
        return done

    def _publish_index(
        self, listed: frozenset[str], waiting: tuple[SegmentFiles, PublishedFiles]
    ) -> Location:
        """Write a new `.index` if all files beside it are right; return its place."""
        segment, done = waiting
        file = segment.new_index
        assert file is not None
        if not (done.are_there and done.is_right and segment.is_beside_right):
            file = file._replace(wanted=Wanted.LEFT, data=None)
        self._publish_file(segment, file, done, listed, flush_first=True)
        return file.place

    def _publish_file(
        self,
        segment: SegmentFiles,
        file: TargetFile,
        done: PublishedFiles,
        listed: frozenset[str],
        *,
        flush_first: bool = False,
    ) -> None:
        """Look, decide, act; a fault of the store is a problem of the segment."""
        owner = Owner.OURS
        if not file.is_ours and (file.seen is not None or file.wanted in _NEVER_WRITTEN):
            owner = self._others
        try:
            there, status, data = _look(segment, file, owner)
            decision = decide(file.kind, file.wanted, owner, there)
            left: PublishedFile | None = None
            if decision.action is Action.WRITE:
                status = self._write(
                    *(segment, file, owner, done),
                    durable=status is not None,
                    flush_first=flush_first,
                    reads_back=_folder(file.place) not in listed,
                )
                left = _as_published(status, True, file.data, file.crc32c)
            elif decision.action is Action.REMOVE:
                remove(file.place)
                self._flusher.add_folder(file.place)
            elif status and (decision.state or not decision.counts):
                if there is There.SAME and owner is Owner.OURS and self._in_place:
                    _note_owners(done, correct_owner(file.place, segment.log))
                matches = True if there is There.SAME else file.matches
                known = (file.data, file.crc32c) if matches else (data, None)
                left = _as_published(status, matches, *known)
        except OSError as error:
            if is_of_the_machine(error):
                raise
            _add_problem(file, owner, error, done)
            return
        done.add(file.kind, decision, left)
        if decision.state is IndexFileState.KEPT and decision.note and segment.before_log:
            done.notes.append(SegmentNote.BEFORE_LOG)

    def _write(
        self,
        segment: SegmentFiles,
        file: TargetFile,
        owner: Owner,
        done: PublishedFiles,
        *,
        durable: bool,
        flush_first: bool,
        reads_back: bool,
    ) -> FileStatus:
        assert file.data is not None
        if not self._in_place:
            return publish(
                file.place,
                file.data,
                durable=durable,
                reads_back=reads_back,
                is_free=not durable,
            )
        problems: list[str] = []
        status = publish_beside(
            file.place,
            file.data,
            segment.log,
            problems,
            ours=owner is Owner.OURS,
            durable=durable,
            flush_first=flush_first,
            reads_back=reads_back,
        )
        _note_owners(done, problems)
        return status


def _look(
    segment: SegmentFiles, file: TargetFile, owner: Owner
) -> tuple[There, FileStatus | None, bytes | None]:
    """Return what is there, its status, and its bytes if they were read."""
    if file.wanted is Wanted.LEFT or (file.seen is None and file.place.is_object_store):
        return There.NOTHING, None, None  # a put over our own file is cheaper than a question
    may_write = file.data is not None and file.wanted in _WITH_DATA
    if may_write and file.place.is_local and not require_file_or_nothing(file.place):
        return There.NOTHING, None, None
    status = status_of(file.place)
    if status is None:
        return There.NOTHING, None, None
    if file.data is None or not may_write:
        return There.OTHER, status, None
    same_size = status.size_bytes == len(file.data)
    data = read_whole(file.place, most_bytes=len(file.data)) if same_size else None
    if data == file.data:
        return There.SAME, status, data
    is_newer = owner is not Owner.ANOTHERS and status != file.seen
    listed = segment.size_bytes, segment.last_modified_ms
    is_newer = is_newer and (None in listed or not is_as_listed(segment.log, *listed))
    return There.NEWER if is_newer else There.OTHER, status, data


def _as_published(
    status: FileStatus, matches: bool | None, data: bytes | None, crc32c: int | None = None
) -> PublishedFile:
    if crc32c is None and data is not None:
        crc32c = index_crc32c(data)
    return PublishedFile(*status, matches, crc32c)


def _note_owners(done: PublishedFiles, problems: Sequence[str]) -> None:
    if problems:
        done.notes.append(SegmentNote.OWNER_NOT_GIVEN)
        done.problems += problems


def _add_problem(file: TargetFile, owner: Owner, error: OSError, done: PublishedFiles) -> None:
    """Add the fault of a file: the next build tries again, and another's never becomes ours."""
    uri, why = file.place.uri, one_line(error)
    removes = owner is Owner.OURS and file.wanted in (Wanted.EMPTY, Wanted.NONE)
    if removes or file.wanted in (Wanted.NONE, Wanted.UNPROVEN):
        done.problems.append(f"{uri}: cannot be removed, though the log gives none: {why}")
    elif file.wanted in _WITH_DATA or file.wanted is Wanted.GOOD:
        done.problems.append(cannot_be_written(file.place, why))
    else:
        done.problems.append(f"{uri}: cannot be read or removed: {why}")
    if removes or decide(file.kind, file.wanted, owner, There.NOTHING).counts:
        done.states.append(IndexFileState.STALE if file.is_ours else None)
    if owner is Owner.ANOTHERS and file.seen != UNKNOWN_STATUS:  # it was there
        done.states.append(IndexFileState.KEPT)
    done.is_right = False


def _folder(place: Location) -> str:
    return place.path.rpartition("/")[0]


def _look_up_times(group: Sequence[SegmentFiles], published: Sequence[PublishedFiles]) -> None:
    """Complete the files of a bucket that were put and not read back, from listings of folders."""
    folders: defaultdict[Location, list[tuple[PublishedFiles, TargetFile]]] = defaultdict(list)
    for segment, done in zip(group, published, strict=True):
        for file in segment.every():
            put = done.files.get(file.kind)
            if put and put.modified_ms is None:
                folders[file.place.parent].append((done, file))
    with ThreadPoolExecutor(LARGE_FILES_AT_ONCE, thread_name_prefix="kip33-list") as pool:
        for statuses, files in zip(pool.map(_listed, folders), folders.values(), strict=True):
            for done, file in files:
                _look_up_time(done, file, statuses.get(file.place.path))


def _listed(folder: Location) -> dict[str, FileStatus]:
    """Return the files of a folder by path; empty if each must be asked for."""
    try:
        entries = entries_of(folder)
    except FileReadError:
        return {}
    return {info.path: listed_status(folder, info) for info in entries if is_file(info)}


def _look_up_time(done: PublishedFiles, file: TargetFile, listed: FileStatus | None) -> None:
    """Complete one file; of a file that the listing lacks, the status is read."""
    put = done.files[file.kind]
    try:
        is_right = listed is not None and listed.size_bytes == put.size_bytes
        status = listed if is_right else status_of(file.place)
        size_bytes = status.size_bytes if status else None
        if status is None or size_bytes != put.size_bytes:
            raise FileReadError(
                f"{file.place.uri}: {put.size_bytes} bytes were written, but the file has "
                f"{size_bytes} bytes"
            )
    except FileReadError as error:
        done.problems.append(cannot_be_written(file.place, one_line(error)))
        done.states.append(IndexFileState.STALE)  # the next build tries again
        del done.files[file.kind]
        return
    done.files[file.kind] = put._replace(modified_ms=status.modified_ms)


class _WrittenFile(NamedTuple):
    path: str
    ours: tuple[str, ...]  # all files of its segment if they are ours, else none


class _Flusher:
    """Flushes files while other work goes on, and at the end their folders."""

    def __init__(self, if_not_flushed: str) -> None:
        self._if_not_flushed = if_not_flushed
        self._pool = ThreadPoolExecutor(FLUSHING_THREADS, thread_name_prefix="kip33-flush")
        self._next: list[_WrittenFile] = []  # files that no thread has yet
        self._waiting: deque[Future[list[_WrittenFile]]] = deque()
        self._folders: dict[str, Location] = {}
        self._not_flushed: list[_WrittenFile] = []  # files that could not be opened

    def add(self, segment: SegmentFiles, done: PublishedFiles) -> None:
        """Begin to flush the files of a segment.

        Those of a `stale` one need no flush, because the next build writes them again.
        """
        if not (is_flushing() and done.files and done.are_there):
            return
        places = [file.place for file in segment.files if file.kind in done.files]
        if not places[0].is_local:
            return
        self.add_folder(places[0])
        paths = [place.path for place in places]
        ours = (*paths, *segment.beside) if done.state is IndexFileState.WRITTEN else ()
        self._next += [_WrittenFile(path, ours) for path in paths]
        if len(self._next) >= FILES_AT_ONCE:
            self._begin_next()
        try:
            self._collect(MOST_WAITING // FILES_AT_ONCE)
        except OSError as error:
            raise self._publish_error(error) from error

    def add_folder(self, place: Location) -> None:
        """Flush the folder of a file at the end, because a name in it is new."""
        folder = _folder(place)
        if folder not in self._folders and place.is_local and is_flushing():
            self._folders[folder] = place.parent

    def finish(self) -> None:
        """Wait as `wait` does; called once, at the end."""
        try:
            self.wait()
        finally:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def wait(self) -> None:
        """Wait until all files and folders so far are on the disk; PublishError if that fails."""
        try:
            self._begin_next()
            self._collect(0)
            for one in [self._pool.submit(flush, path) for path in self._folders]:
                one.result()
            folders = {os.path.dirname(file.path) for file in self._not_flushed}  # noqa: PTH120
            flush_filesystems(self._folders[folder] for folder in sorted(folders))
            self._folders, self._not_flushed = {}, []
        except OSError as error:
            for file in self._not_flushed:
                _remove(file.ours)
            raise self._publish_error(error) from error

    def _collect(self, most_waiting: int) -> None:
        """Wait for the oldest lists; the first OSError of a file is raised after all of them."""
        failure: OSError | None = None
        while len(self._waiting) > most_waiting:
            try:
                self._not_flushed += self._waiting.popleft().result()
            except OSError as error:
                failure = failure or error
        if failure:
            raise failure

    def _begin_next(self) -> None:
        if self._next:
            self._waiting.append(self._pool.submit(_flush_files, self._next))
            self._next = []

    def _publish_error(self, error: OSError) -> PublishError:
        return PublishError(
            f"index files cannot be flushed to the disk: {one_line(error)}; {self._if_not_flushed}"
        )


def _flush_files(files: list[_WrittenFile]) -> list[_WrittenFile]:
    """Flush files; return those that cannot be opened, or have another name now.

    Raises the first other OSError after all files were tried; our files that fail are deleted.
    """
    not_flushed = []
    failure: OSError | None = None
    for file in files:
        try:
            flush(file.path)
        except (PermissionError, FileNotFoundError):
            not_flushed.append(file)
        except OSError as error:
            _remove(file.ours)
            failure = failure or error
    if failure:
        raise failure
    return not_flushed


def _remove(ours: tuple[str, ...]) -> None:
    """Delete a segment's files, the `.index` first: without it a broker builds all of them."""
    for path in sorted(ours, key=lambda path: not path.endswith(".index")):
        with suppress(OSError):
            os.unlink(path)  # noqa: PTH108
