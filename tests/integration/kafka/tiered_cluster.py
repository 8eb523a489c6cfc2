"""Three brokers with tiered storage whose leaders change, cleanly or not, and what they answer.

    cluster = changed_cluster(tmp_path)
    build_here(cluster.local, ...); build_here(cluster.tier, ...)   # the cluster is stopped
    cluster.kafkas["orders", 0, START_MS]                           # what the leader found
    cluster.truth("orders", 0)                                      # every record of the log

The brokers have segments of different sizes, so each leader begins its uploads in the middle of a
segment of the leader before. In topics `lost` and `kept` one broker leads alone, uploads, and is
stopped; another one that has none of these records leads then. Their bucket keeps segments of
which all records, or the last ones, are lost.

Broker 1 is the controller and has Kafka's own topics; brokers 2 to 4 have the logs.
"""

import random
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from kip33.rules.search import LATEST, LATEST_TIERED
from tests.integration.kafka.cluster_answers import Answers, TopicPartition
from tests.integration.kafka.cluster_answers import Found as Record
from tests.integration.kafka.nodes import Nodes, base_offsets, wait_until
from tests.integration.kafka.tiered_broker import (
    SPECIAL,
    TIERED,
    Found,
    ListOffsets,
    Question,
    tier_of,
    tiered_nodes,
    wait_for_uploads,
)

BROKERS: Final = (2, 3, 4)
SEGMENT_BYTES: Final = {2: 1_048_576, 3: 1_400_000, 4: 1_800_000}  # five, six, eight batches
TOPICS: Final = {"orders": 2, "clicks": 1, "payments": 1, "lost": 2, "kept": 1, "whole": 1}
UNCLEAN: Final = ("lost", "kept")
LOCAL_RETENTION: Final = {
    "orders": "local.retention.bytes=2000000",
    "clicks": "local.retention.ms=1000",
    "payments": "local.retention.bytes=1000000",
    "lost": "local.retention.ms=1000",
}
LAST_LEADERS: Final = {"orders": 3, "clicks": 4, "payments": 2, "lost": 4, "kept": 3, "whole": 2}
REBUILT: Final = 3
"""The broker that loses its disk, and makes its logs anew from the leaders and the bucket."""
TRIMMED: Final = ("orders", 1)
LOG_START: Final = 300  # in the middle of a segment
START_MS, STEP_MS, DISORDER_MS = 1_700_000_000_000, 10_000, 60_000
RECORDS, RECORD_BYTES = 40, 5_000
QUESTIONS = 3_000
PARTITIONS: Final = [(topic, number) for topic, count in TOPICS.items() for number in range(count)]


class ChangedCluster(NamedTuple):
    """A stopped cluster: its logs, its bucket, and what it answered last."""

    nodes: Nodes
    unlost_until: dict[TopicPartition, int]  # where an unclean leader's log ended
    before: Answers  # when all was local
    after: Answers
    kafkas: dict[Question, Found]  # of the leaders

    @property
    def local(self) -> Path:
        """Return the folder of the log directories, `broker-2` to `broker-4`."""
        return self.nodes.root / "local"

    @property
    def tier(self) -> Path:
        return tier_of(self.nodes)

    def truth(self, topic: str, partition: int, level: str = "read_uncommitted") -> list[Record]:
        """Return the records of a log, also those before its start: before, all was local."""
        before, after = (
            answers.records[level][topic, partition] for answers in (self.before, self.after)
        )
        return before + [one for one in after if one.offset > before[-1].offset]


def changed_cluster(root: Path) -> ChangedCluster:
    """Return a cluster that was filled, whose leaders changed, that was asked, and stopped."""
    settings = {node: {"log.segment.bytes": str(size)} for node, size in SEGMENT_BYTES.items()}
    nodes = tiered_nodes(root, 1 + len(BROKERS), settings_of=settings)
    rng = random.Random(33)
    sent = Sends(rng)
    try:
        nodes.start(1)
        own = nodes.log_dir(1) / "__remote_log_metadata-0"
        wait_until(own.exists, "the topic of the remote tier's metadata")  # while 1 is alone
        nodes.start(*BROKERS)
        nodes.run_steps([*created(), *sent(16)])
        wait_for_uploads(nodes, TOPICS, node=2)
        nodes.run_steps([*moved(3), *sent(14)])
        wait_for_uploads(nodes, TOPICS, node=3)
        nodes.run_steps([*moved(4), *sent(12), *sent(4, [("lost", 1)])])
        unlost_until = lose_records(nodes, sent)
        nodes.run_steps([*moved(2), *sent(8), asked(nodes, "before")])
        wait_for_uploads(nodes, TOPICS, node=2)
        expire_locally(nodes)
        rebuild(nodes)
        nodes.run_steps(
            [
                *kept_from_now_on(),
                *(step for topic, leader in LAST_LEADERS.items() for step in moved(leader, topic)),
                f"delete {TRIMMED[0]} {TRIMMED[1]} {LOG_START}",
                *sent(3),
                asked(nodes, "after"),
            ]
        )
        before, after = (Answers.read(root / name) for name in ("before", "after"))
        kafkas = questioned(nodes, rng, before)
    finally:
        nodes.stop()
    cluster = ChangedCluster(nodes, unlost_until, before, after, kafkas)
    cluster.local.mkdir()
    for broker in BROKERS:
        nodes.log_dir(broker).rename(cluster.local / log_dir_of(broker))
    return cluster


def log_dir_of(broker: int) -> str:
    """Return the name that a broker's log directory has in the archive."""
    return f"broker-{broker}"


