"""`kip33 retention` as a user meets it: the answer in every format, its files, plan and apply."""

import csv
import io
import json
import os
import shlex
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from kip33.catalog.schema import SEGMENTS
from kip33.demo import COPIED_MS, START_MS
from kip33.rules.retention_rows import Decision
from tests.cli.console import Command, Finished, file_named, result_in
from tests.faults.builds import build_here

DAY_MS = 86_400_000
NOW = "2023-12-01"  # seventeen days after START_MS
NOW_MS = 1_701_388_800_000
FUTURE_MS = START_MS + 732 * DAY_MS  # of sensors-0: a device two years ahead, roughly
ANSWERED_ONCE = ((), ("--format", "jsonl"))
POLICY = """
[defaults]
cleanup.policy = "delete"
retention.ms = "7d"

[topics."sensors"]
retention.ms = "8d"

[topics."audit*"]
cleanup.policy = "compact"
"""


@pytest.fixture(scope="module")
def answers() -> dict[tuple[Any, ...], Finished]:
    """What was printed where nothing is written, for tests that look at the same answer."""
    return {}


@pytest.fixture
def retention(command: Command, built: Path, answers: dict[tuple[Any, ...], Finished]) -> Command:
    """Return `kip33 retention` of the built catalog, judged by POLICY as of NOW."""
    policy = file_named("policy.toml", POLICY.encode())

    def run(*arguments: Any) -> Finished:
        given = ("retention", built / "indexes/_catalog", "--policy", policy, "--now", NOW)
        given += ("--result-line",)
        if arguments not in ANSWERED_ONCE:
            return command(*given, *arguments)
        if arguments not in answers:
            answers[arguments] = command(*given, *arguments)
        return answers[arguments]

    return run


@pytest.fixture
def movable(built: Path, tmp_path: Path) -> Path:
    """A copy of the archive that may lose files, indexed in place of the fixture's own."""
    root = tmp_path / "mine"
    shutil.copytree(built / "archive", root / "archive")
    build_here(root / "archive", root / "indexes", now_ms=COPIED_MS + DAY_MS)
    return root


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
    places = [(s["log_dir"], s["topic"], s["partition"], s["base_offset"]) for s in segments]
    assert places == sorted(places)
    assert all("base_offset" not in row for row in partitions)
    sensors = partition(partitions, "broker-1/sensors-0")
    assert sensors["policy"] == "sensors"
    assert sensors["blocking_base_offset"] == 200
    assert sensors["blocking_timestamp"] == FUTURE_MS - DAY_MS + 77 * 60_000
    assert sensors["blocking_ahead_of_now_ms"] == sensors["blocking_timestamp"] - NOW_MS
    assert sensors["block_ends_at_ms"] == sensors["blocking_timestamp"] + 8 * DAY_MS + 1
    assert sensors["suspicions"] == {"future": 1}
    audit = partition(partitions, "broker-1/audit.v1-0")
    assert (audit["policy"], audit["mode"], audit["deletable_segments"]) == ("audit*", "compact", 0)
    metrics = partition(partitions, "broker-2/metrics-0")
    assert metrics["last_modified_segments"] == 1
    assert metrics["last_modified_base_offsets"] == [0]


def test_json_is_one_object_with_the_same_rows(retention: Command) -> None:
    rows = retention("--format", "jsonl", "--forecast", "2d").lines
    done = retention("--format", "json", "--forecast", "2d")

    assert done.stdout.count("\n") == 1
    found = json.loads(done.stdout)
    for kind in ("segment", "partition", "freed"):
        plural = kind if kind == "freed" else f"{kind}s"
        assert [{"kind": kind, **row} for row in found[plural]] == [
            row for row in rows if row["kind"] == kind
        ]
    assert found["freed"]
    assert {**found["summary"], "seconds": 0} == {
        key: value for key, value in rows[-1].items() if key not in ("kind", "seconds")
    } | {"seconds": 0}


