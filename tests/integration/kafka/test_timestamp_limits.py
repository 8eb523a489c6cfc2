"""What a leader of Kafka 3.6 rejects and stamps, and what kip33 reads of it in batch headers."""

import random
from pathlib import Path

import pytest

from kip33.rules.timestamp_profile import ProfileQuestion, TimestampLimits, TimestampProfile
from tests.builders.logs_in_memory import columns_of
from tests.integration.kafka.oracle import Oracle, Request
from tests.integration.kafka.test_differential import SEED

pytestmark = pytest.mark.kafka

LOGS = 40
NOW = 1_700_000_000_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def produced(timestamps: list[int], codec: str, magic: int = 2) -> Request:
    records = [[i, at, 2, 20] for i, at in enumerate(timestamps)]
    return {"magic": magic, "codec": codec, "base_offset": 0, "records": records}


def test_a_header_tells_what_the_leader_rejects(leader: Oracle, tmp_path: Path) -> None:
    """All of it, unless a later record of the batch is older than its first one."""
    both = hidden = rejected = 0
    for number in range(LOGS):
        rng = random.Random(f"{SEED}/limits/{number}")
        before, after = rng.choice((0, 5, 1_000)), rng.choice((0, 5, 1_000))
        near = (-before - 1, -before, 0, after, after + 1, -1 - NOW, -NOW)
        batches = [
            [
                NOW + rng.choice((*near, rng.randint(-1_200, 1_200)))
                for _ in range(rng.randint(1, 3))
            ]
            for _ in range(12)
        ]
        offered = leader.write([produced(one, rng.choice(CODECS)) for one in batches])
        _, accepted = leader.offer(
            b"".join(offered),
            tmp_path,
            timestamp_type="CreateTime",
            clocks=[NOW] * len(batches),
            before_max_ms=before,
            after_max_ms=after,
        )
        asked = ProfileQuestion(TimestampLimits(before, after), NOW, NOW, None)
        for timestamps, wire, is_accepted in zip(batches, offered, accepted, strict=True):
            one = TimestampProfile()
            one.append(columns_of(wire), asked)
            says_rejected = one.rejected_before + one.rejected_after > 0
            oldest = min((at for at in timestamps if at != -1), default=-1)
            if says_rejected == is_accepted:
                assert not says_rejected, (number, timestamps)  # never a batch that is accepted
                assert oldest < timestamps[0] or timestamps[0] == -1, (number, timestamps)
                hidden += 1
            rejected += not is_accepted
            both += one.rejected_before + one.rejected_after == 2
    assert min(both, hidden, rejected) > 4
    assert hidden < rejected / 4


@pytest.mark.parametrize("magic", [2, 1, 0])
def test_with_log_append_time_the_leader_keeps_the_producers_first_timestamp(
    magic: int, leader: Oracle, tmp_path: Path
) -> None:
    latencies = []
    for number in range(LOGS // 4):
        rng = random.Random(f"{SEED}/stamped/{magic}/{number}")
        codec = "gzip" if magic < 2 else rng.choice(CODECS)  # a wrapper is one request
        latency_ms = [rng.choice((-50, 0, 3, 200, 86_400_000)) for _ in range(8)]
        batches = [
            produced([NOW + i - ms, NOW + i, NOW - 7], codec, magic)
            for i, ms in enumerate(latency_ms)
        ]
        log, accepted = leader.offer(
            b"".join(leader.write(batches)),
            tmp_path,
            timestamp_type="LogAppendTime",
            clocks=[NOW + i for i in range(len(batches))],
            before_max_ms=0,
            after_max_ms=0,
        )
        rows = columns_of(log)
        one = TimestampProfile()
        one.append(rows, ProfileQuestion(TimestampLimits(), NOW, None, None))

        assert all(accepted)  # with LogAppendTime no limit applies
        assert one.timestamp_type == "LogAppendTime"
        assert rows["max_timestamp"].tolist() == [NOW + i for i in range(len(batches))]
        if magic == 0:
            assert one.latency.count == 0  # a v0 message has no timestamp
            continue
        found = (rows["max_timestamp"] - rows["base_timestamp"]).tolist()
        assert found == latency_ms
        assert (one.latency.smallest, one.latency.largest) == (min(latency_ms), max(latency_ms))
        latencies += found
    assert magic == 0 or len(set(latencies)) > 3
