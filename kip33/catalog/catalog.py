"""The catalog: one Parquet row per segment, in snapshots that are committed by one put.

    CATALOG/
      snapshots/
        00000000000000000007-4f0c.../     one snapshot; what `kip33 catalog snapshots --path` prints
          part-00000.parquet              written by pyarrow
      commits/
        00000001700000000000.changed    when a retention plan changed the archive
        00000000000000000007.json       written last, if the number is free; lists the parts
      orphaned/
        00000000000000000007-4f0c....arrow   index files without a log (`catalog.orphan_list`)
      claims/
        00000000000000000007-4f0c....arrow   index files its build could write (`catalog.draft`)
      staging/
        00000000000000000008-91aa.../     parts of a running build (`catalog.draft`)

A snapshot's folder contains only `*.parquet`, so any engine can read it. Without a commit file
there is no snapshot. The newest one has the highest sequence number, which only one build can take;
clocks do not matter. No file is rewritten.
"""

import json
import re
import shlex
import sys
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Self, TypeAlias

import pyarrow as pa
from pyarrow import fs

from kip33.catalog.schema import (
    FIRST_IN_ORDER,
    PARTS,
    SCHEMA_VERSION,
    SEGMENTS,
)
from kip33.catalog.segment_order import KEY, in_order
from kip33.catalog.snapshot_parts import (
    HIDDEN_KEYS,
    NO_FILE,
    SnapshotPart,
    rows_of,
    rows_of_topics,
)
from kip33.errors import CatalogError, FileReadError, UnreadableCatalogError
from kip33.formats.times import UtcTime, utc_time
from kip33.stores.directory_checks import require_directory
from kip33.stores.files import entries_of, one_line
from kip33.stores.locations import KEYS_IN_URI, Location
from kip33.stores.own_files import (
    publish_or_raise,
    read_published,
    remove_folder_quietly,
    remove_quietly,
)

MOST_COMMIT_BYTES: Final = 1 << 30
CATALOG_FOLDER: Final = "_catalog"  # where a build makes its catalog, in the index directory


class OrphanList(NamedTuple):
    """A commit's entry for its list of orphaned index files (`catalog.orphan_list`)."""

    rows: int
    index_bytes: int  # total size of the orphaned files
    size_bytes: int  # of the list itself
    crc32: int

    @classmethod
    def of(cls, record: dict[str, Any] | None) -> Self | None:
        """Return the entry of a commit file, None if it has none."""
        return cls(*(int(record[name]) for name in cls._fields)) if record else None


@dataclass(frozen=True)
class Snapshot:
    """A committed snapshot, as described by its commit file."""

    sequence: int
    snapshot_id: str
    source: str
    created_ms: int
    parts: tuple[SnapshotPart, ...]
    settings: dict[str, Any]
    orphaned: OrphanList | None = None  # None: no orphans, or a build before 0.2
    schema_version: int = SCHEMA_VERSION

    @property
    def name(self) -> str:
        """Return the name of its folder: 20 digits of sequence, a dash, the id."""
        return snapshot_name(self.sequence, self.snapshot_id)

    @property
    def commit_name(self) -> str:
        """Return the name of its commit file, without its end."""
        return commit_name(self.sequence) if self.is_in_order else self.name

    @property
    def created_time(self) -> UtcTime:
        """Return `created_ms` as a time."""
        return utc_time(self.created_ms)

    @property
    def layout(self) -> str:
        """Return the layout of its source, as `kip33.archive.layouts.layout_of` takes it.

        Early snapshots have no layout in their commit; it was Kafka's.
        """
        return str(self.settings.get("layout", "kafka"))

    @property
    def build_settings(self) -> dict[str, Any]:
        """The settings of its build, empty if the commit does not say them."""
        try:
            return dict(json.loads(self.settings["build"]))
        except (KeyError, TypeError, ValueError):
            return {}

    @property
    def dialect(self) -> str | None:
        """Return the dialect of its build, None if the commit does not say it."""
        dialect = self.build_settings.get("dialect")
        return None if dialect is None else str(dialect)

    @property
    def rows(self) -> int:
        """Return the number of segments."""
        return sum(part.rows for part in self.parts)

    @property
    def is_in_order(self) -> bool:
        """Return whether its rows are; those of earlier versions are only read by a build."""
        return self.schema_version >= FIRST_IN_ORDER


