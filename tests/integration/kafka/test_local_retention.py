"""A broker's retention of topics in tiered storage, in both tiers, foretold by `kip33 retention`.

A broker of the newest Kafka fills topics and uploads them while no retention runs. Its stopped log
directory is catalogued and judged beside the remote tier. Then it runs again, and what it deletes
must be what was foretold; what was called not uploaded stays.

After that both tiers are catalogued again, and the remote one is judged beside the local one, by
limits that the topics get in a third run: what is gone from the bucket must be what was foretold.
The limits are between the size of the remote segments and that of both tiers.
"""

import json
import shutil
import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kip33.formats.times import iso_time
from tests.integration.kafka.broker import CONFIG_COMMAND
from tests.integration.kafka.command_here import kip33_here
from tests.integration.kafka.nodes import Nodes, base_offsets, wait_until
from tests.integration.kafka.tiered_broker import (
    KEEP_LOCAL,
    TIERED,
    tier_of,
    tiered_nodes,
    wait_for_uploads,
)

pytestmark = [pytest.mark.kafka, pytest.mark.integration]

DAY_MS = 86_400_000
DISK = f"{TIERED} retention.ms={30 * DAY_MS} local.retention.ms={DAY_MS}"
TOPICS = {  # partitions, settings
    "orders": (2, DISK),
    "clicks": (1, f"{TIERED} retention.ms=-1 local.retention.bytes=1500000"),
    "alerts": (1, f"{TIERED} retention.ms={30 * DAY_MS}"),  # -2: the limits of the topic
    "payments": (1, DISK),
    "ahead": (1, f"{DISK} message.timestamp.after.max.ms=9223372036854775807"),
    "trimmed": (1, f"{TIERED} retention.ms=-1"),
    "frozen": (1, f"{TIERED} remote.log.copy.disable=true retention.ms={DAY_MS}"),
    "plain": (1, f"retention.ms={DAY_MS}"),
}
AGES = {  # of each segment in days; the last one is active
    ("orders", 0): (5, 4, 3, 0),
    ("orders", 1): (5, 0, 4, 0),
    ("clicks", 0): (5, 4, 0, 0),
    ("alerts", 0): (5, 4, 0),
    ("payments", 0): (5, 4, 3, 0),
    ("ahead", 0): (5, -2, 4, 0),
    ("trimmed", 0): (5, 4, 3, 0),
    ("frozen", 0): (5, 4, 0),
    ("plain", 0): (5, 4, 0),
}
RECORDS, RECORD_BYTES = 4, 120_000  # of a batch: two fill a segment
OPEN_FROM = 8  # a transaction is open from there on: nothing after it is uploaded
REASONS = {
    ("orders", 0): ["retention_ms", "retention_ms", "retention_ms", "active_segment"],
    ("orders", 1): ["retention_ms", "not_expired", "blocked", "active_segment"],
    ("clicks", 0): ["retention_bytes", "retention_bytes", "not_expired", "active_segment"],
    ("alerts", 0): ["not_expired", "not_expired", "active_segment"],
    ("payments", 0): ["retention_ms", "not_uploaded", "not_uploaded", "active_segment"],
    ("ahead", 0): ["retention_ms", "not_expired", "blocked", "active_segment"],
    ("trimmed", 0): ["log_start_offset", "log_start_offset", "no_limit", "active_segment"],
    ("frozen", 0): ["retention_ms", "retention_ms", "active_segment"],
    ("plain", 0): ["retention_ms", "retention_ms", "active_segment"],
}
Partition = tuple[str, int]


LIMITS = {  # retention.bytes of a later run, in segments; what the tiers have when it begins:
    "clicks": 2.5,  # remote 0, 8, 16, local 16, 24: together 4, the remote ones 3
    "payments": 2.9,  # remote 0, local 8, 16, 24, of which an open transaction has two
    "alerts": 1.5,  # remote 0, 8, local 0, 8, 16: together 3, all files 5
}
EXPIRES_IN_MS = 30_000  # the first segments of `orders`, after the tiers were judged


class Gone(NamedTuple):
    """The remote tier, judged over both, and what the broker did there."""

    answer: dict[str, Any]
    answer_alone: dict[str, Any]  # without the local catalog
    expires_at_ms: int
    before: dict[Partition, list[int]]  # base offsets
    after: dict[Partition, list[int]]
    first_gone_ms: dict[Partition, int]  # after the first look at which it was not


class Foretold(NamedTuple):
    """What was said of the log directory, and what the broker did with it then."""

    root: Path
    answer: dict[str, Any]
    answer_without: dict[str, Any]  # without the remote catalog
    warned: str
    before: dict[Partition, list[int]]  # base offsets
    after: dict[Partition, list[int]]
    again: dict[Partition, list[int]]  # after one start more
    now_ms: int
    gone: Gone


