"""`--topic` chooses what is planned and emitted; directories that could not be listed still count.

Below such a directory segments may be missing, whatever topic its own name suggests.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from kip33.api.opened_catalog import open_catalog
from kip33.retention.plan import read_plan
from kip33.stores.locations import Location
from tests.builders.expiring_archive import NOW_MS, WEEK, ExpiringArchive
from tests.builders.snapshots import row
from tests.cli.console import Command, file_named

GLOBS = ("orders", "audit")
POLICY = '[defaults]\ncleanup.policy = "delete"\nretention.ms = "7d"\n'


@pytest.fixture
def expiring(tmp_path: Path) -> ExpiringArchive:
    """Three log directories; of two, deeper folders could not be listed, named so or so."""
    (tmp_path / "mine").mkdir()
    archive = ExpiringArchive(tmp_path / "mine")
    archive.partition("b1/orders-0", 5, expired=4)
    archive.partition("broker-1/orders-1", 5, expired=4)
    archive.partition("b3/orders-2", 5, expired=4)
    archive.partition("b3/audit-0", 5, expired=4)
    archive.partition("b3/other-0", 5, expired=4)
    archive.snapshot(
        unlistable(archive, "b1", log_dir=None, topic=None, partition=None),
        unlistable(archive, "broker-1", log_dir="", topic="broker", partition=1),
    )
    return archive


def unlistable(archive: ExpiringArchive, path: str, **fields: Any) -> dict[str, Any]:
    """The row of a directory that could not be listed, as a build writes it."""
    known = {"log_uri": (archive.source / path).as_uri(), "status": "unreadable"}
    known |= {"active_segment": False, "bytes_version": 1, "kip33_version": "0.2.0"}
    return dict.fromkeys(row(0)) | known | fields


@pytest.mark.parametrize("engine", ["local", pytest.param("spark", marks=pytest.mark.spark)])
def test_what_is_planned_and_emitted_of_some_topics_is_as_careful_as_of_all(
    engine: str, expiring: ExpiringArchive, request: pytest.FixtureRequest
) -> None:
    command: Command = request.getfixturevalue("command" if engine == "local" else "spark_command")
    expected = open_catalog(expiring.catalog.location.uri).plan_retention(
        WEEK, now=NOW_MS, topics=GLOBS
    )

    done = command(*asked(expiring, engine), "--plan", "plan.jsonl", "--format", "csv")
    emitted = command(*asked(expiring, engine), "--emit", "delete-records")

    assert (done.exit_code, emitted.exit_code) == (0, 0), (done, emitted)
    partitions = read_plan(Location.of("plan.jsonl")).partitions
    assert partitions == expected.partitions
    assert [one.key for one in partitions if one.segments] == [
        ("b3", "audit", 0),
        ("b3", "orders", 2),
    ]
    offsets = json.loads(emitted.stdout)["partitions"]
    assert [(one["topic"], one["partition"], one["offset"]) for one in offsets] == [
        ("audit", 0, 400),
        ("orders", 2, 400),
    ]
    for number, path in enumerate(("b1", "broker-1")):
        above = (expiring.source / path).as_uri()
        assert f"not in the plan: {above} could not be listed" in done.stderr
        assert f"orders-{number} is skipped: {above} could not be listed" in emitted.stderr


def test_the_first_20_partitions_left_out_of_a_plan_are_named_and_the_rest_counted(
    tmp_path: Path, command: Command
) -> None:
    (tmp_path / "mine").mkdir()
    archive = ExpiringArchive(tmp_path / "mine")
    for number in range(23):
        archive.partition(f"b1/orders-{number}", 2, expired=1)
    archive.snapshot(unlistable(archive, "b1", log_dir=None, topic=None, partition=None))

    done = command(*asked(archive, "local"), "--plan", "plan.jsonl")

    assert done.exit_code == 0, done
    assert done.stderr.count("1 deletable segment not in the plan: ") == 20
    assert "3 other partitions with deletable segments that are not in the plan; " in done.stderr
    assert "/plan.jsonl has the reason for each" in done.stderr


def asked(archive: ExpiringArchive, engine: str) -> list[str]:
    """Return the command line without what is to be done."""
    policy = file_named("policy.toml", POLICY.encode())
    given = ["retention", archive.catalog.location.uri, "--policy", policy]
    given += ["--now", str(NOW_MS), "--engine", engine]
    return given + [part for glob in GLOBS for part in ("--topic", glob)]
