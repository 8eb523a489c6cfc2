"""The offsets of a search that a tool may use: unsafe answers are left out and named."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

import click

from kip33.cli.output import warn
from kip33.cli.search_emit import DELETE_RECORDS, Offset
from kip33.cli.search_ranges import replica_key
from kip33.cli.search_tables import Answer
from kip33.rules.search import EARLIEST, Exactness, SearchResult
from kip33.search import answers as search_answers
from kip33.search.replica_search import ReplicaKey

CountNewer: TypeAlias = Callable[[Answer, int], str | None]
"""Takes an answer and the offset to emit; returns why deleting up to there is unsafe, else None."""


def offsets_to_emit(
    answers: Sequence[Answer],
    ends: Mapping[ReplicaKey, search_answers.Answer],
    emit: str,
    *,
    allow_unsafe: bool,
    count_newer: CountNewer | None = None,
) -> Iterator[Offset]:
    """Yield one offset per partition; without a record the log's end, as Kafka's own tool does.

    A partition with an unsafe answer is left out and named, unless it is allowed. `count_newer`
    counts the records at or after the time that are before the offset: deleting up to there is
    unsafe.
    """
    seen = set()
    for answer in answers:
        key = answer["topic"], answer["partition"]
        if key in seen:
            raise click.UsageError(
                f"--emit prints one offset per partition, but {key[0]}-{key[1]} has "
                "several answers: give one --time, and no --all-replicas",
                click.get_current_context(),
            )
        seen.add(key)
        end = ends.get(replica_key(answer)) if answer["offset"] is None else None
        offset = end.offset if end else answer["offset"]
        unsafe = _unsafe(answer, end, emit)
        if count_newer and offset is not None:
            unsafe = _joined(unsafe, count_newer(answer, offset))
        if offset is None:
            warn(f"{key[0]}-{key[1]}: {unsafe or answer['result']}; the output leaves it out")
            continue
        if unsafe and not allow_unsafe:
            warn(f"{key[0]}-{key[1]}: {unsafe}; the output leaves it out, --allow-unsafe prints it")
            continue
        if unsafe:
            warn(f"{key[0]}-{key[1]}: {unsafe}")
        if end:
            warn(
                f"{key[0]}-{key[1]}: {answer['result']}; the end of the partition is used, "
                f"offset {offset}"
            )
        yield Offset(*key, offset, is_end=end is not None)


def _joined(*reasons: str | None) -> str | None:
    return "; ".join(filter(None, reasons)) or None


def _unsafe(answer: Answer, end: search_answers.Answer | None, emit: str) -> str | None:
    """Return why an offset could skip or delete wrong records, None if it cannot."""
    exactness = {answer["exactness"], end.exactness if end else Exactness.RECORD}
    if answer["passed_over"] or Exactness.UNSURE in exactness:
        notes = dict.fromkeys(filter(None, (answer["note"], end.note if end else None)))
        return f"unsure, {'; '.join(notes)}"
    if answer["result"] == SearchResult.NO_TIMESTAMPS and answer["target_ms"] != EARLIEST:
        return "no record has a timestamp, so the end of the partition would be used"
    if emit == DELETE_RECORDS and exactness != {Exactness.RECORD}:
        return f"exactness {answer['exactness']} found, expected {Exactness.RECORD}"
    return None
