"""Offsets that groups committed at a real broker: as its tool shows them, and takes them back.

The tool's texts and CSV are parsed to what was committed, `kip33 lag` counts what its LAG column
says, and what `kip33 search` and `kip33 failover` emit resets the groups to those very offsets.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kip33.formats.kafka_configs import GroupOffset, parse_group_offsets
from kip33.spark.build import build_index
from tests.cli.console import Finished
from tests.integration.kafka.broker import (
    GROUP_MEMBER,
    GROUPS_COMMAND,
)
from tests.integration.kafka.command_here import kip33_here
from tests.integration.kafka.lost_cluster import nodes_or_skip
from tests.integration.kafka.nodes import Nodes

pytestmark = pytest.mark.kafka

START_MS = 1_700_000_000_000
MINUTE_MS = 60_000
NOW_MS = 1_800_000_000_000
BATCHES, RECORDS = 8, 5  # a batch a minute; all of its records bear its time
TOPICS = ("orders", "orders.eu-1")
END = BATCHES * RECORDS
COMMITTED = [
    GroupOffset("audit", "orders.eu-1", 1, 33),
    GroupOffset("billing", "orders", 0, 0),
    GroupOffset("billing", "orders", 1, END),
    GroupOffset("billing", "orders.eu-1", 0, 17),
]
MEMBER = ("a client, with blanks", "live", "orders")  # commits offset 1 of partition 0
LIVE = GroupOffset("live", "orders", 0, 1)


class Groups(NamedTuple):
    """A running broker with committed offsets, its log directory's catalog, and kip33."""

    broker: Nodes
    catalog: Path
    all_described: str  # while group live had a member

    def ask(self, *arguments: str) -> str:
        return self.broker.run(GROUPS_COMMAND, *arguments, *self.broker.server)

    def reset(self, text: str, *groups: str) -> list[GroupOffset]:
        """Return what the tool would reset to, given a file."""
        file = self.catalog.parent / "reset.csv"
        file.write_text(text)
        named = [option for group in groups for option in ("--group", group)]
        said = self.ask("--reset-offsets", *named, "--from-file", str(file), "--dry-run")
        rows = [line.split() for line in said.splitlines()]
        assert ["GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"] in rows, said
        return sorted(
            GroupOffset(row[0], row[1], int(row[2]), int(row[3]))
            for row in rows
            if len(row) == 4 and row[2].isdigit()
        )


@pytest.fixture(scope="module")
def groups(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Groups]:
    root = tmp_path_factory.mktemp("groups")
    broker = nodes_or_skip(root)
    with broker.running():
        created = [f"create {topic} 2 1" for topic in TOPICS]
        sent = [
            f"send p none {topic} {partition} {START_MS + number * MINUTE_MS} 0 {RECORDS} 100 1"
            for topic in TOPICS
            for partition in (0, 1)
            for number in range(BATCHES)
        ]
        broker.run_steps([*created, *sent])
        commits = [str(cell) for one in COMMITTED for cell in one]
        described = broker.run(
            *(GROUP_MEMBER, broker.bootstrap, *MEMBER, *commits),
            *("--", "--describe", "--all-groups", *broker.server),
        )
        build_index(
            spark, str(broker.log_dir()), str(root / "indexes"), now_ms=NOW_MS, topics=["orders*"]
        )
        yield Groups(broker, root / "indexes" / "_catalog", described)


def test_all_groups_described_while_one_has_a_member(groups: Groups) -> None:
    assert MEMBER[0] in groups.all_described
    assert sorted(parse_group_offsets(groups.all_described).committed) == sorted([*COMMITTED, LIVE])


def test_one_group_described_and_its_lag(groups: Groups, tmp_path: Path) -> None:
    text = groups.ask("--describe", "--group", "billing")
    (tmp_path / "billing.txt").write_text(text)
    billing = [one for one in COMMITTED if one.group == "billing"]
    assert sorted(parse_group_offsets(text).committed) == billing

    done = kip33_here(
        "lag", groups.catalog, "--offsets", tmp_path / "billing.txt", "--format", "jsonl"
    )

    assert done.exit_code == 0, done
    lags = {(row["topic"], row["partition"]): row for row in done.lines}
    names = next(line.split() for line in text.splitlines() if line.startswith("GROUP"))
    cells = [line.split() for line in text.splitlines() if line.startswith("billing")]
    rows = [dict(zip(names, row, strict=True)) for row in cells]
    assert len(rows) == len(billing)
    for row in rows:
        lag = lags[row["TOPIC"], int(row["PARTITION"])]
        theirs = [int(row["LOG-END-OFFSET"]), int(row["LAG"])]
        assert [lag["log_end_offset"], lag["lag_records"]] == theirs
    assert {key: (row["result"], row["timestamp"], row["lag_ms"]) for key, row in lags.items()} == {
        ("orders", 0): ("found", START_MS, 7 * MINUTE_MS),
        ("orders", 1): ("at_end", None, 0),
        ("orders.eu-1", 0): ("found", START_MS + 3 * MINUTE_MS, 4 * MINUTE_MS),
    }


@pytest.mark.parametrize("names", [("billing",), ("audit", "billing")], ids=["one", "two"])
def test_what_the_tool_exports(names: tuple[str, ...], groups: Groups) -> None:
    named = [option for name in names for option in ("--group", name)]
    what = ("--reset-offsets", "--to-current", "--export", "--all-topics", "--dry-run")

    text = groups.ask(*what, *named)

    said = [one if len(names) > 1 else one._replace(group="") for one in COMMITTED]
    asked = [one for one, whose in zip(said, COMMITTED, strict=True) if whose.group in names]
    assert sorted(parse_group_offsets(text).committed) == asked


def test_search_emits_what_resets_a_group(groups: Groups) -> None:
    when = START_MS + 5 * MINUTE_MS
    done = kip33_here("search", groups.catalog, "--time", when, "--emit", "reset-offsets")

    assert (done.exit_code, done.stderr) == (0, ""), done
    assert groups.reset(done.stdout, "billing") == [
        GroupOffset("billing", topic, partition, 25) for topic in TOPICS for partition in (0, 1)
    ]


def failed_over(groups: Groups, text: str, *options: Any) -> Finished:
    """Return where groups go on that committed these offsets: on the same cluster, by time."""
    file = groups.catalog.parent / "described.txt"
    file.write_text(text)
    what = ("--from", groups.catalog, "--offsets", file, "--to", groups.catalog)
    done = kip33_here("failover", *what, "--buffer", "1m", "--emit", "reset-offsets", *options)
    assert done.exit_code == 0, done
    return done


RESUMED = {  # a minute before the last record that was read, each batch being a minute
    ("audit", "orders.eu-1", 1): 25,
    ("billing", "orders", 0): 0,
    ("billing", "orders", 1): 30,
    ("billing", "orders.eu-1", 0): 10,
    ("live", "orders", 0): 0,
}


def test_failover_emits_what_resets_one_group(groups: Groups) -> None:
    text = "".join(f"{c.topic},{c.partition},{c.offset}\n" for c in COMMITTED if c.group != "audit")

    done = failed_over(groups, text)

    assert groups.reset(done.stdout, "billing") == [
        GroupOffset(*where, offset) for where, offset in RESUMED.items() if where[0] == "billing"
    ]


def test_failover_emits_what_resets_several_groups(groups: Groups) -> None:
    done = failed_over(groups, groups.all_described)

    assert groups.reset(done.stdout, "audit", "billing", "live") == [
        GroupOffset(*where, offset) for where, offset in RESUMED.items()
    ]
