"""The ranges of `kip33 search --until`: where they end, with their records and bytes."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from kip33.archive.bins import EngineName
from kip33.catalog.catalog import Catalog, Snapshot
from kip33.cli.search_engine import answers_to
from kip33.cli.search_options import SearchRequest
from kip33.cli.search_tables import RANGE, Answer
from kip33.cli.targets import parse_target
from kip33.cli.times import current_ms
from kip33.rules.search import LATEST, SearchResult
from kip33.search import answers as search_answers
from kip33.search.catalog_search import TimeQuestion, partition_rows, rows_of, search_rows
from kip33.search.range_size import range_size
from kip33.search.replica_search import ReplicaKey, SearchOptions

if TYPE_CHECKING:
    import pyarrow as pa


def replica_key(answer: Answer) -> ReplicaKey:
    """Return the replica that an answer is from."""
    return answer["log_dir"], answer["topic"], answer["partition"]


def log_ends(
    catalog: Catalog, snapshot: Snapshot, answers: Sequence[Answer]
) -> dict[ReplicaKey, search_answers.Answer]:
    """Return the log ends of partitions without an answer, from the catalog alone."""
    asked = [
        TimeQuestion(answer["topic"], answer["partition"], LATEST, answer["log_dir"])
        for answer in answers
        if answer["offset"] is None and answer["result"] != SearchResult.NO_SUCH_PARTITION
    ]
    rows = rows_of(catalog, snapshot, {question.topic for question in asked})
    found = search_rows(rows, asked, SearchOptions())
    return {(one.located.log_dir, one.topic, one.partition): one.located.answer for one in found}


def range_answers(
    catalog: Catalog,
    snapshot: Snapshot,
    rows: "pa.Table",
    answers: Sequence[Answer],
    ends: Mapping[ReplicaKey, search_answers.Answer],
    options: SearchRequest,
    engine: EngineName,
    until_text: str,
) -> list[Answer]:
    """Return the answers with the offset at --until, and the records and bytes in between."""
    now_ms = current_ms() if options.now is None else options.now
    try:
        until_ms = parse_target(until_text, now_ms)
    except ValueError as error:
        raise click.BadParameter(f"--until: {error}") from error
    there = [answer for answer in answers if answer["result"] != SearchResult.NO_SUCH_PARTITION]
    asked = [TimeQuestion(a["topic"], a["partition"], until_ms, a["log_dir"]) for a in there]
    untils = answers_to(
        catalog,
        snapshot,
        rows,
        asked,
        SearchOptions(max_batch_bytes=options.max_batch_bytes),
        options,
        engine,
    )
    until_ends = log_ends(catalog, snapshot, untils)
    by_replica = partition_rows(catalog, snapshot, {answer["topic"] for answer in there})
    for answer, until in zip(there, untils, strict=True):
        key = replica_key(answer)
        start = ends[key].offset if answer["offset"] is None else answer["offset"]
        end = until_ends[key].offset if until["offset"] is None else until["offset"]
        answer["passed_over"] |= until["passed_over"]
        size = (
            None
            if start is None or end is None
            else range_size(by_replica.get(key, ()), start, end)
        )
        answer |= {"until_ms": until_ms, "until_offset": end}
        answer |= {
            "records": size.records if size and not answer["passed_over"] else None,
            "size_bytes": size.size_bytes if size else None,
        }
        answer["bytes_read"] += until["bytes_read"] + (size.bytes_read if size else 0)
        notes = (answer["note"], until["note"], size.note if size else None)
        answer["note"] = "; ".join(dict.fromkeys(filter(None, notes))) or None
    return [dict.fromkeys(RANGE) | answer for answer in answers]