class Candidate(NamedTuple):
    """A commit file: its snapshot, or one line with the `problem` why it is ignored."""

    name: str  # of the snapshot; of the commit file if that cannot be read
    snapshot: Snapshot | None
    problem: str | None = None
    is_unreadable: bool = False  # the problem may be temporary
    changed_ms: int = 0  # when a plan last changed the archive, 0: never


class Catalog(NamedTuple):
    """A catalog at a place; opening it reads nothing."""

    location: Location

    @classmethod
    def at(cls, text: str) -> Self:
        """Return the catalog at a path or URI, which need not exist."""
        return cls(Location.of(text))

    def snapshot_folder(self, name: str) -> Location:
        """Return the folder of a snapshot's Parquet files."""
        return self.location.child(f"snapshots/{name}")

    def staging_folder(self, name: str) -> Location:
        """Return the folder with the parts of a build that is not committed."""
        return self.location.child(f"staging/{name}")

    def orphaned_place(self, name: str) -> Location:
        """Return the place of a snapshot's list of orphaned index files."""
        return self.location.child(f"orphaned/{name}.arrow")

    def claims_place(self, name: str) -> Location:
        """Return the place of the claims of a snapshot's build, after its commit."""
        return self.location.child(f"claims/{name}.arrow")

    def commit_place(self, commit: str) -> Location:
        """Return the place of a commit file with this name."""
        return self.location.child(f"commits/{commit}.json")

    def snapshots(self) -> list[Snapshot]:
        """Return the committed snapshots, oldest first; unreadable commit files are left out.

        Raises CatalogError if one was written by a later version of kip33.
        """
        loaded = (self._load(name).snapshot for name in sorted(self.commit_names()))
        return [snapshot for snapshot in loaded if snapshot]

    def candidates(self) -> Iterator[Candidate]:
        """Yield all commits, newest first, with the problem of each snapshot that is ignored."""
        listed = self.infos("commits")
        changed_ms = max(map(_changed_ms, listed), default=0)
        for commit in sorted(_commit_names(listed), reverse=True):
            candidate = self._load(commit)._replace(changed_ms=changed_ms)
            damage = candidate.snapshot and self.damage(candidate.snapshot)
            if (damage or candidate.problem) and commit not in self.commit_names():
                continue  # removed after it was listed
            yield candidate._replace(problem=damage) if damage else candidate

    def newest(self) -> Snapshot | None:
        """Return the newest committed snapshot with all its parts, or None."""
        return next((c.snapshot for c in self.candidates() if not c.problem), None)

    def before(self, snapshot: Snapshot) -> Snapshot | None:
        """Return the complete snapshot before one, None for the first."""
        found = (one.snapshot for one in self.candidates() if not one.problem)
        return next((one for one in found if one and one.sequence < snapshot.sequence), None)

    def require_newest(self) -> Snapshot:
        """Return the newest snapshot, or raise CatalogError for the user."""
        problem = None
        for candidate in self.candidates():
            if candidate.snapshot and not candidate.problem:
                return self.in_order(candidate.snapshot)
            problem = problem or candidate.problem
        raise CatalogError(
            f"{self.location.uri}: "
            + (f"no valid snapshot: {problem}" if problem else "no committed snapshot found")
            + "; `kip33 build` makes one"
        )

    def named(self, text: str) -> Snapshot:
        """Return the snapshot with a name, a sequence number or an id; CatalogError if unknown."""
        matching = [
            snapshot
            for snapshot in self.snapshots()
            if text in (snapshot.name, snapshot.snapshot_id)
            or (text.isdecimal() and int(text) == snapshot.sequence)
        ]
        if matching:
            return self.in_order(matching[-1])
        raise CatalogError(
            f"{self.location.uri}: no snapshot {text}; `kip33 catalog` lists the snapshots"
        )

    def in_order(self, snapshot: Snapshot) -> Snapshot:
        """Return the snapshot; CatalogError if a build has to put its rows in order first."""
        if snapshot.is_in_order:
            return snapshot
        place = self.commit_place(snapshot.commit_name)
        raise CatalogError(
            f"{place.uri}: schema version {snapshot.schema_version} found, expected "
            f"{SCHEMA_VERSION}: an earlier version of kip33 wrote this snapshot; "
            "`kip33 build` with the same SOURCE and catalog upgrades the newest one"
        )

    def read(self, snapshot: Snapshot, columns: list[str] | None = None) -> pa.Table:
        """Return the rows of a snapshot in order; CatalogError if a part is damaged.

        The columns are those of SEGMENTS, or `columns` of PARTS.
        """
        tables = list(self.read_pieces(snapshot, columns))
        if not tables:
            return PARTS.empty_table().select(columns or SEGMENTS.names)
        return pa.concat_tables(tables)

    def read_pieces(
        self,
        snapshot: Snapshot,
        columns: list[str] | None = None,
        topics: Collection[str | None] | None = None,
    ) -> Iterator[pa.Table]:
        """Yield the rows in order, one row group at a time; memory depends on the largest part.

        Those of an earlier version, which only a build reads, are sorted here.

        With `topics`, only their rows are returned, and other row groups are not read; None among
        them is an unknown topic.
        Raises CatalogError if the bytes of a part differ from what the commit lists, or the
        snapshot is removed meanwhile.
        """
        folder = self.snapshot_folder(snapshot.name)
        names = columns or SEGMENTS.names
        try:
            if not snapshot.is_in_order:
                every = [*dict.fromkeys((*names, *KEY))]
                pieces = self.read_parts(folder, snapshot.parts, every)
                none = SEGMENTS.empty_table().select(every)
                yield in_order(pa.concat_tables([none, *pieces])).select(names)
                return
            if topics is None:
                yield from self.read_parts(folder, snapshot.parts, names)
                return
            for part in snapshot.parts:
                if part.may_have(topics):
                    yield from rows_of_topics(folder, part, names, topics)
        except CatalogError as error:
            if self.may_be_committed(snapshot.name):
                raise
            raise self.removed(snapshot) from error

    def removed(self, snapshot: Snapshot) -> CatalogError:
        """Return the error for a snapshot that was removed while it was read."""
        return CatalogError(
            f"{self.commit_place(snapshot.commit_name).uri}: the snapshot was removed while it was "
            "read, as `kip33 catalog prune` does; run the command again"
        )

    def read_parts(
        self, folder: Location, parts: Iterable[SnapshotPart], columns: list[str] | None = None
    ) -> Iterator[pa.Table]:
        """Yield the rows of parts in a folder, one row group at a time; errors as `read_pieces`."""
        for part in parts:
            yield from rows_of(folder, part, columns or SEGMENTS.names)

    def require_whole(self, snapshot: Snapshot) -> None:
        """Raise CatalogError if the bytes of a part differ from what the commit lists."""
        for _ in self.read_pieces(snapshot, ["status"]):
            pass  # reading checks each part's CRC and its number of rows

    def require_source(self, source: Location) -> None:
        """Raise CatalogError if the newest snapshot describes another source."""
        newest = self.newest()
        if newest and newest.source != source.uri:
            raise CatalogError(
                f"{self.location.uri}: describes {newest.source}, not {source.uri}; a "
                "catalog has one SOURCE: give another --catalog"
            )

    def commit_names(self) -> list[str]:
        """Return the names that have a commit file, readable or not, in any order."""
        return _commit_names(self.infos("commits"))

    def record_change(self, at_ms: int) -> None:
        """Record that a plan changed the archive, which older snapshots do not show.

        PublishError if that fails.
        """
        place = self.location.child(f"commits/{at_ms:020d}{_CHANGED}")
        publish_or_raise(place, b"\n", "no file of the archive is moved or deleted")
        with suppress(CatalogError):
            for info in self.infos("commits"):
                if 0 < _changed_ms(info) < at_ms:
                    remove_quietly(place.parent.child(info.base_name))

    def build_if_behind(self) -> str | None:
        """The command that updates the catalog if a plan changed the archive after its snapshot."""
        newest = next((one for one in self.candidates() if one.snapshot and not one.problem), None)
        return _build_if_behind(self, newest) if newest else None

    def may_be_committed(self, name: str) -> bool:
        """Return whether a snapshot with this name has a commit file, or one cannot be read."""
        number = sequence_of(name)
        commits = [commit for commit in self.commit_names() if sequence_of(commit) == number]
        return any(one.snapshot is None or one.name == name for one in map(self._load, commits))

    def infos(self, below: str) -> list[fs.FileInfo]:
        """Return the entries of a folder of the catalog, empty if there is no such folder."""
        place = self.location.child(below)
        try:
            return entries_of(place)
        except FileReadError as error:
            raise UnreadableCatalogError(
                f"{place.uri}: cannot be listed: {one_line(error)}; "
                "fix it and run the command again"
            ) from error

    def damage(self, snapshot: Snapshot) -> str | None:
        """Return the problem with the sizes of a snapshot's files, None if they are right."""
        folder = self.snapshot_folder(snapshot.name)
        sizes = {info.base_name: info.size for info in self.infos(f"snapshots/{snapshot.name}")}
        for part in snapshot.parts:
            if sizes.get(part.name) != part.size_bytes:
                found = sizes.get(part.name, "no")
                return (
                    f"{folder.child(part.name).uri}: {found} bytes found, the commit "
                    f"file says {part.size_bytes}"
                )
        return None

    def _load(self, name: str) -> Candidate:
        place = self.commit_place(name)
        try:
            record = json.loads(read_published(place, most_bytes=MOST_COMMIT_BYTES))
            if record["schema_version"] > SCHEMA_VERSION:
                raise CatalogError(
                    f"{place.uri}: schema version {record['schema_version']} found, "
                    f"this kip33 reads versions up to {SCHEMA_VERSION}; use a newer "
                    "kip33"
                )
            snapshot = Snapshot(
                int(record["sequence"]),
                str(record["id"]),
                re.sub(KEYS_IN_URI, HIDDEN_KEYS, str(record["source"])),
                int(record["created_ms"]),
                tuple(map(SnapshotPart.of, record["parts"])),
                dict(record["settings"]),
                OrphanList.of(record.get("orphaned")),
                int(record["schema_version"]),
            )
        except NO_FILE as error:
            return Candidate(name, None, f"{place.uri}: not a valid commit file: {one_line(error)}")
        except FileReadError as error:
            return Candidate(name, None, f"{place.uri}: cannot be read: {one_line(error)}", True)
        except (ValueError, TypeError, KeyError):
            return Candidate(
                name, None, f"{place.uri}: not a valid commit file: it is damaged or truncated"
            )
        if snapshot.commit_name != name:
            return Candidate(
                name, None, f"{place.uri}: contains the commit file of {snapshot.name}"
            )
        return Candidate(snapshot.name, snapshot)


