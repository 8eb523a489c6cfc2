"""The places of a segment's files, given one of them, and the files of a partition's directory.

The places depend on the layout:

    00..42.log                .index .timeindex beside it, by their suffixes
    00..42-<segment id>.log   the same
    <segment id>/log          <segment id>/index, <segment id>/timeindex
    <segment id>#rsm.log      #rsm.index, #rsm.timeindex: in the same file
    00..42-<segment id>.log#aiven.log    00..42-<segment id>.indexes#aiven.index, #aiven.timeindex

Index files that kip33 writes have Kafka's suffixes, after the name without its `.log`, or those of
other designs (`drafts.designs`).
"""

import os
import re
from typing import Final, Literal, NamedTuple, TypeAlias

from pyarrow import fs

from kip33.drafts.designs import DRAFT_FILES
from kip33.errors import READ_FAULTS
from kip33.formats.index_kinds import IndexKind
from kip33.formats.names import SEGMENT_KINDS, TIME_INDEX_FILE, SegmentFile, parse_segment_file
from kip33.rules.broker_start import renamed_swaps
from kip33.stores.containers.aiven import INDEXES, LOG
from kip33.stores.files import has_text_name, modified_ns
from kip33.stores.locations import Location, split_uri

TimeUnit: TypeAlias = Literal["ns", "ms"]
"""Of the times in a plan."""
NS_PER: Final[dict[TimeUnit, int]] = {"ns": 1, "ms": 1_000_000}  # in a unit
NO_TIME: Final = -1  # the store does not report a modification time
_SEGMENT_ID: Final = r"[A-Za-z0-9_-]{22}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
"""The id of a segment or a topic: Kafka's base64 form, or the form with dashes."""
UUID: Final = re.compile(_SEGMENT_ID)
TIERED_LOG: Final = re.compile(rf"([0-9]+)-(?:{_SEGMENT_ID})\.log")
_BARE: Final = ("log", "timeindex", "index")  # names of files in a directory for one segment
_SUFFIXES: Final = (".timeindex", ".txnindex", ".log", *(f".{file}" for file in DRAFT_FILES))


def beside(file: Location, kind: str) -> Location:
    """Return the place of another file of a segment, given its log, time index or `.txnindex`.

    `kind` is `timeindex`, `index`, `txnindex` or `snapshot`. The time index may be of any design.
    """
    path, inside = _beside(file.path, file.inside, kind)
    return file._replace(path=path, inside=inside)


def index_of_row(time_index: Location, kind: IndexKind) -> Location:
    """Return the place of an index file, given the time index of any design that a row names."""
    return time_index if kind is IndexKind.TIME else beside(time_index, kind.file)


def uri_beside(uri: str, kind: str) -> str:
    """Return the URI of another file of a segment, as `beside`."""
    path, inside = _beside(*split_uri(uri), kind)
    return f"{path}#{inside}" if inside else path


def _beside(path: str, inside: str, kind: str) -> tuple[str, str]:
    if inside.startswith("aiven."):
        return path.removesuffix(LOG).removesuffix(INDEXES) + INDEXES, f"aiven.{kind}"
    if inside:
        return path, f"rsm.{kind}"
    directory, slash, name = path.rpartition("/")
    if name in _BARE:
        return f"{directory}{slash}{kind}", ""
    suffix = next((known for known in _SUFFIXES if path.endswith(known)), "")
    return f"{path.removesuffix(suffix)}.{kind}", ""


def is_tiered(log: Location) -> bool:
    """Return whether a log has a name of tiered storage.

    The `.snapshot` beside such a log has the producers at the segment's end, not at its base
    offset. Kafka: `RemoteLogManager.copyLogSegment`, `LogSegmentData.producerSnapshotIndex`.
    """
    return TIERED_LOG.fullmatch(log.name) is not None or log.name == "log"


def index_path(log: str, kind: str) -> str:
    """Return the path below the index directory where a build puts an index file.

    `log` is the path below SOURCE of the file that contains the log.

    >>> index_path("orders-0/00000000000000000042.log", "timeindex")
    'orders-0/00000000000000000042.timeindex'
    >>> index_path("orders-0/7d4b/log", "index")
    'orders-0/7d4b/log.index'
    """
    return f"{log.removesuffix('.log')}.{kind}"


