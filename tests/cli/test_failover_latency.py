"""`kip33 failover --buffer auto`: latency comes from LogAppendTime batches, or it is refused."""

from pathlib import Path
from typing import Any

import pytest

from kip33.demo import COPIED_MS, START_MS, write
from tests.builders.segment_builder import Record, v2_batch
from tests.cli.console import Command, Finished, file_named
from tests.faults.builds import build_here

LATENCIES_MS = (40, 900, 75_000, 20)  # of cluster A
AHEAD_MS = 300  # of a producer's clock, on cluster B


def make_cluster(root: Path, base_offset: int, latencies_ms: tuple[int, ...]) -> None:
    """Write a batch a minute: appended at the minute, produced as much earlier."""
    batches = [
        v2_batch(base_offset + i, [Record(at - latency)], log_append_time=at)
        for i, latency in enumerate(latencies_ms)
        for at in [START_MS + i * 60_000]
    ]
    write(root, "broker-1/orders-0", base_offset, batches)
    created = [v2_batch(i, [Record(START_MS + i)]) for i in range(4)]
    write(root, "broker-1/clicks-0", 0, created)
    write(root, "broker-1/both-0", 0, batches if base_offset == 0 else created)
    write(root, "broker-1/both-1", 0, created)


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("latency")
    make_cluster(root / "one", 0, LATENCIES_MS)
    make_cluster(root / "two", 7_000, (10, 5, -AHEAD_MS, 700))
    for name in ("one", "two"):
        build_here(root / name, root / f"indexes-{name}", now_ms=COPIED_MS)
    return root


@pytest.fixture
def failover(command: Command, clusters: Path, no_spark: None) -> Command:
    def run(offsets: str, *arguments: Any) -> Finished:
        file = file_named("offsets.csv", f"topic,partition,offset\n{offsets}\n".encode())
        catalogs = [clusters / f"indexes-{name}/_catalog" for name in ("one", "two")]
        return command(
            *("failover", "--from", catalogs[0], "--to", catalogs[1], "--offsets", file),
            *arguments,
        )

    return run


def test_the_buffer_is_the_largest_latency_and_the_clock_that_is_ahead(failover: Command) -> None:
    done = failover("orders,0,4", "--buffer", "auto", "--format", "jsonl")

    [row] = done.lines
    assert row["buffer_ms"] == max(LATENCIES_MS) + AHEAD_MS
    assert row["target_ms"] == START_MS + 3 * 60_000 - row["buffer_ms"]
    assert "the largest latency of 4 LogAppendTime batches of --from" in done.stderr
    assert "300 ms for a producer's clock ahead of --to" in done.stderr


def test_a_topic_whose_latency_is_not_known_is_refused_in_one_line(
    failover: Command, subtests: pytest.Subtests
) -> None:
    for topic in ["clicks", "both", "missing"]:
        with subtests.test(f"{topic}"):
            done = failover(f"orders,0,4\n{topic},0,2", "--buffer", "auto")
            assert (done.exit_code, done.stdout) == (2, "")
            assert f"the latency of {topic} is not known" in done.stderr
            assert "give a buffer, such as 15m" in done.stderr
            assert done.stderr.count("\n") == 1
