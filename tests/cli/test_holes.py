"""Missing offsets of a snapshot: from segments that are deleted, damaged or in other replicas."""

import json
from pathlib import Path
from typing import Any

import pytest

from kip33.catalog.catalog import Catalog, choose
from kip33.catalog.holes import HOLES, hole_totals, read_holes
from kip33.rules.policies import Policies
from tests.builders.segment_builder import Record, v2_batch
from tests.cli.console import Command

SEGMENT_RECORDS = 10


def write_partition(folder: Path, bases: list[int], *, records: int = SEGMENT_RECORDS) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for base in bases:
        batch = v2_batch(base, [Record(1_000 + base + i) for i in range(records)])
        (folder / f"{base:020d}.log").write_bytes(batch)


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return tmp_path / "logs"


@pytest.fixture
def holes(command: Command, archive: Path, tmp_path: Path) -> Any:
    """Return a function that builds the archive and returns its holes."""

    def found(*topics: str, policies: Policies | None = None) -> list[tuple[Any, ...]]:
        done = command("build", str(archive), "--index-dir", str(tmp_path / "indexes"))
        assert done.exit_code == 0
        catalog = Catalog.at(str(tmp_path / "indexes/_catalog"))
        table = read_holes(catalog, choose(catalog, None).snapshot, topics, policies=policies)
        assert table.schema == HOLES
        names = ("log_dir", "topic", "partition", "first_offset", "last_offset", "hole")
        return [tuple(row[name] for name in names) for row in table.to_pylist()]

    return found


def test_a_complete_partition_has_no_hole(archive: Path, holes: Any) -> None:
    write_partition(archive / "t-0", [0, 10, 20])
    assert holes() == []


def test_a_missing_front_is_normal(archive: Path, holes: Any) -> None:
    write_partition(archive / "t-0", [500, 510])
    assert holes() == []


def test_a_deleted_segment_in_the_middle_is_a_certain_hole(archive: Path, holes: Any) -> None:
    write_partition(archive / "t-0", [0, 20, 30])
    write_partition(archive / "t-1", [0, 10])
    assert holes() == [("", "t", 0, 10, 19, "certain")]


def test_another_replica_fills_it(archive: Path, holes: Any) -> None:
    write_partition(archive / "broker-1/t-0", [0, 20])
    write_partition(archive / "broker-2/t-0", [0, 10])
    assert holes() == [("broker-1", "t", 0, 10, 19, "filled")]


def test_a_damaged_segment_before_it_says_so(archive: Path, holes: Any) -> None:
    write_partition(archive / "t-0", [0, 10])
    log = archive / f"t-0/{0:020d}.log"
    log.write_bytes(v2_batch(0, [Record(1_000)]) + b"\xff" * 70)
    assert holes() == [("", "t", 0, 1, 9, "after damage")]


def test_fewer_records_than_offsets_mean_a_compacted_topic(archive: Path, holes: Any) -> None:
    write_partition(archive / "t-0", [0, 20])
    sparse = v2_batch(20, [Record(1_000), Record(1_001, offset_delta=9)])
    (archive / f"t-0/{20:020d}.log").write_bytes(sparse)
    assert holes() == [("", "t", 0, 10, 19, "possible")]


def test_policies_say_which_topics_are_compacted(archive: Path, holes: Any) -> None:
    for topic in ("a", "b", "__consumer_offsets"):
        write_partition(archive / f"{topic}-0", [0, 20])
    policies = Policies({"topics": {"a": {"cleanup.policy": "compact,delete"}}})
    assert [(one[1], one[5]) for one in holes(policies=policies)] == [
        ("__consumer_offsets", "possible"),
        ("a", "possible"),
        ("b", "certain"),
    ]


def test_topics_choose(archive: Path, holes: Any) -> None:
    for topic in ("a", "b"):
        write_partition(archive / f"{topic}-0", [0, 20])
    assert [one[1] for one in holes("b*")] == ["b"]


def test_an_empty_segment_ends_where_it_begins(archive: Path, holes: Any) -> None:
    write_partition(archive / "t-0", [0])
    for base in (10, 30):
        (archive / f"t-0/{base:020d}.log").write_bytes(b"")
    assert holes() == [("", "t", 0, 10, 29, "certain")]


def test_the_commands_count_the_same_holes(command: Command, archive: Path, tmp_path: Path) -> None:
    write_partition(archive / "broker-1/t-0", [0, 20, 50])
    write_partition(archive / "broker-2/t-0", [0, 10, 20])
    catalog = str(tmp_path / "indexes/_catalog")

    built = command(
        *("build", str(archive), "--index-dir", str(tmp_path / "indexes")),
        *("--format", "json", "--fail-on", "holes"),
    )
    shown = command("catalog", catalog, "--holes", "--format", "json")
    judged = command(
        *("retention", catalog, "--retention-ms", "7d", "--format", "jsonl", "--fail-on", "holes")
    )

    assert (built.exit_code, shown.exit_code, judged.exit_code) == (3, 0, 3)
    expected = {"by_hole": {"certain": 1, "filled": 1}, "missing_offsets": 20}
    [summary], [answer] = built.lines, shown.lines
    for found in (summary, answer, judged.lines[-1]):
        assert {name: found[name] for name in expected} == expected
    opened = Catalog.at(catalog)
    table = read_holes(opened, choose(opened, None).snapshot)
    assert answer["holes"] == json.loads(json.dumps(table.to_pylist()))
    assert hole_totals(table)._asdict() == expected
    assert built.stderr == ""  # a finding, not a warning: it stays until someone restores them
