"""The facts of a report are the catalog's: they are compared with what the commands count."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kip33.catalog.catalog import Catalog, choose
from kip33.catalog.difference import count_changes, difference
from kip33.catalog.holes import hole_totals, read_holes
from kip33.catalog.topic_totals import topic_totals
from kip33.cli.main import kip33
from kip33.report.facts import BarState, FindingLevel
from kip33.report.make_report import ReportRequest, make_report
from kip33.report.timelines import MOST_BARS, MOST_PARTITIONS_SHOWN
from kip33.retention.evaluated_tables import partitions_table, totals_of
from kip33.retention.evaluation import RetentionRequest
from kip33.retention.policy_files import load_policies
from tests.builders.judged_catalogs import judged_at_once
from tests.builders.report_catalog import HOSTILE, NOW_MS
from tests.builders.snapshots import commit_path, row, segment_row, write
from tests.report.conftest import MadeReport, made_report


def test_totals_are_those_of_the_catalog(made: MadeReport) -> None:
    totals, catalog = made.report.totals, made.catalog
    snapshot = choose(catalog, None).snapshot
    topics = topic_totals(catalog, snapshot)
    policies = load_policies(str(made.policy))
    holes = hole_totals(read_holes(catalog, snapshot, policies=policies))
    at_once = judged_at_once(catalog, RetentionRequest(policies, NOW_MS), snapshot)
    judged = totals_of(partitions_table(at_once))

    assert totals.segments == snapshot.rows == sum(totals.by_status.values()) > 10_000
    assert totals.partitions == judged["partitions"] == sum(one.partitions for one in topics)
    assert totals.log_bytes == judged["bytes"] == sum(one.log_bytes for one in topics)
    assert totals.records == sum(one.record_count or 0 for one in topics)
    assert (totals.by_hole, totals.missing_offsets) == holes
    assert set(totals.by_hole) == {"certain", "possible", "after damage", "filled"}
    for name in (
        *("deletable_segments", "deletable_bytes"),
        *("blocked_partitions", "blocked_segments", "blocked_bytes"),
    ):
        assert getattr(totals, name) == judged[name] > 0


def test_what_is_shown_and_the_rest_add_up(made: MadeReport) -> None:
    report, lines = made.report, made.report.timelines
    assert len(lines.partitions) == MOST_PARTITIONS_SHOWN
    assert lines.others == report.totals.partitions - MOST_PARTITIONS_SHOWN
    assert lines.rest
    each = [*lines.partitions, lines.rest]
    for name in (
        *("segments", "deletable_segments", "deletable_bytes", "blocked_segments"),
        *("blocked_bytes", "untrusted_segments", "missing_offsets"),
    ):
        assert sum(getattr(one, name) for one in each) == getattr(report.totals, name), name
    assert sum(one.bytes for one in each) == report.totals.log_bytes
    assert sum(one.holes for one in each) == sum(report.totals.by_hole.values())
    for sums, total in (
        ([one.segments for one in report.ages], report.totals.segments),
        ([one.bytes for one in report.ages], report.totals.log_bytes),
        ([one.segments for one in report.topics], report.totals.segments),
    ):
        assert sum(sums) == total
    disorder = [*report.disorder, report.other_disorder_sum]
    assert sum(one.out_of_order_batches for one in disorder if one) == (
        report.totals.disordered_batches
    )


def test_bars_have_every_segment_of_a_partition(made: MadeReport) -> None:
    axis = made.report.timelines
    for one in axis.partitions:
        assert sum(bar.segments for bar in one.bars) == one.segments
        assert sum(bar.bytes for bar in one.bars) == one.bytes
        assert sum(bar.untrusted for bar in one.bars) == one.untrusted_segments
        assert all(axis.from_ms <= b.from_ms <= b.until_ms <= axis.until_ms for b in one.bars)
        states = {bar.state for bar in one.bars}
        assert (BarState.EXPIRED in states) == (one.deletable_segments > 0)
        assert (BarState.BLOCKED in states) == (one.blocked_segments > 0)
        assert (BarState.BLOCKER in states) == (one.blocked_segments > 0)
        assert len(one.marks) == one.holes


def test_many_segments_of_a_partition_become_fewer_bars(tmp_path: Path) -> None:
    report = made_report(tmp_path, partitions=4, segments=500).report
    for one in report.timelines.partitions:
        assert len(one.bars) <= MOST_BARS
        assert sum(bar.segments for bar in one.bars) == one.segments >= 499
    [blocked] = [one for one in report.timelines.partitions if one.name == "broker-0/topic-0-3"]
    assert sum(bar.state is BarState.BLOCKER for bar in blocked.bars) == 1


def test_a_wrong_timestamp_does_not_stretch_the_axis(made: MadeReport) -> None:
    axis = made.report.timelines
    assert axis.until_ms == NOW_MS
    assert NOW_MS - axis.from_ms <= 30 * 86_400_000


def test_the_worst_partitions_come_first(made: MadeReport) -> None:
    names = [one.name for one in made.report.timelines.partitions]
    assert set(names[:2]) == {"broker-0/topic-1-6", f"broker-0/{HOSTILE}-0"}
    assert {"broker-2/topic-0-2", "broker-0/topic-0-3"} <= set(names[:4])


def test_each_problem_is_a_finding(made: MadeReport) -> None:
    found = [(one.level, one.text.partition(":")[0]) for one in made.report.findings]
    assert found == [
        (FindingLevel.PROBLEM, "1,000 offsets missing between segments, in 1 place of 1 partition"),
        (
            FindingLevel.PROBLEM,
            "2,989 offsets missing between segments, in 3 places of 2 partitions",
        ),
        (FindingLevel.PROBLEM, "1 truncated log (2.9 MiB)"),
        (FindingLevel.PROBLEM, "1 invalid log (6.7 MiB)"),
        (FindingLevel.PROBLEM, "1 unreadable log (6.7 MiB)"),
        (FindingLevel.WARNING, "3 blocked partitions"),
        (FindingLevel.WARNING, "1 segment with a timestamp in the future."),
        (FindingLevel.WARNING, "1 segment with a timestamp in seconds instead of milliseconds."),
        (FindingLevel.WARNING, "5 segments without timestamps"),
        (FindingLevel.WARNING, "7 unverified segments whose log the build did not read."),
        (FindingLevel.NOTE, "1,000 offsets missing between segments, in 1 place of 1 partition"),
        (FindingLevel.NOTE, "1,000 offsets missing between segments, in 1 place of 1 partition"),
        (FindingLevel.NOTE, "5,247 expired segments (248.9 GiB)"),
    ]


def test_changes_are_those_of_the_difference(made: MadeReport) -> None:
    changes, catalog = made.report.changes, made.catalog
    before, after = choose(catalog, "1").snapshot, choose(catalog, "2").snapshot
    assert changes
    assert changes.before == before.name
    assert changes.segments == count_changes(difference(catalog, before, after))
    assert changes.segments == {"added": 50, "gone": 1, "shrunk": 1}
    assert changes.bytes["shrunk"] == -17
    assert sum(changes.bytes.values()) == changes.net_bytes
    assert [one.changes for one in changes.listed] == [("shrunk",)]


def test_the_forecast_begins_with_what_is_deletable_now(made: MadeReport) -> None:
    forecast, totals = made.report.forecast, made.report.totals
    assert len(forecast) == 31
    now = (forecast[0].segments, forecast[0].bytes)
    assert now == (totals.deletable_segments, totals.deletable_bytes)
    assert sum(one.segments for one in forecast) <= totals.segments


def test_the_evidence_is_the_commit_file(made: MadeReport) -> None:
    evidence, snapshot = made.report.evidence, choose(made.catalog, None).snapshot
    commit = commit_path(made.catalog, snapshot).read_bytes()
    assert evidence.snapshot == snapshot.name
    assert evidence.commit_sha256 == hashlib.sha256(commit).hexdigest()


def test_the_record_is_plain_json(made: MadeReport) -> None:
    record = json.loads(json.dumps(made.report.as_record()))
    assert list(record)[:2] == ["kind", "version"]
    assert record["totals"]["segments"] == made.report.totals.segments
    assert {bar["state"] for bar in record["timelines"]["partitions"][2]["bars"]} == {
        *("blocker", "blocked", "expired", "kept")
    }


@pytest.mark.parametrize("segments", [1, 2])
def test_a_catalog_of_few_segments(tmp_path: Path, segments: int) -> None:
    made = made_report(tmp_path, partitions=1, segments=segments)
    assert made.report.totals.segments == segments - 1
    assert "<h2>" in made.page


def test_without_policies_holes_are_those_that_the_catalog_shows(tmp_path: Path) -> None:
    (tmp_path / "archive").mkdir()
    catalog = Catalog.at(str(tmp_path / "catalog"))
    offsets = [
        {"topic": "__consumer_offsets", "base_offset": at, "last_offset": at} for at in (0, 9)
    ]
    write(catalog, [row(0, **offsets[0]), row(1, **offsets[1], partition=0)])
    choice = choose(catalog, None)
    holes = hole_totals(read_holes(catalog, choice.snapshot))
    totals = make_report(catalog, choice, ReportRequest(None, (), NOW_MS, NOW_MS, 0)).totals
    assert (totals.by_hole, totals.missing_offsets) == holes
    assert (totals.missing_offsets, set(totals.by_hole)) == (8, {"certain"})


def test_parted_replicas_are_findings_of_the_report_and_lines_of_the_catalog(
    tmp_path: Path,
) -> None:
    def of(log_dir: str, last: int, epochs: dict[int, int]) -> dict[str, Any]:
        place = {"log_dir": log_dir, "log_uri": f"file:///a/{log_dir}/orders-0/0.log"}
        starts = {"leader_epochs": [*epochs], "leader_epoch_offsets": [*epochs.values()]}
        return segment_row(0, last, record_count=last + 1, **place, **starts)

    catalog = Catalog.at(str(tmp_path / "catalog"))
    rows = [of("b1", 19, {0: 0}), of("b2", 11, {0: 0, 2: 5}), of("b3", 3, {0: 0})]
    unknown = of("b1", 9, {}) | {"topic": "hidden"}
    hidden = [unknown | {"log_dir": name, "log_uri": f"file:///a/{name}"} for name in ("b1", "b2")]
    write(catalog, [*rows, *hidden], now_ms=NOW_MS)
    asked = ReportRequest(None, (), NOW_MS, NOW_MS, 1)
    found = make_report(catalog, choose(catalog, None), asked).findings
    said = [(str(one.level), one.count, *one.examples) for one in found if "replica" in one.text]
    lines = [
        "hidden-0: replica 'b2': leader epochs are not known, so a later leader may never have had "
        "its offsets 0 to 9",
        "orders-0: replica 'b1' differs from the log from offset 5 on: a later leader never had "
        "its records",
        "orders-0: replica 'b1' ends before the log and lacks offsets 5 to 11",
        "orders-0: replica 'b3' ends before the log and lacks offsets 4 to 11",
    ]
    assert said == [("warning", 1, lines[0]), ("warning", 1, lines[1]), ("note", 2, *lines[2:])]
    shown = CliRunner().invoke(kip33, ["catalog", catalog.location.path])
    assert shown.output.splitlines()[-3:] == [*lines[:2], f"{lines[2]}; and 1 more like this"]