_CHANGED: Final = ".changed"


def _commit_names(listed: Iterable[fs.FileInfo]) -> list[str]:
    names = (info.base_name for info in listed)
    stems = (name.removesuffix(".json") for name in names if name.endswith(".json"))
    return [stem for stem in stems if sequence_of(stem) is not None]


def _changed_ms(info: fs.FileInfo) -> int:
    """The time in the name of a file of `Catalog.record_change`, 0 for another file."""
    stem, _, kind = info.base_name.partition(".")
    return int(stem) if f".{kind}" == _CHANGED and stem.isdecimal() else 0


def _build_if_behind(catalog: Catalog, newest: Candidate) -> str | None:
    snapshot = newest.snapshot
    is_behind = snapshot and newest.changed_ms > snapshot.created_ms
    return build_command(catalog, snapshot) if snapshot and is_behind else None


def build_command(catalog: Catalog, snapshot: Snapshot) -> str:
    """The command that builds a catalog again, with the options that its snapshot records."""
    from kip33.rules.index_builder import IndexSettings

    index_uri = snapshot.settings.get("index_dir")
    index_dir = Location.of(index_uri) if index_uri else None
    words = ["kip33", "build", Location.of(snapshot.source).word]
    if index_dir is None:
        words.append("--no-index-files")
    elif index_uri == snapshot.source:
        words.append("--in-place")
    else:
        words += ["--index-dir", index_dir.word]
    if index_dir is None or index_dir.child(CATALOG_FOLDER) != catalog.location:
        words += ["--catalog", catalog.location.word]
    if snapshot.layout != "kafka":
        words += ["--layout", snapshot.layout]
    defaults = {**IndexSettings()._asdict(), "offset_index": False}
    for name, value in snapshot.build_settings.items():
        if name in defaults and value != defaults[name]:
            flag = name.replace("_", "-")
            words += [f"--no-{flag}"] if value is False else [f"--{flag}"]
            words += [] if isinstance(value, bool) else [str(value)]
    return shlex.join(words)


