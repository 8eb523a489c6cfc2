"""The state of the producers at an offset of a log, as a broker's `.snapshot` has it.

A broker keeps for each producer id its last data batch, its last marker and its open transaction.
So the batches of a segment change the state of a producer only by these few:

    SeenProducers     positions of these batches in one segment, found in columns
    ProducerChange    the same with the fields of their headers, which the caller has read
    after_changes     the state at the segment's end, from that at its start

New producers follow the others in the order in which they first appear in the log. A broker forgets
a producer that has not written for `producer.id.expiration.ms`; here none is forgotten. Kafka 4.3:
`ProducerStateManager`, `ProducerAppendInfo.append`, `ProducerStateEntry` (the same since 2.8).
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from kip33.formats.batch import (
    CONTROL,
    MAX_INT32,
    NO_TIMESTAMP,
    TRANSACTIONAL,
    BatchColumns,
    BatchHeader,
)
from kip33.formats.producer_snapshot import NONE_OPEN, ProducerState
from kip33.formats.walk import ABORT, COMMIT

_UNKNOWN: Final = -1


@dataclass
class SeenProducer:
    """The positions of one producer's last data batch and last marker in a segment."""

    data: int | None = None
    marker: int | None = None
    marker_is_last: bool = False
    began: int = NONE_OPEN  # of its first transactional batch after the last marker


class SeenProducers:
    """The producers of one segment by id; `append` takes its batches in order."""

    def __init__(self) -> None:
        self.seen: dict[int, SeenProducer] = {}

    def append(self, batches: BatchColumns) -> None:
        """Take the next batches."""
        rows = batches[batches["producer_id"] >= 0]
        is_control = rows["attributes"] & CONTROL != 0
        is_marker = is_control & np.isin(rows["control"], (ABORT, COMMIT))
        numbers = np.arange(len(rows))
        data, markers = numbers[~is_control], numbers[is_marker]
        if not len(data) and not len(markers):
            return
        ids, firsts, of_row = np.unique(rows["producer_id"], return_index=True, return_inverse=True)
        last_data, last_marker, began = (np.full(len(ids), -1) for _ in range(3))
        last_data[of_row[data]] = data  # the last one stays
        last_marker[of_row[markers]] = markers
        in_transaction = data[rows["attributes"][data] & TRANSACTIONAL != 0]
        after = in_transaction[in_transaction > last_marker[of_row[in_transaction]]]
        began[of_row[after[::-1]]] = after[::-1]  # the first one stays
        for number in np.argsort(firsts).tolist():
            at_data, at_marker = int(last_data[number]), int(last_marker[number])
            if at_data < 0 and at_marker < 0:
                continue
            producer = self.seen.setdefault(int(ids[number]), SeenProducer())
            if at_data >= 0:
                producer.data = int(rows["position"][at_data])
            if at_marker >= 0:
                producer.marker = int(rows["position"][at_marker])
                producer.began = NONE_OPEN
            producer.marker_is_last = at_marker > at_data
            if began[number] >= 0 and producer.began < 0:
                producer.began = int(rows["base_offset"][began[number]])

    def positions(self) -> tuple[int, ...]:
        """Return the positions of the batches whose headers `changes_of` needs."""
        found = (place for last in self.seen.values() for place in (last.data, last.marker))
        return tuple(sorted(place for place in found if place is not None))


class LastData(NamedTuple):
    """The last data batch of a producer in a segment."""

    epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int


class LastMarker(NamedTuple):
    """The last marker of a producer in a segment."""

    epoch: int
    timestamp: int
    coordinator_epoch: int


class ProducerChange(NamedTuple):
    """What a segment changes in the state of one producer."""

    producer_id: int
    data: LastData | None
    marker: LastMarker | None
    marker_is_last: bool
    began: int  # first offset of its transaction after the last marker, -1: none


def changes_of(
    seen: SeenProducers,
    headers: Mapping[int, BatchHeader],
    coordinator_epochs: Mapping[int, int],
) -> tuple[ProducerChange, ...]:
    """Return the changes of a segment, given the headers of `SeenProducers.positions`.

    Of the markers, the coordinator epochs inside them are needed, too; both by position.
    """
    changes = []
    for producer_id, producer in seen.seen.items():
        data = marker = None
        if producer.data is not None:
            header = headers[producer.data]
            data = LastData(
                header.producer_epoch,
                _last_sequence(header),
                header.last_offset,
                header.last_offset - header.base_offset,
                header.max_timestamp,
            )
        if producer.marker is not None:
            header = headers[producer.marker]
            epoch = coordinator_epochs[producer.marker]
            marker = LastMarker(header.producer_epoch, header.max_timestamp, epoch)
        changes.append(
            ProducerChange(producer_id, data, marker, producer.marker_is_last, producer.began)
        )
    return tuple(changes)


def after_changes(
    states: Sequence[ProducerState], changes: Iterable[ProducerChange]
) -> tuple[ProducerState, ...]:
    """Return the states at a segment's end, from those at its start.

    >>> change = ProducerChange(5, LastData(0, 9, 99, 9, 1000), None, False, 90)
    >>> [(state.last_offset, state.first_offset) for state in after_changes((), [change])]
    [(99, 90)]
    """
    found = {state.producer_id: state for state in states}
    for change in changes:
        before = found.get(change.producer_id) or _no_state(change.producer_id)
        found[change.producer_id] = _changed(before, change)
    return tuple(found.values())


def _changed(before: ProducerState, change: ProducerChange) -> ProducerState:
    data, marker = change.data, change.marker
    first_offset = NONE_OPEN if marker else before.first_offset
    in_order: list[LastData | LastMarker | None] = [marker, data]
    if change.marker_is_last:
        in_order.reverse()
    for last in in_order:
        if last is None:
            continue
        if last.epoch != before.epoch:  # another epoch has no batches yet
            before = before._replace(
                epoch=last.epoch, last_sequence=_UNKNOWN, last_offset=_UNKNOWN, offset_delta=0
            )
        before = before._replace(timestamp=last.timestamp)
        if isinstance(last, LastData):
            before = before._replace(
                last_sequence=last.last_sequence,
                last_offset=last.last_offset,
                offset_delta=last.offset_delta,
            )
    return before._replace(
        coordinator_epoch=marker.coordinator_epoch if marker else before.coordinator_epoch,
        first_offset=first_offset if first_offset >= 0 else change.began,
    )


def changes_as_json(changes: Iterable[ProducerChange]) -> str:
    """Return the changes as text, for `changes_from_json`."""
    return json.dumps(list(changes), separators=(",", ":"))


def changes_from_json(text: str) -> tuple[ProducerChange, ...]:
    """Return the changes from the text of `changes_as_json`."""
    return tuple(
        ProducerChange(
            producer_id,
            LastData(*data) if data else None,
            LastMarker(*marker) if marker else None,
            marker_is_last,
            began,
        )
        for producer_id, data, marker, marker_is_last, began in json.loads(text)
    )


def _no_state(producer_id: int) -> ProducerState:
    return ProducerState(producer_id, -1, _UNKNOWN, _UNKNOWN, 0, NO_TIMESTAMP, -1, NONE_OPEN)


def _last_sequence(header: BatchHeader) -> int:
    """Return the sequence of a batch's last record; after the largest int32 it continues at 0."""
    if header.base_sequence == _UNKNOWN:
        return _UNKNOWN
    last = header.base_sequence + header.last_offset - header.base_offset
    return last if last <= MAX_INT32 else last - MAX_INT32 - 1
