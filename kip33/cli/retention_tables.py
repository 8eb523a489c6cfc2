"""The output of `kip33 retention`: tables and sentences for people, JSON and CSV for programs."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import click

from kip33.cli.output import RESULT, human_bytes, iso_time, print_joined, print_table
from kip33.cli.retention_answer import RetentionAnswer, csv_lines, json_lines, rows_of
from kip33.cli.standard_output import exact_output
from kip33.formats.names import segment_file_name
from kip33.retention.partition_texts import (
    PartitionRow,
    block_sentence,
    counted,
    name_of,
    policy_text,
    remarks_of,
)
from kip33.rules.offset_holes import HoleTotals

MOST_PARTITIONS: Final = 1_000  # rows of a table
MOST_BLOCKS: Final = 20  # that are explained in sentences
MOST_DIFFERENCES: Final = 100  # rows in the table of the broker's view


def print_tables(
    rows: Sequence[PartitionRow], freed: Sequence[PartitionRow] | None, summary: Mapping[str, Any]
) -> None:
    """Print the partitions, blocked ones first, the reason for each block, and the summary."""
    title = f"retention at {iso_time(summary['now_ms'])}, snapshot {summary['snapshot']}"
    columns = ["partition", "policy", "segments", "log", "deletable", "blocked", "remarks"]
    if rows and "what_if_deletable_segments" in rows[0]:
        columns.insert(5, "what if")
    if rows and "broker_deletable_segments" in rows[0]:
        columns.insert(5, "a broker")
    print_table(columns, ([_cell(row, name) for name in columns] for row in rows), title=title)
    if summary["partitions"] > len(rows):
        more = summary["partitions"] - len(rows)
        click.echo(f"and {more:,} more partitions; --format jsonl shows all of them")
    blocked = [row for row in rows if row["blocked_segments"]]
    for row in blocked[:MOST_BLOCKS]:
        click.echo(f"- {block_sentence(row)}")
    if freed is not None:
        _print_freed(freed)
    _print_summary(summary)


def _cell(row: PartitionRow, column: str) -> Any:
    match column:
        case "partition":
            return name_of(row)
        case "policy":
            return policy_text(row)
        case "segments":
            return row["segments"]
        case "log":
            return human_bytes(row["bytes"])
        case "deletable" | "blocked":
            return _some(row[f"{column}_segments"], row[f"{column}_bytes"])
        case "what if":
            return _some(row["what_if_deletable_segments"], row["what_if_deletable_bytes"])
        case "a broker":
            return _some(row["broker_deletable_segments"], row["broker_deletable_bytes"])
    return "; ".join(remarks_of(row))


def _some(segments: int, size: int) -> str:
    return f"{segments:,} ({human_bytes(size)})" if segments else "-"


def print_broker_differences(rows: Sequence[PartitionRow]) -> None:
    """Print what a broker reads or judges differently, and the state of its index file."""
    columns = (
        "partition",
        "segment",
        "we",
        "a broker",
        "kip33 reads",
        "broker reads",
        ".timeindex",
    )
    table = [
        (
            name_of(row),
            segment_file_name(row["base_offset"], "log"),
            "deletable" if row["deletable"] else row["reason"],
            "deletable" if row["broker_deletable"] else row["broker_reason"],
            iso_time(row["largest_timestamp"]),
            iso_time(row["broker_largest_timestamp"]),
            row["broker_index_fault"] or "",
        )
        for row in rows
    ]
    if table:
        print_table(
            columns, table, title="what a broker would do, given the index files beside the logs"
        )


def _print_freed(rows: Sequence[PartitionRow]) -> None:
    table = [
        (iso_time(row["at_ms"]), row["topic"], row["segments"], human_bytes(row["bytes"]))
        for row in rows
    ]
    if table:
        print_table(("up to", "topic", "newly deletable", "log"), table)
    else:
        click.echo("no segment can be deleted at any of these times")


def _print_summary(summary: Mapping[str, Any]) -> None:
    rows = [
        ("catalog", summary["catalog"]),
        ("partitions", f"{summary['partitions']:,}"),
        ("segments", _some(summary["segments"], summary["bytes"])),
        ("deletable now", _some(summary["deletable_segments"], summary["deletable_bytes"])),
        ("expired, blocked", _blocked(summary)),
    ]
    if "what_if_deletable_segments" in summary:
        some = _some(summary["what_if_deletable_segments"], summary["what_if_deletable_bytes"])
        rows.append(("what if", some))
    if "broker_deletable_segments" in summary:
        some = _some(summary["broker_deletable_segments"], summary["broker_deletable_bytes"])
        differ = summary["broker_different_segments"]
        misread = counted(summary["broker_misread_segments"], "segment")
        rows.append(("a broker", f"{some}; {misread} misread, {differ:,} with another result"))
    trust = [
        f"{summary[name + '_segments']:,} {what}"
        for name, what in (
            ("last_modified", "by file time"),
            ("unverified", "unverified"),
            ("doubtful", "doubtful"),
        )
        if summary[name + "_segments"]
    ]
    rows.append(("less certain", ", ".join(trust) or "-"))
    if summary["suspicions"]:
        kinds = (f"{n:,} {kind.replace('_', ' ')}" for kind, n in summary["suspicions"].items())
        rows.append(("suspicious", ", ".join(kinds)))
    if summary["by_hole"]:
        rows.append(("holes", HoleTotals(summary["by_hole"], summary["missing_offsets"]).as_text()))
    if "plan" in summary:
        plan = summary["plan"]
        rows.append(("plan", f"{plan['file']}: {_some(plan['segments'], plan['bytes'])}"))
        if plan["left_out_segments"]:
            some = _some(plan["left_out_segments"], plan["left_out_bytes"])
            rows.append(("not in the plan", some))
    rows.append(("seconds", f"{summary['seconds']:.1f}"))
    print_table(("retention", ""), rows)
    click.echo(RESULT + json.dumps(summary))


def _blocked(summary: Mapping[str, Any]) -> str:
    if not summary["blocked_segments"]:
        return "-"
    some = _some(summary["blocked_segments"], summary["blocked_bytes"])
    return f"{some} in {counted(summary['blocked_partitions'], 'partition')}"


def print_lines(answer: RetentionAnswer) -> None:
    """Print one JSON object per line: segments, then partitions, then the rows of `freed`."""
    for kind, rows in _rows_by_kind(answer).items():
        for line in json_lines(rows, kind):
            click.echo(line)


def print_object(answer: RetentionAnswer, summary: dict[str, Any]) -> None:
    """Print one JSON object on one line, for any number of segments."""
    before = "{"
    for kind, rows in _rows_by_kind(answer).items():
        click.echo(f'{before}"{kind if kind == "freed" else kind + "s"}": [', nl=False)
        print_joined(json_lines(rows, None))
        before = "], "
    click.echo(f'], "summary": {json.dumps(summary)}}}')


def _rows_by_kind(answer: RetentionAnswer) -> dict[str, Iterable[dict[str, Any]]]:
    rows = {"segment": answer.segments(), "partition": rows_of(answer.partitions)}
    return rows if answer.freed is None else rows | {"freed": rows_of(answer.freed)}


def print_csv(answer: RetentionAnswer) -> None:
    """Print a header and one line per segment; lists are joined by spaces."""
    for line in csv_lines(answer.segments(), answer.columns):
        click.echo(line, exact_output(), color=True)
