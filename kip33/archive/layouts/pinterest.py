"""`pinterest`: what Pinterest's tiered storage uploads to a bucket.

    SOURCE/[<bits>/]<cluster>/orders-0/00000000000000000042.log    .index and .timeindex beside it
    SOURCE/[<bits>/]<cluster>/orders-0/offset.wm, _metadata        passed over

`<bits>` are the first bits, as 0 and 1, of the MD5 of `<cluster>-<topic>-<partition>`; they spread
a bucket's load and say nothing, so `log_dir` is without them. All bytes are raw. Source:
`Utils.getBinaryHashForClusterTopicPartition` and `S3StorageServiceEndpoint` of
pinterest/tiered-storage. `_metadata` lists the segments as well: nothing is deleted here.
"""

import hashlib
from functools import partial

from kip33.archive.directory import Partition, Visit
from kip33.archive.layouts import kafka
from kip33.archive.layouts.layout import Layout
from kip33.archive.layouts.suffixed import list_suffixed


def partition_of(visit: Visit) -> Partition | None:
    """Return whose directory it is; `log_dir` is without the bits of its hash."""
    found = kafka.partition_of(visit)
    if found is None:
        return None
    before, _, cluster = found.log_dir.rpartition("/")
    above, slash, bits = before.rpartition("/")
    if bits and bits == hash_bits(cluster, found.topic, found.partition)[: len(bits)]:
        return found._replace(log_dir=f"{above}{slash}{cluster}")
    return found


def hash_bits(cluster: str, topic: str, partition: int) -> str:
    """Return all bits of the hash that spreads partitions.

    >>> hash_bits("test-cluster", "foo123", 133)[:5]
    '10110'
    """
    name = f"{cluster}-{topic}-{partition}"
    digest = hashlib.md5(name.encode(), usedforsecurity=False).digest()
    return f"{int.from_bytes(digest):0128b}"


PINTEREST = Layout(
    "pinterest",
    "expected '[<bits>/]<cluster>/<topic>-<partition>/<base offset>.log'",
    partial(list_suffixed, kafka.NAMES._replace(partition=partition_of)),
    in_place=True,
    why_not_deleted="the _metadata beside them would point to missing files",
)