def index_names(log: str, time_index: str = TIME_INDEX_FILE) -> tuple[str, str, str]:
    """Return `index_path` of a log's time index, `.index` and `.txnindex`."""
    return index_path(log, time_index), index_path(log, "index"), index_path(log, "txnindex")


def base_offset_in(name: str) -> int | None:
    """Return the base offset in a log's name, None if the name has none.

    >>> base_offset_in("00000000000000000042-tqimKeZwStOEOwRzT3L5oQ.log")
    42
    """
    tiered = TIERED_LOG.fullmatch(name)
    if tiered:
        return int(tiered[1])
    named = parse_segment_file(name)
    return named.base_offset if named and named.kind == "log" and not named.suffix else None


UNRENAMED: Final = ".log.swap"
"""How the name of a log ends that a broker renames into place when it starts."""


def unrenamed_text(name: str) -> str:
    """Why a log with such a name is not read. Which logs it replaces, only its batches say."""
    return (
        f"a broker that starts renames this file to {name.removesuffix('.swap')}, in place of the "
        "logs that it replaces, and kip33 does not; copy the partition again, or start a broker "
        "on the copy"
    )


class PlannedFile(NamedTuple):
    """One file to delete, with the size and time it must have."""

    name: str
    size_bytes: int
    last_modified_ns: int
    folder: Location

    @property
    def place(self) -> Location:
        """Return where it is."""
        return self.folder.child(self.name)


class PartitionFiles(NamedTuple):
    """The segments in a listing of a partition's directory."""

    segments: dict[int, list[PlannedFile]]  # by base offset; the files in Kafka's order
    swaps: frozenset[int]  # base offsets of logs that a broker renames into place when it starts

    def unrenamed(self) -> str | None:
        """The name of the first of these logs, and why it is not read; None without any."""
        names = (f"{base_offset:020d}{UNRENAMED}" for base_offset in sorted(self.swaps))
        return next((f"{name}: cannot be read: {unrenamed_text(name)}" for name in names), None)

    def logs(self) -> list[int]:
        """Return the base offsets of the logs, in order; repeated if two logs have the same."""
        return sorted(
            base_offset
            for base_offset, files in self.segments.items()
            for file in files
            if is_log(file)
        )


def list_partition(directory: Location, *, may_be_absent: bool = False) -> PartitionFiles:
    """Return the segment files in a directory; FileReadError if it cannot be listed."""
    selector = fs.FileSelector(directory.path, allow_not_found=may_be_absent)
    segments: dict[int, list[PlannedFile]] = {}
    named: list[SegmentFile] = []
    with READ_FAULTS:
        infos = directory.filesystem().get_file_info(selector)
    for info in filter(has_text_name, infos):
        name = parse_segment_file(info.base_name)
        if name is None or name.kind not in SEGMENT_KINDS or info.type != fs.FileType.File:
            continue
        named.append(name)
        if not name.suffix:
            segments.setdefault(name.base_offset, []).append(as_found(info, directory))
    for base_offset, files in segments.items():
        files.sort()
        segments[base_offset] = in_deletion_order(files)
    return PartitionFiles(segments, frozenset(renamed_swaps(named)))


def is_link(place: Location) -> bool:
    """Return whether a file is a link.

    Links are not planned: moving may break them, deleting frees no space.
    """
    return place.is_local and os.path.islink(place.path)  # noqa: PTH114


def link_in(place: Location, root: Location) -> Location | None:
    """Return the first link on the way from `root`, which may be one itself, down to `place`."""
    if not place.is_local:
        return None
    path = root.path.rstrip("/")
    for name in place.path.removeprefix(path).strip("/").split("/"):
        path = f"{path}/{name}"
        if os.path.islink(path):  # noqa: PTH114
            return Location(place.root, path)
    return None


def is_log(file: PlannedFile) -> bool:
    """Return whether a file of a segment is its log."""
    return file.name.endswith(".log")


def as_found(info: fs.FileInfo, folder: Location) -> PlannedFile:
    """Return a file of a folder in its current state."""
    modified = modified_ns(info, folder)
    return PlannedFile(info.base_name, info.size, NO_TIME if modified is None else modified, folder)


def in_deletion_order(files: list[PlannedFile]) -> list[PlannedFile]:
    """Return a segment's files in Kafka's order; those of one kind keep theirs."""
    return sorted(files, key=lambda file: SEGMENT_KINDS.index(file.name.rpartition(".")[2]))
