"""`retention --emit delete-records` is as careful as `--plan`: what is in doubt is left out."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from kip33.demo import COPIED_MS
from tests.cli.console import Command, Finished, file_named
from tests.faults.builds import build_here

DAY_MS = 86_400_000
POLICY = '[defaults]\ncleanup.policy = "delete"\nretention.ms = "7d"\n'


class Archive:
    """A copy of some partitions of the demo archive, and its catalog."""

    def __init__(self, folder: Path, built: Path, command: Command) -> None:
        self.folder, self._command = folder, command
        for name in ("orders-0", "sensors-1"):
            shutil.copytree(
                built / "archive/broker-1" / name,
                folder / "archive/broker-1" / name,
                copy_function=shutil.copy2,
            )
        self.nights = 0
        self.build()

    def build(self, **how: Any) -> None:
        self.nights += 1
        at_ms = COPIED_MS + self.nights * DAY_MS
        build_here(self.folder / "archive", self.folder / "indexes", now_ms=at_ms, **how)

    def emitted(self, policy: str = POLICY) -> Finished:
        given = ("--policy", file_named("policy.toml", policy.encode()), "--now", "2023-12-01")
        catalog = self.folder / "indexes/_catalog"
        return self._command("retention", catalog, *given, "--emit", "delete-records")

    def topics(self) -> list[str]:
        partitions = json.loads(self.emitted().stdout)["partitions"]
        return [one["topic"] for one in partitions]


@pytest.fixture
def archive(tmp_path: Path, built: Path, command: Command) -> Archive:
    return Archive(tmp_path / "mine", built, command)


def test_without_doubt_all_are_emitted(archive: Archive) -> None:
    assert archive.topics() == ["orders", "sensors"]
    assert "Warning" not in archive.emitted().stderr


def test_an_unverified_segment_leaves_its_partition_out_by_name(archive: Archive) -> None:
    directory = archive.folder / "archive/broker-1/orders-0"
    for index in (archive.folder / "indexes/broker-1/orders-0").glob("*.timeindex"):
        shutil.copy(index, directory / index.name)
    shutil.rmtree(archive.folder / "indexes")
    archive.build(read="tail")

    done = archive.emitted()

    assert [one["topic"] for one in json.loads(done.stdout)["partitions"]] == ["sensors"]
    assert "Warning: orders-0 is skipped: " in done.stderr
    assert "is unverified: the build did not read its log" in done.stderr


def test_two_directories_of_one_partition_are_left_out_by_name(archive: Archive) -> None:
    brokers = archive.folder / "archive/broker-1"
    shutil.copytree(brokers / "orders-0", brokers / "orders-00", copy_function=shutil.copy2)
    for number, log in enumerate(sorted((brokers / "orders-00").glob("*.log"))):
        log.rename(log.with_name(f"{5_000_000 + number:020d}.log"))
    archive.build()

    done = archive.emitted()

    assert [one["topic"] for one in json.loads(done.stdout)["partitions"]] == ["sensors"]
    assert "orders-00 are directories of the same partition" in done.stderr