def test_a_forecast_without_deletions_says_so(command: Command, built: Path) -> None:
    catalog = built / "indexes/_catalog"
    done = command("retention", catalog, "--retention-ms", "9000d", "--forecast", "2d")
    assert "no segment can be deleted at any of these times" in done.stdout
    assert "newly deletable" not in done.stdout


def test_csv_has_segments_only_and_says_the_rest_on_standard_error(retention: Command) -> None:
    rows = retention("--format", "jsonl").lines
    done = retention("--format", "csv")

    found = list(csv.DictReader(io.StringIO(done.stdout)))
    assert len(found) == 25
    for line, row in zip(found, rows, strict=False):
        assert line["log_uri"] == row["log_uri"]
        assert line["deletable"] == str(row["deletable"]).lower()
        assert line["expires_at_ms"] == (
            "" if row["expires_at_ms"] is None else str(row["expires_at_ms"])
        )
        assert line["magics"] == " ".join(map(str, row["magics"] or ()))
    assert result_in(done)["segments"] == 25


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


def test_output_of_before_stays_where_no_topic_matches(retention: Command) -> None:
    retention("--output", "out")
    before = {path: path.read_bytes() for path in Path("out").rglob("*") if path.is_file()}

    done = retention("--output", "out", "--topic", "nothing")

    assert done.exit_code == 2
    assert {path: path.read_bytes() for path in Path("out").rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("place", ["archive", "archive/broker-1/new", "indexes/_catalog/out"])
def test_output_does_not_go_into_the_archive_or_the_catalog(
    place: str, retention: Command, built: Path
) -> None:
    done = retention("--output", built / place)

    assert done.exit_code == 2
    assert "overlap" in done.stderr


def test_topics_that_match_nothing_are_an_error(retention: Command) -> None:
    done = retention("--topic", "ordres")

    assert done.exit_code == 2
    assert "matches ordres; did you mean orders?" in done.stderr


@pytest.mark.parametrize("option", ["--ignore-future=1h", "--retention-ms=1d", "--now=now+1d"])
def test_what_if_is_not_emitted(option: str, retention: Command) -> None:
    done = retention("--emit", "delete-records", option)

    assert done.exit_code == 2
    assert "--emit prints what the policy deletes now" in done.stderr


def test_a_retention_beside_the_policy_is_a_what_if(retention: Command) -> None:
    found = result_in(retention("--retention-ms", "900d", "--ignore-future", "1h"))

    real = result_in(retention())
    assert found["deletable_segments"] == real["deletable_segments"] == 10
    assert found["what_if_deletable_segments"] == 0


def test_what_if_the_future_were_ignored(retention: Command) -> None:
    done = retention("--ignore-future", "1h", "--format", "jsonl")

    sensors = partition([r for r in done.lines if r["kind"] == "partition"], "broker-1/sensors-0")
    assert (sensors["deletable_segments"], sensors["what_if_deletable_segments"]) == (1, 5)


def test_a_retention_alone_is_the_policy(command: Command, built: Path) -> None:
    alone = ("--retention-ms", "-1", "--now", NOW, "--result-line")
    done = command("retention", built / "indexes/_catalog", *alone)

    found = result_in(done)
    assert (found["deletable_segments"], found["findings"]) == (0, ["untrusted"])


def test_topics_are_chosen_by_globs(retention: Command) -> None:
    rows = retention("--topic", "sens*", "--topic", "metrics", "--format", "jsonl").lines

    assert {row["topic"] for row in rows if row["kind"] == "segment"} == {"sensors", "metrics"}


@pytest.mark.parametrize(
    ("finding", "exit_code"), [("blocked", 3), ("expired", 3), ("untrusted", 3), ("stopped", 0)]
)
def test_fail_on_a_finding(finding: str, exit_code: int, retention: Command) -> None:
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


def test_a_plan_is_made_tried_and_carried_out(movable: Path, command: Command) -> None:
    policy = file_named("policy.toml", POLICY.encode())
    before = sorted(path.name for path in (movable / "archive/broker-1/sensors-0").glob("*.log"))

    planned = command(
        *("retention", movable / "indexes/_catalog", "--policy", policy, "--now", NOW),
        *("--plan", "plan.jsonl", "--result-line"),
    )
    tried = command("retention", "--apply", "plan.jsonl", "--dry-run", "--format", "jsonl")
    still = sorted(path.name for path in (movable / "archive/broker-1/sensors-0").glob("*.log"))
    applied = command("retention", "--apply", "plan.jsonl", "--fail-on", "stopped", "--result-line")
    again = command("retention", "--apply", "plan.jsonl", "--format", "json")

    plan = result_in(planned)["plan"]
    assert (plan["segments"], plan["left_out_segments"]) == (10, 0)
    steps = [row for row in tried.lines if row["kind"] in ("intent", "result")]
    assert [row["kind"] for row in steps if row["log_dir"] == "broker-2"] == [
        "intent",
        "result",
    ] * 2
    assert still == before
    assert applied.exit_code == 0, applied
    found = result_in(applied)
    assert (found["segments_deleted"], found["stopped_partitions"]) == (10, 0)
    assert found["plan_id"] == plan["plan_id"]
    left = sorted(path.name for path in (movable / "archive/broker-1/sensors-0").glob("*.log"))
    assert left == before[1:]
    twice = json.loads(again.stdout)["summary"]
    assert (twice["segments_deleted"], twice["segments_gone_already"]) == (0, 10)


@pytest.mark.parametrize(("options", "exit_code"), [((), 4), (("--fail-on", "stopped"), 3)])
def test_a_changed_file_stops_a_partition(
    movable: Path, command: Command, options: tuple[str, ...], exit_code: int
) -> None:
    policy = file_named("policy.toml", POLICY.encode())
    command(
        *("retention", movable / "indexes/_catalog", "--policy", policy, "--now", NOW),
        *("--plan", "plan.jsonl"),
    )
    changed = movable / "archive/broker-1/orders-0/00000000000000000000.log"
    changed.write_bytes(changed.read_bytes() + b"more")

    done = command("retention", "--apply", "plan.jsonl", "--result-line", *options)

    assert done.exit_code == exit_code
    assert changed.exists()
    row = next(line for line in done.stdout.splitlines() if "broker-1/orders-0" in line)
    assert "stopped" in row
    assert f"{changed.name}: " in row
    summary = result_in(done)
    assert (summary["stopped_partitions"], summary["refused_partitions"]) == (1, 1)


def test_a_trash_that_takes_no_file_is_not_a_refusal(movable: Path, command: Command) -> None:
    policy = file_named("policy.toml", POLICY.encode())
    planned = command(
        *("retention", movable / "indexes/_catalog", "--policy", policy, "--now", NOW),
        *("--plan", "plan.jsonl", "--result-line"),
    )
    plan_id = result_in(planned)["plan"]["plan_id"]
    Path("trash", plan_id).mkdir(parents=True)
    Path("trash", plan_id, "segments").touch()  # no folder can be made here

    done = command("retention", "--apply", "plan.jsonl", "--trash", "trash", "--result-line")

    assert done.exit_code == 1
    summary = result_in(done)
    assert summary["stopped_partitions"] == summary["partitions"] > 0
    assert (summary["refused_partitions"], summary["segments_deleted"]) == (0, 0)


def test_options_of_judging_in_a_configuration_file_do_not_hinder_an_apply(
    command: Command,
) -> None:
    config = file_named("kip33.toml", b'[retention]\npolicy = "p.toml"\nlimit = "1KiB"\n')

    done = command("retention", "--apply", "none.jsonl", "--config", config)

    assert "the plan cannot be read" in done.stderr


KAFKA_CONFIGS = """\
All configs for topic sensors are:
  cleanup.policy=delete sensitive=false synonyms={DEFAULT_CONFIG:log.cleanup.policy=delete}
  local.retention.ms=86400000 sensitive=false synonyms={}
  remote.storage.enable=true sensitive=false synonyms={}
  retention.ms=604800000 sensitive=false synonyms={}
"""
TIERED = ("--kafka-configs", "configs.txt", "--topic", "sensors", "--now", NOW)


@pytest.mark.parametrize("run", ["command", pytest.param("spark_command", marks=pytest.mark.spark)])
def test_a_tiered_topic_is_named_and_kept(
    request: pytest.FixtureRequest, built: Path, run: str
) -> None:
    command: Command = request.getfixturevalue(run)
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


@pytest.mark.parametrize("run", ["command", pytest.param("spark_command", marks=pytest.mark.spark)])
def test_with_the_remote_tier_only_what_was_uploaded_is_deletable(
    request: pytest.FixtureRequest, built: Path, run: str
) -> None:
    command: Command = request.getfixturevalue(run)
    file_named("configs.txt", KAFKA_CONFIGS.encode())
    upload(request.getfixturevalue("command"), built, 2)
    given = ("retention", built / "indexes/_catalog", *TIERED, "--remote", "remote/_catalog")

    done = command(*given, "--format", "json", "--plan", "plan.jsonl", "--show-broker-view")
    [answer] = done.lines
    segments = {number: [] for number in (0, 1)}
    for one in answer["segments"]:
        segments[one["partition"]].append(one)

    assert (done.exit_code, done.stderr) == (0, "")
    assert {one["mode"] for one in answer["segments"]} == {"local_tier"}
    assert {one["retention_ms"] for one in answer["segments"]} == {DAY_MS}
    expected = ["retention_ms"] * 2 + ["not_uploaded"] * 3 + ["active_segment"]
    assert [one["reason"] for one in segments[1]] == expected
    assert [one["broker_deletable"] for one in segments[1]] == [True] * 2 + [False] * 4
    assert [one["reason"] for one in segments[0]] == ["not_uploaded"] * 5 + ["active_segment"]
    for one in answer["segments"]:
        is_named = one["reason"] == "not_uploaded"
        before_ms = one["largest_timestamp"] + 7 * DAY_MS + 1 if is_named else None
        assert one["upload_before_ms"] == before_ms
    assert answer["summary"]["not_uploaded_segments"] == 8
    assert (answer["summary"]["deletable_segments"], answer["summary"]["plan"]["segments"]) == (
        2,
        2,
    )


def test_the_remarks_say_what_is_not_uploaded_and_the_forecast_leaves_it_out(
    command: Command, built: Path
) -> None:
    file_named("configs.txt", KAFKA_CONFIGS.encode())
    upload(command, built, 2)
    given = ("retention", built / "indexes/_catalog", *TIERED, "--remote", "remote/_catalog")

    table = command(*given, "--forecast", "1d").stdout
    [what_if] = command(*given, "--retention-ms", "1000d", "--format", "json").lines
    [emitted] = command(*given, "--emit", "delete-records").lines

    assert "sensors: local 1 d" in table
    assert "3 not uploaded, from base offset " in table
    assert what_if["summary"]["what_if_deletable_segments"] == 2  # by local.retention.ms still
    assert emitted["partitions"] == []  # it would delete in the remote tier, too


def test_an_apply_asks_the_remote_tier_again(command: Command, built: Path) -> None:
    file_named("configs.txt", KAFKA_CONFIGS.encode())
    upload(command, built, 2)
    given = ("retention", built / "indexes/_catalog", *TIERED, "--remote", "remote/_catalog")
    assert command(*given, "--plan", "plan.jsonl").exit_code == 0
    applied = command("retention", "--apply", "plan.jsonl", "--dry-run")
    upload(command, built, 1)

    refused = command("retention", "--apply", "plan.jsonl", "--dry-run")

    assert applied.exit_code == 0, applied
    assert "has another result for 1 planned segment" in refused.stderr
    assert "(not_uploaded)" in refused.stderr


@pytest.mark.parametrize("change", ["deleted", "shorter", "put again"])
def test_an_apply_looks_at_the_uploads(command: Command, built: Path, change: str) -> None:
    """The newest snapshot of the remote tier may be older than what happened there."""
    file_named("configs.txt", KAFKA_CONFIGS.encode())
    upload(command, built, 2)
    given = ("retention", built / "indexes/_catalog", *TIERED, "--remote", "remote/_catalog")
    assert command(*given, "--plan", "plan.jsonl").exit_code == 0
    assert command("retention", "--apply", "plan.jsonl", "--dry-run").exit_code == 0
    log = min(Path("bucket").rglob("*.log"))
    if change == "deleted":
        log.unlink()
    elif change == "shorter":
        before = log.stat()
        os.truncate(log, before.st_size - 1)
        os.utime(log, ns=(before.st_atime_ns, before.st_mtime_ns))
    else:
        os.utime(log)

    refused = command("retention", "--apply", "plan.jsonl")

    assert refused.exit_code == 2, refused
    assert "(not_uploaded)" in refused.stderr
    assert refused.stderr.count("\n") == 1


def test_a_remote_tier_for_no_topic_is_a_warning(command: Command, built: Path) -> None:
    upload(command, built, 1)
    given = ("retention", built / "indexes/_catalog", "--remote", "remote/_catalog")
    done = command(*given, "--retention-ms", "1d")
    assert done.exit_code == 0
    assert done.stderr.startswith("Warning: --remote: no topic with remote.storage.enable=true")
    assert done.stderr.count("\n") == 1


BY_SIZE = b"[topics.sensors]\nremote.storage.enable = true\nretention.bytes = %d\n"


@pytest.mark.parametrize("run", ["command", pytest.param("spark_command", marks=pytest.mark.spark)])
def test_the_remote_tier_is_judged_over_both_tiers(
    request: pytest.FixtureRequest, built: Path, run: str
) -> None:
    command: Command = request.getfixturevalue(run)
    upload(request.getfixturevalue("command"), built, 2)
    logs = sorted((built / "archive/broker-1/sensors-1").glob("*.log"))
    sizes = [log.stat().st_size for log in logs]
    file_named("sized.toml", BY_SIZE % (sum(sizes) - sizes[0]))  # over the remote tier's own size
    given = ("retention", "remote/_catalog", "--policy", "sized.toml", "--format", "json")

    [alone] = command(*given, "--active-segment", "kafka").lines
    done = command(*given, "--local", built / "indexes/_catalog", "--show-broker-view")
    [both] = done.lines

    assert (done.exit_code, done.stderr) == (0, "")
    assert [one["reason"] for one in alone["segments"]] == ["not_expired"] * 2
    assert [one["reason"] for one in both["segments"]] == ["retention_bytes", "not_expired"]
    assert both["summary"]["deletable_bytes"] == sizes[0]
    [partition] = both["partitions"]
    assert (partition["mode"], partition["broker_deletable_segments"]) == ("delete", 1)


def test_the_remote_tier_has_no_active_segment_and_no_plan(command: Command, built: Path) -> None:
    upload(command, built, 2)
    file_named("timed.toml", BY_SIZE % -1 + b"retention.ms = 1\ncleanup.policy = 'delete'\n")
    given = ("retention", "remote/_catalog", "--policy", "timed.toml")
    local = ("--local", built / "indexes/_catalog")

    [answer] = command(*given, *local, "--format", "json").lines
    planned = command(*given, *local, "--plan", "plan.jsonl")
    both = command(*given, *local, "--remote", "remote/_catalog")

    assert [one["reason"] for one in answer["segments"]] == ["retention_ms"] * 2
    assert (planned.exit_code, both.exit_code) == (2, 2)
    assert "kip33 does not plan or delete there, because " in planned.stderr
    assert "--remote and --local cannot be combined: CATALOG is one tier" in both.stderr
    assert not Path("plan.jsonl").exists()


@pytest.mark.parametrize("option", ["--remote", "--local"])
def test_a_catalog_that_is_not_there_is_named_by_its_option(
    command: Command, built: Path, option: str
) -> None:
    given = ("retention", built / "indexes/_catalog", "--retention-ms", "1d")
    done = command(*given, option, "nowhere")
    assert done.exit_code == 2
    assert "nowhere" in done.stderr
    assert f"{option} " in done.stderr
    assert "CATALOG" not in done.stderr
    assert done.stderr.count("\n") == 1


def test_tiers_in_the_wrong_places_are_one_line(command: Command, built: Path) -> None:
    upload(command, built, 1)
    catalog = built / "indexes/_catalog"
    done = command("retention", catalog, "--retention-ms", "1d", "--local", "remote/_catalog")
    assert done.exit_code == 2
    assert "expected one of the remote tier beside --local; for log directories give" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_local_tier_for_no_topic_in_tiered_storage_is_a_warning(
    command: Command, built: Path
) -> None:
    upload(command, built, 1)
    given = ("retention", "remote/_catalog", "--local", built / "indexes/_catalog")
    done = command(*given, "--retention-ms", "1d")
    assert done.exit_code == 0
    assert done.stderr.startswith("Warning: --local: no topic with remote.storage.enable=true")
    assert done.stderr.count("\n") == 1


def test_a_catalog_of_brokers_is_no_remote_tier(command: Command, built: Path) -> None:
    file_named("configs.txt", KAFKA_CONFIGS.encode())
    catalog = built / "indexes/_catalog"

    done = command("retention", catalog, *TIERED, "--remote", catalog)

    assert done.exit_code == 2
    assert "two catalogs of the local tier found" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_tiered_topic_is_a_finding_of_a_report(command: Command, built: Path) -> None:
    file_named("configs.txt", KAFKA_CONFIGS.encode())
    catalog = built / "indexes/_catalog"

    command("report", catalog, "--kafka-configs", "configs.txt", "--output", "r.html", "--now", NOW)

    texts = [one["text"] for one in json.loads(Path("r.json").read_text())["findings"]]
    assert [one for one in texts if "of topics in tiered storage: not judged" in one]


def test_a_report_names_what_is_not_uploaded(command: Command, built: Path) -> None:
    file_named("configs.txt", KAFKA_CONFIGS.encode())
    upload(command, built, 2)
    given = ("--kafka-configs", "configs.txt", "--remote", "remote/_catalog", "--now", NOW)

    command("report", built / "indexes/_catalog", *given, "--output", "r.html")

    findings = json.loads(Path("r.json").read_text())["findings"]
    [found] = [one for one in findings if "not uploaded" in one["text"]]
    assert (found["count"], found["level"]) == (8, "warning")
    again = command(*shlex.split(found["command"])[1:], "--topic", "sensors", "--format", "json")
    assert again.lines[0]["summary"]["not_uploaded_segments"] == 8
    deletable = json.loads(Path("r.json").read_text())["totals"]["deletable_segments"]
    assert deletable == again.lines[0]["summary"]["deletable_segments"] == 2


def test_a_policy_says_that_an_archive_is_a_complete_copy(command: Command, built: Path) -> None:
    catalog = built / "indexes/_catalog"
    file_named("configs.txt", KAFKA_CONFIGS.encode())
    policy = file_named("whole.toml", b'[topics.sensors]\n"remote.storage.enable" = false\n')

    done = command("retention", catalog, *TIERED, "--policy", policy, "--format", "json")

    assert done.stderr == ""
    [answer] = done.lines
    assert answer["summary"]["tiered_segments"] == 0
    assert answer["summary"]["blocked_segments"] + answer["summary"]["deletable_segments"] > 0


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
