"""The answer of `kip33 roll`: from the options to the rows, their output and the findings."""

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import click
import numpy as np
import pyarrow as pa

from kip33.audits.audited_logs import logs_below
from kip33.audits.roll_audit import (
    ROLL,
    RollAudit,
    audit_columns,
    columns_to_audit,
    roll_partitions,
    roll_table,
    roll_tables,
)
from kip33.audits.roll_logs import logs_of, read_first_batches, read_source
from kip33.audits.roll_what_if import (
    replay_partitions,
    replay_sums,
    segment_rows,
)
from kip33.catalog.catalog import catalog_unless_source
from kip33.catalog.catalog_columns import CatalogColumns, rows_of
from kip33.catalog.topic_totals import topics_of
from kip33.cli.engine_option import EngineOptions, engine_choice, open_engine
from kip33.cli.options import PolicyOptions, publish_summary
from kip33.cli.output import (
    Column,
    Output,
    Row,
    RowList,
    Table,
    choose_and_warn,
    counted,
    counts_text,
    facts,
    human_bytes,
    human_duration,
    iso_time,
    show,
    warn,
    warn_of_unreadable,
)
from kip33.cli.progress import progress_line
from kip33.cli.times import current_ms
from kip33.errors import ExitCode
from kip33.formats.names import segment_file_name
from kip33.retention.partition_texts import name_of
from kip33.retention.policy_files import load_policies
from kip33.rules.policies import Policies, require_topics
from kip33.rules.retention import NO_LIMIT
from kip33.rules.roll_verdicts import ROLL_REASONS, EarlyRoll
from kip33.rules.rolling import GivenSettings, RollReading, RollReason, TopicRollSettings
from kip33.stores.locations import Location
from kip33.stores.progress import OnProgress

_MOST_SENTENCES: Final = 20
_EARLY_TEXTS: Final = {
    EarlyRoll.FUTURE: "the next batch's timestamp is {by} later than the time of its own file",
    EarlyRoll.OLD_START: "its first timestamp is {by} behind the segment before",
    EarlyRoll.AHEAD: "the next batch's timestamp is {by} ahead of records that follow",
}
_REMARKS: Final = ("overdue", "early", "doubtful")


@dataclass(frozen=True, kw_only=True)
class RollCommand:
    """The options of `kip33 roll`; None: not given."""

    source: str
    given: GivenSettings
    policy: PolicyOptions
    reading: str
    now: int | None  # ms
    snapshot: str | None
    read_headers: bool
    what_if: bool
    layout: str
    fail_on: tuple[str, ...]
    topics: tuple[str, ...]
    summary_file: Location | None
    output_format: str
    engine: EngineOptions


class Archive(NamedTuple):
    """What is audited: a snapshot's columns, or the logs below a SOURCE."""

    columns: CatalogColumns | None
    logs: pa.Table | None
    about: dict[str, Any]  # for the summary

    @classmethod
    def of(cls, request: RollCommand, on_progress: OnProgress) -> "Archive":
        """Return the archive at a path or URI; UsageError for options that it excludes."""
        place = Location.of(request.source)
        catalog = catalog_unless_source(place, warn)
        if catalog is None:
            _require_no_catalog_option(request)
            logs = logs_below(
                request.source,
                topics=request.topics,
                layout=request.layout,
                on_progress=on_progress,
            )
            return cls(None, logs, {"source": place.uri})
        snapshot, warnings = choose_and_warn(catalog, request.snapshot)
        columns = columns_to_audit(catalog, snapshot, request.topics)
        if not columns.size:
            require_topics(request.topics, topics_of(catalog, snapshot))
        about = {
            "catalog": catalog.location.uri,
            "snapshot": snapshot.name,
            "source": snapshot.source,
            "warnings": list(warnings),
        }
        return cls(columns, None, about)


def answer_roll(request: RollCommand) -> set[str]:
    """Print and write the answer; return the findings."""
    started = time.monotonic()
    policies = load_policies(request.policy.policy, request.policy.kafka_configs)
    settings = TopicRollSettings(policies, request.given)
    settings.require_valid()
    if request.what_if:
        return _what_if(request, policies, settings, started)
    with progress_line("roll") as on_progress:
        archive = Archive.of(request, on_progress)
        audit, read, is_unread = _audit(archive, request, settings, on_progress)
    now_ms = current_ms() if request.now is None else request.now
    summary = {
        **archive.about,
        "reading": request.reading,
        "now_ms": now_ms,
        **audit.totals(),
        "active_past_limit_segments": audit.active_past_limit(now_ms),
        **read,
        "seconds": round(time.monotonic() - started, 3),
    }
    found = {one.name for one in audit.findings if one.rows.any()}
    summary["findings"] = sorted(found)
    publish_summary(request.summary_file, summary)
    partitions = roll_partitions(audit)
    answer = Output(
        page=_audit_page(audit, partitions, summary),
        rows=[
            RowList("segments", _segments(audit), "segment", is_compact=True, columns=ROLL.names),
            RowList("partitions", rows_of(partitions), "partition", is_compact=True),
        ],
        summary=summary,
        summary_key="summary",
    )
    show(answer, request.output_format)
    if is_unread:
        sys.exit(ExitCode.INCOMPLETE)
    return found


