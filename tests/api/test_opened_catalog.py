"""A catalog as one object: what its methods return is what the commands print."""

import json
import pickle
import warnings
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import pyarrow as pa
import pytest
from click.testing import CliRunner

import kip33
from kip33.catalog.catalog import Catalog
from kip33.catalog.difference import DIFFERENCE
from kip33.catalog.schema import PARTS, with_time_columns
from kip33.cli.catalog import catalog as catalog_command
from kip33.cli.failover import failover as failover_command
from kip33.cli.lag import lag as lag_command
from kip33.cli.output import without_sentinels
from kip33.cli.retention import retention as retention_command
from kip33.cli.search import search as search_command
from kip33.demo import COPIED_MS, START_MS, make_archive, make_sensors
from kip33.retention.answer import BROKER_VIEW, RETENTION, WHAT_IF
from kip33.retention.plan import read_plan
from kip33.rules.search import TARGETS
from kip33.search.time_search import ANSWERS
from kip33.stores.locations import Location
from tests.builders.expiring_archive import NOW_MS, WEEK, ExpiringArchive
from tests.builders.snapshots import part_path, row, write
from tests.cases import rows_in_ms
from tests.faults.builds import build_here

POLICIES = {"defaults": {"retention.ms": "7d", "cleanup.policy": "delete"}}
OFFSETS = [("g", "orders", 0, 100), ("g", "payments", 0, 3), ("h", "none", 5, 1)]
NOON = datetime.fromtimestamp((START_MS + 30_000) / 1000, UTC)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo archive with a catalog of two snapshots: sensors came later."""
    root = tmp_path_factory.mktemp("opened")
    make_archive(root / "archive")
    build_here(root / "archive", root / "indexes", now_ms=COPIED_MS)
    make_sensors(root / "archive")
    build_here(root / "archive", root / "indexes", now_ms=COPIED_MS)
    return root


@pytest.fixture
def opened(folder: Path) -> kip33.OpenedCatalog:
    return kip33.open_catalog(folder / "indexes" / "_catalog")


def printed(command: click.Command, *arguments: Any) -> list[dict[str, Any]]:
    """Return the lines of a command with `--format jsonl`."""
    done = CliRunner().invoke(command, [*map(str, arguments), "--format", "jsonl"])
    assert done.exit_code == 0, done.output
    return [json.loads(line) for line in done.stdout.splitlines()]


def rows_of(values: list[Any]) -> list[dict[str, Any]]:
    return [json.loads(json.dumps(value._asdict())) for value in values]


def offsets_file(folder: Path) -> Path:
    file = folder / "offsets.csv"
    lines = ["group,topic,partition,offset", *(",".join(map(str, one)) for one in OFFSETS)]
    file.write_text("\n".join(lines))
    return file


def test_snapshots_and_topics_are_those_of_the_command(opened: kip33.OpenedCatalog) -> None:
    lines = printed(catalog_command, opened.uri)
    snapshots = [one for one in lines if one["kind"] == "snapshot"]
    assert [one.name for one in opened.snapshots()] == [one["snapshot"] for one in snapshots]
    assert [one.rows for one in opened.snapshots()] == [one["segments"] for one in snapshots]
    topics = [{k: v for k, v in o.items() if k != "kind"} for o in lines if o["kind"] == "topic"]
    assert [*map(without_sentinels, rows_of(opened.topics()))] == topics
    assert {one.topic for one in opened.topics("1")} < {one.topic for one in opened.topics()}


def test_segments_are_the_rows_of_a_snapshot(opened: kip33.OpenedCatalog) -> None:
    segments = opened.segments()
    newest = opened.snapshots()[0]
    assert segments.schema == PARTS
    assert segments.num_rows == newest.rows
    assert opened.segments(newest.name).equals(segments)
    assert opened.segments("1", columns=["topic"]).column_names == ["topic"]


def test_a_difference_is_that_of_the_command(opened: kip33.OpenedCatalog) -> None:
    changed = opened.difference("1", "2")
    assert changed.schema == DIFFERENCE
    assert changed.to_pylist() == printed(catalog_command, "diff", opened.uri, "1", "2") != []
    assert opened.difference("1") == changed  # up to the newest


def as_printed(answer: dict[str, Any]) -> dict[str, Any]:
    """Return an answer as JSON has it: a target that is no time has a name."""
    names = {target: name for name, target in TARGETS.items()}
    target = names.get(answer["target_ms"])
    return answer | {"target_ms": None if target else answer["target_ms"], "target": target}


def test_what_is_not_a_catalog_is_one_line(opened: kip33.OpenedCatalog) -> None:
    both: list[Any] = [opened.uri, opened.uri]
    for other in (both, tuple(both), set(both), kip33.open_catalog(both), 5):
        found = f"{type(other).__name__} found, expected a path or OpenedCatalog$"
        for judge in (opened.retention, opened.plan_retention):
            with pytest.raises(TypeError, match=f"^other: {found}"):
                judge(POLICIES, other=other)
        with pytest.raises(TypeError, match=f"^other: {found}"):
            opened.resume_points(other, OFFSETS, buffer_ms=1)
    for given in (set(both), dict.fromkeys(both), 5):
        with pytest.raises(TypeError, match=r"^catalog: \w+ found, expected a path, or a list of"):
            kip33.open_catalog(given)  # type: ignore[call-overload]
    with pytest.raises(ValueError, match=r"^3 catalogs found, expected one, or one of each"):
        kip33.open_catalog([*both, opened.uri])


def test_offsets_are_those_of_the_command(
    opened: kip33.OpenedCatalog, subtests: pytest.Subtests
) -> None:
    times = [NOON, START_MS + 60_000, "earliest", "max-timestamp", -1]
    said = [NOON.isoformat(), START_MS + 60_000, "earliest", "max-timestamp", "latest"]
    requests = [(topic, None, time) for topic in ("orders", "payments") for time in times]
    asked = [word for text in said for word in ("--time", text)]
    asked += ["--topic", "orders", "--topic", "payments"]
    for options, how in {
        "": {},
        "--as kafka": {"as_kafka": True},
        "--as kafka:3.7": {"as_kafka": "3.7"},
        "--index-only": {"index_only": True},
        "--all-replicas --snapshot 1": {"all_replicas": True, "snapshot": "1"},
    }.items():
        with subtests.test(options):
            answers = opened.offsets_for_times(requests, **how)
            assert answers.schema == with_time_columns(ANSWERS.empty_table()).schema
            lines = printed(search_command, opened.uri, *asked, *options.split())
            answers = answers.select(ANSWERS.names)
            assert [*map(as_printed, answers.to_pylist())] == lines
            assert answers.num_rows >= len(requests)


def test_an_unknown_topic_has_a_note_with_the_one_that_may_be_meant(
    opened: kip33.OpenedCatalog,
) -> None:
    answers = opened.offsets_for_times([("order", 0, NOON), ("orders", 99, NOON)])
    assert answers["result"].to_pylist() == ["no_such_partition"] * 2
    assert answers["note"].to_pylist() == ["no such topic; did you mean orders?", None]


def test_lags_are_those_of_the_command(opened: kip33.OpenedCatalog, tmp_path: Path) -> None:
    file, now = offsets_file(tmp_path), datetime.fromtimestamp(COPIED_MS / 1000, UTC)
    lines = printed(
        *(lag_command, opened.uri, "--offsets", file, "--now", COPIED_MS, "--retention-ms", "7d")
    )
    expected = [{name: one[name] for name in kip33.GroupLag._fields} for one in lines]
    for offsets in (OFFSETS, file, str(file)):
        lags = opened.group_lags(offsets, policies=POLICIES, now=now)
        assert rows_of(lags) == expected
    assert all(one.unread_expires_at_ms is None for one in opened.group_lags(OFFSETS))


def test_a_tiered_topic_is_not_judged_but_its_readers_have_both_tiers(
    opened: kip33.OpenedCatalog,
) -> None:
    tiered = {"defaults": {**POLICIES["defaults"], "remote.storage.enable": True}}
    with pytest.warns(UserWarning, match=r"topic audit\.v1 and .* other topics: remote\.storage"):
        rows = opened.retention(tiered, now=COPIED_MS)
    with pytest.warns(UserWarning, match="remote"):
        assert not opened.plan_retention(tiered, now=COPIED_MS).partitions
    assert set(rows["mode"].to_pylist()) == set(rows["reason"].to_pylist()) == {"tiered"}
    with pytest.raises(kip33.CatalogError, match="two catalogs of the local tier found"):
        opened.retention(tiered, now=COPIED_MS, other=opened)
    lags = [opened.group_lags(OFFSETS, policies=one, now=COPIED_MS) for one in (POLICIES, tiered)]
    assert lags[0] == lags[1]
    assert any(one.unread_expires_at_ms for one in lags[0])


def test_resume_points_are_those_of_the_command(
    opened: kip33.OpenedCatalog, tmp_path: Path
) -> None:
    file = offsets_file(tmp_path)
    places = ("--from", opened.uri, "--to", opened.uri, "--buffer", "15m")
    lines = printed(failover_command, *places, "--offsets", file)
    expected = [{name: one[name] for name in kip33.ResumePoint._fields} for one in lines]
    for other in (opened, opened.uri):
        points = opened.resume_points(other, OFFSETS, buffer_ms="15m")
        searched = [one.target_ms if one.target_ms >= 0 else None for one in points]
        assert [one["target_ms"] for one in expected] == searched
        assert [row | {"target_ms": None} for row in rows_of(points)] == [
            row | {"target_ms": None} for row in expected
        ]


def test_a_plan_is_made_tested_written_and_carried_out(tmp_path: Path) -> None:
    archive = ExpiringArchive.with_two_partitions(tmp_path)
    opened = kip33.open_catalog(archive.catalog.location.uri)
    plan = opened.plan_retention(WEEK, now=NOW_MS)
    assert [one.segments for one in plan.partitions] == [
        one.segments for one in archive.plan().partitions
    ]
    before = archive.files()
    kip33.write_plan(plan, tmp_path / "plan.jsonl")
    assert read_plan(Location.of(tmp_path / "plan.jsonl")) == plan
    for what in (plan, tmp_path / "plan.jsonl"):
        tried = kip33.apply_plan(what)  # a dry run unless asked otherwise
        assert (tried.dry_run, tried.segments_deleted) == (True, plan.segments)
        assert archive.files() == before
    applied = kip33.apply_plan(tmp_path / "plan.jsonl", dry_run=False)
    assert (applied.dry_run, applied.stopped) == (False, 0)
    assert before.keys() - archive.files().keys() == archive.planned_files(plan)


def test_a_damaged_newer_snapshot_is_named_in_a_warning(tmp_path: Path) -> None:
    catalog = Catalog.at(str(tmp_path))
    first = write(catalog, [row(1)])
    part_path(catalog, write(catalog, [row(2)])).unlink()
    opened = kip33.open_catalog(tmp_path)
    with pytest.warns(UserWarning, match="part-00000") as seen:
        assert opened.segments(columns=["partition"]).to_pylist() == [{"partition": 1}]
    assert Path(seen[0].filename) == Path(__file__)  # the caller's line
    with pytest.warns(UserWarning, match="part-00000"):
        assert opened.snapshots() == [first]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert opened.segments(first.name).num_rows == 1
    for given in (first, first.snapshot_id, 1):
        assert opened.segments(given).num_rows == 1
    with pytest.raises(kip33.CatalogError, match="no snapshot 7"):
        opened.segments(7)


def test_a_wrong_argument_is_a_value_error_of_one_line(
    opened: kip33.OpenedCatalog, subtests: pytest.Subtests
) -> None:
    for call, token in [
        (lambda o: o.offsets_for_times([("orders", 0, datetime(2024, 5, 1))]), "time zone"),
        (lambda o: o.offsets_for_times([("orders", 0, "yesterday")]), "max-timestamp"),
        (lambda o: o.offsets_for_times([("orders", 0, -7)]), "-7"),
        (lambda o: o.offsets_for_times([], log_start_offsets="file.csv"), "as_kafka"),
        (lambda o: o.retention(POLICIES, now=-1), "1970"),
        (lambda o: o.retention(POLICIES, now=2**63), "^now: 9223372036854775808 found"),
        (lambda o: o.plan_retention(POLICIES, now=2**62), "before the year 10000"),
        (lambda o: o.retention(POLICIES, broker_version="far"), "far"),
        (lambda o: o.resume_points(o, OFFSETS, buffer_ms=-1), "buffer_ms"),
        (lambda o: o.resume_points(o, OFFSETS, buffer_ms="soon"), "buffer_ms: 'soon' found"),
        (lambda o: o.retention(POLICIES, broker_version=(4, 2)), "expected a text"),
        (lambda o: o.retention(POLICIES, topics="orders"), r"a list, such as \['orders'\]"),
        (lambda o: o.roll(reading="kakfa"), "reading 'kakfa': expected one of kafka, kip33"),
        (lambda o: o.offsets_to_emit([], emit="delete_records"), "expected one of reset-offsets"),
        (lambda o: o.retention_sums(POLICIES, forecast="20000d"), "^forecast: 20,000 days"),
        (lambda o: o.records_to_delete(POLICIES, now="2999-01-01"), "^now is in the future"),
        (lambda _: kip33.verify_quick("archive"), "give catalog or index_dir$"),
        (lambda o: o.segments(columns=["topic", "nope"]), "^columns: 'nope' found, .*log_dir"),
        (lambda o: o.segments(columns="topic"), r"a list, such as \['topic'\]"),
        (lambda o: o.prune(keep="1"), "^keep '1': expected a number"),
    ]:
        with subtests.test(f"{call}"):
            with pytest.raises(ValueError, match=token) as error:
                call(opened)
            assert "\n" not in str(error.value)


def test_policies_are_no_path(opened: kip33.OpenedCatalog) -> None:
    policies: Any = "policy.toml"
    with pytest.raises(TypeError, match=r"policies: str found.*kip33\.load_policies reads a file"):
        opened.retention(policies)


def test_a_missing_catalog_or_file_is_a_location_error(
    opened: kip33.OpenedCatalog, tmp_path: Path
) -> None:
    with pytest.raises(kip33.CatalogError, match=r"archive: no committed snapshot found, expected"):
        kip33.open_catalog(f"{opened.uri}/../../archive")
    for call in (
        lambda: kip33.open_catalog(tmp_path / "none"),
        lambda: opened.group_lags(tmp_path / "none.csv"),
        lambda: opened.retention(POLICIES, log_start_offsets=tmp_path / "none.csv"),
    ):
        with pytest.raises(kip33.LocationError):
            call()


def test_retention_is_in_order_and_limited_to_the_given_topics(opened: kip33.OpenedCatalog) -> None:
    rows = opened.retention(POLICIES, now=COPIED_MS, topics=["o*"]).to_pylist()
    keys = [
        (one["log_dir"], one["topic"], one["partition"], one["base_offset"] or -1) for one in rows
    ]
    assert keys == sorted(keys)
    assert {one["topic"] for one in rows} == {"orders"}


def test_retention_is_that_of_the_command(opened: kip33.OpenedCatalog, tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text('[defaults]\n"retention.ms" = "7d"\n"cleanup.policy" = "delete"\n')
    now: Any = "2023-12-01"
    views: dict[str, Any] = {
        **{"retention_ms": "1d", "ignore_future": "1h", "show_broker_view": True},
        **{"broker_version": "4.2", "active_segment": "kafka", "topics": ["!metrics"]},
    }
    options = [
        *("--retention-ms", "1d", "--ignore-future", "1h", "--show-broker-view", "--forecast"),
        *("2d", "--broker-version", "4.2", "--active-segment", "kafka", "--topic", "!metrics"),
    ]
    judging = (retention_command, opened.uri, "--policy", policy, "--now", now)

    lines = printed(*judging, *options)
    rows = opened.retention(POLICIES, now=now, **views)
    sums = opened.retention_sums(POLICIES, now=now, forecast="2d", **views)
    to_delete = opened.records_to_delete(POLICIES, now=now)

    expected = pa.schema([*RETENTION, *WHAT_IF, *BROKER_VIEW])
    assert rows.schema == with_time_columns(expected.empty_table()).schema
    by_kind: dict[str, list[dict[str, Any]]] = {}
    for line in lines:
        by_kind.setdefault(line.pop("kind"), []).append(line)
    of_command = [{name: one[name] for name in expected.names} for one in by_kind["segment"]]
    assert [*map(without_sentinels, rows_in_ms(rows))] == of_command
    assert [*map(without_sentinels, rows_in_ms(sums.partitions))] == by_kind["partition"]
    assert sums.freed and rows_in_ms(sums.freed) == by_kind["freed"]
    kept = pickle.loads(pickle.dumps(sums))
    assert (kept.totals, [*kept.segments()]) == (sums.totals, [*sums.segments()])
    [summary] = by_kind["summary"]
    assert sums.summary.items() <= summary.items()
    done = CliRunner().invoke(judging[0], [*map(str, judging[1:]), "--emit", "delete-records"])
    assert to_delete.text == done.stdout
    moments = [datetime(2023, 12, day, tzinfo=UTC) for day in (1, 2, 3)]
    assert opened.retention_sums(POLICIES, now=now, at=moments, **views).freed == sums.freed
    with pytest.raises(ValueError, match="at and forecast cannot be combined"):
        opened.retention_sums(POLICIES, at=moments, forecast="1d")


def test_a_directory_that_could_not_be_listed_is_no_segment(tmp_path: Path) -> None:
    unlistable = {"log_dir": "", "topic": "broker", "partition": 1, "base_offset": None}
    catalog = Catalog.at(str(tmp_path))
    uri = "file:///archive/broker-1"
    write(catalog, [row(0), row(0, **unlistable, status="unreadable", log_uri=uri)])
    table = kip33.open_catalog(tmp_path).retention(POLICIES, now=COPIED_MS)
    assert table["topic"].to_pylist() == ["orders"]


def test_a_prompt_and_a_notebook_show_what_is_there(
    opened: kip33.OpenedCatalog, folder: Path, tmp_path: Path
) -> None:
    lines = repr(opened).splitlines()
    assert lines[0] == "OpenedCatalog"
    assert [line.split()[1] for line in lines[1:3]] == [opened.uri, opened.snapshots()[0].name]
    assert lines[-1] == "  topics      audit.v1, clicks, metrics, orders, payments, sensors"
    sums = opened.retention_sums(POLICIES, now="2023-12-01")
    told = dict(line.split(maxsplit=1) for line in repr(sums).splitlines()[1:])
    assert told["deletable_segments"] == str(sums.totals["deletable_segments"])
    [*_, segment] = kip33.list_segments(folder / "archive")
    assert f"topic={segment.topic}, partition={segment.partition}" in repr(segment)
    assert "None" not in repr(segment)
    verdict = kip33.verify_segment(segment)
    for shown, some in (
        (opened, ">orders</td>"),
        (sums, ">broker-1</td>"),
        (segment, f">{segment.path}</td>"),
        (verdict, f">{verdict.verdict}</td>"),
    ):
        assert some in shown._repr_html_()
    nothing = kip33.OpenedCatalog(Catalog.at(str(tmp_path)))
    assert "no committed snapshot" in repr(nothing)