def created() -> Iterator[str]:
    yield "create __transaction_state 1 1 cleanup.policy=compact"  # not on one that is stopped
    for topic, partitions in TOPICS.items():
        unclean = "unclean.leader.election.enable=true" if topic in UNCLEAN else ""
        yield f"create {topic} {partitions} 2,3,4 {TIERED} min.insync.replicas=1 {unclean}".strip()


def moved(leader: int, *topics: str) -> Iterator[str]:
    """Yield steps after which a broker leads these topics, or all, and the others follow."""
    replicas = ",".join(map(str, sorted(BROKERS, key=lambda one: one != leader)))
    for topic in topics or TOPICS:
        yield f"move {topic} {replicas}"


class Sends:
    """Steps that send batches of 200 KB, whose times rise, but not in order."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._batches: Counter[TopicPartition] = Counter()

    def __call__(
        self, batches: int, partitions: Iterable[TopicPartition] = PARTITIONS
    ) -> Iterator[str]:
        """Yield the steps for each partition; in topic payments transactions of three batches."""
        for where in partitions:
            for place in range(batches):
                yield self._one(where)
                if where[0] == "payments" and (place % 3 == 2 or place == batches - 1):
                    yield f"{self._rng.choice(('commit', 'abort'))} t"

    def _one(self, where: TopicPartition) -> str:
        topic, number = where
        self._batches[where] += 1
        at = START_MS + self._batches[where] * STEP_MS + self._rng.randrange(DISORDER_MS)
        who = "t" if topic == "payments" else "p"
        how = f"{at} {DISORDER_MS} {RECORDS} {RECORD_BYTES} 50"
        return f"send {who} {self._rng.choice(('none', 'zstd'))} {topic} {number} {how}"


def lose_records(nodes: Nodes, sent: Sends) -> dict[TopicPartition, int]:
    """Let 4 lead alone and upload, then 2, which has nothing of that; return where they part.

    In partition 1 of `lost` both have more, so that 2's first upload begins within one of 4's that
    is right in part. There 2 gets less than was lost.
    """
    unclean = [where for where in PARTITIONS if where[0] in UNCLEAN]
    nodes.stop(2, 3)
    latest = ListOffsets(nodes, 4)([(*where, LATEST) for where in unclean])
    nodes.run_steps(sent(20, unclean))
    wait_for_uploads(nodes, TOPICS, node=4)
    nodes.stop(4)
    nodes.start(2)
    nodes.run_steps([*sent(24, [("lost", 0), ("kept", 0)]), *sent(6, [("lost", 1)])])
    nodes.start(3, 4)
    return {where: offset for where, (offset, _) in zip(unclean, latest, strict=True)}


def expire_locally(nodes: Nodes) -> None:
    """Let each broker delete what local retention allows, and no more afterwards."""
    nodes.run_steps(f"configure {topic} {limit}" for topic, limit in LOCAL_RETENTION.items())
    seen: list[list[int]] = []
    expired = [where for where in PARTITIONS if where[0] in LOCAL_RETENTION]

    def is_done() -> bool:
        seen.append(
            [
                base_offsets(nodes.log_dir(broker), f"{topic}-{number}")[0]
                for topic, number in expired
                for broker in BROKERS
            ]
        )
        return all(seen[-1]) and seen[-1:] * 10 == seen[-10:]  # for two seconds

    wait_until(is_done, "local retention")


def kept_from_now_on() -> Iterator[str]:
    """Yield steps that end local retention."""
    for topic, limit in LOCAL_RETENTION.items():
        yield f"configure {topic} {limit.partition('=')[0]}=-2"


def rebuild(nodes: Nodes) -> None:
    """Let a broker lose its disk; it gets what the others have and leader epochs of the bucket."""
    nodes.stop(REBUILT)
    nodes.lose_logs(REBUILT)
    nodes.start(REBUILT)


def asked(nodes: Nodes, name: str) -> str:
    """Return a step that writes what consumers and the admin client get to the file `name`."""
    no_times = nodes.root / "times"
    no_times.touch()
    return f"ask {nodes.root / name} {no_times} {' '.join(TOPICS)}"


def questioned(nodes: Nodes, rng: random.Random, known: Answers) -> dict[Question, Found]:
    """Return what the leaders answer, after all that is closed was uploaded."""
    records = known.records["read_uncommitted"]
    times = [one.timestamp for of_one in records.values() for one in of_one]
    questions = {(*where, target) for where in PARTITIONS for target in SPECIAL}
    while len(questions) < QUESTIONS:
        at = rng.choice((rng.choice(times), rng.randint(min(times) - 5, max(times) + 5)))
        questions.add((*rng.choice(PARTITIONS), at + rng.randint(-1, 1)))
    answers: dict[Question, Found] = {}
    for leader in BROKERS:
        ask = ListOffsets(nodes, leader)
        led = [where for where in PARTITIONS if LAST_LEADERS[where[0]] == leader]
        for where in led:
            wait_until(partial(is_uploaded, nodes, ask, where), f"the uploads of {where}")
        mine = sorted(one for one in questions if one[:2] in led)
        answers |= dict(zip(mine, ask(mine), strict=True))
    return answers


def is_uploaded(nodes: Nodes, ask: ListOffsets, where: TopicPartition) -> bool:
    """Return whether a leader says that all its closed segments are in the tier."""
    topic, number = where
    active = base_offsets(nodes.log_dir(LAST_LEADERS[topic]), f"{topic}-{number}")[-1]
    return ask([(*where, LATEST_TIERED)])[0][0] == active - 1