def _audit(
    archive: Archive, request: RollCommand, settings: TopicRollSettings, on_progress: OnProgress
) -> tuple[RollAudit, dict[str, Any], bool]:
    """Return the audit, for the summary what was read by which engine, and whether no log was."""
    reading = RollReading(request.reading)
    if archive.columns is not None and not request.read_headers:
        engine_choice(request.engine)  # refuses options that contradict each other
        audit = audit_columns(archive.columns, settings.of, reading=reading)
        return audit, {"bytes_read": 0, "engine": "local", "workers": 1}, False
    engine = open_engine(request.engine, on_progress)
    if archive.logs is not None:
        logs = archive.logs.num_rows
        columns, facts, bytes_read, errors = read_source(archive.logs, settings.of, engine)
    else:
        assert archive.columns is not None
        columns = archive.columns
        logs = int(columns.int64("base_offset").known.sum())
        facts, bytes_read, errors = read_first_batches(columns, engine)
        for error in errors[:_MOST_SENTENCES]:
            warn(f"{error}; what its header would tell is unknown")
    audit = audit_columns(columns, settings.of, reading=reading, facts=facts)
    read = {"bytes_read": bytes_read, "engine": engine.name, "workers": engine.workers}
    return audit, read, warn_of_unreadable(errors, of=logs)


def _what_if(
    request: RollCommand,
    policies: Policies,
    settings: TopicRollSettings,
    started: float,
) -> set[str]:
    if request.fail_on:
        raise click.UsageError("--fail-on cannot be combined with --what-if, which finds nothing")
    with progress_line("roll") as on_progress:
        archive = Archive.of(request, on_progress)
        engine = open_engine(request.engine, on_progress)
        logs = logs_of(archive.columns) if archive.columns is not None else archive.logs
        assert logs is not None
        found = replay_partitions(logs, settings.of, engine)
    retention = {
        one.topic: _retention_ms(one.topic, request.policy.retention_ms, policies) for one in found
    }
    sums = [
        replay_sums(one, replay, retention[one.topic]) for one in found for replay in one.replays
    ]
    summary = {
        **archive.about,
        "partitions": len(found),
        "archived_segments": sum(one.archived_segments for one in found),
        "archived_bytes": sum(one.archived_bytes for one in found),
        "batches": sum(one.batches for one in found),
        "readings": {reading.value: _totals(sums, reading) for reading in RollReading},
        "doubts": sum(len(one.doubts) for one in found),
        "bytes_read": sum(one.bytes_read for one in found),
        "engine": engine.name,
        "workers": engine.workers,
        "seconds": round(time.monotonic() - started, 3),
    }
    publish_summary(request.summary_file, summary)
    rows = [
        row
        for one in (found if request.output_format != "table" else ())
        for replay in one.replays
        for row in segment_rows(one, replay, retention[one.topic])
    ]
    answer = Output(
        page=_replay_page(sums, summary),
        rows=[RowList("segments", rows, "segment"), RowList("partitions", sums, "partition")],
        summary=summary,
        summary_key="summary",
    )
    show(answer, request.output_format)
    unreadable = [line for one in found for line in one.unreadable]
    if warn_of_unreadable(unreadable, of=logs.num_rows):
        sys.exit(ExitCode.INCOMPLETE)
    return set()


def _retention_ms(topic: str | None, given: int | None, policies: Policies) -> int:
    if given is not None:
        return given
    return policies.of(topic).retention_ms if topic else NO_LIMIT


def _totals(sums: list[dict[str, Any]], reading: RollReading) -> dict[str, int]:
    some = [one for one in sums if one["reading"] == reading]
    names = ("segments", "offset_index_bytes", "time_index_bytes")
    return {name: sum(one[name] for one in some) for name in names}


def _require_no_catalog_option(request: RollCommand) -> None:
    for option, is_given in (
        ("--snapshot", request.snapshot is not None),
        ("--read-headers", request.read_headers),
    ):
        if is_given:
            raise click.UsageError(
                f"{option} requires a CATALOG; of a SOURCE, all headers are read"
            )


def _segments(audit: RollAudit) -> Iterator[dict[str, Any]]:
    return (row for table in roll_tables(audit) for row in rows_of(table))


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
    some = roll_table(audit).take(pa.array(numbers[:_MOST_SENTENCES])).to_pylist()
    for row in some:
        segment = f"{name_of(row)}/{segment_file_name(row['base_offset'] or 0, 'log')}"
        if row["base_offset"] is None:
            segment = row["log_uri"]
        yield f"{segment}: {'; '.join(_parts(row))}"
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
        "roll --what-if",
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
