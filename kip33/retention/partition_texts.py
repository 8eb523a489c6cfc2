"""A partition's row of an evaluation in words: its policy, remarks, what blocks it."""

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from kip33.errors import counted
from kip33.formats.names import segment_file_name
from kip33.formats.times import iso_time
from kip33.rules.policies import human_bytes, human_duration
from kip33.rules.retention import RetentionMode, RetentionReason

PartitionRow: TypeAlias = Mapping[str, Any]
"""A row of `retention.evaluated_tables.partitions_table`."""


def name_of(row: PartitionRow) -> str:
    """Return a partition's directory in its usual form: `broker-1/orders-0`."""
    log_dir = f"{row['log_dir']}/" if row["log_dir"] else ""
    if row["topic"] is None:
        return f"{log_dir}?"
    return f"{log_dir}{row['topic']}-{row['partition']}"


def policy_text(row: PartitionRow) -> str:
    """Return the policy and its limits: `orders*: 7 d, 1.0 GiB`."""
    if row["mode"] == RetentionMode.COMPACT:
        return f"{row['policy']}: compact"
    if row["mode"] == RetentionMode.TIERED:
        return f"{row['policy']}: tiered, not evaluated"
    if row["mode"] not in (RetentionMode.DELETE, RetentionMode.LOCAL_TIER):
        return "not evaluated" if row["mode"] == RetentionMode.UNJUDGED else "none"
    limits = []
    if row["retention_ms"] >= 0:
        limits.append(human_duration(row["retention_ms"]))
    if row["retention_bytes"] >= 0:
        limits.append(human_bytes(row["retention_bytes"]))
    tier = "local " if row["mode"] == RetentionMode.LOCAL_TIER else ""
    return f"{row['policy']}: {tier}{', '.join(limits) or 'forever'}"


def remarks_of(row: PartitionRow) -> Iterator[str]:
    """Yield how many segments have suspicious timestamps, or are judged with less certainty."""
    for kind, count in sorted(row["suspicions"].items()):
        yield f"{count:,} {kind.replace('_', ' ')}"
    if count := row["last_modified_segments"]:
        offsets = row["last_modified_base_offsets"]
        named = " ".join(map(str, offsets)) + (" ..." if count > len(offsets) else "")
        files = "its file's" if count == 1 else "their files'"
        yield (
            f"{counted(count, 'segment')} without timestamps: judged by {files} modification time "
            f"(base offset{'' if count == 1 else 's'} {named})"
        )
    if row["active_expired_segments"]:
        yield "expired, but kept: it is the active segment"
    for kind in ("unverified", "doubtful", "tiered"):
        if count := row[f"{kind}_segments"]:
            yield f"{count:,} {kind}"
    if row["not_uploaded_segments"]:
        yield _not_uploaded(row)
    if row["other_records_segments"]:
        where = ""
        if row["other_records_base_offset"] is not None:
            where = f", from base offset {row['other_records_base_offset']} on"
        yield (
            f"{row['other_records_segments']:,} of which the remote tier has other records at "
            f"these offsets{where}"
        )
    if row["unreferenced_segments"]:
        yield f"{row['unreferenced_segments']:,} unreferenced: not of this log"


def _not_uploaded(row: PartitionRow) -> str:
    what = f"{row['not_uploaded_segments']:,} not uploaded"
    if row["not_uploaded_base_offset"] is not None:
        what += f", from base offset {row['not_uploaded_base_offset']} on"
    if row["upload_before_ms"] is None:
        return what
    return f"{what}, to be uploaded before {iso_time(row['upload_before_ms'])}"


def block_sentence(row: PartitionRow) -> str:
    """Return a sentence about what blocks a partition: segment, timestamp, and until when."""
    waits = f"{name_of(row)}: {counted(row['blocked_segments'], 'segment')} of "
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


def _why_it_stays(row: PartitionRow) -> str:
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
