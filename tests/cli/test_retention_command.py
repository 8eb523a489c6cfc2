"""`kip33 retention` as a user meets it: the answer in every format, its files, plan and apply."""

import json
import os
import pty
import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import kip33
from kip33.catalog.schema import SEGMENTS
from kip33.demo import COPIED_MS
from kip33.errors import PublishError
from kip33.retention import evaluated_tables
from kip33.rules.retention_rows import Decision
from kip33.stores.locations import Location
from tests.cli.console import Command, file_named, result_in
from tests.faults.builds import build_here

DAY_MS = 86_400_000
NOW = "2023-12-01"  # seventeen days after START_MS
NOW_MS = 1_701_388_800_000
POLICY = """
[defaults]
cleanup.policy = "delete"
retention.ms = "7d"

[topics."sensors"]
retention.ms = "8d"

[topics."audit*"]
cleanup.policy = "compact"
"""


@pytest.fixture
def retention(command: Command, built: Path) -> Command:
    """Return `kip33 retention` of the built catalog, judged by POLICY as of NOW."""
    policy = file_named("policy.toml", POLICY.encode())
    given = ("retention", built / "indexes/_catalog", "--policy", policy, "--now", NOW)
    return lambda *arguments: command(*given, "--result-line", *arguments)


@pytest.fixture
def planned(built: Path, tmp_path: Path, command: Command) -> dict[str, Any]:
    """What a plan in ./plan.jsonl says of a copy of the archive, in ./mine/archive."""
    root = tmp_path / "mine"
    shutil.copytree(built / "archive", root / "archive")
    build_here(root / "archive", root / "indexes", now_ms=COPIED_MS + DAY_MS)
    done = command(
        *("retention", "mine/indexes/_catalog", "--now", NOW, "--plan", "plan.jsonl"),
        *("--policy", file_named("policy.toml", POLICY.encode()), "--result-line"),
    )
    plan: dict[str, Any] = result_in(done)["plan"]
    return plan


def logs_of_sensors() -> list[str]:
    return sorted(path.name for path in Path("mine/archive/broker-1/sensors-0").glob("*.log"))


def partition(rows: list[dict[str, Any]], name: str) -> dict[str, Any]:
    """Return the row of `broker-1/sensors-0`."""
    log_dir, _, directory = name.partition("/")
    topic, _, number = directory.rpartition("-")
    key = (log_dir, topic, int(number))
    return next(row for row in rows if (row["log_dir"], row["topic"], row["partition"]) == key)


def test_the_table_names_what_blocks_a_partition(retention: Command) -> None:
    done = retention()

    assert done.exit_code == 0
    sentence = next(line for line in done.stdout.splitlines() if line.startswith("- "))
    assert sentence == (
        "- broker-1/sensors-0: 3 segments of 46.3 KiB expired, but blocked by "
        "00000000000000000200.log, which has a timestamp of 2025-11-14T23:30:20.000Z in the batch "
        "that ends at offset 279, 715 d in the future; the block ends by itself at "
        "2025-11-22T23:30:20.001Z; this segment alone blocks 46.3 KiB"
    )
    found = result_in(done)
    assert (found["blocked_partitions"], found["blocked_segments"]) == (1, 3)
    assert found["suspicions"] == {"future": 1, "seconds": 2, "backfill": 1}
    assert found["findings"] == ["blocked", "expired", "untrusted"]


def test_jsonl_has_segments_then_partitions_then_a_summary(retention: Command) -> None:
    rows = retention("--format", "jsonl").lines

    kinds = [row["kind"] for row in rows]
    assert kinds == ["segment"] * 25 + ["partition"] * 11 + ["summary"]
    segments, partitions = rows[:25], rows[25:36]
    for segment in segments:
        added = {"policy", "deletable", "reason", "suspicion", *Decision._fields}
        assert {*SEGMENTS.names, *added} <= segment.keys()
    assert all("base_offset" not in row for row in partitions)
    sensors = partition(partitions, "broker-1/sensors-0")
    assert (sensors["policy"], sensors["blocking_base_offset"]) == ("sensors", 200)
    assert sensors["block_ends_at_ms"] == sensors["blocking_timestamp"] + 8 * DAY_MS + 1
    audit = partition(partitions, "broker-1/audit.v1-0")
    assert (audit["policy"], audit["mode"], audit["deletable_segments"]) == ("audit*", "compact", 0)
    metrics = partition(partitions, "broker-2/metrics-0")
    assert metrics["last_modified_segments"] == 1
    assert metrics["last_modified_base_offsets"] == [0]


