"""Search and records of two tiers against a broker that has them: thousands of ListOffsets."""

import random
import shutil
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kip33
from kip33.catalog.catalog import Catalog
from kip33.catalog.tier_findings import compare_tiers
from kip33.catalog.tiers import CatalogSnapshot, Tiers
from kip33.rules.search import (
    EARLIEST,
    EARLIEST_LOCAL,
    MAX_TIMESTAMP,
)
from tests.builders.generated_segments import plain_batch
from tests.faults.builds import build_here
from tests.integration.kafka.cluster_answers import Answers, first_at
from tests.integration.kafka.cluster_answers import Found as Record
from tests.integration.kafka.nodes import Nodes, base_offsets, wait_until
from tests.integration.kafka.test_differential import SEED
from tests.integration.kafka.tiered_broker import (
    KEEP_LOCAL,
    SPECIAL,
    TIERED,
    Found,
    ListOffsets,
    Question,
    tier_of,
    tiered_nodes,
    wait_for_uploads,
)

pytestmark = pytest.mark.kafka

TOPICS = {"orders": 2, "clicks": 1, "whole": 1, "plain": 2}
LOCAL_RETENTION = {"orders": "local.retention.ms=1000", "clicks": "local.retention.bytes=1500000"}
START_MS, DISORDER_MS, SENDS = 1_700_000_000_000, 60_000, 12
QUESTIONS = 3_000

Records = dict[tuple[str, int], list[Record]]


def test_a_broker_with_two_tiers_gives_the_same_answers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng, known = random.Random(f"{SEED}/tiers"), Records()
    nodes = tiered_nodes(tmp_path / "cluster")
    with nodes.running(**KEEP_LOCAL):
        nodes.run_steps([*created(), *sent(rng)])
        wait_for_uploads(nodes, {topic: TOPICS[topic] for topic in ("orders", "clicks", "whole")})
        expect_the_broker_answers(nodes, tmp_path / "before", rng, known, count=2000)
    with nodes.running():  # local retention is at work
        for name in ("orders-0", "orders-1", "clicks-0"):
            wait_until(partial(is_gone, nodes, name), f"local retention of {name}")
        nodes.run_steps(["delete orders 1 7", "delete plain 1 5"])
    with nodes.running(**KEEP_LOCAL):
        nodes.run_steps(list(sent(rng, sends=1)))
        cases = expect_the_broker_answers(nodes, tmp_path / "after", rng, known, count=QUESTIONS)
    expect_what_is_wrong_is_named(nodes, tmp_path / "after")
    with capsys.disabled():
        print(f"\n{QUESTIONS} questions: {dict(sorted(cases.items()))}", end=" ")
    assert cases["the largest timestamp is in the remote tier only"] > 0


def is_gone(nodes: Nodes, name: str) -> bool:
    """Return whether the first segments of a partition are in the remote tier only."""
    return base_offsets(nodes.log_dir(), name)[0] > 0


def created() -> Iterator[str]:
    for topic, partitions in TOPICS.items():
        tiered = "" if topic == "plain" else f" {TIERED} {LOCAL_RETENTION.get(topic, '')}"
        yield f"create {topic} {partitions} 1{tiered.rstrip()}"


def sent(rng: random.Random, sends: int = SENDS) -> Iterator[str]:
    """Yield batches of 400 KB, out of order, so that a partition has several segments."""
    for topic, partitions in TOPICS.items():
        for partition in range(partitions):
            for _ in range(sends):
                at = START_MS + rng.randrange(10 * DISORDER_MS)
                codec = rng.choice(("none", "zstd"))
                yield f"send a {codec} {topic} {partition} {at} {DISORDER_MS} 10 40000 5"


