"""The tables and sentences of `kip33 retention`."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

from kip33.cli.output import (
    Column,
    Row,
    Table,
    counted,
    counts_text,
    facts,
    human_bytes,
    iso_time,
)
from kip33.cli.retention_answer import RetentionAnswer, rows_of
from kip33.formats.names import segment_file_name
from kip33.retention.partition_texts import (
    block_sentence,
    name_of,
    policy_text,
    remarks_of,
)
from kip33.rules.offset_holes import HoleTotals

MOST_PARTITIONS: Final = 1_000  # rows of a table
_MOST_BLOCKS: Final = 20  # that are explained in sentences


def retention_page(
    answer: RetentionAnswer, summary: Row, *, with_broker_view: bool
) -> Iterator[Table | str]:
    """Yield the partitions, blocked ones first, the reason for each block, and the summary."""
    if with_broker_view and (differences := answer.broker_differences()):
        title = "what a broker would do, given the index files beside the logs"
        yield Table(_DIFFERENCES, differences, title)
    rows = answer.worst(MOST_PARTITIONS)
    title = f"retention at {iso_time(summary['now_ms'])}, snapshot {summary['snapshot']}"
    yield Table(_columns(rows), rows, title, "partitions", summary["partitions"])
    blocked = [row for row in rows if row["blocked_segments"]]
    yield from (f"- {block_sentence(row)}" for row in blocked[:_MOST_BLOCKS])
    if answer.freed is not None:
        freed = list(rows_of(answer.freed))
        none = "no segment can be deleted at any of these times"
        yield Table(_FREED, freed, most=None) if freed else none
    yield _summary(summary)


def _columns(rows: Sequence[Row]) -> list[Column]:
    asked = rows[0] if rows else {}
    parts = {"deletable": "deletable_", "a broker": "broker_deletable_"}
    parts |= {"what if": "what_if_deletable_", "blocked": "blocked_"}
    return [
        Column("partition", name_of, is_name=True),
        Column("policy", policy_text, rank=2),
        Column("segments", "segments", rank=3),
        Column("log", "bytes", human_bytes),
        *(
            Column(heading, partial(_some, kind=kind), rank=0)
            for heading, kind in parts.items()
            if heading in ("deletable", "blocked") or f"{kind}segments" in asked
        ),
        Column("remarks", lambda row: "; ".join(remarks_of(row)), is_remark=True),
    ]


def _some(row: Row, kind: str) -> str:
    """Return the number and size of segments of a kind: `3 (1.4 GiB)`."""
    segments, size = row[f"{kind}segments"], row[f"{kind}bytes"]
    return f"{segments:,} ({human_bytes(size)})" if segments else "-"


_DIFFERENCES: Final = (
    Column("partition", name_of, is_name=True),
    Column("segment", lambda row: segment_file_name(row["base_offset"], "log"), is_name=True),
    Column("we", lambda row: "deletable" if row["deletable"] else row["reason"], rank=0),
    Column(
        "a broker",
        lambda row: "deletable" if row["broker_deletable"] else row["broker_reason"],
        rank=0,
    ),
    Column("kip33 reads", "largest_timestamp", iso_time),
    Column("broker reads", "broker_largest_timestamp", iso_time),
    Column(".timeindex", "broker_index_fault", none=""),
)
_FREED: Final = (
    Column("up to", "at_ms", iso_time, rank=0),
    Column("topic", "topic", none="", is_name=True),
    Column("newly deletable", "segments"),
    Column("log", "bytes", human_bytes),
)
_TRUST: Final = {
    "last_modified_segments": "by file time",
    "unverified_segments": "unverified",
    "doubtful_segments": "doubtful",
}


def _summary(summary: Row) -> Table:
    trust = [f"{summary[name]:,} {what}" for name, what in _TRUST.items() if summary[name]]
    suspicions = {kind.replace("_", " "): count for kind, count in summary["suspicions"].items()}
    holes = HoleTotals(summary["by_hole"], summary["missing_offsets"])
    plan = summary.get("plan")
    has_what_if = "what_if_deletable_segments" in summary
    return facts(
        "retention",
        ("catalog", summary["catalog"]),
        ("partitions", f"{summary['partitions']:,}"),
        ("segments", _some(summary, "")),
        ("deletable now", _some(summary, "deletable_")),
        ("expired, blocked", _blocked(summary)),
        ("what if", _some(summary, "what_if_deletable_") if has_what_if else None),
        ("a broker", _broker(summary)),
        (
            "not uploaded",
            _some(summary, "not_uploaded_") if summary["not_uploaded_segments"] else None,
        ),
        ("less certain", ", ".join(trust) or "-"),
        ("suspicious", counts_text(suspicions) or None),
        ("holes", holes.as_text() if summary["by_hole"] else None),
        ("plan", _plan(plan) if plan else None),
        (
            "not in the plan",
            _some(plan, "left_out_") if plan and plan["left_out_segments"] else None,
        ),
        ("seconds", f"{summary['seconds']:.1f}"),
    )


def _plan(plan: Row) -> str:
    sizes = sizes_text(plan["log_bytes"], plan["bytes"])
    return f"{plan['file']}: {counted(plan['segments'], 'segment')}: {sizes}"


def sizes_text(log_bytes: int, all_bytes: int) -> str:
    """Return the size of logs, and what it is with their index files.

    Index files above the logs' size are those that a broker preallocates.

    >>> sizes_text(1258291, 11744051), sizes_text(2048, 2148)
    ('1.2 MiB of logs, 11.2 MiB with preallocated index files', \
'2.0 KiB of logs, 2.1 KiB with index files')
    """
    if log_bytes == all_bytes:
        return f"{human_bytes(log_bytes)} of logs"
    what = "preallocated index files" if all_bytes > 2 * log_bytes else "index files"
    return f"{human_bytes(log_bytes)} of logs, {human_bytes(all_bytes)} with {what}"


def _broker(summary: Row) -> str | None:
    if "broker_deletable_segments" not in summary:
        return None
    misread = counted(summary["broker_misread_segments"], "segment")
    differ = f"{summary['broker_different_segments']:,} with another result"
    return f"{_some(summary, 'broker_deletable_')}; {misread} misread, {differ}"


def _blocked(summary: Row) -> str:
    if not summary["blocked_segments"]:
        return "-"
    partitions = counted(summary["blocked_partitions"], "partition")
    return f"{_some(summary, 'blocked_')} in {partitions}"