Warn: TypeAlias = Callable[[str], object]
"""Shows one line to the user."""


class Choice(NamedTuple):
    """A snapshot, and one line for each newer snapshot that is ignored.

    `build` is the command that updates the catalog, if a plan changed the archive since.
    """

    snapshot: Snapshot
    warnings: tuple[str, ...] = ()
    build: str | None = None


def warn_caller(message: str) -> None:
    """Give a Python warning at the line that called kip33."""
    depth, frame, package = 1, sys._getframe(0), __name__.split(".")[0]
    while frame.f_back and frame.f_globals.get("__name__", "").split(".")[0] == package:
        depth, frame = depth + 1, frame.f_back
    warnings.warn(message, stacklevel=depth)


def catalog_at(
    place: Location, what: str | None = "the catalog", warn: Warn = warn_caller
) -> Catalog:
    """Return the catalog at a place; if it is an index directory, that directory's own.

    `warn` is told then. Raises LocationError if there is no such directory, `what` it should be;
    without `what`, `choose` raises CatalogError later.
    """
    if what is not None:
        require_directory(place, what)
    return _catalog_in(place, warn) or Catalog(place)


def existing_catalog(place: Location) -> Catalog:
    """Return the catalog at a place, as `catalog_at`; CatalogError if it has no snapshot at all."""
    catalog = catalog_at(place)
    if not catalog.commit_names():
        raise CatalogError(
            f"{place.uri}: no committed snapshot found, expected the directory that `kip33 build` "
            f"makes for a catalog: {CATALOG_FOLDER} in the index directory, or that of --catalog"
        )
    return catalog


