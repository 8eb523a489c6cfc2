"""`pinterest`: uploads of Pinterest's tiered storage to a bucket.

    SOURCE/[<bits>/]<cluster>/orders-0/00000000000000000042.log    .index and .timeindex beside it
    SOURCE/[<bits>/]<cluster>/orders-0/offset.wm, _metadata        ignored

`<bits>` are the first bits, as 0 and 1, of the MD5 of `<cluster>-<topic>-<partition>`. They only
spread a bucket's load, so `log_dir` does not contain them. All bytes are raw. `_metadata` also
lists the segments, so kip33 deletes nothing here. Source:
`Utils.getBinaryHashForClusterTopicPartition` and `S3StorageServiceEndpoint` of
pinterest/tiered-storage.
"""

import hashlib
from functools import partial

from kip33.archive.directory import Layout, Partition, Visit
from kip33.archive.layouts import kafka
from kip33.archive.layouts.suffixed import list_suffixed


def partition_of(visit: Visit) -> Partition | None:
    """Return the partition of a directory; `log_dir` does not contain the bits of its hash."""
    found = kafka.partition_of(visit)
    if found is None:
        return None
    before, _, cluster = found.log_dir.rpartition("/")
    above, slash, bits = before.rpartition("/")
    if bits and bits == hash_bits(cluster, found.topic, found.partition)[: len(bits)]:
        return found._replace(log_dir=f"{above}{slash}{cluster}")
    return found


def hash_bits(cluster: str, topic: str, partition: int) -> str:
    """Return all bits of the hash that spreads partitions over a bucket, as 0 and 1.

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