def expect_the_broker_answers(
    nodes: Nodes, work: Path, rng: random.Random, known: Records, *, count: int
) -> Counter[str]:
    """Ask the broker, kip33 as the broker, and kip33 for what is exact; return the cases.

    `known` are the records of before: those before the log start offset are still in the tiers.
    """
    work.mkdir()
    nodes.run_steps([f"ask {work / 'answers'} {work / 'times'} {' '.join(TOPICS)}"])
    found = Answers.read(work / "answers").records["read_uncommitted"]
    records = {where: with_deleted(known.get(where, []), of_one) for where, of_one in found.items()}
    known.update(records)
    partitions = sorted(records)
    times = [one.timestamp for of_one in records.values() for one in of_one]
    questions: list[Question] = [(*where, target) for where in partitions for target in SPECIAL]
    while len(questions) < count:
        at = rng.choice((rng.choice(times), rng.randint(min(times) - 5, max(times) + 5)))
        questions.append((*rng.choice(partitions), at + rng.randint(-1, 1)))
    ask = ListOffsets(nodes)
    ask.wait_for_remote_tier([where for where in partitions if where[0] != "plain"])
    kafkas = ask(questions)
    opened = opened_tiers(nodes, work)
    for where, of_one in records.items():
        assert read_by_kip33(opened, *where) == [(one.offset, one.timestamp) for one in of_one]
    mine = opened.offsets_for_times(questions, as_kafka="4.3").to_pylist()
    assert [found_of(row) for row in mine] == kafkas
    exact = opened.offsets_for_times(questions).to_pylist()
    cases: Counter[str] = Counter()
    for question, row, kafka in zip(questions, exact, kafkas, strict=True):
        assert row["exactness"] == "record", row
        topic, partition, target = question
        if target >= 0:
            assert found_of(row) == first_at(records[topic, partition], target), row
        elif target == MAX_TIMESTAMP:
            of_one = records[topic, partition]
            assert row["timestamp"] == max(one.timestamp for one in of_one)
            cases["the largest timestamp is in the remote tier only"] += found_of(row) != kafka
        elif target in (EARLIEST, EARLIEST_LOCAL):
            assert row["offset"] <= kafka[0]  # the log start offset may be later
        else:
            assert found_of(row) == kafka, row
        cases[f"{topic}, {row['result']}"] += 1
        cases["the broker says something else"] += target >= 0 and kafka != found_of(row)
    return cases


def read_by_kip33(opened: Any, topic: str, partition: int) -> list[Found]:
    """Return the records of both tiers; a consumer gets those from the log start offset on."""
    columns = ["offset", "timestamp"]
    reader = kip33.read_arrow(
        opened, topic=topic, partition=partition, columns=columns, on_error="fail"
    )
    found = reader.read_all()
    return [*zip(*(found[name].cast(pa.int64()).to_pylist() for name in columns), strict=True)]


def with_deleted(known: list[Record], found: list[Record]) -> list[Record]:
    """Return the records that were found, and those of before that begin earlier."""
    return [one for one in known if one.offset < found[0].offset] + found


def expect_what_is_wrong_is_named(nodes: Nodes, work: Path) -> None:
    """Remove, damage and replace segments in a copy of the bucket; `work` has both catalogs."""
    assert findings(work / "local", work / "remote") == {}
    copy = work / "bucket"
    shutil.copytree(tier_of(nodes), copy)
    names = ("orders-0", "orders-1", "clicks-0", "whole-0")
    logs = {name: sorted(copy.glob(f"{name}-*/*.log")) for name in names}
    begin = base_offsets(nodes.log_dir(), "clicks-0")[0]  # of the local log
    *_, kept, newest = (log for log in logs["clicks-0"] if int(log.name[:20]) < begin)
    gone = logs["orders-0"][1]
    damaged, copied = logs["orders-1"][1], logs["whole-0"][1]
    replaced, after = logs["whole-0"][2:4]
    for log in (gone, newest):
        log.unlink()
    damaged.write_bytes(bytes(damaged.stat().st_size))
    copied.write_bytes(b"")  # the local tier has its records
    base, end = (int(log.name[:20]) for log in (replaced, after))
    replaced.write_bytes(plain_batch(base, [START_MS] * (end - base)).wire)
    build_here(copy, work / "wrong", layout="local-tiered")

    found = findings(work / "local", work / "wrong")
    expected = {
        "hole between tiers": (kept, int(newest.name[:20])),
        "hole": (logs["orders-0"][0], logs["orders-0"][2], int(gone.name[:20])),
        "damage": (damaged, int(damaged.name[:20])),
        "difference": (replaced, base),
    }
    assert found.keys() == expected.keys()
    for kind, (*names, first_offset) in expected.items():
        uris, offset = found[kind]
        assert {name.as_uri() for name in names} <= set(uris), kind
        assert offset == first_offset, kind


def findings(local: Path, remote: Path) -> dict[str, tuple[list[str], int]]:
    """Return the segments and the first offset of each finding between two catalogs."""
    catalogs = (Catalog.at(str(place / "_catalog")) for place in (local, remote))
    tiers = Tiers.of(*(CatalogSnapshot(one, one.require_newest()) for one in catalogs))
    rows = compare_tiers(tiers).findings.to_pylist()
    found = {row["finding"]: (row["segments"], row["first_offset"]) for row in rows}
    assert len(found) == len(rows)
    return found


def opened_tiers(nodes: Nodes, work: Path) -> Any:
    """Return the catalogs of both tiers, each built where its files are."""
    build_here(nodes.log_dir(), work / "local")
    build_here(tier_of(nodes), work / "remote", layout="local-tiered")
    return kip33.open_catalog([work / "remote" / "_catalog", work / "local" / "_catalog"])


def found_of(row: dict[str, Any]) -> Found:
    offset, timestamp = (-1 if row[name] is None else row[name] for name in ("offset", "timestamp"))
    return offset, timestamp
