"""The verdict on a `.snapshot`.

identical    the bytes of the states at its offset
consistent   every producer in it has its state; a missing one is not in a transaction, so a broker
             may have forgotten it; or the file has producers from before the first segment
wrong        a producer has another state, or one in a transaction is missing
malformed    Kafka does not load it
missing      there is no file
unknown      the states at its offset are unknown
"""

from collections.abc import Iterator

from kip33.errors import CorruptSnapshotError
from kip33.formats.producer_snapshot import ProducerSnapshot, ProducerState
from kip33.rules.index_verdict import IndexVerdict, Verdict

_MOST_PROBLEMS = 3


def producer_snapshot_verdict(
    data: bytes | None, expected: bytes | None, *, problem: str | None, begins_at_zero: bool
) -> Verdict | None:
    """Return the verdict on a `.snapshot`, None if there is no file and none is expected.

    `data` is None if there is no file, `expected` if none is expected or `problem` says why it is
    unknown. `begins_at_zero`: the states are those of the log from offset 0 on.
    """
    if data is None:
        if expected is None:
            return None
        return Verdict(IndexVerdict.MISSING, None, ("the .snapshot is missing",))
    try:
        found = _by_id(data)
    except CorruptSnapshotError as error:
        return Verdict(IndexVerdict.MALFORMED, None, (str(error),))
    if problem:
        return Verdict(IndexVerdict.UNKNOWN, None, (problem,))
    if expected is None:
        return Verdict(IndexVerdict.CONSISTENT)
    if data == expected:
        return Verdict(IndexVerdict.IDENTICAL)
    wrong = list(_differences(found, _by_id(expected), begins_at_zero=begins_at_zero))
    if wrong:
        return Verdict(IndexVerdict.WRONG, None, tuple(wrong[:_MOST_PROBLEMS]))
    return Verdict(IndexVerdict.CONSISTENT)


def _by_id(data: bytes) -> dict[int, ProducerState]:
    return {state.producer_id: state for state in ProducerSnapshot.from_bytes(data).producers}


def _differences(
    found: dict[int, ProducerState], expected: dict[int, ProducerState], *, begins_at_zero: bool
) -> Iterator[str]:
    for producer_id, state in sorted(expected.items()):
        there = found.get(producer_id)
        if there is None and state.first_offset >= 0:
            what = f"its transaction begins at {state.first_offset}"
            yield f"producer {producer_id} is missing, but {what}"
        elif there is not None and there != state:
            names = [name for name in state._fields if getattr(state, name) != getattr(there, name)]
            values = ((name, getattr(there, name), getattr(state, name)) for name in names)
            what = ", ".join(f"{name} {one} found, expected {right}" for name, one, right in values)
            yield f"producer {producer_id}: {what}"
    for producer_id in sorted(found.keys() - expected.keys()):
        if begins_at_zero:
            yield f"producer {producer_id} has no batch before this offset"
