"""The newest snapshot lost a part: every command says that it answers from an older one."""

import shutil
from pathlib import Path

import pytest

from tests.cli.command_lines import CATALOG, OF_CATALOGS, write_offsets
from tests.cli.console import Command

COMMANDS = {
    **OF_CATALOGS,
    "orphans": f"catalog orphans {CATALOG}",
    "records to a file": f"records {CATALOG} --output records.parquet",
    "path": f"catalog snapshots {CATALOG} --path",
    "in JSON": f"{OF_CATALOGS['search']} --format json",
}
FAILS = {
    f"count {CATALOG} --per 1d --on-error fail": "--on-error fail takes",
    f"records {CATALOG} --on-error fail": "--on-error fail takes",
    f"records {CATALOG} --decode --schemas {CATALOG}": "reading schemas takes",
}


@pytest.fixture
def damaged(built: Path, tmp_path: Path, command: Command) -> tuple[Path, Path]:
    """Return a catalog of two snapshots, and the part that the newest one lost."""
    catalog = tmp_path / CATALOG
    shutil.copytree(built / "indexes", tmp_path / "indexes")
    [commit] = (catalog / "commits").iterdir()
    [folder] = (catalog / "snapshots").iterdir()
    name = folder.name.replace("0001-", "0002-")
    text = commit.read_text().replace('"sequence": 1,', '"sequence": 2,')
    commit.with_name(commit.name.replace("1", "2")).write_text(text)
    shutil.copytree(folder, catalog / "snapshots" / name)
    part = min((catalog / "snapshots" / name).iterdir())
    part.unlink()
    return catalog, part


def test_every_command_reports_that_the_newest_snapshot_is_ignored(
    command: Command, damaged: tuple[Path, Path], subtests: pytest.Subtests
) -> None:
    _, part = damaged
    write_offsets()
    warning = f"{part.as_uri()}: no bytes found, the commit file says "
    for name, line in COMMANDS.items():
        with subtests.test(name):
            done = command(*line.split())

            assert done.exit_code == 0, done
            assert f"Warning: {warning}" in done.stderr
            assert "; this snapshot is ignored\n" in done.stderr
            if line.endswith("json"):
                [told] = done.lines[0]["summary"]["warnings"]
                assert told.startswith(warning)


def test_commands_that_may_miss_nothing_fail(
    command: Command, damaged: tuple[Path, Path], subtests: pytest.Subtests
) -> None:
    for line, why in FAILS.items():
        with subtests.test(line):
            done = command(*line.split())

            assert done.exit_code == 2, done
            assert f"{damaged[1].as_uri()}: no bytes found" in done.stderr
            ignored = f"; this snapshot is ignored, and {why} no older one; run `kip33 build`"
            assert ignored in done.stderr


def test_each_row_of_lag_and_failover_has_the_warnings_and_the_snapshot(
    command: Command, damaged: tuple[Path, Path]
) -> None:
    catalog, part = damaged
    write_offsets()
    used = min(folder.name for folder in (catalog / "snapshots").iterdir())
    for name, snapshots in (("lag", ["snapshot"]), ("failover", ["from_snapshot", "to_snapshot"])):
        [row] = command(*OF_CATALOGS[name].split(), "--format", "jsonl").lines
        assert [row[one] for one in snapshots] == [used] * len(snapshots)
        [warning] = row["warnings"]  # once, though failover reads this catalog twice
        assert warning.startswith(f"{part.as_uri()}: no bytes found, the commit file says ")