def catalog_unless_source(place: Location, warn: Warn = warn_caller) -> Catalog | None:
    """Return the catalog where a SOURCE or a CATALOG is given, None if it is a SOURCE.

    An index directory is taken for its catalog, and `warn` is told, unless the archive of that
    catalog is in it. Raises LocationError if there is no such directory.
    """
    require_directory(place, "SOURCE|CATALOG")
    return _catalog_in(place, warn, is_source_possible=True)


def _catalog_in(place: Location, warn: Warn, *, is_source_possible: bool = False) -> Catalog | None:
    catalog, inner = Catalog(place), Catalog(place.child(CATALOG_FOLDER))
    if catalog.commit_names():
        return catalog
    if not inner.commit_names() or (is_source_possible and _has_archive(inner, place)):
        return None
    warn(
        f"{place.uri}: an index directory found, expected a catalog; the catalog in it is used, "
        f"{inner.location.uri}"
    )
    return inner


def _has_archive(inner: Catalog, place: Location) -> bool:
    """Return whether a place has, or may have, the archive that the catalog describes."""
    try:
        newest = inner.newest()
    except CatalogError:  # of a later version
        return True
    return newest is None or place.contains(Location.of(newest.source))


def choose(
    catalog: Catalog, text: str | None, warn: Warn = warn_caller, *, may_be_behind: bool = False
) -> Choice:
    """Return the snapshot with a name, a sequence number or an id; the newest one for None.

    `warn` is called for each newer snapshot that is ignored, so that no caller forgets them, and,
    unless it `may_be_behind`, if a plan changed the archive after the newest one. Raises
    CatalogError if there is no such snapshot, or its parts differ from the commit.
    """
    if text is None:
        choice = _newest(catalog)
        for warning in choice.warnings:
            warn(warning)
        if choice.build and not may_be_behind:
            warn(
                f"{catalog.location.uri}: {CHANGED_AFTER} {choice.snapshot.name}; update it: "
                f"{choice.build}"
            )
        return choice
    snapshot = catalog.named(text)
    damage = catalog.damage(snapshot)
    if damage:
        if not catalog.may_be_committed(snapshot.name):
            raise catalog.removed(snapshot)
        raise CatalogError(f"{damage}; the snapshot is damaged: choose another")
    return Choice(snapshot)


CHANGED_AFTER: Final = "the archive was changed by retention apply or undo after snapshot"


def _newest(catalog: Catalog) -> Choice:
    ignored: list[str] = []
    for candidate in catalog.candidates():
        if candidate.snapshot and not candidate.problem:
            snapshot = catalog.in_order(candidate.snapshot)
            return Choice(snapshot, tuple(ignored), _build_if_behind(catalog, candidate))
        ignored.append(f"{candidate.problem}; this snapshot is ignored")
    return Choice(catalog.require_newest())  # a second look: a prune may have been beside it


