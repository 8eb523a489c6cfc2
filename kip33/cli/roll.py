"""`kip33 roll`: why segments ended; `roll what-if`: what other settings would have given."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

import click
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kip33.archive.common_options import PolicyFiles
from kip33.archive.moments import time_or_now
from kip33.audits.roll_answers import (
    RolledArchive,
    RollRequest,
    WhatIfRequest,
    audit_archive,
    replay_archive,
)
from kip33.audits.roll_audit import (
    ROLL,
    RollAudit,
    roll_partitions,
    roll_table,
    roll_tables,
)
from kip33.audits.roll_what_if import REPLAYED
from kip33.cli.declared_options import options_of
from kip33.cli.modes import CommandWithModes, Earlier, Mode, with_modes
from kip33.cli.output import (
    MOST_FINDING_LINES,
    Column,
    Output,
    OutputFinding,
    Row,
    RowList,
    Table,
    counted,
    counts_text,
    facts,
    human_bytes,
    human_duration,
    iso_time,
    warn,
)
from kip33.cli.runs import CommandRun, Findings, runs
from kip33.formats.names import segment_file_name
from kip33.retention.partition_texts import name_of
from kip33.retention.policy_files import load_policies
from kip33.rules.roll_verdicts import ROLL_REASONS, EarlyRoll
from kip33.rules.rolling import RollReading, RollReason

ROLL_FINDINGS: Final = ("overdue", "early", "unexplained", "unknown", "doubtful")
_MOST_SENTENCES: Final = 20
_ROWS_AT_ONCE: Final = 1_000
_EARLY_TEXTS: Final = {
    EarlyRoll.FUTURE: "the next batch's timestamp is {by} later than the time of its own file",
    EarlyRoll.OLD_START: "its first timestamp is {by} behind the segment before",
    EarlyRoll.AHEAD: "the next batch's timestamp is {by} ahead of records that follow",
}
_REMARKS: Final = ("overdue", "early", "doubtful")


@click.command(
    cls=CommandWithModes,
    epilog="Example: kip33 roll /archive/indexes/_catalog --segment-ms 7d",
)
@click.argument("source", metavar="CATALOG|SOURCE")
@options_of(RollRequest)
@options_of(PolicyFiles)
@runs(findings=Findings(ROLL_FINDINGS))
def roll(asked: RollRequest, files: PolicyFiles, run: CommandRun) -> Output:
    """Show why each segment of CATALOG ended where it did, and when it should have.

    A broker begins a new segment before a batch that would make the old one larger than
    segment.bytes, or whose timestamp is more than segment.ms after the old one's first. So each
    segment is compared with the first batch of the next one. Settings are those of the options,
    else of --policy or --kafka-configs, else Kafka's defaults.

    \b
    ended by   size, time, index_full, offset_range
               jitter: by time, if the random jitter was large enough
               several_batches: only if several batches came at once,
               as on a follower
               unexplained: none of these, under the settings given
               unknown: the row's `doubt` or `not_seen` says why
               active: it has not ended
    overdue    it has batches that belong in a new segment
    early      by time, because a timestamp jumped: future_timestamp,
               old_start, ahead_of_later

    A catalog is judged without opening a log. Of a SOURCE, the headers of all batches are read; no
    CRC is checked. A segment that begins without a timestamp ends by the time since the broker
    created it, which no file has: `waited_ms` is then the time between two files' last changes.
    """
    policies = load_policies(**files)
    archive = RolledArchive.at(asked, warn, run.on_progress)
    found = audit_archive(archive, asked, policies, run.open_engine, warn)
    partitions = roll_partitions(found.audit)
    return Output(
        page=partial(_audit_page, found.audit, partitions),
        rows=[
            RowList(
                "segments",
                (row for table in roll_tables(found.audit) for row in _rows_of(table)),
                "segment",
                is_compact=True,
                columns=ROLL.names,
            ),
            RowList("partitions", _rows_of(partitions), "partition", is_compact=True),
        ],
        summary=found.summary(time_or_now(asked["now"])),
        summary_key="summary",
        findings={
            one.name: OutputFinding(
                int(one.rows.sum()),
                "segment",
                partial(_told, found.audit, np.flatnonzero(one.rows)[:MOST_FINDING_LINES]),
            )
            for one in found.audit.findings
        },
        unread=found.errors,
        logs=found.logs,
    )


def _told(audit: RollAudit, numbers: npt.NDArray[np.int64]) -> Iterator[str]:
    """Yield what is to be said of some segments."""
    for row in roll_table(audit).take(pa.array(numbers)).to_pylist():
        parts = "; ".join(_parts(row)) or f"ended by {row['ended_by']}"
        yield f"{_segment_name(row)}: {parts}"


def _segment_name(row: Mapping[str, Any]) -> str:
    if row["base_offset"] is None:
        return str(row["log_uri"])
    return f"{name_of(row)}/{segment_file_name(row['base_offset'], 'log')}"


def _rows_of(table: pa.Table) -> Iterator[Row]:
    for some in table.to_batches(max_chunksize=_ROWS_AT_ONCE):
        yield from some.to_pylist()


@click.command(
    "what-if",
    cls=Mode,
    epilog="Example: kip33 roll what-if /archive/kafka-logs --segment-ms 6h --retention-ms 7d",
)
@click.argument("source", metavar="CATALOG|SOURCE")
@options_of(WhatIfRequest)
@options_of(PolicyFiles)
@runs()
def roll_what_if(asked: WhatIfRequest, files: PolicyFiles, run: CommandRun) -> Output:
    """Replay all batches under other settings; show the segments that would come out.

    Each batch is replayed as one append, by each reading of the timestamp from which a segment's
    time counts (see `kip33 roll`). The headers of all batches are read. With --retention-ms or a
    policy the answer also has when the segments become deletable.
    """
    policies = load_policies(**files)
    archive = RolledArchive.at(asked, warn, run.on_progress)
    found = replay_archive(archive, asked, policies, run.open_engine())
    sums = found.sums()
    return Output(
        page=partial(_replay_page, sums),
        rows=[
            RowList("segments", found.rows(), "segment", columns=REPLAYED.names),
            RowList("partitions", sums, "partition"),
        ],
        summary=found.summary(sums),
        summary_key="summary",
        unread=found.unreadable,
        logs=archive.logs.num_rows,
    )


with_modes(roll, roll_what_if, earlier={"--what-if": Earlier("what-if")})


def _audit_page(audit: RollAudit, partitions: pa.Table, summary: Row) -> Iterator[Table | str]:
    """Yield the partitions, those with findings first, then sentences and the summary."""
    rows = partitions.to_pylist()
    of_names = [one.name for one in audit.findings]
    rows.sort(key=lambda row: -sum(row[f"{name}_segments"] for name in of_names))
    shown = [row for row in rows if _tells_something(row, of_names)]
    where = summary.get("snapshot", summary["source"])
    if shown:
        title = f"rolling, {where}, reading {summary['reading']}"
        yield Table(_PARTITIONS, shown, title, "partitions")
    if len(shown) < len(rows):
        yield f"{counted(len(rows) - len(shown), 'partition')} with only an active segment"
    yield from (f"- {sentence}" for sentence in _sentences(audit))
    yield _summary(summary)


def _tells_something(row: Mapping[str, Any], findings: Sequence[str]) -> bool:
    """Return whether a partition has more than a plain active segment."""
    is_alone = row["segments"] == row[f"{RollReason.ACTIVE}_segments"]
    return not is_alone or any(row[f"{name}_segments"] for name in findings)


def _ended(row: Row) -> Iterator[str]:
    for reason in ROLL_REASONS:
        if count := row.get(f"{reason}_segments"):
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
    yield from _told(audit, numbers[:_MOST_SENTENCES])
    if numbers.size > _MOST_SENTENCES:
        yield f"and {numbers.size - _MOST_SENTENCES:,} more; --format jsonl shows all of them"


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


def _limits(row: Row) -> str:
    return f"{human_duration(row['segment_ms'])}, {human_bytes(row['segment_bytes'])}"


_PARTITIONS: Final = (
    Column("partition", name_of, is_name=True),
    Column("segments", "segments", rank=2),
    Column("log", "bytes", human_bytes, rank=3),
    Column("segment.ms, .bytes", _limits),
    Column("ended by", lambda row: ", ".join(_ended(row)), is_remark=True),
    Column("remarks", lambda row: ", ".join(_remarks(row)), is_remark=True),
)


def _summary(summary: Row) -> Table:
    place = "catalog" if "catalog" in summary else "source"
    early = {why.replace("_", " "): count for why, count in summary["early"].items()}
    return facts(
        "roll",
        (place, summary[place]),
        ("partitions", f"{summary['partitions']:,}"),
        ("segments", f"{summary['segments']:,} ({human_bytes(summary['bytes'])})"),
        ("ended by", ", ".join(_ended(summary)) or "-"),
        ("overdue", f"{summary['overdue_segments']:,}"),
        ("early", counts_text(early) or "-"),
        ("doubtful", f"{summary['doubtful_segments']:,}"),
        ("active past limit", _active(summary)),
        ("read of logs", human_bytes(summary["bytes_read"])),
        ("seconds", f"{summary['seconds']:.1f}"),
    )


def _active(summary: Mapping[str, Any]) -> str:
    count, at = summary["active_past_limit_segments"], iso_time(summary["now_ms"])
    return f"{count:,} of {summary[f'{RollReason.ACTIVE}_segments']:,} at {at}"


def _replay_page(sums: Sequence[Row], summary: Row) -> Iterator[Table | str]:
    """Yield a row per partition and reading, then what was seen of the logs, and the totals."""
    shown = _with_one_row_for_equal_readings(sums)
    yield Table(_REPLAYS, shown, "what if: segments under these settings")
    doubts = list(dict.fromkeys(doubt for row in sums for doubt in row["doubts"]))
    yield from (f"- {doubt}" for doubt in doubts[:_MOST_SENTENCES])
    if len(doubts) > _MOST_SENTENCES:
        more = len(doubts) - _MOST_SENTENCES
        yield f"- and {more:,} more; --format jsonl shows all of them"
    yield facts(
        "roll what-if",
        ("source", summary["source"]),
        ("partitions", f"{summary['partitions']:,}"),
        (
            "archived",
            f"{summary['archived_segments']:,} ({human_bytes(summary['archived_bytes'])}), "
            f"{counted(summary['batches'], 'batch')}",
        ),
        *((reading, _reading(one)) for reading, one in summary["readings"].items()),
        ("doubts", f"{summary['doubts']:,}"),
        ("read of logs", human_bytes(summary["bytes_read"])),
        ("seconds", f"{summary['seconds']:.1f}"),
    )


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
    return f"{counted(one['segments'], 'segment')}, {indexes} of indexes"


def _replayed(row: Row) -> Iterator[str]:
    yield from _ended(row)
    if row["untimed_segments"]:
        yield f"{row['untimed_segments']:,} without timestamps"
    if row["unknown_starts"]:
        yield f"{row['unknown_starts']:,} whose first message's timestamp is unknown"
    if row["oversized_batches"]:
        yield f"{counted(row['oversized_batches'], 'batch')} larger than segment.bytes"


_REPLAYS: Final = (
    Column("partition", name_of, is_name=True),
    Column("reading", "reading", rank=0),
    Column("archived", "archived_segments"),
    Column("segments", "segments", rank=0),
    Column("ended by", lambda row: ", ".join(_replayed(row)), is_remark=True),
    Column("largest", "largest_segment_bytes", human_bytes, rank=2),
    Column(".index", "offset_index_bytes", human_bytes, rank=3),
    Column(".timeindex", "time_index_bytes", human_bytes, rank=3),
    Column("longest kept", "longest_kept_ms", human_duration, rank=2),
    Column("all deletable", "all_deletable_at_ms", iso_time),
)