def steps(now_ms: int) -> list[str]:
    """Return what fills the topics, a segment after the other."""
    made = [f"create {topic} {count} 1 {how}" for topic, (count, how) in TOPICS.items()]
    for (topic, number), ages in AGES.items():
        for place, age in enumerate(ages):
            is_open = topic == "payments" and 2 * RECORDS * place >= OPEN_FROM
            at = now_ms - age * DAY_MS - 60_000
            batch = f"{topic} {number} {at} 0 {RECORDS} {RECORD_BYTES} 10"
            made += [f"send {'t1' if is_open else 'p'} none {batch}"] * 2
    return made


def local_logs(nodes: Nodes) -> dict[Partition, list[int]]:
    return {one: base_offsets(nodes.log_dir(), f"{one[0]}-{one[1]}") for one in AGES}


def retention(root: Path, now_ms: int, *more: Any) -> tuple[dict[str, Any], str]:
    """Return the answer of kip33 about the copied log directory, and what it warned of."""
    given = ("--kafka-configs", root / "configs.txt", "--now", now_ms, "--format", "json")
    topics = [word for topic in TOPICS for word in ("--topic", topic)]
    done = kip33_here("retention", root / "local/_catalog", *given, *topics, *more)
    assert done.exit_code == 0, done
    return json.loads(done.stdout), done.stderr


@pytest.fixture(scope="module")
def foretold(tmp_path_factory: pytest.TempPathFactory) -> Foretold:
    root = tmp_path_factory.mktemp("tiered")
    nodes = tiered_nodes(root)
    now_ms = time.time_ns() // 1_000_000
    with nodes.running(**KEEP_LOCAL):
        nodes.run_steps(steps(now_ms))
        what = ("--describe", "--all", "--entity-type", "topics", *nodes.server)
        said = nodes.run(CONFIG_COMMAND, *what)
        (root / "configs.txt").write_text(said)
        uploaded = {topic: TOPICS[topic][0] for topic in TOPICS.keys() - {"frozen", "plain"}}
        wait_for_uploads(nodes, uploaded, ends={("payments", 0): OPEN_FROM})
        nodes.run_steps(["delete trimmed 0 16"])
    before = local_logs(nodes)
    build_both(nodes, root)
    answer, _ = retention(root, now_ms, root / "remote/_catalog")
    answer_without, warned = retention(root, now_ms)
    expected = kept(answer)
    with nodes.running():
        wait_until(lambda: local_logs(nodes) == expected, f"local retention: {expected}")
        time.sleep(5)  # more retention, which must delete no more
        after = local_logs(nodes)
    build_both(nodes, root / "later")
    judged = judge_remote(root / "later", answer)
    with nodes.running():
        time.sleep(5)
        again = local_logs(nodes)
        gone = delete_remotely(nodes, *judged)
    return Foretold(root, answer, answer_without, warned, before, after, again, now_ms, gone)


def build_both(nodes: Nodes, root: Path) -> None:
    """Build a catalog of the stopped broker's log directory, and one of the remote tier."""
    shutil.copytree(nodes.log_dir(), root / "copy")
    for source, index_dir, layout in (
        (root / "copy", root / "local", "kafka"),
        (tier_of(nodes), root / "remote", "local-tiered"),
    ):
        built = kip33_here("build", source, "--index-dir", index_dir, "--layout", layout)
        assert built.exit_code == 0, built


def remote_logs(nodes: Nodes) -> dict[Partition, list[int]]:
    return {one: base_offsets(tier_of(nodes), f"{one[0]}-{one[1]}") for one in AGES}


def judge_remote(
    root: Path, local: dict[str, Any]
) -> tuple[dict[str, str], dict[str, Any], dict[str, Any], int]:
    """Return new settings of topics, what they take of the remote tier, also alone, and when."""
    sizes = {row["topic"]: row["size_bytes"] for row in local["segments"][::-1]}
    [first] = {
        row["largest_timestamp"]
        for row in local["segments"]
        if (row["topic"], row["base_offset"]) == ("orders", 0)
    }
    now_ms = time.time_ns() // 1_000_000
    expires_at_ms = now_ms + EXPIRES_IN_MS
    settings = {t: f"retention.bytes={int(n * sizes[t])}" for t, n in LIMITS.items()}
    settings["orders"] = f"retention.ms={expires_at_ms - 1 - first}"
    lines = [f"[topics.{t}]\nremote.storage.enable=true\n{how}\n" for t, how in settings.items()]
    (root / "policy.toml").write_text("".join(lines))
    moments = ",".join(iso_time(at) for at in (expires_at_ms - 1, expires_at_ms))
    given = ("--policy", root / "policy.toml", "--now", now_ms, "--at", moments)
    answers = []
    for more in ((root / "local/_catalog",), ("--active-segment", "kafka")):
        asked = (root / "remote/_catalog", *given, *more, "--format", "json")
        done = kip33_here("retention", *asked)
        assert done.exit_code == 0, done
        answers.append(json.loads(done.stdout))
    return settings, answers[0], answers[1], expires_at_ms


