"""The output of `kip33 roll` for people: partitions in a table, findings in sentences."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import click
import numpy as np
import pyarrow as pa

from kip33.audits.roll_audit import RollAudit, roll_table
from kip33.cli.output import (
    MOST_TABLE_ROWS,
    RESULT,
    human_bytes,
    human_duration,
    iso_time,
    print_table,
)
from kip33.formats.names import segment_file_name
from kip33.retention.partition_texts import name_of
from kip33.rules.roll_verdicts import ROLL_REASONS, EarlyRoll
from kip33.rules.rolling import RollReading, RollReason

MOST_SENTENCES: Final = 20
_EARLY_TEXTS: Final = {
    EarlyRoll.FUTURE: "the next batch's timestamp is {by} later than the time of its own file",
    EarlyRoll.OLD_START: "its first timestamp is {by} behind the segment before",
    EarlyRoll.AHEAD: "the next batch's timestamp is {by} ahead of records that follow",
}
_REMARKS: Final = ("overdue", "early", "doubtful")


def print_audit(audit: RollAudit, partitions: pa.Table, summary: Mapping[str, Any]) -> None:
    """Print the partitions, those with findings first, then sentences and the summary."""
    rows = partitions.to_pylist()
    of_names = [one.name for one in audit.findings]
    rows.sort(key=lambda row: -sum(row[f"{name}_segments"] for name in of_names))
    shown = [row for row in rows if _tells_something(row, of_names)]
    table = [
        (
            name_of(row),
            row["segments"],
            human_bytes(row["bytes"]),
            f"{human_duration(row['segment_ms'])}, {human_bytes(row['segment_bytes'])}",
            ", ".join(_ended(row)),
            ", ".join(_remarks(row)),
        )
        for row in shown[:MOST_TABLE_ROWS]
    ]
    where = summary.get("snapshot", summary["source"])
    columns = ("partition", "segments", "log", "segment.ms, .bytes", "ended by", "remarks")
    if table:
        print_table(columns, table, title=f"rolling, {where}, reading {summary['reading']}")
    if len(shown) > MOST_TABLE_ROWS:
        more = len(shown) - MOST_TABLE_ROWS
        click.echo(f"and {more:,} more partitions; --format jsonl shows all of them")
    if len(shown) < len(rows):
        click.echo(f"{len(rows) - len(shown):,} partitions have only an active segment")
    for sentence in _sentences(audit):
        click.echo(f"- {sentence}")
    _print_roll_summary(summary)


def _tells_something(row: Mapping[str, Any], findings: Sequence[str]) -> bool:
    """Return whether a partition has more than a plain active segment."""
    is_alone = row["segments"] == row[f"{RollReason.ACTIVE}_segments"]
    return not is_alone or any(row[f"{name}_segments"] for name in findings)


def _ended(row: Mapping[str, Any]) -> Iterator[str]:
    for reason in ROLL_REASONS:
        if count := row[f"{reason}_segments"]:
            yield f"{count:,} {reason.replace('_', ' ')}"


def _remarks(row: Mapping[str, Any]) -> Iterator[str]:
    for name in _REMARKS:
        if count := row[f"{name}_segments"]:
            yield f"{count:,} {name}"
    if row[f"{RollReason.UNEXPLAINED}_segments"] or row[f"{RollReason.UNKNOWN}_segments"]:
        yield from _explained(row)


def _explained(row: Mapping[str, Any]) -> Iterator[str]:
    """Yield which other settings explain all ends of a partition."""
    least, most = (row[f"explained_by_segment_bytes_{end}"] for end in ("from", "to"))
    if least is not None:
        yield f"segment.bytes from {least:,} to {most:,} explains all"
    least, most = (row[f"explained_by_segment_ms_{end}"] for end in ("from", "to"))
    if least is not None:
        yield f"segment.ms from {least:,} to {most:,} explains all"


def _sentences(audit: RollAudit) -> Iterator[str]:
    """Yield a sentence for each overdue or early segment, and for each row with a doubt."""
    by_name = {one.name: one.rows for one in audit.findings}
    numbers = np.flatnonzero(by_name["overdue"] | by_name["early"] | by_name["doubtful"])
    if not numbers.size:
        return
    some = roll_table(audit).take(pa.array(numbers[:MOST_SENTENCES])).to_pylist()
    for row in some:
        segment = f"{name_of(row)}/{segment_file_name(row['base_offset'] or 0, 'log')}"
        if row["base_offset"] is None:
            segment = row["log_uri"]
        yield f"{segment}: {'; '.join(_parts(row))}"
    if numbers.size > MOST_SENTENCES:
        yield f"and {numbers.size - MOST_SENTENCES:,} more; --format jsonl shows all of them"


def _parts(row: Mapping[str, Any]) -> Iterator[str]:
    if row["overdue_ms"] is not None:
        at = iso_time(row["rolls_at_ms"])
        yield (
            f"should have ended at {at}, has a timestamp of {iso_time(row['max_timestamp'])}, "
            f"{human_duration(row['overdue_ms'])} beyond the limit"
        )
    if row["oversize_bytes"] is not None:
        yield f"{human_bytes(row['oversize_bytes'])} larger than segment.bytes"
    if row["early"] is not None:
        why = _EARLY_TEXTS[EarlyRoll(row["early"])].format(by=human_duration(row["early_ms"]))
        yield f"ended early, with {human_bytes(row['valid_bytes'] or 0)}: {why}"
    if row["doubt"] is not None:
        yield f"cannot be judged: {row['doubt'].replace('_', ' ')}"


def _print_roll_summary(summary: Mapping[str, Any]) -> None:
    ended = {reason: summary[f"{reason}_segments"] for reason in ROLL_REASONS}
    counts = [f"{n:,} {why.replace('_', ' ')}" for why, n in ended.items() if n]
    early = [f"{n:,} {why.replace('_', ' ')}" for why, n in summary["early"].items()]
    rows = [
        (
            "catalog" if "catalog" in summary else "source",
            summary.get("catalog", summary["source"]),
        ),
        ("partitions", f"{summary['partitions']:,}"),
        ("segments", f"{summary['segments']:,} ({human_bytes(summary['bytes'])})"),
        ("ended by", ", ".join(counts) or "-"),
        ("overdue", f"{summary['overdue_segments']:,}"),
        ("early", ", ".join(early) or "-"),
        ("doubtful", f"{summary['doubtful_segments']:,}"),
        ("active past limit", _active(summary)),
        ("read of logs", human_bytes(summary["bytes_read"])),
        ("seconds", f"{summary['seconds']:.1f}"),
    ]
    print_table(("roll", ""), rows)
    click.echo(RESULT + json.dumps(summary))


def _active(summary: Mapping[str, Any]) -> str:
    count, at = summary["active_past_limit_segments"], iso_time(summary["now_ms"])
    return f"{count:,} of {summary[f'{RollReason.ACTIVE}_segments']:,} at {at}"


def print_replays(sums: Sequence[Mapping[str, Any]], summary: Mapping[str, Any]) -> None:
    """Print a row per partition and reading, then what was seen of the logs, and the totals."""
    shown = _with_one_row_for_equal_readings(sums)
    table = [
        (
            name_of(row),
            row["reading"],
            row["archived_segments"],
            row["segments"],
            ", ".join(_replayed(row)),
            human_bytes(row["largest_segment_bytes"]),
            human_bytes(row["offset_index_bytes"]),
            human_bytes(row["time_index_bytes"]),
            "-" if row["longest_kept_ms"] is None else human_duration(row["longest_kept_ms"]),
            iso_time(row["all_deletable_at_ms"]),
        )
        for row in shown[:MOST_TABLE_ROWS]
    ]
    columns = (
        *("partition", "reading", "archived", "segments", "ended by", "largest"),
        *(".index", ".timeindex", "longest kept", "all deletable"),
    )
    print_table(columns, table, title="what if: segments under these settings")
    if len(shown) > MOST_TABLE_ROWS:
        click.echo(f"and {len(shown) - MOST_TABLE_ROWS:,} more; --format jsonl shows all of them")
    doubts = list(dict.fromkeys(doubt for row in sums for doubt in row["doubts"]))
    for doubt in doubts[:MOST_SENTENCES]:
        click.echo(f"- {doubt}")
    if len(doubts) > MOST_SENTENCES:
        click.echo(f"- and {len(doubts) - MOST_SENTENCES:,} more; --format jsonl shows all of them")
    rows = [
        ("source", summary["source"]),
        ("partitions", f"{summary['partitions']:,}"),
        (
            "archived",
            f"{summary['archived_segments']:,} ({human_bytes(summary['archived_bytes'])}), "
            f"{summary['batches']:,} batches",
        ),
        *((reading, _reading(one)) for reading, one in summary["readings"].items()),
        ("doubts", f"{summary['doubts']:,}"),
        ("read of logs", human_bytes(summary["bytes_read"])),
        ("seconds", f"{summary['seconds']:.1f}"),
    ]
    print_table(("roll --what-if", ""), rows)
    click.echo(RESULT + json.dumps(summary))


def _with_one_row_for_equal_readings(sums: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows; readings of a partition that give the same are one row."""
    shown: list[dict[str, Any]] = []
    for row in sums:
        same = [one for one in shown[-len(RollReading) :] if _is_same(one, row)]
        if same:
            same[0]["reading"] += f", {row['reading']}"
        else:
            shown.append(dict(row, reading=str(row["reading"])))
    return shown


def _is_same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return all(one[name] == value for name, value in other.items() if name != "reading")


def _reading(one: Mapping[str, int]) -> str:
    indexes = human_bytes(one["offset_index_bytes"] + one["time_index_bytes"])
    return f"{one['segments']:,} segments, {indexes} of indexes"


def _replayed(row: Mapping[str, Any]) -> Iterator[str]:
    for reason in ROLL_REASONS:
        if count := row.get(f"{reason}_segments"):
            yield f"{count:,} {reason.replace('_', ' ')}"
    if row["untimed_segments"]:
        yield f"{row['untimed_segments']:,} without timestamps"
    if row["unknown_starts"]:
        yield f"{row['unknown_starts']:,} whose first message's timestamp is unknown"
    if row["oversized_batches"]:
        yield f"{row['oversized_batches']:,} batches larger than segment.bytes"
