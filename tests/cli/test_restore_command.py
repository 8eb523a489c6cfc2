"""`kip33 restore`: what it prints, and its exit codes."""

import json
import shutil
from pathlib import Path

import pytest

from kip33.cli.restore import restore as restore_command
from kip33.restore import restore_complete
from tests.builders.layouts import Stored, local_tiered
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


def both_tiers(backup: Path) -> None:
    """Leave the first segment in the bucket alone, where it ends later; build both catalogs."""
    first, second = (backup / "orders-0" / f"{base:020d}.log" for base in (0, 10))
    uploaded = first.read_bytes() + second.read_bytes()
    first.unlink()
    local_tiered(Path("bucket"), [Stored("orders", 0, 0, uploaded)])
    build_here(backup, Path("disks"))
    build_here(Path("bucket"), Path("uploads"), layout="local-tiered")


def test_two_tiers_become_one_log_directory(backup: Path, command: Command) -> None:
    both_tiers(backup)
    given = ("restore", "uploads/_catalog", "disks/_catalog", "--to", "data", "--partitions", "0")
    plan = command(*given, "--dry-run")
    assert (plan.exit_code, "remote" in plan.stdout) == (0, True)
    done = command(*given, "--format", "json")
    [summary] = done.lines
    assert summary["remote_source"] == Path("bucket").absolute().as_uri()
    [row] = summary["partitions"]
    assert (row["segments"], row["remote_segments"], row["end_offset"]) == (2, 1, 20)


def test_a_dry_run_shows_partitions_and_changes_nothing(backup: Path, command: Command) -> None:
    done = command("restore", "backup", "--to", "data", "--dry-run")
    assert done.exit_code == 4, "orders-1 has a hole"
    assert not (backup.parent / "data").exists()
    assert "nothing was changed" in done.stderr
    for text in ("to restore", "orders-0", "orders-1", "free"):
        assert text in done.stdout


def test_the_same_command_again_says_there_already(backup: Path, command: Command) -> None:
    given = ("restore", "backup", "--to", "data", "--partitions", "0")
    assert command(*given).exit_code == 0
    for options in (("--dry-run",), ()):
        again = command(*given, *options)
        assert (again.exit_code, again.stdout.count("there already")) == (0, 2 + (not options))
    log = Path("data/orders-0") / f"{10:020d}.log"
    log.write_bytes(log.read_bytes() + v2_batch(20, [Record(T + 20)]))
    written = command(*given)
    assert (written.exit_code, "the partition has data" in written.stderr) == (4, True)


def test_a_refused_partition_is_exit_code_4_and_the_others_are_restored(
    backup: Path, command: Command
) -> None:
    done = command(
        *["restore", "backup", "--to", "data", "--format", "json", "--summary", "done.json"]
    )
    assert done.exit_code == 4
    [summary] = done.lines
    written = json.loads((backup.parent / "done.json").read_text())
    assert written.pop("run")["exit_code"] == 4
    assert written == summary
    assert (summary["partitions_restored"], summary["partitions_refused"]) == (1, 1)
    assert done.stderr.count("offsets 10 to 19 are missing") == 1
    assert "orders-1 is not restored: offsets 10 to 19 are missing" in done.stderr
    assert "exit 4: refused: 1 partition" in done.stderr
    assert [path.name for path in Path("data").iterdir() if path.is_dir()] == ["orders-0"]


@pytest.mark.spark
@pytest.mark.parametrize("sources", [["backup"], ["disks/_catalog", "uploads/_catalog"]])
def test_both_engines_restore_the_same_files(
    backup: Path, spark_command: Command, sources: list[str]
) -> None:
    both_tiers(backup)
    trees, summaries = [], []
    for engine in ("local", "spark"):
        done = spark_command(
            *("restore", *sources, "--to", engine, "--allow-holes"),
            *("--engine", engine, "--format", "json"),
        )
        assert done.exit_code == 0, done.stderr
        summaries += done.lines
        files = (path for path in Path(engine).rglob("*") if path.is_file())
        trees.append({str(path.relative_to(engine)): path.read_bytes() for path in files})
    assert trees[0] == trees[1]
    assert [summary["engine"] for summary in summaries] == ["local", "spark"]


def test_a_range_from_a_file_of_offsets(backup: Path, command: Command) -> None:
    (backup.parent / "offsets.csv").write_text("topic,partition,offset\norders,0,13\n")
    done = command(
        *("restore", "backup", "--to", "data", "--partitions", "0", "--format", "json"),
        *("--from-offsets", "offsets.csv"),
    )
    [row] = done.lines[0]["partitions"]
    assert (row["start_offset"], row["end_offset"], row["segments"]) == (13, 20, 1)


