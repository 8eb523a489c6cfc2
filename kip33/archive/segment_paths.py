"""The places of a segment's files, given one of them; they depend on the layout.

    00..42.log                .index .timeindex beside it, by their suffixes
    00..42-<segment id>.log   the same
    <segment id>/log          <segment id>/index, <segment id>/timeindex
    <segment id>#rsm.log      #rsm.index, #rsm.timeindex: in the same file
    00..42-<segment id>.log#aiven.log    00..42-<segment id>.indexes#aiven.index, #aiven.timeindex

Index files that kip33 writes always have Kafka's suffixes, after the name without its `.log`.
"""

import re
from typing import Final

from kip33.formats.names import parse_segment_file
from kip33.stores.containers.aiven import INDEXES, LOG
from kip33.stores.locations import Location, split_uri

_SEGMENT_ID: Final = r"[A-Za-z0-9_-]{22}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
"""The id of a segment or a topic: Kafka's base64 form, or the form with dashes."""
UUID: Final = re.compile(_SEGMENT_ID)
TIERED_LOG: Final = re.compile(rf"([0-9]+)-(?:{_SEGMENT_ID})\.log")
_BARE: Final = ("log", "timeindex", "index")  # names of files in a directory for one segment
_SUFFIXES: Final = (".timeindex", ".txnindex", ".log")


def beside(file: Location, kind: str) -> Location:
    """Return the place of another file of a segment, given its log, `.timeindex` or `.txnindex`.

    `kind` is `timeindex`, `index`, `txnindex` or `snapshot`.
    """
    path, inside = _beside(file.path, file.inside, kind)
    return file._replace(path=path, inside=inside)


def uri_beside(uri: str, kind: str) -> str:
    """Return the same as a URI, given a URI."""
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
    suffix = next((one for one in _SUFFIXES if path.endswith(one)), "")
    return f"{path.removesuffix(suffix)}.{kind}", ""


def index_path(log: str, kind: str) -> str:
    """Return the path below the index directory where a build puts an index file.

    `log` is the path below SOURCE of the file that contains the log.

    >>> index_path("orders-0/00000000000000000042.log", "timeindex")
    'orders-0/00000000000000000042.timeindex'
    >>> index_path("orders-0/7d4b/log", "index")
    'orders-0/7d4b/log.index'
    """
    return f"{log.removesuffix('.log')}.{kind}"


def index_names(log: str) -> tuple[str, str, str]:
    """Return `index_path` of a log's `.timeindex`, `.index` and `.txnindex`."""
    return index_path(log, "timeindex"), index_path(log, "index"), index_path(log, "txnindex")


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
