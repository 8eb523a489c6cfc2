"""The DAG file where there is no Airflow: command lines that the commands take, findings in words.

`test_nightly.py` runs it in a real one.
"""

import ast
import re
import sys
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import click
import pytest

from kip33.cli.main import kip33
from tests.cli.console import PROJECT
from tests.integration.airflow.dag_file import DAG_FILE, dag_file

FILE = dag_file()
MOMENT = r"{{ \(dag_run.data_interval_end or dag_run.run_after\) \| "
NOTHING: dict[str, Any] = {"findings": []}
BUILD = {
    "by_status": {"ok": 25},
    "failed": 0,
    "catalog": "hdfs:///indexes/_catalog",
    "run": NOTHING,
}
VERIFY = {
    "run": NOTHING,
    "by_verdict": {"identical": 25},
    "by_offset_index_verdict": {},
    "by_transaction_index_verdict": {"unknown": 1},
}
AUDIT = {"run": NOTHING, "blocked_partitions": 0, "blocked_segments": 0, "missing_offsets": 0}
PAGE = "hdfs:///results/report.html"


def rendered(template: str) -> str:
    """Return what Airflow makes of a template, `home` being this project."""
    text = re.sub(MOMENT + "ts }}", "2026-11-21T00:00:00+00:00", template)
    text = re.sub(MOMENT + "ts_nodash }}", "20261121T000000", text)
    text = text.replace("{{ params.verify_share }}", "1/7")
    for name, value in (FILE.variable | {"home": str(PROJECT)}).items():
        text = text.replace("{{ var.json.kip33." + name + " }}", value)
    assert "{{" not in text
    return text


def parsed(job: dict[str, Any]) -> click.Context:
    command, *words = (rendered(word) for word in job["application_args"])
    return kip33.get_command(click.Context(kip33), command).make_context(command, words)


def test_every_job_is_called_with_options_it_has() -> None:
    assert [job["task_id"] for job in FILE.jobs] == ["build", "verify", "audit"]
    for job in FILE.jobs:
        assert (PROJECT / "jobs" / rendered(job["application"]).rpartition("/")[2]).is_file()
        context = parsed(job)
        assert context.params["fail_on"] == ()  # conf/kip33.toml has none either
        place = context.params["summary_file"].uri
        assert place == f"hdfs:///kip33/nightly/20261121T000000/{job['task_id']}.json"


def test_the_jobs_agree_on_where_things_are() -> None:
    build, verify, audit = (parsed(job).params for job in FILE.jobs)
    assert build["source"] == verify["source"] == FILE.variable["source"]
    assert build["index_dir"] == verify["index_dir"] == FILE.variable["index_dir"]
    assert build["catalog"] == audit["catalog_dir"] == FILE.variable["catalog"]
    assert audit["now"] == verify["as_of"] == 1_795_219_200_000
    assert str(verify["share"]) == "1/7"
    assert audit["output"] == "hdfs:///kip33/nightly/20261121T000000/audit"


@pytest.mark.parametrize(
    ("place", "dataset"),
    [
        ("/archive/logs", ("file", "/archive/logs")),
        ("file:///archive/logs/", ("file", "/archive/logs")),
        ("s3a://bucket/logs/b1", ("s3://bucket", "logs/b1")),
        ("s3://bucket", ("s3://bucket", "/")),
        ("gs://bucket/logs", ("gs://bucket", "logs")),
        ("hdfs://host:8020/logs", ("hdfs://host:8020", "/logs")),
        ("hdfs:///logs", ("hdfs://", "/logs")),
    ],
)
def test_places_have_the_names_of_openlineage(place: str, dataset: tuple[str, str]) -> None:
    assert FILE.functions["dataset_of"](place) == dataset