def delete_remotely(
    nodes: Nodes,
    settings: dict[str, str],
    answer: dict[str, Any],
    alone: dict[str, Any],
    at_ms: int,
) -> Gone:
    """Give a running broker the settings, and watch the bucket."""
    before = remote_logs(nodes)
    expected = kept(answer, at_ms=at_ms)
    first_gone: dict[Partition, int] = {}

    def is_as_foretold() -> bool:
        found = remote_logs(nodes)
        for one in [("orders", 0), ("orders", 1)]:
            if found[one][0] > 0:
                first_gone.setdefault(one, time.time_ns() // 1_000_000)
        return found == expected

    nodes.run_steps([f"configure {topic} {how}" for topic, how in settings.items()])
    wait_until(is_as_foretold, f"remote retention: {expected}")
    time.sleep(3)  # more of the broker's tasks, which must delete no more
    after = remote_logs(nodes)
    return Gone(answer, alone, at_ms, before, after, first_gone)


def kept(answer: dict[str, Any], at_ms: int = 0) -> dict[Partition, list[int]]:
    """Return the base offsets of the segments that the answer keeps, now and at a later time."""
    found: dict[Partition, list[int]] = {one: [] for one in AGES}
    for row in answer["segments"]:
        deletable_at_ms = row["deletable_at_ms"]
        if not row["deletable"] and (deletable_at_ms is None or deletable_at_ms > at_ms):
            found[row["topic"], row["partition"]].append(row["base_offset"])
    return found


def reasons(answer: dict[str, Any]) -> dict[Partition, list[str]]:
    found: dict[Partition, list[str]] = {one: [] for one in AGES}
    for row in answer["segments"]:
        found[row["topic"], row["partition"]].append(row["reason"])
    return found


def test_each_segment_has_its_reason(foretold: Foretold) -> None:
    assert foretold.before == {
        one: [2 * RECORDS * place for place in range(len(ages))] for one, ages in AGES.items()
    }
    assert reasons(foretold.answer) == REASONS


def test_the_broker_deletes_what_was_foretold_and_nothing_else(foretold: Foretold) -> None:
    assert foretold.after == kept(foretold.answer)
    assert foretold.again == foretold.after


def test_what_is_not_uploaded_is_named_with_the_time_that_is_left(foretold: Foretold) -> None:
    rows = [row for row in foretold.answer["segments"] if row["reason"] == "not_uploaded"]
    oldest = foretold.now_ms - 4 * DAY_MS - 60_000
    assert [row["base_offset"] for row in rows] == [8, 16]
    assert {row["topic"] for row in rows} == {"payments"}
    assert rows[0]["upload_before_ms"] == oldest + 30 * DAY_MS + 1
    [partition] = [row for row in foretold.answer["partitions"] if row["topic"] == "payments"]
    assert partition["not_uploaded_segments"] == 2
    assert partition["not_uploaded_base_offset"] == 8
    assert partition["upload_before_ms"] == rows[0]["upload_before_ms"]


def test_without_the_remote_catalog_these_topics_are_kept(foretold: Foretold) -> None:
    tiered = TOPICS.keys() - {"frozen", "plain"}
    for where, found in reasons(foretold.answer_without).items():
        expected = ["tiered"] * len(found) if where[0] in tiered else REASONS[where]
        assert found == expected
    assert "give the catalog of the remote tier" in foretold.warned


def test_a_later_broker_takes_the_time_of_the_file_for_one_in_the_future(
    foretold: Foretold,
) -> None:
    """KAFKA-20609 is in no release: `--ignore-future 0` shows what it changes."""
    more = (foretold.root / "remote/_catalog", "--ignore-future", "0")
    answer, _ = retention(foretold.root, foretold.now_ms + 3 * DAY_MS // 2, *more)
    found = [row["what_if_deletable"] for row in answer["segments"] if row["topic"] == "ahead"]
    assert found == [True, True, True, False]


def test_the_broker_deletes_in_the_bucket_what_was_foretold_over_both_tiers(
    foretold: Foretold,
) -> None:
    gone = foretold.gone
    assert gone.after == kept(gone.answer, at_ms=gone.expires_at_ms)
    lost = {one: {*gone.before[one]} - {*gone.after[one]} for one in AGES}
    assert {one: offsets for one, offsets in lost.items() if offsets} == {
        one: {0} for one in AGES if one[0] in ("orders", *LIMITS)
    }
    found = {row["topic"]: row["reason"] for row in gone.answer["segments"] if row["deletable"]}
    assert found == dict.fromkeys(LIMITS, "retention_bytes")


def test_the_size_of_the_remote_tier_alone_foretells_less(foretold: Foretold) -> None:
    assert not any(row["deletable"] for row in foretold.gone.answer_alone["segments"])


def test_no_segment_goes_before_the_time_of_the_forecast(foretold: Foretold) -> None:
    gone, at_ms = foretold.gone, foretold.gone.expires_at_ms
    freed = {(row["at_ms"], row["topic"]): row["segments"] for row in gone.answer["freed"]}
    by_size = {(at_ms - 1, topic): 1 for topic in LIMITS}
    assert freed == by_size | {(at_ms, "orders"): 2}
    assert gone.first_gone_ms.keys() == {("orders", 0), ("orders", 1)}
    assert all(moment >= at_ms for moment in gone.first_gone_ms.values())
