"""Follow the producers of a partition from segment to segment: their states at each base offset.

The states at the first segment are those of a `.snapshot` beside its index files or its log.
Without one there are no producers, as in Kafka's recovery, which also carries the states over gaps.
A segment whose changes are unknown, such as an unreadable one, ends the chain: later states are
unknown.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kip33.archive.segment_paths import beside, is_tiered
from kip33.errors import CorruptSnapshotError, FileReadError
from kip33.formats.producer_snapshot import ProducerSnapshot, ProducerState
from kip33.formats.time_index import index_crc32c
from kip33.indexing.partition_replay import snapshot_bytes
from kip33.indexing.transaction_chains import MOST_SNAPSHOT_BYTES
from kip33.rules.producer_state import after_changes, changes_from_json
from kip33.stores.files import read_whole
from kip33.stores.locations import Location


class ProducerLink(NamedTuple):
    """One segment of a partition, as the chain needs it."""

    base_offset: int
    log_uri: str
    changes: str | None  # `changes_as_json`; None: unknown
    is_wanted: bool  # whether the states at its base offset are wanted


class StatesAtBase(NamedTuple):
    """The states at a segment's base offset, as the bytes of a `.snapshot`.

    `data` is None for the first segment of a log, which has no `.snapshot`, and if the states are
    unknown: then `problem` says why.
    """

    log_uri: str
    data: bytes | None
    problem: str | None = None


def states_at_bases(
    links: Sequence[ProducerLink], start: tuple[ProducerState, ...] | None
) -> Iterator[StatesAtBase]:
    """Yield the states at the wanted base offsets of one partition.

    `start` are those at the first base offset, None without a `.snapshot` there.
    """
    states: tuple[ProducerState, ...] | None = start or ()
    unknown_after: str | None = None
    before: int | None = None
    for number, link in enumerate(sorted(links)):
        if link.base_offset == before:
            states, unknown_after = None, f"two segments begin at {before}"
        before = link.base_offset
        if link.is_wanted and states is None:
            yield StatesAtBase(link.log_uri, None, unknown_after)
        elif link.is_wanted:
            is_first = number == 0 and start is None
            yield StatesAtBase(link.log_uri, None if is_first else snapshot_bytes(states or ()))
        if states is not None and link.changes is None:
            states, unknown_after = None, f"the producers of {link.log_uri} are not known"
        elif states is not None:
            states = after_changes(states, changes_from_json(link.changes or "[]"))


def producers_beside(
    place: Location, *, crc32c: int | None = None
) -> tuple[ProducerState, ...] | None:
    """Return the producers of the `.snapshot` beside a log or a time index.

    None without a good one, or if the file's CRC-32C differs. Beside a log of tiered storage
    the `.snapshot` has the states at the segment's end, so it is not used.
    """
    if place.inside or is_tiered(place):
        return None
    try:
        data = read_whole(beside(place, "snapshot"), most_bytes=MOST_SNAPSHOT_BYTES)
        if crc32c is not None and index_crc32c(data) != crc32c:
            return None
        return ProducerSnapshot.from_bytes(data).producers
    except (FileReadError, CorruptSnapshotError):
        return None
