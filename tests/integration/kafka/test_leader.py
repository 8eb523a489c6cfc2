"""The `live` dialect against a leader of Kafka 3.6.2: its validator, its append, its roll."""

import random
from pathlib import Path

import pytest

from kip33 import build_time_index
from tests.integration.kafka.oracle import Oracle, Request
from tests.integration.kafka.random_segments import CODECS_OF_MAGIC, TIMESTAMP_TYPES
from tests.integration.kafka.test_differential import SEED
from tests.long_forms import short_and_long

pytestmark = pytest.mark.kafka

NOW = 1_700_000_000_000


def produced(rng: random.Random) -> list[Request]:
    """Return what producers send: v2 batches that begin at offset 0."""
    timestamps = rng.choice(
        (
            lambda: NOW + rng.randint(-50, 50),
            lambda: rng.choice((-1, 0, NOW, NOW + 1)),
            lambda: NOW,
            lambda: -1,
            lambda: rng.choice((0, 2**63 - 1, NOW)),
        )
    )
    return [
        {
            "magic": 2,
            "codec": rng.choice(("none", "none", *CODECS_OF_MAGIC[2])),
            "base_offset": 0,
            "records": [
                [i, timestamps(), rng.choice((-1, 5)), rng.choice((-1, 0, 40, 300))]
                for i in range(rng.choice((1, 2, 5, 12)))
            ],
        }
        for _ in range(rng.choice((1, 4, 20)))
    ]


@pytest.mark.parametrize("count", short_and_long(40, 150, "KIP33_SEGMENTS"))
@pytest.mark.parametrize("timestamp_type", TIMESTAMP_TYPES)
def test_kip33_rebuilds_what_a_leader_appended(
    count: int, timestamp_type: str, leader: Oracle, tmp_path: Path
) -> None:
    not_what_recovery_leaves = 0
    for number in range(count):
        rng = random.Random(f"{SEED}/{timestamp_type}/{number}")
        base_offset = rng.choice((0, 100, 5_000_000_000))
        interval = rng.choice((0, 100, 1000, 4096))
        log, time_index, offset_index = leader.lead(
            b"".join(leader.write(produced(rng))),
            tmp_path,
            base_offset=base_offset,
            timestamp_type=timestamp_type,
            index_interval_bytes=interval,
        )
        path = tmp_path / f"{base_offset:020d}.log"
        path.write_bytes(log)

        live = build_time_index(str(path), dialect="live", index_interval_bytes=interval)
        recovered = build_time_index(str(path), index_interval_bytes=interval)

        where = f"segment {number} of seed {SEED}"
        assert (live.time_index_data, live.offset_index_data) == (time_index, offset_index), where
        assert recovered.offset_index_data == offset_index, where
        not_what_recovery_leaves += recovered.time_index_data != time_index
    assert (not_what_recovery_leaves > count // 15) == (timestamp_type == "CreateTime")
