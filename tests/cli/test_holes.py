"""Missing offsets of a snapshot: from segments that are deleted, damaged or in other replicas."""

import json
from pathlib import Path

from kip33.catalog.catalog import Catalog, choose
from kip33.catalog.holes import hole_totals, read_holes
from tests.builders.segment_builder import Record, v2_batch
from tests.cli.console import Command

SEGMENT_RECORDS = 10


def write_partition(folder: Path, bases: list[int]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for base in bases:
        batch = v2_batch(base, [Record(1_000 + base + i) for i in range(SEGMENT_RECORDS)])
        (folder / f"{base:020d}.log").write_bytes(batch)


def test_the_commands_count_the_same_holes(command: Command, tmp_path: Path) -> None:
    archive = tmp_path / "logs"
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
