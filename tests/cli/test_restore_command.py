"""`kip33 restore`: what it prints, and its exit codes."""

import json
from pathlib import Path

import pytest

from tests.builders.segment_builder import Record, v2_batch
from tests.cli.console import Command
from tests.faults.builds import build_here

T = 1_700_000_000_000


@pytest.fixture
def backup(tmp_path: Path, command: Command) -> Path:
    """Return an archive of two partitions in the command's working directory."""
    for partition, bases in ((0, (0, 10)), (1, (0, 20))):
        directory = tmp_path / "backup" / f"orders-{partition}"
        directory.mkdir(parents=True)
        for base in bases:
            log = v2_batch(base, [Record(T + base + i) for i in range(10)])
            (directory / f"{base:020d}.log").write_bytes(log)
    return tmp_path / "backup"


def test_a_dry_run_shows_partitions_and_changes_nothing(backup: Path, command: Command) -> None:
    done = command("restore", "backup", "--to", "data", "--dry-run")
    assert done.exit_code == 0
    assert not (backup.parent / "data").exists()
    assert "nothing was changed" in done.stderr
    for text in ("to restore", "orders-0", "orders-1", "free"):
        assert text in done.stdout


def test_a_refused_partition_is_exit_code_1_and_the_others_are_restored(
    backup: Path, command: Command
) -> None:
    done = command(
        *("restore", "backup", "--to", "data", "--format", "json", "--summary", "done.json"),
    )
    assert done.exit_code == 1
    [summary] = done.lines
    assert json.loads((backup.parent / "done.json").read_text()) == summary
    assert (summary["partitions_restored"], summary["partitions_refused"]) == (1, 1)
    assert "orders-1 is not restored: offsets 10 to 19 are missing" in done.stderr
    assert sorted(path.name for path in (backup.parent / "data").iterdir() if path.is_dir()) == [
        "orders-0"
    ]


def test_chosen_partitions(backup: Path, command: Command) -> None:
    done = command("restore", "backup", "--to", "data", "--partitions", "0,3-5")
    assert done.exit_code == 0
    assert "the topic id is not known" in done.stderr
    assert "0 to 20" in done.stdout
    wrong = command("restore", "backup", "--to", "data", "--partitions", "5-3")
    assert wrong.exit_code == 2
    assert "'5-3' found, expected numbers such as 0,2-5" in wrong.stderr


def test_both_engines_restore_the_same_files(backup: Path, spark_command: Command) -> None:
    trees, summaries = [], []
    for engine in ("local", "spark"):
        done = spark_command(
            *("restore", "backup", "--to", engine, "--allow-holes"),
            *("--engine", engine, "--format", "json"),
        )
        assert done.exit_code == 0, done.stderr
        summaries += done.lines
        files = (path for path in Path(engine).rglob("*") if path.is_file())
        trees.append({str(path.relative_to(engine)): path.read_bytes() for path in files})
    assert trees[0] == trees[1]
    assert [summary["engine"] for summary in summaries] == ["local", "spark"]


def test_options_that_contradict_each_other(backup: Path, command: Command) -> None:
    for options in (
        ("--truncate",),
        ("--from", "1", "--from-offsets", "offsets.csv"),
        ("--topic-ids", "ids", "--bootstrap-server", "host:9092"),
    ):
        assert command("restore", "backup", "--to", "data", *options).exit_code == 2


def test_a_range_from_a_file_of_offsets(backup: Path, command: Command) -> None:
    (backup.parent / "offsets.csv").write_text("topic,partition,offset\norders,0,13\n")
    done = command(
        *("restore", "backup", "--to", "data", "--partitions", "0", "--format", "json"),
        *("--from-offsets", "offsets.csv"),
    )
    [row] = done.lines[0]["partitions"]
    assert (row["start_offset"], row["end_offset"], row["segments"]) == (13, 20, 1)


def test_a_catalog_shows_missing_offsets_before_a_log_is_read(
    backup: Path, command: Command
) -> None:
    build_here(backup, backup.parent / "indexes", now_ms=T)
    catalog = ("restore", "indexes/_catalog", "--to", "data")
    plan = command(*catalog, "--dry-run")
    assert plan.exit_code == 1
    assert "orders-1 is not restored: offsets 10 to 19 are missing" in plan.stderr
    done = command(*catalog, "--format", "json")
    assert done.exit_code == 1
    [summary] = done.lines
    assert summary["source"] == backup.as_uri()
    assert [row["end_offset"] for row in summary["partitions"]] == [20, None]


def test_a_log_that_is_not_as_the_catalog_says_is_refused(backup: Path, command: Command) -> None:
    build_here(backup, backup.parent / "indexes", now_ms=T)
    log = backup / "orders-0" / f"{10:020d}.log"
    log.write_bytes(log.read_bytes() * 2)
    done = command("restore", "indexes/_catalog", "--to", "data", "--partitions", "0")
    assert done.exit_code == 1
    assert "for a catalog after a new build" in done.stderr
    assert command("restore", "backup", "--to", "data", "--snapshot", "1").exit_code == 2


def test_of_two_replicas_the_one_without_damage_is_restored(
    tmp_path: Path, command: Command
) -> None:
    batches = [v2_batch(at, [Record(T + at + i) for i in range(10)]) for at in (0, 10, 20)]
    for broker, logs in (("b1", batches[:2]), ("b2", [batches[0][:-1], *batches[1:]])):
        directory = tmp_path / "replicas" / broker / "orders-0"
        directory.mkdir(parents=True)
        for number, log in enumerate(logs):
            (directory / f"{10 * number:020d}.log").write_bytes(log)
    build_here(tmp_path / "replicas", tmp_path / "indexes", now_ms=T)
    done = command("restore", "indexes/_catalog", "--to", "data", "--format", "json")
    [row] = done.lines[0]["partitions"]
    assert (row["replica"], row["problem"], row["end_offset"]) == ("b1", None, 20)
