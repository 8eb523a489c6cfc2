"""The output of `kip33 retention` for people: partitions in a table, blocks in sentences."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

import click

from kip33.cli.output import RESULT, human_bytes, human_duration, iso_time, print_table
from kip33.formats.names import segment_file_name
from kip33.rules.retention import RetentionMode, RetentionReason

MOST_PARTITIONS: Final = 1_000  # rows of a table
MOST_BLOCKS: Final = 20  # that are explained in sentences
MOST_DIFFERENCES: Final = 100  # rows in the table of the broker's view


Row: TypeAlias = Mapping[str, Any]


def print_tables(
    rows: Sequence[Row], freed: Sequence[Row] | None, summary: Mapping[str, Any]
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
        click.echo(f"- {_sentence(row)}")
    if freed is not None:
        _print_freed(freed)
    _print_summary(summary)


def name_of(row: Row) -> str:
    """Return a partition's directory in its usual form: `broker-1/orders-0`."""
    log_dir = f"{row['log_dir']}/" if row["log_dir"] else ""
    if row["topic"] is None:
        return f"{log_dir}?"
    return f"{log_dir}{row['topic']}-{row['partition']}"


def _cell(row: Row, column: str) -> Any:
    match column:
        case "partition":
            return name_of(row)
        case "policy":
            return _policy(row)
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
    return ", ".join(_remarks(row))


def _some(segments: int, size: int) -> str:
    return f"{segments:,} ({human_bytes(size)})" if segments else "-"


def _policy(row: Row) -> str:
    if row["mode"] == RetentionMode.COMPACT:
        return f"{row['policy']}: compact"
    if row["mode"] != RetentionMode.DELETE:
        return "not evaluated" if row["mode"] == RetentionMode.UNJUDGED else "none"
    limits = []
    if row["retention_ms"] >= 0:
        limits.append(human_duration(row["retention_ms"]))
    if row["retention_bytes"] >= 0:
        limits.append(human_bytes(row["retention_bytes"]))
    return f"{row['policy']}: {', '.join(limits) or 'forever'}"


def _remarks(row: Row) -> Iterator[str]:
    for kind, count in sorted(row["suspicions"].items()):
        yield f"{count:,} {kind.replace('_', ' ')}"
    if row["last_modified_segments"]:
        named = " ".join(map(str, row["last_modified_base_offsets"]))
        more = (
            " ..." if row["last_modified_segments"] > len(row["last_modified_base_offsets"]) else ""
        )
        yield f"{row['last_modified_segments']:,} by file time ({named}{more})"
    if row["active_expired_segments"]:
        yield "last segment has expired, is kept"
    if row["unverified_segments"]:
        yield f"{row['unverified_segments']:,} unverified"
    if row["doubtful_segments"]:
        yield f"{row['doubtful_segments']:,} doubtful"


def _sentence(row: Row) -> str:
    """Return a sentence about what blocks a partition: segment, timestamp, and until when."""
    waits = f"{name_of(row)}: {_counted(row['blocked_segments'], 'segment')} of "
    waits += f"{human_bytes(row['blocked_bytes'])} expired, but blocked"
    if row["blocking_base_offset"] is None:
        return f"{waits}: the directory cannot be listed"
    file = segment_file_name(row["blocking_base_offset"], "log")
    if row["block_ends_at_ms"] is None:
        ends = "the block does not end by itself"
    else:
        ends = f"the block ends by itself at {iso_time(row['block_ends_at_ms'])}"
    only = f"this segment alone blocks {human_bytes(row['kept_only_by_blocker_bytes'])}"
    return f"{waits} by {file}, which {_why_it_stays(row)}; {ends}; {only}"


def _why_it_stays(row: Row) -> str:
    if row["blocking_reason"] != RetentionReason.NOT_EXPIRED:
        return f"is kept: {row['blocking_reason'].replace('_', ' ')}"
    ahead_ms = row["blocking_ahead_of_now_ms"]
    if ahead_ms > 0:
        how = f"{human_duration(ahead_ms)} in the future"
    else:
        how = f"{human_duration(row['blocking_ahead_of_blocked_ms'])} after the segments it blocks"
    offset = row["blocking_offset_of_max_timestamp"]
    where = "" if offset is None else f" in the batch that ends at offset {offset}"
    return f"has a timestamp of {iso_time(row['blocking_timestamp'])}{where}, {how}"


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def print_broker_differences(rows: Sequence[Row]) -> None:
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


def _print_freed(rows: Sequence[Row]) -> None:
    table = [
        (iso_time(row["at_ms"]), row["topic"], row["segments"], human_bytes(row["bytes"]))
        for row in rows
    ]
    print_table(("up to", "topic", "newly deletable", "log"), table)


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
        misread = _counted(summary["broker_misread_segments"], "segment")
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
    return f"{some} in {_counted(summary['blocked_partitions'], 'partition')}"
