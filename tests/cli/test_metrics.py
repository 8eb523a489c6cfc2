"""`--metrics FILE.prom`: what Prometheus reads is what the summaries say."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kip33.cli.metrics_file import OTHER_TOPICS
from kip33.indexing.quick_verification import QuickVerdict
from kip33.rules.index_verdict import IndexVerdict
from kip33.rules.offset_holes import HoleKind
from kip33.rules.segment_summary import SegmentStatus
from tests.cli.console import PROJECT, Command, file_named

PAGE = PROJECT / "kip33/docs/alerting.md"
NOW = ("--now", "2023-12-01")
JUDGED = ("--retention-ms", "8d", *NOW)
BUILD = ("build", "archive", "--index-dir", "indexes", "--offset-index")
OFFSETS = "group,topic,partition,offset\nbilling,orders,0,4005\nbilling,clicks,0,0\nweb,no,7,1\n"

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def samples_in(file: str, *, drop: str) -> Samples:
    """Return the samples by name and labels, without the label that all have."""
    found: Samples = {}
    for family in text_string_to_metric_families(Path(file).read_text()):
        assert family.type == "gauge" and family.documentation.endswith(".")
        for sample in family.samples:
            labels = dict(sample.labels)
            assert labels.pop(drop).startswith("file:///")
            key = (sample.name.removeprefix("kip33_"), tuple(sorted(labels.items())))
            assert key not in found
            found[key] = sample.value
    return found


def by_label(samples: Samples, name: str, label: str) -> dict[str, float]:
    return {dict(labels)[label]: value for (n, labels), value in samples.items() if n == name}


def plain(samples: Samples, name: str) -> float:
    return samples[name, ()]


@pytest.fixture
def catalog(built: Path) -> Path:
    return built / "indexes/_catalog"


def test_build_counts_what_its_summary_counts(command: Command) -> None:
    done = command(*BUILD, "--metrics", "b.prom", "--format", "json", "--fail-on", "invalid")

    assert done.exit_code == 3
    [summary] = done.lines
    samples = samples_in("b.prom", drop="catalog")
    statuses = by_label(samples, "build_segments", "status")
    assert set(statuses) == set(SegmentStatus)
    assert {s: n for s, n in statuses.items() if n} == summary["by_status"]
    for name, field in (
        *(("log_bytes", "log_bytes"), ("index_bytes", "index_bytes")),
        *(("unwritten_segments", "failed"), ("healed_segments", "healed")),
        ("read_bytes", "bytes_read"),
        *(("missing_offsets", "missing_offsets"), ("duration_seconds", "seconds")),
    ):
        assert plain(samples, f"build_{name}") == summary[field]
    assert set(by_label(samples, "build_holes", "kind")) == set(HoleKind)
    assert plain(samples, "build_last_success_timestamp_seconds") > 1.7e9


def test_verify_counts_by_kind_and_verdict(command: Command, subtests: pytest.Subtests) -> None:
    command(*BUILD)
    for quick in [False, True]:
        with subtests.test(f"{quick}"):
            given = ("verify", *(["quick"] if quick else []), "archive", "--index-dir", "indexes")
            done = command(*given, "--format", "json", "--metrics", "v.prom")

            assert done.exit_code == 0
            [summary] = done.lines
            samples = samples_in("v.prom", drop="source")
            assert plain(samples, "verify_segments") == summary["segments"]
            fields = {
                ".timeindex": "by_verdict",
                ".index": "by_offset_index_verdict",
                ".txnindex": "by_transaction_index_verdict",
            }
            counts: dict[str, dict[str, float]] = {kind: {} for kind in fields}
            for (name, labels), value in samples.items():
                if name == "verify_index_files":
                    of = dict(labels)
                    counts[of["file"]][of["verdict"]] = value
            for kind, by_verdict in counts.items():
                assert set(by_verdict) == {*IndexVerdict, *QuickVerdict}
                assert {v: n for v, n in by_verdict.items() if n} == summary[fields[kind]]
            of_logs = {
                dict(labels)["status"]: value
                for (name, labels), value in samples.items()
                if name == "verify_logs" and value
            }
            assert of_logs == summary.get("by_log_status", {})


def test_retention_counts_what_its_summary_counts(command: Command, catalog: Path) -> None:
    given = ("retention", catalog, *JUDGED, "--format", "jsonl")
    done = command(*given, "--metrics", "r.prom", "--metrics-by", "topic")

    summary = done.lines[-1]
    samples = samples_in("r.prom", drop="catalog")
    for name in (
        *("partitions", "blocked_partitions", "segments", "deletable_segments"),
        *("deletable_bytes", "blocked_segments", "blocked_bytes", "missing_offsets"),
    ):
        assert plain(samples, f"retention_{name}") == summary[name]
    suspicious = by_label(samples, "retention_suspicious_segments", "kind")
    assert {kind: count for kind, count in suspicious.items() if count} == summary["suspicions"]
    assert (
        by_label(samples, "retention_untrusted_segments", "why")["doubtful"]
        == (summary["doubtful_segments"])
    )
    for name in ("blocked_bytes", "deletable_bytes"):
        topics = by_label(samples, f"retention_topic_{name}", "topic")
        assert sum(topics.values()) == summary[name]


def test_lag_has_seconds_by_group(command: Command, catalog: Path) -> None:
    offsets = file_named("offsets.csv", OFFSETS.encode())
    given = ("lag", catalog, "--offsets", offsets, *JUDGED, "--format", "jsonl")
    rows = command(*given, "--metrics", "l.prom", "--metrics-by", "topic").lines

    samples = samples_in("l.prom", drop="catalog")
    billing = [row for row in rows if row["group"] == "billing"]
    known = [row["lag_ms"] for row in billing if row["lag_ms"] is not None]
    assert by_label(samples, "lag_seconds", "group") == {"billing": max(known) / 1_000}
    assert by_label(samples, "lag_records", "group")["billing"] == sum(
        row["lag_records"] or 0 for row in billing
    )
    assert by_label(samples, "lag_unknown_partitions", "group")["web"] == 1
    assert by_label(samples, "lag_offsets", "result")["no_such_partition"] == 1
    assert by_label(samples, "lag_topic_seconds", "topic")["orders"] > 0


def test_topics_beyond_the_limit_are_summed(command: Command) -> None:
    [summary] = command(
        *(*BUILD, "--format", "json", "--metrics", "b.prom"),
        *("--metrics-by", "topic", "--metrics-limit", "1"),
    ).lines
    samples = samples_in("b.prom", drop="catalog")
    sizes = by_label(samples, "build_topic_log_bytes", "topic")
    assert set(sizes) == {"clicks", OTHER_TOPICS}  # clicks has damaged segments
    assert sum(sizes.values()) == summary["log_bytes"]


@pytest.fixture
def every_file(command: Command, catalog: Path) -> list[str]:
    """Return the files that the four commands write, with topics."""
    by_topic = ("--metrics-by", "topic")
    command(*BUILD, "--metrics", "b.prom", *by_topic)
    command("verify", "archive", "--index-dir", "indexes", "--metrics", "v.prom", *by_topic)
    command("retention", catalog, *JUDGED, "--metrics", "r.prom", *by_topic)
    offsets = file_named("offsets.csv", OFFSETS.encode())
    command("lag", catalog, "--offsets", offsets, *JUDGED, "--metrics", "l.prom", *by_topic)
    return ["b.prom", "v.prom", "r.prom", "l.prom"]


def rules_of_the_page() -> str:
    return PAGE.read_text().partition("```yaml\n")[2].partition("```")[0]


def test_the_page_names_every_gauge(every_file: list[str]) -> None:
    written = {
        family.name.removeprefix("kip33_")
        for file in every_file
        for family in text_string_to_metric_families(Path(file).read_text())
    }
    page = PAGE.read_text()
    success = {f"{command}_last_success_timestamp_seconds" for command in COMMANDS}
    assert success <= written
    assert [name for name in written - success if f"`{name}`" not in page] == []


COMMANDS = ("build", "verify", "retention", "lag")


def test_the_rules_ask_for_gauges_and_labels_that_there_are(every_file: list[str]) -> None:
    text = "".join(Path(file).read_text() for file in every_file)
    rules = rules_of_the_page()
    assert rules.count("- alert:") == 3
    words = rules.replace("(", " ").replace("{", " ").split()
    asked = {word for word in words if word.startswith("kip33_")}
    assert len(asked) == 6
    assert [name for name in asked if f"# TYPE {name} gauge" not in text] == []


def promtool(*arguments: Any, given: str = "") -> subprocess.CompletedProcess[str]:
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("no promtool on the PATH (Debian: apt-get install prometheus)")
    return subprocess.run(
        [program, *map(str, arguments)], input=given, capture_output=True, text=True, timeout=600
    )


def test_promtool_accepts_the_files(every_file: list[str]) -> None:
    for file in every_file:
        done = promtool("check", "metrics", given=Path(file).read_text())
        assert (done.returncode, done.stderr) == (0, "")


def test_promtool_accepts_the_rules_and_they_fire(tmp_path: Path) -> None:
    (tmp_path / "rules.yml").write_text(rules_of_the_page())
    assert promtool("check", "rules", tmp_path / "rules.yml").returncode == 0
    series = {
        'kip33_build_last_success_timestamp_seconds{catalog="c"}': "0x3000",
        'kip33_build_holes{catalog="c",kind="after damage"}': "2x3000",
        'kip33_build_holes{catalog="c",kind="possible"}': "5x3000",
        'kip33_retention_blocked_bytes{catalog="c"}': "20000000000x3000",
    }
    fired = {
        ("Kip33BuildIsLate", "37h"): 'severity="critical"',
        ("Kip33DataIsMissingOrDamaged", "1h"): 'severity="critical", kind="after damage"',
        ("Kip33RetentionIsBlocked", "25h"): 'severity="warning"',
    }
    expected = []
    for (name, after), more in fired.items():
        alert = f'ALERTS{{alertname="{name}",alertstate="firing"'
        sample = {"labels": f'{alert},catalog="c",{more}}}', "value": 1}
        expected.append({"expr": f"{alert}}}", "eval_time": after, "exp_samples": [sample]})
    given = [{"series": name, "values": values} for name, values in series.items()]
    one = {"interval": "1m", "input_series": given, "promql_expr_test": expected}
    tests = {"rule_files": ["rules.yml"], "evaluation_interval": "1m", "tests": [one]}
    (tmp_path / "tests.yml").write_text(json.dumps(tests))  # JSON is YAML
    done = promtool("test", "rules", tmp_path / "tests.yml")
    assert done.returncode == 0, done.stdout + done.stderr