def test_a_forecast_without_deletions_says_so(command: Command, built: Path) -> None:
    catalog = built / "indexes/_catalog"
    done = command("retention", catalog, "--retention-ms", "9000d", "--forecast", "2d")
    assert "no segment can be deleted at any of these times" in done.stdout
    assert "newly deletable" not in done.stdout


def test_output_has_the_rows_as_parquet_and_the_summary_last(retention: Command) -> None:
    for _ in range(2):  # the second replaces the first
        done = retention("--output", "out", "--at", "2023-12-01,2024-01-01")

    segments = pq.read_table("out/segments").to_pylist()
    assert len(segments) == 25
    assert sum(row["deletable"] for row in segments) == result_in(done)["deletable_segments"]
    assert len(pq.read_table("out/partitions").to_pylist()) == 11
    freed = pq.read_table("out/freed").to_pylist()
    assert (
        sum(row["bytes"] for row in freed if row["at_ms"] == NOW_MS)
        == (result_in(done)["deletable_bytes"])
    )
    assert json.loads(Path("out/summary.json").read_text()) == result_in(done)


def test_what_if_the_future_were_ignored(retention: Command) -> None:
    done = retention("--ignore-future", "1h", "--format", "jsonl")

    sensors = partition([r for r in done.lines if r["kind"] == "partition"], "broker-1/sensors-0")
    assert (sensors["deletable_segments"], sensors["what_if_deletable_segments"]) == (1, 5)


def test_fail_on_a_finding(retention: Command, subtests: pytest.Subtests) -> None:
    for finding, exit_code in [("blocked", 3), ("expired", 3), ("untrusted", 3)]:
        with subtests.test(f"{finding}"):
            assert retention("--fail-on", finding).exit_code == exit_code


def test_delete_records_names_the_first_kept_offset(retention: Command) -> None:
    done = retention("--emit", "delete-records")

    assert json.loads(done.stdout) == {
        "partitions": [
            {"topic": "orders", "partition": 0, "offset": 8000},
            {"topic": "sensors", "partition": 0, "offset": 200},
            {"topic": "sensors", "partition": 1, "offset": 1000},
        ],
        "version": 1,
    }


def test_a_plan_is_tried_and_carried_out(planned: dict[str, Any], command: Command) -> None:
    before = logs_of_sensors()

    tried = command("retention", "apply", "plan.jsonl", "--dry-run", "--format", "jsonl")
    still = logs_of_sensors()
    apply = ("retention", "apply", "plan.jsonl", "--delete")
    applied = command(*apply, "--fail-on", "stopped", "--result-line")
    again = command(*apply, "--format", "json")

    assert (planned["segments"], planned["left_out_segments"]) == (10, 0)
    steps = [row for row in tried.lines if row["kind"] in ("intent", "result")]
    of_one = [row["kind"] for row in steps if row["log_dir"] == "broker-2"]
    assert of_one == ["intent", "result"] * 2
    assert still == before
    assert applied.exit_code == 0, applied
    found = result_in(applied)
    assert (found["segments_deleted"], found["stopped_partitions"]) == (10, 0)
    assert found["plan_id"] == planned["plan_id"]
    assert logs_of_sensors() == before[1:]
    twice = json.loads(again.stdout)["summary"]
    assert (twice["segments_deleted"], twice["segments_gone_already"]) == (0, 10)


