"""`kip33 failover` as a user meets it: two catalogs, a table, rows, a CSV for Kafka's tool."""

from pathlib import Path
from typing import Any

import pytest

from kip33.demo import COPIED_MS, START_MS, write
from kip33.search.failover import ResumePoint
from tests.builders.segment_builder import Record, v2_batch
from tests.cli.console import Command, Finished, file_named
from tests.faults.builds import build_here

MINUTE_MS = 60_000
BATCHES, RECORDS = 20, 5
BUFFER = ("--buffer", "3m")


def make_cluster(root: Path, base_offset: int, **partitions: int) -> None:
    """Write topics of so many partitions: a batch a minute."""
    records = [[Record(minute(i), b"k", b"v")] * RECORDS for i in range(BATCHES)]
    batches = [v2_batch(base_offset + RECORDS * i, one) for i, one in enumerate(records)]
    for topic, count in partitions.items():
        for partition in range(count):
            write(root, f"broker-9/{topic}-{partition}", base_offset, batches)


def minute(number: int) -> int:
    return START_MS + number * MINUTE_MS


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two clusters' archives with the same records, indexed; of clicks the partitions differ."""
    root = tmp_path_factory.mktemp("failover")
    make_cluster(root / "one", 0, orders=2, clicks=2, gone=1)
    make_cluster(root / "two", 7_000, orders=2, clicks=3)
    for name in ("one", "two"):
        build_here(root / name, root / f"indexes-{name}", now_ms=COPIED_MS)
    return root


@pytest.fixture
def failover(command: Command, built: Path, no_spark: None) -> Command:
    """Return `kip33 failover` from one built catalog to the other; Spark is not to start."""

    def run(*arguments: Any) -> Finished:
        catalogs = [built / f"indexes-{name}/_catalog" for name in ("one", "two")]
        return command("failover", "--from", catalogs[0], "--to", catalogs[1], *arguments)

    return run


def points(done: Finished) -> list[dict[str, Any]]:
    assert (done.exit_code, done.stderr) == (0, ""), done
    for row in done.lines:
        assert tuple(row) == (*ResumePoint._fields, "from_snapshot", "to_snapshot", "warnings")
        assert "Traceback" not in (row["note"] or "") and "\n" not in (row["note"] or "")
    return done.lines


def offsets(text: str) -> tuple[str, str]:
    return "--offsets", file_named("offsets.csv", text.encode())


ALL_OF_IT = (
    "group,topic,partition,offset\nb,orders,0,27\nb,orders,1,64\n"
    "b,clicks,0,27\nb,clicks,1,64\nb,gone,0,5\na,orders,0,0\na,orders,1,100\n"
)
EMITTED = """\
a,orders,0,7000
a,orders,1,7080
b,clicks,0,7010
b,clicks,1,7010
b,clicks,2,7010
b,orders,0,7010
b,orders,1,7045
"""


def test_the_offset_at_which_a_group_continues(failover: Command) -> None:
    where = offsets("orders,0,27\norders,1,64\n")

    first, second = points(failover(*where, *BUFFER, "--format", "jsonl"))

    assert first.pop("from_snapshot").startswith("00000000000000000001-")
    assert first.pop("to_snapshot").startswith("00000000000000000001-")
    assert first == {
        **{"group": "", "topic": "orders", "partition": 0, "committed_offset": 27},
        **{"last_read_timestamp": minute(5), "target_ms": minute(2), "resume_offset": 7_010},
        **{"resume_timestamp": minute(2), "result": "found", "read_twice_at_most": 17},
        **{"topic_wide": False, "note": None, "warnings": []},
        "guarantee": f"no record with timestamp {minute(2)} or later is before offset 7010",
    }
    assert (second["resume_offset"], second["read_twice_at_most"]) == (7_045, 19)


def test_reset_offsets_of_several_groups(failover: Command) -> None:
    done = failover(*offsets(ALL_OF_IT), *BUFFER, "--emit", "reset-offsets")

    assert done.exit_code == 0
    assert done.stdout == EMITTED
    assert done.stderr == "Warning: gone-0: no_such_partition; the output leaves it out\n"


def test_the_table_ends_with_the_guarantee(failover: Command) -> None:
    lines = failover(*offsets("orders,0,27\norders,1,0\n"), *BUFFER).stdout.splitlines()

    assert any("orders-0" in line and "7,010" in line for line in lines)
    assert any("orders-1" in line and "the start" in line for line in lines)
    assert lines[-2] == (
        "No unread record is skipped if its timestamp is at most 3 min before that of the last "
        "record read, and if the records of both clusters have their producers' timestamps."
    )
    assert lines[-1].startswith("2 partitions in ")
    assert not any("no guarantee" in line for line in lines)
    lines = failover(*offsets("gone,0,27\norders,2,5\norders,0,27\n"), *BUFFER).stdout.splitlines()
    missing = "2 partitions without a guarantee; the result or note says why. For the others:"
    assert lines[-3] == missing


def test_reset_offsets_of_one_group(failover: Command) -> None:
    for group in ("", "b,"):
        where = offsets(f"{group}orders,0,27\n{group}orders,1,64\n")

        done = failover(*where, *BUFFER, "--emit", "reset-offsets")

        assert (done.exit_code, done.stderr) == (0, "")
        assert done.stdout == "orders,0,7010\norders,1,7045\n"