_OWN_NAMES: Final = re.compile(
    r"[a-z]+-[0-9]{5,}(\.[0-9a-f]+)?\.parquet|claims\.arrow|\..+\.[0-9a-f]{32}\.tmp"
)
_ORPHAN_LISTS: Final = re.compile(
    r"[0-9]{20}-[0-9a-f]+\.arrow|\.[0-9]{20}-[0-9a-f]+\.arrow\.[0-9a-f]{32}\.tmp"
)


def has_own_name(path: str) -> bool:
    """Return whether kip33 writes files of this name into folders of snapshots and drafts.

    >>> has_own_name("part-00003.5c1e9b02.parquet"), has_own_name("notes.txt")
    (True, False)
    """
    return _OWN_NAMES.fullmatch(path) is not None


def is_orphan_list(name: str) -> bool:
    """Return whether kip33 writes files of this name into `orphaned`, including unfinished ones.

    >>> is_orphan_list("00000000000000000007-4f0c91aa5c1e.arrow"), is_orphan_list("notes.arrow")
    (True, False)
    """
    return _ORPHAN_LISTS.fullmatch(name) is not None


def remove_own_quietly(folder: Location) -> None:
    """Delete a folder of kip33, or only kip33's files if it has others; failures are ignored."""
    try:
        infos = entries_of(folder, recursive=True)
    except OSError:
        return
    files = [i.path[len(folder.path) + 1 :] for i in infos if i.type != fs.FileType.Directory]
    if all(map(has_own_name, files)):
        remove_folder_quietly(folder)
        return
    for path in filter(has_own_name, files):
        remove_quietly(folder.child(path))


class Folder:
    """One folder with everything below it."""

    def __init__(self) -> None:
        self.sizes: dict[str, int] = {}  # bytes, by the file's path in the folder
        self.touched_ms: int | None = None  # latest known time; of files only on an object store

    def add(self, path: str, info: fs.FileInfo) -> None:
        """Add an entry of the listing: a file, a subfolder, or the folder itself."""
        if info.type == fs.FileType.File:
            self.sizes[path] = info.size
        time_ms = modified_ms(info)
        if time_ms is not None:
            self.touched_ms = max(time_ms, self.touched_ms or 0)

    @property
    def size_bytes(self) -> int:
        """Return the total size of its files."""
        return sum(self.sizes.values())


def modified_ms(info: fs.FileInfo) -> int | None:
    """Return a modification time, None if the store has none or the file was just deleted.

    Also None if it is negative: Arrow's times overflow in 2262 and continue in 1677.
    """
    time_ns = info.mtime_ns
    return None if time_ns is None or time_ns < 0 else time_ns // 1_000_000


def list_folders(catalog: Catalog, below: str) -> dict[str, Folder]:
    """Return the folders with a snapshot's name in `snapshots` or `staging`, in one listing.

    Raises CatalogError if they cannot be listed.
    """
    place = catalog.location.child(below)
    try:
        infos = entries_of(place, recursive=True)
    except FileReadError as error:
        raise CatalogError(f"{place.uri}: cannot be listed: {one_line(error)}") from error
    folders: dict[str, Folder] = {}
    for info in infos:
        name, slash, path = info.path[len(place.path) + 1 :].partition("/")
        is_folder = bool(slash) or info.type == fs.FileType.Directory
        if is_folder and id_of(name) and sequence_of(name) is not None:
            folders.setdefault(name, Folder()).add(path, info)
    return folders


_NAME_DIGITS: Final = 20


def ipc_bytes(table: pa.Table) -> bytes:
    """Return a table as a compressed Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def snapshot_name(sequence: int, snapshot_id: str) -> str:
    """Return `00000000000000000007-<id>`: names sort by sequence number."""
    return f"{commit_name(sequence)}-{snapshot_id}"


def commit_name(sequence: int) -> str:
    """Return `00000000000000000007`: of two snapshots with one number, one has a commit file."""
    return f"{sequence:0{_NAME_DIGITS}d}"


def id_of(name: str) -> str:
    """Return the id in a snapshot's or a draft's name."""
    return name.partition("-")[2]


def sequence_of(name: str) -> int | None:
    """Return the sequence number in a name of a snapshot or a commit, None for another name."""
    digits, dash, snapshot_id = name.partition("-")
    is_number = len(digits) == _NAME_DIGITS and digits.isdecimal()
    return int(digits) if is_number and bool(dash) == bool(snapshot_id) else None