@pytest.mark.usefixtures("planned")
def test_an_apply_without_a_trash_deletes_only_if_that_is_said(
    command: Command, monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    before, apply = logs_of_sensors(), ("retention", "apply", "plan.jsonl")
    for options, says in (
        ((), "would delete files for good: give --trash DIR to move them, or --delete"),
        (("--trash", "trash", "--delete"), "trash and delete exclude each other"),
    ):
        with subtests.test(f"{options}"):
            refused = command(*apply, *options)
            assert (refused.exit_code, says in refused.stderr) == (2, True), refused
            assert logs_of_sensors() == before
    for answer, exit_code in (("n", 130), ("", 130), ("y", 0)):
        with subtests.test(f"answer {answer!r}"):
            with at_terminal(answer, monkeypatch) as shown:
                assert command(*apply).exit_code == exit_code
            assert (logs_of_sensors() == before) == (answer != "y")
            asked = "Delete 10 segments (11.0 MiB) for good? --trash DIR would move them [y/N]:"
            assert asked in b"".join(shown).decode()


@contextmanager
def at_terminal(answer: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bytes]]:
    """Let standard input and error be a terminal, at which is typed; yield what it has shown."""
    ours, theirs = pty.openpty()
    shown: list[bytes] = []
    os.write(ours, f"{answer}\n".encode())
    with (
        monkeypatch.context() as patch,
        os.fdopen(theirs) as stdin,
        os.fdopen(os.dup(theirs), "w") as stderr,
    ):
        patch.setattr(sys, "stdin", stdin)
        patch.setattr(sys, "stderr", stderr)
        yield shown
    with suppress(OSError):  # the end of a terminal
        while piece := os.read(ours, 1 << 16):
            shown.append(piece)
    os.close(ours)


def test_what_was_moved_to_a_trash_comes_back(planned: dict[str, Any], command: Command) -> None:
    before = logs_of_sensors()
    apply = ("retention", "apply", "plan.jsonl", "--trash", "my trash")

    tried = command(*apply, "--dry-run")
    applied = command(*apply, "--result-line")
    [undo] = re.findall(r"undo: \$ kip33 (.+)", applied.stdout)
    undone = command(*shlex.split(undo), "--result-line")
    again = command(*shlex.split(undo), "--format", "json")

    title, *rows = tried.stdout.partition("┏━━━━━━━━━━━━━━━━━┳")[0].splitlines()
    assert title == "what would be done"
    segments = re.findall(r"(broker\S+) +│ +(\d+) +│ (\w+)", "\n".join(rows))
    assert segments[:3] == [("broker-1/orders-0", f"{at}", "moved") for at in (0, 4000)] + [
        ("broker-1/sensors-0", "0", "moved")
    ]
    assert len(segments) == 10
    assert applied.stdout.startswith("moved\n")
    assert "freed" in applied.stdout
    assert "nothing until the trash is removed" in applied.stdout
    assert (result_in(applied)["bytes_freed"], result_in(applied)["segments_deleted"]) == (0, 10)
    assert (undone.exit_code, logs_of_sensors()) == (0, before)
    assert (result_in(undone)["segments_put_back"], result_in(undone)["findings"]) == (10, [])
    twice = json.loads(again.stdout)["summary"]
    assert (twice["segments_put_back"], twice["segments_there_already"]) == (0, 10)


def test_a_catalog_that_is_behind_an_apply_or_undo_is_named_until_the_next_build(
    planned: dict[str, Any],
    command: Command,
    monkeypatch: pytest.MonkeyPatch,
    subtests: pytest.Subtests,
) -> None:
    """The command to copy is one line, however narrow the terminal is."""
    monkeypatch.setenv("COLUMNS", "60")
    catalog, trash = "mine/indexes/_catalog", ("--trash", "trash")
    readers = {
        "search": ("search", catalog, "--time", "earliest", "--emit", "reset-offsets"),
        "retention": ("retention", catalog, "--policy", "policy.toml"),
        "status": ("status", catalog),
    }
    for mode in ("apply", "undo"):
        done = command("retention", mode, "plan.jsonl", *trash)
        [build] = re.findall(r"^next: \$ (kip33 build .+)$", done.stdout, re.MULTILINE)
        mine = Path("mine").resolve()
        assert build == f"kip33 build {mine}/archive --index-dir {mine}/indexes"
        for name, reader in readers.items():
            with subtests.test(f"{name} after {mode}"):
                said = command(*reader).stderr
                assert "the archive was changed by retention apply or undo after snapshot" in said
                assert said.count(build) == 1
        assert f"\n- $ {build}\n" in command("status", catalog).stdout
        assert command(*shlex.split(build)[1:]).exit_code == 0
        for name, reader in readers.items():
            with subtests.test(f"{name} after {mode} and a build"):
                assert "apply or undo" not in "".join(command(*reader)[1:])


