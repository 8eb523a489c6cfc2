"""The newest snapshot lost a part: every command says that it answers from an older one."""

import shutil
from pathlib import Path

import pytest

from tests.cli.console import Command, file_named

COMMANDS = {
    "search": ("search", "CATALOG", "--topic", "sensors", "--time", "0", "--format", "json"),
    "lag": ("lag", "CATALOG", "--offsets", "offsets.csv"),
    "failover": (
        *("failover", "--from", "CATALOG", "--to", "CATALOG", "--buffer", "3m"),
        *("--offsets", "offsets.csv"),
    ),
    "retention": ("retention", "CATALOG", "--retention-ms", "7d", "--format", "json"),
    "catalog": ("catalog", "CATALOG"),
    "orphans": ("catalog", "CATALOG", "--orphans"),
    "report": ("report", "CATALOG", "--output", "report.html"),
    "roll": ("roll", "CATALOG"),
    "timestamps": ("timestamps", "CATALOG"),
    "count": ("count", "CATALOG", "--per", "1d"),
    "records": ("records", "CATALOG"),
    "records to a file": ("records", "CATALOG", "--output", "records.parquet"),
    "path": ("catalog", "CATALOG", "--path"),
}
FAILS = {
    "count": (("count", "CATALOG", "--per", "1d", "--on-error", "fail"), "--on-error fail takes"),
    "records": (("records", "CATALOG", "--on-error", "fail"), "--on-error fail takes"),
    "schemas": (
        ("records", "CATALOG", "--decode", "--schemas", "CATALOG"),
        "reading schemas takes",
    ),
}


@pytest.fixture
def damaged(built: Path, tmp_path: Path) -> tuple[Path, Path]:
    """Return a catalog of two snapshots, and the part that the newest one lost."""
    catalog = tmp_path / "indexes/_catalog"
    shutil.copytree(built / "indexes", tmp_path / "indexes")
    [commit] = (catalog / "commits").iterdir()
    name = commit.stem.replace("0001-", "0002-")
    text = commit.read_text().replace('"sequence": 1,', '"sequence": 2,')
    commit.with_name(f"{name}.json").write_text(text)
    shutil.copytree(catalog / "snapshots" / commit.stem, catalog / "snapshots" / name)
    part = min((catalog / "snapshots" / name).iterdir())
    part.unlink()
    return catalog, part


def test_every_command_reports_that_the_newest_snapshot_is_ignored(
    command: Command, damaged: tuple[Path, Path], subtests: pytest.Subtests
) -> None:
    catalog, part = damaged
    file_named("offsets.csv", b"sensors,1,107\n")
    warning = f"{part.as_uri()}: no bytes found, the commit file says "
    for name, arguments in COMMANDS.items():
        with subtests.test(name):
            done = command(*(catalog if one == "CATALOG" else one for one in arguments))

            assert done.exit_code == 0, done
            assert f"Warning: {warning}" in done.stderr
            assert "; this snapshot is ignored\n" in done.stderr
            if arguments[-1] == "json":
                [told] = done.lines[0]["summary"]["warnings"]
                assert told.startswith(warning)


def test_commands_that_may_miss_nothing_fail(
    command: Command, damaged: tuple[Path, Path], subtests: pytest.Subtests
) -> None:
    for name, (arguments, why) in FAILS.items():
        with subtests.test(name):
            catalog, part = damaged

            done = command(*(catalog if one == "CATALOG" else one for one in arguments))

            assert done.exit_code == 2, done
            assert f"{part.as_uri()}: no bytes found" in done.stderr
            assert (
                f"; this snapshot is ignored, and {why} no older one; run `kip33 build`"
                in done.stderr
            )


def test_each_row_of_lag_and_failover_has_the_warnings_and_the_snapshot(
    command: Command, damaged: tuple[Path, Path]
) -> None:
    catalog, part = damaged
    file_named("offsets.csv", b"sensors,0,7\nsensors,1,107\n")
    used = min(commit.stem for commit in (catalog / "commits").iterdir())
    for name, snapshots in (("lag", ["snapshot"]), ("failover", ["from_snapshot", "to_snapshot"])):
        arguments = (catalog if one == "CATALOG" else one for one in COMMANDS[name])
        rows = command(*arguments, "--format", "jsonl").lines
        assert len(rows) == 2
        for row in rows:
            assert [row[one] for one in snapshots] == [used] * len(snapshots)
            [warning] = row["warnings"]  # once, though failover reads this catalog twice
            assert warning.startswith(f"{part.as_uri()}: no bytes found, the commit file says ")
