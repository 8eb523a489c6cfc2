"""Topics with everything that a restore has to bring back, produced at a cluster in two parts.

The cluster is started twice meanwhile, so that the logs have several leader epochs.
"""

import shutil
from random import Random

from tests.integration.kafka.batches import batch, record
from tests.integration.kafka.nodes import Nodes

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
FAR = 2**31 + 7  # the first offset of topic far
BATCHES, RECORDS, RECORD_BYTES = 40, 8, 5_000  # of a partition in each part: 1.6 MB
KEYS = 1_000
AGES_DAYS = (5, 4, 3, 0)  # of the segments of topic aged; the last one is active
TRIMMED = 13  # where topic trimmed starts, inside a segment
PARTITIONS = {
    "orders": 5,  # a codec each, timestamps out of order
    "appended": 1,  # LogAppendTime
    "payments": 2,  # transactions that commit, abort, and stay open
    "profiles": 1,  # compacted
    "far": 1,  # offsets beyond 2^31
    "aged": 1,
    "trimmed": 1,
}
SETTINGS = {
    "appended": "message.timestamp.type=LogAppendTime",
    "profiles": "cleanup.policy=compact min.cleanable.dirty.ratio=0.01",
}


def creations(topics: dict[str, int] = PARTITIONS, replicas: str = "1") -> list[str]:
    """Return steps that create topics."""
    return [
        f"create {topic} {partitions} {replicas} {SETTINGS.get(topic, '')}".strip()
        for topic, partitions in topics.items()
    ]


def first_part(now_ms: int) -> list[str]:
    """Return the steps before the first stop; times lie within hours before `now_ms`."""
    aged = [
        f"send a none aged 0 {now_ms - age * DAY_MS + minute * 60_000} 0 4 120000 {KEYS}"
        for age in AGES_DAYS
        for minute in (-1, 0)
    ]
    return [*creations(), *aged, *_in_plain_topics(now_ms - 8 * HOUR_MS), *_transactions(now_ms, 0)]


def second_part(now_ms: int) -> list[str]:
    """Return the steps after the first start anew; a transaction stays open."""
    far = [
        f"send f zstd far 0 {now_ms - HOUR_MS + number * 1000} 5000 5 8000 {KEYS}"
        for number in range(BATCHES)
    ]
    return [
        *far,
        *_in_plain_topics(now_ms - 4 * HOUR_MS),
        *_transactions(now_ms, 1),
        f"delete trimmed 0 {TRIMMED}",
    ]


def _in_plain_topics(start_ms: int) -> list[str]:
    steps = []
    for number in range(BATCHES):
        at = start_ms + number * 150_000
        batch_of = f"{HOUR_MS} {RECORDS} {RECORD_BYTES}"  # up to an hour late
        steps += [
            f"send p {codec} orders {partition} {at} {batch_of} {KEYS}"
            for partition, codec in enumerate(CODECS)
        ]
        steps.append(f"send p none appended 0 {at} {batch_of} {KEYS}")
        steps.append(f"send p lz4 profiles 0 {at} {batch_of} 30")
        steps.append(f"send p none trimmed 0 {at} {batch_of} {KEYS}")
    return steps


def _transactions(now_ms: int, part: int) -> list[str]:
    """Return transactions of three producers and records of none, in both partitions."""
    random = Random(part)
    steps, at = [], now_ms - 2 * HOUR_MS + part * HOUR_MS
    for number in range(24):
        at += 60_000
        producer = random.choice(("p", "t1", "t2", "t3"))
        target = f"payments {random.randrange(2)} {at} 60000"
        steps.append(f"send {producer} {random.choice(CODECS)} {target} 4 40000 {KEYS}")
        if number % 5 == 4:
            steps.append(f"{random.choice(('commit', 'abort'))} t{random.randint(1, 3)}")
    steps += ["abort t1", "commit t2"]
    if part == 0:
        return [*steps, "commit t3"]
    return [*steps, f"send t4 none payments 0 {at + 60_000} 0 4 40000 {KEYS}"]


def put_far_log(nodes: Nodes, now_ms: int) -> None:
    """Give topic far of a stopped cluster a log that starts beyond 2^31, and nothing else."""
    directory = nodes.log_dir() / "far-0"
    identity = (directory / "partition.metadata").read_bytes()
    shutil.rmtree(directory)
    directory.mkdir()
    (directory / "partition.metadata").write_bytes(identity)
    body = b"".join(record(b"k", b"v" * 50, offset_delta=number) for number in range(4))
    batches = [
        batch(
            FAR + 4 * number,
            now_ms - 3 * HOUR_MS + number * 1000,
            last_offset_delta=3,
            records_count=4,
            body=body,
            leader_epoch=0,
        )
        for number in range(30)
    ]
    (directory / f"{FAR:020d}.log").write_bytes(b"".join(batches))