@pytest.mark.parametrize(
    ("engine", "connection", "programs", "missing"),
    [
        ("spark", {}, ["spark-submit"], None),
        ("spark", None, ["spark-submit"], "no connection spark_default: .*airflow connections add"),
        ("spark", {}, ["kip33"], "spark-submit is not in the PATH"),
        ("spark", {"spark-binary": "spark3-submit"}, ["spark-submit"], "spark3-submit is not in"),
        ("spark", {"spark-binary": "spark3-submit"}, ["spark3-submit"], None),
        ("local", None, ["kip33"], None),
        ("local", {}, ["spark-submit"], "kip33 is not in the PATH"),
    ],
)
def test_what_a_worker_lacks_is_said_in_a_line(
    engine: str,
    connection: dict[str, str] | None,
    programs: list[str],
    missing: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for program in programs:
        (tmp_path / program).touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    what_is_missing = FILE.functions["what_is_missing"]
    hook = what_is_missing.__globals__["BaseHook"]
    hook.get_connection.side_effect = None if connection is not None else LookupError
    hook.get_connection.return_value.extra_dejson = connection

    found = what_is_missing(engine)

    assert (found is None) == (missing is None)
    assert re.search(missing or "", found or "")
    assert "\n" not in (found or "")


def test_the_jobs_name_what_they_read_and_write() -> None:
    build, verify, audit = FILE.jobs
    for job in (build, verify, audit):
        assert {*job["reads"], *job["writes"]} <= set(job["application_args"])
    assert build["writes"] == (*verify["reads"][1:], *audit["reads"])


def test_it_needs_airflow_and_nothing_of_ours() -> None:
    imports = [
        node for node in ast.walk(ast.parse(DAG_FILE.read_text())) if isinstance(node, ast.Import)
    ]
    names = {alias.name for node in imports for alias in node.names}
    names |= set(re.findall(r"^from (\w+)", DAG_FILE.read_text(), re.MULTILINE))
    assert names - sys.stdlib_module_names == {"airflow"}


@pytest.mark.parametrize(
    ("build", "verify", "audit", "found"),
    [
        pytest.param({}, {}, {}, [], id="all is well"),
        pytest.param(
            {},
            {},
            {"missing_offsets": 1_200},
            ["offsets missing between segments: 1,200; kip33 catalog holes"],
            id="offsets are missing",
        ),
        pytest.param(
            {"by_status": {"ok": 1, "empty": 1, "unverified": 2}},
            {"by_verdict": {"consistent": 2, "missing": 1}},
            {"deletable_segments": 5},
            [],
            id="empty, unverified and missing are no findings, nor is what may expire",
        ),
        pytest.param(
            {
                "by_status": {"ok": 9, "truncated": 2, "invalid": 1_000, "unreadable": 3},
                "run": {"findings": [{"finding": "truncated", "examples": ["new: b", "a"]}]},
            },
            {},
            {},
            [
                "segments with status truncated: 2, indexed as far as a broker would keep them\n"
                "  new: b\n  a",
                "segments with status invalid: 1,000, a broker would keep no index of them",
                "segments with status unreadable: 3, the next build tries again",
            ],
            id="damaged segments",
        ),
        pytest.param(
            {},
            {
                "by_verdict": {"wrong": 1},
                "run": {
                    "findings": [
                        {
                            "finding": "wrong",
                            "examples": ["t-0/7.timeindex: why", "t-0/7.index: no"],
                        }
                    ]
                },
                "by_offset_index_verdict": {"malformed": 2},
                "by_transaction_index_verdict": {"incomplete": 3},
            },
            {},
            [
                ".timeindex files with verdict wrong: 1\n  t-0/7.timeindex: why",
                ".index files with verdict malformed: 2",
                ".txnindex files with verdict incomplete: 3",
            ],
            id="indexes",
        ),
        pytest.param(
            {},
            {
                "by_log_status": {"ok": 7, "truncated": 1},
                "run": {"findings": [{"finding": "damaged", "examples": ["t-0/7.log: truncated"]}]},
            },
            {},
            ["damaged logs among those that verify read: 1\n  t-0/7.log: truncated"],
            id="a log that was damaged after its build",
        ),
        pytest.param(
            {},
            {},
            {"blocked_partitions": 1, "blocked_segments": 3},
            ["blocked partitions: 1; 3 expired segments stay because an older segment is kept"],
            id="a blocked partition",
        ),
    ],
)
def test_findings_in_words(
    build: dict[str, Any], verify: dict[str, Any], audit: dict[str, Any], found: list[str]
) -> None:
    events = MagicMock()
    summaries = (BUILD | build, VERIFY | verify, AUDIT | audit)

    assert FILE.functions["findings"](*summaries, PAGE, outlet_events=events) == found

    [told] = events.__getitem__.return_value.add.call_args_list
    extra = dict(zip(("build", "verify", "audit"), summaries, strict=True))
    assert told.kwargs["extra"] == extra | {"findings": found, "report": PAGE}
    branch = FILE.functions["anything_found"](found)
    assert branch == ("report_findings" if found else "all_well")


def test_findings_fail_a_run_where_that_is_asked_for() -> None:
    report = FILE.functions["report_findings"]
    report(["a", "b"], "hdfs:///results", params={"fail_on_findings": False})
    with pytest.raises(RuntimeError, match=r"^a; b$"):
        report(["a", "b"], "hdfs:///results", params={"fail_on_findings": True})


def test_the_page_is_written_by_a_command_with_options_it_has() -> None:
    report = FILE.functions["report"]
    hook = report.__globals__["SubprocessHook"].return_value.run_command
    config = str(PROJECT / "conf/kip33.toml")
    for exit_code, page in ((0, PAGE), (1, None)):
        hook.return_value.exit_code = exit_code
        assert report("catalog", "policy.toml", "2026-11-21", PAGE, config) == page
    [words] = hook.call_args.args
    assert words[:2] == ["kip33", "report"]
    params = (
        kip33.get_command(click.Context(kip33), "report").make_context("report", words[2:]).params
    )
    assert (params["catalog_dir"], params["output"]) == ("catalog", PAGE)