def test_an_undo_finds_the_plan_in_the_trash(planned: dict[str, Any], command: Command) -> None:
    """`retention --plan` has written another one under its name."""
    before, folder = logs_of_sensors(), f"trash/{planned['plan_id']}"
    again = ("retention", "mine/indexes/_catalog", "--policy", "policy.toml", "--now", NOW)
    apply = ("retention", "apply", "plan.jsonl", "--trash")
    applied = command(*apply, "trash")
    continued, elsewhere = command(*apply, folder), command(*apply, "another")

    assert command(*again, "--plan", "plan.jsonl", "--topic", "orders").exit_code == 0
    wrong = command("retention", "undo", "plan.jsonl", "--trash", "trash")
    undo = re.findall(r"undo: \$ kip33 (.+)", applied.stdout + continued.stdout)
    undone = command(*shlex.split(undo[0]))

    assert undo == [
        f"retention undo {folder}/plan.jsonl --trash {one}" for one in ("trash", folder)
    ]
    assert (elsewhere.exit_code, re.findall("undo:|(?:trash|freed) +│", elsewhere.stdout)) == (
        0,
        [],
    )
    assert (wrong.exit_code, "trash has it as <plan id>/plan.jsonl" in wrong.stderr) == (2, True)
    assert (undone.exit_code, logs_of_sensors()) == (0, before)


def test_what_does_not_come_back_is_named(planned: dict[str, Any], command: Command) -> None:
    command("retention", "apply", "plan.jsonl", "--trash", "trash")
    gone = next(Path("trash").rglob("broker-2/orders-0/*.log"))
    gone.unlink()
    undo = ("retention", "undo", "plan.jsonl", "--trash", "trash")

    for options, exit_code in (((), 4), (("--fail-on", "not_put_back"), 3)):
        done = command(*undo, *options)
        assert done.exit_code == exit_code
        assert f"{gone.name}: it is not in the trash: file://" in done.stderr
        assert gone.name not in done.stdout
    assert command(*undo[:-2]).exit_code == 2


@pytest.mark.usefixtures("planned")
def test_a_changed_file_stops_a_partition(command: Command) -> None:
    changed = Path("mine/archive/broker-1/orders-0/00000000000000000000.log")
    changed.write_bytes(changed.read_bytes() + b"more")

    for options, exit_code in (((), 4), (("--fail-on", "stopped"), 3)):
        done = command("retention", "apply", "plan.jsonl", "--delete", "--result-line", *options)

        assert done.exit_code == exit_code
        assert changed.exists()
        row = next(line for line in done.stdout.splitlines() if "broker-1/orders-0" in line)
        assert "stopped" in row
        assert f"{changed.name}: " in row
        summary = result_in(done)
        assert (summary["stopped_partitions"], summary["refused_partitions"]) == (1, 1)


def test_a_trash_that_takes_no_file_is_not_a_refusal(
    planned: dict[str, Any], command: Command
) -> None:
    Path("trash", planned["plan_id"]).mkdir(parents=True)
    Path("trash", planned["plan_id"], "segments").touch()  # no folder can be made here

    done = command("retention", "apply", "plan.jsonl", "--trash", "trash", "--result-line")

    assert done.exit_code == 1
    summary = result_in(done)
    assert summary["stopped_partitions"] == summary["partitions"] > 0
    assert (summary["refused_partitions"], summary["segments_deleted"]) == (0, 0)


