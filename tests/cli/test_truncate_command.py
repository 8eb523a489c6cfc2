"""`kip33 truncate`: what it prints, and its exit codes."""

from pathlib import Path

import pytest

from kip33.restore import truncate_apply
from kip33.stores.locations import Location
from tests.builders.partition_copies import files_of, write_partition
from tests.builders.segment_builder import Record, v1_message, v2_batch, wrapper
from tests.cli.console import Command

T = 1_700_000_000_000


@pytest.fixture
def copied(tmp_path: Path, command: Command) -> Path:
    """Return a copy with two segments, offsets 0 to 39, in the command's working directory."""
    segments = {
        base: [v2_batch(at, [Record(T + at + i) for i in range(10)]) for at in (base, base + 10)]
        for base in (0, 20)
    }
    checkpoints = {"log-start-offset-checkpoint": 25}
    return write_partition(tmp_path / "orders-0", segments, checkpoints=checkpoints)


def test_a_plan_names_files_bytes_entries_and_records(copied: Path, command: Command) -> None:
    before = files_of(copied)
    done = command("truncate", "orders-0", "--to", 15)
    assert done.exit_code == 0
    assert files_of(copied) == before
    assert "nothing was changed; --apply carries this out" in done.stderr
    assert "log-start-offset-checkpoint: orders-0 is set from 25 to 10" in done.stderr
    assert "Kafka cuts the complete batch that contains offset 15" in done.stderr
    size = len(before[f"{0:020d}.log"])
    for text in (f"{size:,} -> {size // 2:,}", "40 -> 10", "30 in 3 batches", "to change"):
        assert text in done.stdout


def test_apply_does_what_the_plan_says(copied: Path, command: Command) -> None:
    [plan] = command("truncate", "orders-0", "--to", 15, "--format", "json").lines
    done = command(
        *("truncate", "orders-0", "--to", 15, "--apply", "--plan-id", plan["plan_id"]),
        *("--format", "json"),
    )
    assert done.exit_code == 0
    [applied] = done.lines
    assert applied == plan | {"applied": True, "seconds": applied["seconds"]}
    for change in plan["files"]:
        file = copied.parent / change["file"] if change["in_log_dir"] else copied / change["file"]
        assert file.exists() == (change["action"] != "delete")
        if change["bytes_after"] is not None:
            assert file.stat().st_size == change["bytes_after"]
    assert (copied.parent / "log-start-offset-checkpoint").read_text().endswith("orders 0 10\n")


def test_a_continued_run_says_what_it_continues(
    copied: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(truncate_apply, "_cut", _interrupt)
        with pytest.raises(KeyboardInterrupt):
            truncate_apply.truncate(Location.of(copied), 15)
    plan = command("truncate", "orders-0", "--to", 15)
    assert "this truncation was begun and is not complete" in plan.stderr
    done = command("truncate", "orders-0", "--to", 15, "--apply")
    assert done.exit_code == 0
    assert "a truncation to 15 that was begun is continued" in done.stderr
    assert not list(copied.parent.rglob(".kip33*"))


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def test_compressed_v1_messages_are_counted_as_at_least_one(
    tmp_path: Path, command: Command
) -> None:
    inner = [v1_message(i, T + i) for i in range(3)]
    log = {0: [v1_message(0, T), wrapper(3, inner)]}
    write_partition(tmp_path / "old-0", log)
    assert "at least 1 in 1 batch" in command("truncate", "old-0", "--to", 2).stdout
