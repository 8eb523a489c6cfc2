"""The input of `kafka-delete-records.sh --offset-json-file` for deletable segments."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from kip33.formats.kafka_configs import delete_records_object
from kip33.rules.retention import RetentionMode

INTERNAL: Final = (
    "__consumer_offsets",
    "__transaction_state",
    "__share_group_state",
)  # Kafka refuses to delete their records


def delete_records_of(
    partitions: Iterable[Mapping[str, Any]],
    *,
    trust_last_modified: bool = False,
    left_out: Collection[tuple[str, int]] = (),
) -> dict[str, Any]:
    """Return the file's JSON (`DeleteRecordsCommand`, version 1) for the rows of partitions.

    `kip33.spark.retention.delete_records` does the same and documents what is left out.
    """
    replicas: dict[tuple[str, int], list[int | None]] = {}
    for row in partitions:
        if row["mode"] == RetentionMode.DELETE and row["topic"] not in INTERNAL:
            key = (row["topic"], row["partition"])
            first = _first_kept(row, trust_last_modified=trust_last_modified)
            replicas.setdefault(key, []).append(first)
    offsets = []
    for (topic, partition), found in sorted(replicas.items()):
        known = [offset for offset in found if offset is not None]
        if len(known) == len(found) and (topic, partition) not in left_out:
            offsets.append((topic, partition, min(known)))
    return delete_records_object(offsets)


def _first_kept(row: Mapping[str, Any], *, trust_last_modified: bool) -> int | None:
    """Return the offset of the first record that is kept; None: the replica keeps everything."""
    doubted = row["deletable_unverified_segments"]
    if not trust_last_modified:
        doubted += row["deletable_last_modified_segments"]
    if not row["deletable_segments"] or doubted:
        return None
    kept: int | None = row["first_kept_base_offset"]
    return row["log_end_offset"] if kept is None else kept