@pytest.mark.usefixtures("planned")
def test_an_apply_takes_what_the_table_of_retention_says_of_it(command: Command) -> None:
    before = logs_of_sensors()
    text = '[retention]\ndry-run = true\nfail-on = ["blocked", "stopped"]\n'
    config = file_named("kip33.toml", text.encode())

    for line in ("retention apply plan.jsonl", "retention --apply=plan.jsonl"):
        done = command(*line.split(), "--config", config)
        assert (done.exit_code, logs_of_sensors()) == (0, before)
    file_named("kip33.toml", b"[retention]\ndry-ruin = true\n")
    refused = command("retention", "apply", "plan.jsonl", "--config", config)

    assert "[retention] has no option 'dry-ruin'; did you mean dry-run?" in refused.stderr
    assert logs_of_sensors() == before


def test_options_of_judging_in_a_configuration_file_do_not_hinder_an_apply(
    command: Command,
) -> None:
    text = '[retention]\npolicy = "p.toml"\n[retention.apply]\nlimit = "1KiB"\n'
    config = file_named("kip33.toml", text.encode())

    done = command("retention", "apply", "none.jsonl", "--config", config)

    assert "the plan cannot be read" in done.stderr


def test_a_section_that_matches_no_topic_is_named(command: Command, built: Path) -> None:
    """The question is made before an engine works, so it is the same on Spark."""
    file_named("policy.toml", b'[topics."order"]\n[topics."nowhere*"]\n')
    found = command("retention", built / "indexes/_catalog", "--policy", "policy.toml")
    assert 'Warning: the policy\'s section "order" matches no topic, so' in found.stderr
    assert 'Note: sections of the policy that match no topic: "nowhere*"\n' in found.stderr
    tables = {"topics": {"order": {}}}
    with pytest.warns(UserWarning, match="did you mean orders"):
        kip33.open_catalog(built / "indexes/_catalog").retention_sums(tables)


KAFKA_CONFIGS = """\
All configs for topic sensors are:
  cleanup.policy=delete sensitive=false synonyms={DEFAULT_CONFIG:log.cleanup.policy=delete}
  local.retention.ms=86400000 sensitive=false synonyms={}
  remote.storage.enable=true sensitive=false synonyms={}
  retention.ms=604800000 sensitive=false synonyms={}
"""
TIERED = ("--kafka-configs", "configs.txt", "--topic", "sensors", "--now", NOW)


def test_a_tiered_topic_is_named_and_kept(command: Command, built: Path) -> None:
    catalog = built / "indexes/_catalog"
    file_named("configs.txt", KAFKA_CONFIGS.encode())

    done = command(
        *("retention", catalog, *TIERED, "--format", "json", "--metrics", "r.prom"),
        *("--plan", "plan.jsonl", "--trust-last-modified", "--fail-on", "untrusted"),
    )
    [answer] = done.lines
    summary = answer["summary"]

    assert done.exit_code == 3
    assert done.stderr.startswith("Warning: topic sensors: remote.storage.enable=true found, ")
    assert [one[:15] for one in summary["warnings"]] == ["topic sensors: "]
    assert summary["findings"] == ["untrusted"]
    assert summary["tiered_segments"] == summary["segments"] > 1
    assert {one["reason"] for one in answer["segments"]} == {"tiered"}
    assert (summary["deletable_segments"], summary["plan"]["segments"]) == (0, 0)
    samples = Path("r.prom").read_text()
    assert f'why="tiered"}} {summary["segments"]}' in samples


def upload(command: Command, built: Path, logs: int) -> None:
    """Build `remote`, a catalog of a bucket with the first logs of sensors-1."""
    bucket = Path("bucket/sensors-1")
    shutil.rmtree(bucket, ignore_errors=True)
    bucket.mkdir(parents=True)
    for log in sorted((built / "archive/broker-1/sensors-1").glob("*.log"))[:logs]:
        shutil.copy2(log, bucket)
    layout = "{topic}-{partition}/{base_offset}.log"
    done = command("build", "bucket", "--index-dir", "remote", "--layout", layout)
    assert done.exit_code == 0, done