def test_a_restore_from_a_time_begins_no_later_than_a_record_without_a_timestamp(
    backup: Path, command: Command, subtests: pytest.Subtests
) -> None:
    untimed = v2_batch(10, [Record()] * 10)
    (backup / "orders-0" / f"{10:020d}.log").write_bytes(untimed)
    build_here(backup, backup.parent / "indexes", now_ms=T)
    for source in ("backup", "indexes/_catalog"):
        for time, expected in ((T + 5, 5), (T + 100, 10)):
            with subtests.test(source, time=time):
                done = command(
                    *("restore", source, "--to", f"{source[:4]}-{time}", "--partitions", "0"),
                    *("--from", str(time), "--format", "json"),
                )
                [row] = done.lines[0]["partitions"]
                assert (row["start_offset"], row["end_offset"]) == (expected, 20)
                is_said = [f"it begins at offset {expected}, " in note for note in row["notes"]]
                assert is_said == [True] * (expected == 10)
                dry = command(
                    *("restore", source, "--to", f"dry-{source[:4]}-{time}", "--partitions", "0"),
                    *("--from", str(time), "--format", "json", "--dry-run"),
                )
                assert dry.lines[0]["partitions"][0]["notes"] == row["notes"]


ASKED = ("restore", "backup", "--to", "data", "--partitions", "0", "--topic", "orders")


def _killed(moment: str, monkeypatch: pytest.MonkeyPatch, *asked: str) -> None:
    """Run a restore in this process up to the named function of its last part."""

    def kill(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(restore_complete, moment, kill)
        with pytest.raises(Killed):
            restore_command.main(list(asked[1:]), standalone_mode=False)


class Killed(BaseException):
    """Ends a run where SIGKILL would."""


def test_another_request_does_not_continue_a_restore(
    backup: Path, command: Command, monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    (backup.parent / "ids").touch()
    _killed("_place", monkeypatch, *ASKED)
    for more, then, now in (
        ("--topic clicks", '--topic ["orders"]', '--topic ["clicks", "orders"]'),
        ("--leader-epoch 0", "--leader-epoch null", "--leader-epoch 0"),
        ("--partitions 1", "--partitions [0]", "--partitions [1]"),
        ("--until now-1d", "--until null", '--until "now-1d"'),
        ("--allow-holes", "--allow-holes false", "--allow-holes true"),
        ("--topic-ids ids --dry-run", "--topic-ids null", "ids (SHA-256 e3b0c44"),
    ):
        with subtests.test(more):
            done = command(*ASKED, *more.split())
            assert done.exit_code == 2
            for text in (then, now, "or with --abandon to remove what it staged"):
                assert text in done.stderr
            assert not (backup.parent / "data" / "orders-0").exists()


def test_the_same_request_continues_without_its_source(
    backup: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    build_here(backup, backup.parent / "indexes", now_ms=T)
    asked = ("restore", "indexes/_catalog", "--to", "data", "--partitions", "0")
    asked += ("--until", "now+1d")
    _killed("_place", monkeypatch, *asked)
    shutil.rmtree(backup)
    shutil.rmtree(backup.parent / "indexes")
    plan = command(*asked, "--dry-run")
    assert plan.exit_code == 0, plan.stderr
    assert "continues the restore that was begun with" in plan.stderr
    assert not (backup.parent / "data" / "orders-0").exists()
    done = command(*asked)
    assert done.exit_code == 0, done.stderr
    assert "continues the restore that was begun with" in done.stderr
    assert (backup.parent / "data" / "orders-0").is_dir()


def test_a_restore_is_abandoned_once(
    backup: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is left then: tests/restore/test_restore.py."""
    _killed("_update", monkeypatch, *ASKED)
    done = command("restore", "--to", "data", "--abandon", "--format", "json")
    assert done.exit_code == 0, done.stderr
    assert (done.lines[0]["partitions_removed"], done.lines[0]["partitions_in_place"]) == (1, [])
    again = command("restore", "--to", "data", "--abandon")
    assert (again.exit_code, again.stdout) == (2, "")
    assert "no restore was begun here" in again.stderr
    assert command(*ASKED).exit_code == 0


def test_a_log_that_is_not_as_the_catalog_says_is_refused(backup: Path, command: Command) -> None:
    build_here(backup, backup.parent / "indexes", now_ms=T)
    log = backup / "orders-0" / f"{10:020d}.log"
    log.write_bytes(log.read_bytes() * 2)
    done = command("restore", "indexes/_catalog", "--to", "data", "--partitions", "0")
    assert done.exit_code == 4
    assert "for a catalog after a new build" in done.stderr
    assert "nothing is restored" in done.stdout
    assert command("restore", "backup", "--to", "data", "--snapshot", "1").exit_code == 2
