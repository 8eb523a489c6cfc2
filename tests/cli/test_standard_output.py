"""Standard output that ends early or is full: the journal stays true, no input is blamed."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kip33.retention.plan import write_plan
from kip33.stores.locations import Location
from tests.builders.expiring_archive import ExpiringArchive
from tests.builders.segment_builder import Record, segment, v2_batch
from tests.cli.console import KIP33, of_any_machine

FOREVER = "100000d"  # the archive's clock stands in 2023


class Ended(NamedTuple):
    """How a shell's first program ended, and what it said."""

    exit_code: int
    stderr: str


def in_shell(command: str, cwd: Path) -> Ended:
    done = subprocess.run(
        ["bash", "-c", f"{command}; exit ${{PIPESTATUS[0]}}"],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=1200,
    )
    return Ended(done.returncode, of_any_machine(done.stderr))


def to_an_ended_reader(command: str, cwd: Path) -> Ended:
    """Run a command into a pipe that nobody reads any more, as behind `| head -1`."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            command.split(), cwd=cwd, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=1200
        )
    finally:
        os.close(writer)
    return Ended(done.returncode, of_any_machine(done.stderr))


@pytest.fixture
def archive(tmp_path: Path) -> ExpiringArchive:
    archive = ExpiringArchive.with_two_partitions(tmp_path)
    write_plan(archive.plan(), Location.of(tmp_path / "plan.jsonl"))
    return archive


def journal_of(archive: ExpiringArchive) -> list[dict[str, Any]]:
    files = sorted((archive.folder / "catalog/retention").rglob("*.json"))
    return [json.loads(file.read_text()) for file in files]


def apply_command(output_format: str) -> str:
    options = f"--max-age {FOREVER} --format {output_format} --summary s.json"
    return f"{KIP33} retention apply plan.jsonl {options}"


def require_true_journal(archive: ExpiringArchive) -> None:
    """Every result says what became of the segment, and no reason blames a file."""
    for record in journal_of(archive):
        there = [Path(Location.of(file["uri"]).path).exists() for file in record["files"]]
        if record["outcome"] == "deleted":
            assert not any(there)
        elif record["kind"] == "result":
            assert (record["outcome"], record["why"]) == ("stopped", "interrupted")
    begun = [record for record in journal_of(archive) if record["kind"] == "intent"]
    ended = [record for record in journal_of(archive) if record["outcome"] == "deleted"]
    assert len(begun) == len(ended)
    gone = 8 - sum(1 for name in ("b1", "b2") for base in range(4)
                   if archive.log(base * 100, f"{name}/orders-0").exists())  # fmt: skip
    assert len(ended) == gone


@pytest.mark.parametrize("output_format", ["jsonl", "table"])
def test_an_apply_to_a_full_disk_says_so_and_its_journal_is_true(
    output_format: str, archive: ExpiringArchive
) -> None:
    done = in_shell(f"{apply_command(output_format)} > /dev/full", archive.folder)

    assert done.exit_code == 1
    assert done.stderr.startswith("Error: standard output cannot be written: No space left on dev")
    assert done.stderr.count("\n") == 1
    require_true_journal(archive)
    summary = json.loads((archive.folder / "s.json").read_text())
    gone = sum(record["outcome"] == "deleted" for record in journal_of(archive))
    assert summary["segments_deleted"] == gone
    assert (gone == 8) == (output_format != "jsonl")


def test_a_prune_to_a_full_disk_says_what_it_removed(archive: ExpiringArchive) -> None:
    done = in_shell(f"{KIP33} catalog prune catalog --keep 1 > /dev/full", archive.folder)

    assert done.exit_code == 1
    assert done.stderr.endswith("No space left on device; removed: 0 snapshots\n")


def test_an_apply_whose_reader_ends_stops_and_goes_on_later(archive: ExpiringArchive) -> None:
    done = to_an_ended_reader(apply_command("jsonl"), archive.folder)

    assert done.exit_code == 141
    assert done.stderr.startswith("Error: standard output cannot be written: Broken pipe; ")
    assert done.stderr.count("\n") == 1
    require_true_journal(archive)

    again = in_shell(apply_command("jsonl"), archive.folder)

    assert again == Ended(0, "")
    assert not any(archive.log(base * 100).exists() for base in range(4))


def test_a_dump_to_no_standard_output_does_not_blame_the_input(tmp_path: Path) -> None:
    (tmp_path / f"{0:020d}.log").write_bytes(segment(v2_batch(n, [Record(n)]) for n in range(9)))
    assert in_shell(f"{KIP33} dump {0:020d}.log >&-", tmp_path).stderr.count("\n") <= 1