def uploaded(command: Command, built: Path) -> tuple[Any, ...]:
    """Upload two logs; return the command line that judges the local tier beside them."""
    file_named("configs.txt", KAFKA_CONFIGS.encode())
    upload(command, built, 2)
    return ("retention", built / "indexes/_catalog", "remote/_catalog", *TIERED)


ENGINES = pytest.mark.parametrize(
    "run", ["command", pytest.param("spark_command", marks=pytest.mark.spark)]
)


@ENGINES
def test_with_the_remote_tier_only_what_was_uploaded_is_deletable(
    run: str, built: Path, request: pytest.FixtureRequest
) -> None:
    command: Command = request.getfixturevalue(run)
    given = uploaded(command, built)

    done = command(*given, "--format", "json", "--plan", "plan.jsonl", "--show-broker-view")
    [answer] = done.lines
    segments = {number: [] for number in (0, 1)}
    for one in answer["segments"]:
        segments[one["partition"]].append(one)

    assert (done.exit_code, done.stderr) == (0, "")
    assert {one["mode"] for one in answer["segments"]} == {"local_tier"}
    assert {one["retention_ms"] for one in answer["segments"]} == {DAY_MS}
    reasons = ["retention_ms"] * 2 + ["not_uploaded"] * 3 + ["active_segment"]
    assert [one["reason"] for one in segments[1]] == reasons
    assert [one["broker_deletable"] for one in segments[1]] == [True] * 2 + [False] * 4
    assert [one["reason"] for one in segments[0]] == ["not_uploaded"] * 5 + ["active_segment"]
    for one in answer["segments"]:
        is_named = one["reason"] == "not_uploaded"
        before_ms = one["largest_timestamp"] + 7 * DAY_MS + 1 if is_named else None
        assert one["upload_before_ms"] == before_ms
    summary = answer["summary"]
    assert summary["not_uploaded_segments"] == 8
    assert summary["deletable_segments"] == summary["plan"]["segments"] == 2


def test_the_remarks_say_what_is_not_uploaded_and_the_forecast_leaves_it_out(
    command: Command, built: Path
) -> None:
    given = uploaded(command, built)

    table = command(*given, "--forecast", "1d").stdout
    [what_if] = command(*given, "--retention-ms", "1000d", "--format", "json").lines
    [emitted] = command(*given, "--emit", "delete-records").lines

    assert "sensors: local 1 d" in table
    assert "3 not uploaded, from base offset " in table
    assert what_if["summary"]["what_if_deletable_segments"] == 2  # by local.retention.ms still
    assert emitted["partitions"] == []  # it would delete in the remote tier, too


def test_what_a_leader_holds_back_is_not_missing(command: Command, built: Path) -> None:
    upload(command, built, 2)
    lag = b"local.retention.ms = '1d'\nremote.copy.lag.ms = -1\n"
    file_named("lag.toml", BY_SIZE % -1 + b"retention.ms = '7d'\n" + lag)
    local = ("retention", built / "indexes/_catalog", "--topic", "sensors", "--policy", "lag.toml")
    given = (*local, "remote/_catalog", "--format", "json")

    [late] = command(*given).lines
    newest = max(one["largest_timestamp"] for one in late["segments"] if one["partition"] == 1)
    [early] = command(*given, "--now", newest).lines

    assert late["summary"]["not_uploaded_segments"] == 8
    reasons = {one["reason"] for one in early["segments"]}
    assert reasons >= {"copy_lag"} and early["summary"]["not_uploaded_segments"] < 8


