"""`local-tiered`: Kafka's own `LocalTieredStorage`, written for tests and also used elsewhere.

    SOURCE/orders-0-<topic id>/00000000000000000042-<segment id>.log    .index, .timeindex beside it
                               ....txnindex, .snapshot, .leader_epoch_checkpoint    ignored

Ids are 22 characters of base64. All bytes are raw. A segment that was uploaded twice is listed
twice, with different ids. Source: `RemoteTopicPartitionDirectory`, `RemoteLogSegmentFileset` of
Kafka (tests of its storage module).
"""

import re
from functools import partial
from typing import Final

from kip33.archive.directory import Directory, Layout, Partition, Visit, parent_of
from kip33.archive.index_listing import unfinished_of
from kip33.archive.layouts.suffixed import SegmentNaming, list_suffixed
from kip33.archive.segment_paths import TIERED_LOG
from kip33.formats.names import parse_partition_dir
from kip33.formats.partition_metadata import parse_topic_id

METADATA_WOULD_DANGLE: Final = "the brokers' remote log metadata would point to missing files"
_WITH_TOPIC_ID: Final = re.compile(r"(.+-[0-9]+)-([A-Za-z0-9_-]{22})")


def partition_of(visit: Visit) -> Partition | None:
    """Return the partition of a directory named `<topic>-<partition>-<topic id>`."""
    found = _WITH_TOPIC_ID.fullmatch(visit.place.name)
    named = parse_partition_dir(found[1]) if found else None
    if not found or not named:
        return None
    topic_id = parse_topic_id(found[2])
    return Partition(parent_of(visit.below), named.topic, named.partition, topic_id)


def base_offset_of(directory: Directory, name: str) -> int | None:
    """Return the base offset in a log's name; count other files."""
    found = TIERED_LOG.fullmatch(name)
    if found and int(found[1]) < 1 << 63:
        return int(found[1])
    directory.passed_over["files not named as segments"] += 1
    return None


LOCAL_TIERED = Layout(
    "local-tiered",
    "expected '<topic>-<partition>-<topic id>/<base offset>-<segment id>.log'",
    partial(
        list_suffixed,
        SegmentNaming(partition_of, base_offset_of, unfinished_of("[0-9]+-[A-Za-z0-9_-]{22}")),
    ),
    in_place=True,
    why_not_deleted=METADATA_WOULD_DANGLE,
)
