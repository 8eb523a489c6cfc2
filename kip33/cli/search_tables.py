"""The output of `kip33 search`: a table for people, JSON and CSV for programs."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import click

from kip33.archive.bins import EngineName
from kip33.cli.output import (
    MOST_TABLE_ROWS,
    human_bytes,
    iso_time,
    print_json,
    print_rows,
    print_table,
)
from kip33.rules.search import TARGETS

ANSWER_COLUMNS: Final = (
    *("log_dir", "topic", "partition", "target_ms", "offset", "timestamp"),
    *("result", "exactness", "bytes_read", "note", "passed_over"),
)

RANGE: Final = ("until_ms", "until_offset", "records", "size_bytes")

Answer = dict[str, Any]
"""A row with ANSWER_COLUMNS; for a range also with RANGE."""

_NAMES: Final = {target: name for name, target in TARGETS.items()}


def print_search_answers(
    answers: list[Answer],
    output_format: str,
    *,
    source: str,
    seconds: float,
    warnings: Sequence[str] = (),
    engine: EngineName = EngineName.LOCAL,
    workers: int = 1,
) -> None:
    """Print the answers; a table omits `source`, the archive's URI, from its notes.

    `warnings`, already printed on standard error, are also in the JSON's summary, with `engine` and
    `workers`.
    """
    bytes_read = sum(answer["bytes_read"] for answer in answers)
    if output_format == "json":
        summary: dict[str, Any] = {"answers": len(answers), "bytes_read": bytes_read}
        summary |= {"seconds": round(seconds, 3), "warnings": list(warnings)}
        summary |= {"engine": engine, "workers": workers}
        print_json({"answers": answers, "summary": summary})
    elif output_format in ("csv", "jsonl"):
        columns = [*ANSWER_COLUMNS, *(RANGE if answers and RANGE[0] in answers[0] else ())]
        print_rows(answers, columns, output_format)
    else:
        _print_table(answers, source, bytes_read, seconds)


def _print_table(answers: list[Answer], source: str, bytes_read: int, seconds: float) -> None:
    rows = [
        (
            partition_name(answer),
            _NAMES.get(answer["target_ms"]) or iso_time(answer["target_ms"]),
            "-" if answer["offset"] is None else answer["offset"],
            iso_time(answer["timestamp"]),
            answer["result"],
            answer["exactness"] if answer["offset"] is not None else "",
            (answer["note"] or "").replace(f"{source}/", ""),
        )
        for answer in answers[:MOST_TABLE_ROWS]
    ]
    columns = ["partition", "time", "offset", "record's time", "result", "exactness", "note"]
    if answers and RANGE[0] in answers[0]:
        columns[-1:] = ["until", "record's offset", "records", "log", "note"]
        rows = [
            (*row[:-1], *_range_cells(answer), row[-1])
            for row, answer in zip(rows, answers, strict=False)
        ]
    print_table(columns, rows)
    if len(answers) > MOST_TABLE_ROWS:
        more = len(answers) - MOST_TABLE_ROWS
        click.echo(f"and {more:,} more answers; --format jsonl shows all of them")
    found = sum(answer["offset"] is not None for answer in answers)
    read = f"{human_bytes(bytes_read)} read in {seconds:.1f} s"
    click.echo(f"{len(answers):,} answers, {found:,} found; {read}")


def _range_cells(answer: Answer) -> tuple[Any, ...]:
    size = answer["size_bytes"]
    return (
        iso_time(answer["until_ms"]),
        answer["until_offset"],
        answer["records"],
        None if size is None else human_bytes(size),
    )


def partition_name(answer: Mapping[str, Any]) -> str:
    """Return `broker-1/orders-0`, or its known parts."""
    log_dir = f"{answer['log_dir']}/" if answer["log_dir"] else ""
    partition = "?" if answer["partition"] is None else answer["partition"]
    return f"{log_dir}{answer['topic']}-{partition}"