def test_an_apply_looks_at_the_uploads(
    command: Command, built: Path, subtests: pytest.Subtests
) -> None:
    """The newest snapshot of the remote tier may be older than what happened there."""
    given = uploaded(command, built)
    assert command(*given, "--plan", "plan.jsonl").exit_code == 0
    assert command("retention", "apply", "plan.jsonl", "--dry-run").exit_code == 0
    log = min(Path("bucket").rglob("*.log"))
    before = log.stat()
    for change in ("put again", "shorter", "deleted"):
        with subtests.test(change):
            os.utime(log)
            if change == "shorter":
                os.truncate(log, before.st_size - 1)
                os.utime(log, ns=(before.st_atime_ns, before.st_mtime_ns))
            elif change == "deleted":
                log.unlink()

            refused = command("retention", "apply", "plan.jsonl", "--delete")

            assert refused.exit_code == 2, refused
            assert "(not_uploaded)" in refused.stderr
            assert refused.stderr.count("\n") == 1


BY_SIZE = b"[topics.sensors]\nremote.storage.enable = true\nretention.bytes = %d\n"


@ENGINES
def test_the_remote_tier_is_judged_over_both_tiers(
    run: str, built: Path, request: pytest.FixtureRequest
) -> None:
    command: Command = request.getfixturevalue(run)
    upload(command, built, 2)
    logs = sorted((built / "archive/broker-1/sensors-1").glob("*.log"))
    sizes = [log.stat().st_size for log in logs]
    file_named("sized.toml", BY_SIZE % (sum(sizes) - sizes[0]))  # over the remote tier's own size
    given = ("retention", "remote/_catalog", "--policy", "sized.toml", "--format", "json")

    [alone] = command(*given, "--active-segment", "kafka").lines
    done = command(*given, built / "indexes/_catalog", "--show-broker-view")
    [both] = done.lines

    assert (done.exit_code, done.stderr) == (0, "")
    assert [one["reason"] for one in alone["segments"]] == ["not_expired"] * 2
    assert [one["reason"] for one in both["segments"]] == ["retention_bytes", "not_expired"]
    assert both["summary"]["deletable_bytes"] == sizes[0]
    [partition] = both["partitions"]
    assert (partition["mode"], partition["broker_deletable_segments"]) == ("delete", 1)


def test_older_brokers_judge_the_remote_tier_otherwise(command: Command, built: Path) -> None:
    upload(command, built, 2)
    file_named("both.toml", BY_SIZE % 10**9 + b"retention.ms = '1d'\n")
    local, remote = built / "indexes/_catalog", "remote/_catalog"
    options = ("--policy", "both.toml", "--topic", "sensors", "--format", "json")

    def judged(catalog: Path | str, version: str, *more: str | Path) -> tuple[list[int], str]:
        done = command("retention", catalog, *options, "--broker-version", version, *more)
        [answer] = done.lines
        return [one["expires_at_ms"] for one in answer["segments"]], done.stderr

    newest, silent = judged(remote, "4.4", local)
    assert silent == ""
    strict, warned = judged(remote, "4.3", local)
    assert strict == newest
    assert warned.startswith("Warning: topic sensors: retention.bytes found, and after an election")
    assert "(KAFKA-20732)" in warned and warned.count("\n") == 1
    assert judged(remote, "4.2")[0] == [moment - 1 for moment in newest]
    of_brokers = [judged(local, version, remote)[0] for version in ("4.2", "4.4")]
    assert of_brokers[0] == of_brokers[1]
    wrong = command("retention", remote, *options, "--broker-version", "2.8")
    assert (wrong.exit_code, wrong.stderr.count("\n")) == (2, 1)


def test_the_remote_tier_has_no_active_segment_and_no_plan(command: Command, built: Path) -> None:
    upload(command, built, 2)
    file_named("timed.toml", BY_SIZE % -1 + b"retention.ms = 1\ncleanup.policy = 'delete'\n")
    given = ("retention", "remote/_catalog", "--policy", "timed.toml")
    local = (built / "indexes/_catalog",)

    [answer] = command(*given, *local, "--format", "json").lines
    planned = command(*given, *local, "--plan", "plan.jsonl")

    assert [one["reason"] for one in answer["segments"]] == ["retention_ms"] * 2
    assert planned.exit_code == 2
    assert "kip33 does not plan or delete there, because " in planned.stderr
    assert not Path("plan.jsonl").exists()


