"""Offsets in the forms of the tools that set offsets."""

import json
from collections.abc import Iterable
from typing import Final, NamedTuple

from kip33.formats.kafka_configs import delete_records_object

RESET_OFFSETS, SPARK, DELETE_RECORDS = "reset-offsets", "spark", "delete-records"
EMITTED: Final = (RESET_OFFSETS, SPARK, DELETE_RECORDS)
_SPARK_LATEST: Final = -1


class Offset(NamedTuple):
    """The offset to begin in a partition; `is_end`: the log's end, because no record was found."""

    topic: str
    partition: int
    offset: int
    is_end: bool = False


def offset_text(offsets: Iterable[Offset], emit: str) -> str:
    """Return offsets as one of EMITTED, ending in a newline.

    `reset-offsets`: CSV for `kafka-consumer-groups.sh --reset-offsets --from-file`; `spark`: the
    JSON of `startingOffsets`, -1 for a log's end; `delete-records`: the JSON of
    `kafka-delete-records.sh --offset-json-file`.
    """
    ordered = sorted(offsets)
    if emit == RESET_OFFSETS:
        return "".join(f"{one.topic},{one.partition},{one.offset}\n" for one in ordered)
    if emit == DELETE_RECORDS:
        found = delete_records_object((one.topic, one.partition, one.offset) for one in ordered)
        return json.dumps(found) + "\n"
    topics: dict[str, dict[str, int]] = {}
    for one in ordered:
        offset = _SPARK_LATEST if one.is_end else one.offset
        topics.setdefault(one.topic, {})[str(one.partition)] = offset
    return json.dumps(topics) + "\n"