def test_tiers_that_are_none_are_told_in_one_line(
    command: Command, built: Path, subtests: pytest.Subtests
) -> None:
    upload(command, built, 1)
    local, remote, all_topics = built / "indexes/_catalog", "remote/_catalog", ("--topic", "*")
    untiered = "no topic with remote.storage.enable=true"
    for catalog, other, exit_code, says in (
        (local, remote, 0, f"Warning: two tiers, but {untiered}"),
        (remote, local, 0, f"Warning: two tiers, but {untiered}"),
        (local, local, 2, "two catalogs of the local tier found"),
        (local, "nowhere", 2, "nowhere: OTHER does not exist"),
    ):
        with subtests.test(f"{catalog} {other}"):
            done = command("retention", catalog, other, "--retention-ms", "1d", *all_topics)
            assert done.exit_code == exit_code
            assert says in done.stderr
            assert done.stderr.count("\n") == 1
    for more in ((remote, "--remote", remote), ("--remote", remote, "--local", local)):
        both = command("retention", local, *more, "--retention-ms", "1d")
        assert both.exit_code == 2
        assert "--remote and --local cannot be combined: CATALOG is one tier" in both.stderr


def test_a_report_names_what_is_not_judged_or_not_uploaded(command: Command, built: Path) -> None:
    file_named("configs.txt", KAFKA_CONFIGS.encode())
    upload(command, built, 2)
    report = ("report", built / "indexes/_catalog", "--kafka-configs", "configs.txt", "--now", NOW)

    command(*report, "--output", "r.html")
    assert "of topics in tiered storage: not judged" in Path("r.json").read_text()
    earlier = command(*report, "--remote", "remote/_catalog", "--output", "r.html")
    assert earlier.stderr.startswith("Warning: --remote is now the second argument: kip33 report ")
    assert earlier.stderr.count("\n") == 1

    findings = json.loads(Path("r.json").read_text())["findings"]
    [found] = [one for one in findings if "not uploaded" in one["text"]]
    assert (found["count"], found["level"]) == (8, "warning")
    again = command(*shlex.split(found["command"])[1:], "--topic", "sensors", "--format", "json")
    assert again.lines[0]["summary"]["not_uploaded_segments"] == 8
    deletable = json.loads(Path("r.json").read_text())["totals"]["deletable_segments"]
    assert deletable == again.lines[0]["summary"]["deletable_segments"] == 2


def test_topics_that_kafkas_output_does_not_have_are_named(command: Command, built: Path) -> None:
    catalog = built / "indexes/_catalog"
    file_named("configs.txt", KAFKA_CONFIGS.encode())
    policy = file_named("p.toml", b"[topics.\"o*\"]\nretention.ms = '9d'\n")
    given = ("--kafka-configs", "configs.txt", "--policy", policy, "--topic", "!sensors")

    done = command("retention", catalog, *given, "--format", "json")

    [answer] = done.lines
    [told] = answer["summary"]["warnings"]
    assert told.startswith("--kafka-configs has no settings for ")
    assert "audit.v1 (no policy), " in told
    assert "orders (o*)" in told
    assert done.stderr == f"Warning: {told}\n"


def test_no_plan_is_left_of_a_run_whose_other_results_cannot_be_written(
    retention: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish = evaluated_tables.publish_or_raise

    def publish_but_partitions(place: Location, data: bytes, consequence: str) -> None:
        if "/partitions/" in place.uri:
            raise PublishError("the disk is full")
        publish(place, data, consequence)

    monkeypatch.setattr(evaluated_tables, "publish_or_raise", publish_but_partitions)
    done = retention("--plan", "plan.jsonl", "--output", "results")
    assert (done.exit_code, "the disk is full" in done.stderr) == (1, True)
    assert Path("results/segments/_SUCCESS").exists()
    assert not list(Path().glob("*plan*"))
