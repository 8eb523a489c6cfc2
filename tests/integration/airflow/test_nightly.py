"""jobs/airflow/kip33_nightly.py in a real Airflow 3, whose spark-submit really runs the jobs.

Airflow is installed into the user's cache folder the first time; without that the tests skip.
"""

import json
import shutil
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq
import pytest

from kip33.demo import make_archive, make_sensors
from kip33.spark.session import JavaMissingError, require_java
from tests.cli.console import PROJECT
from tests.integration.airflow.dag_file import DAG_FILE
from tests.integration.airflow.environment import Airflow, airflow_python
from tests.integration.servers.processes import ServerMissingError
from tests.test_readme import EXAMPLES

pytestmark = [pytest.mark.integration, pytest.mark.spark]

SHAPE = {
    "build": ["build_summary", "verify"],
    "verify": ["audit", "verify_summary"],
    "audit": ["audit_summary", "report"],
    "report": ["findings"],
    "build_summary": ["findings"],
    "verify_summary": ["findings"],
    "audit_summary": ["findings"],
    "findings": ["anything_found", "report_findings"],
    "anything_found": ["all_well", "report_findings"],
    "report_findings": [],
    "all_well": [],
}
DECEMBER = "2023-12-01T00:00:00+00:00"  # two weeks after the demo archive's first record
LINEAGE = "lineage.jsonl"  # the events of the run without Spark
ASSET = "kafka://archive"  # whose event starts a copy of the DAG


class Night(NamedTuple):
    """An archive, where things are, and what became of one run of the DAG on it."""

    variable: dict[str, str]
    results: Path
    answer: dict[str, Any]


@pytest.fixture(scope="module")
def airflow(tmp_path_factory: pytest.TempPathFactory) -> Airflow:
    """Airflow with the DAG, a copy of it that an asset starts, and README's example behind it."""
    try:
        require_java()
        python = airflow_python()
    except (JavaMissingError, ServerMissingError) as error:
        pytest.skip(str(error))
    airflow = Airflow(python, tmp_path_factory.mktemp("airflow"))
    airflow.prepare()
    text = DAG_FILE.read_text().replace("retries=2", "retries=0")  # a failure is seen at once
    (airflow.dags / DAG_FILE.name).write_text(text)
    on_asset = text.replace('"kip33_nightly"', '"kip33_on_asset"')
    on_asset = on_asset.replace('schedule="@daily"', f'schedule=[Asset("{ASSET}")]')
    assert on_asset != text
    (airflow.dags / "kip33_on_asset.py").write_text(on_asset)
    catalog = places(airflow.home / "clean")["catalog"]
    example = EXAMPLES["airflow"].code.replace("hdfs:///indexes/_catalog", f"file://{catalog}")
    (airflow.dags / "readme.py").write_text(example)
    retried = DAG_FILE.read_text().replace('"kip33_nightly"', '"kip33_retried"')
    retried = retried.replace('schedule="@daily"', "schedule=None")
    (airflow.dags / "kip33_retried.py").write_text(retried)
    airflow.command("dags", "reserialize")
    return airflow


def places(root: Path) -> dict[str, str]:
    """Return the Variable of an archive below `root`."""
    return {
        "home": str(PROJECT),
        "source": str(root / "archive"),
        "index_dir": str(root / "indexes"),
        "catalog": str(root / "indexes" / "_catalog"),
        "policy": str(PROJECT / "conf" / "retention.toml"),
        "results": (root / "results").as_uri(),
    }


def run(
    airflow: Airflow, variable: dict[str, str], *, lineage: Path | None = None, **asked: Any
) -> dict[str, Any]:
    """Return what became of a run, asked for with `logical_date` and `conf`."""
    return airflow.ask("run", json.dumps({"conf": {}} | asked), variable=variable, lineage=lineage)


def milliseconds(moment: str) -> int:
    return round(datetime.fromisoformat(moment).timestamp() * 1000)


def result_of(night: Night, name: str) -> dict[str, Any]:
    """Return what the run left in its folder."""
    [folder] = night.results.iterdir()
    found: dict[str, Any] = json.loads((folder / name).read_text())
    return found


@pytest.fixture(scope="module")
def clean(airflow: Airflow) -> Night:
    """A run by hand, without a date, on what is whole in the demo archive."""
    root = airflow.home / "clean"
    make_archive(root / "archive")
    for damaged in (root / "archive" / "broker-2").glob("clicks-[0-2]"):
        shutil.rmtree(damaged)
    variable = places(root)
    answer = run(airflow, variable, logical_date=None)
    return Night(variable, root / "results", answer)


@pytest.fixture(scope="module")
def blocked(airflow: Airflow) -> Night:
    """The run of a date without Spark, on partitions of which one has a record from the future."""
    root = airflow.home / "blocked"
    make_sensors(root / "archive")
    variable = places(root)
    how: dict[str, Any] = {"lineage": airflow.home / LINEAGE, "conf": {"engine": "local"}}
    answer = run(airflow, variable, logical_date=DECEMBER, **how)
    return Night(variable, root / "results", answer)


def test_airflow_takes_the_files(airflow: Airflow) -> None:
    found = airflow.ask("shape", variable=places(airflow.home))
    assert found["import_errors"] == {}
    assert found["dags"] == ["after_the_night", "kip33_nightly", "kip33_on_asset", "kip33_retried"]
    assert found["tasks"] == SHAPE
    assert found["outlets"] == ["kip33_catalog"]
    assert (found["catchup"], found["max_active_runs"]) == (False, 1)
    assert found["doc"].startswith("Every night: build and verify")


def test_a_clean_night_is_all_well(clean: Night) -> None:
    found = clean.answer
    assert found["state"] == "success", found["log"]
    skipped = {name for name, state in found["states"].items() if state == "skipped"}
    assert skipped == {"report_findings"}
    assert found["states"].keys() == SHAPE.keys()
    returned = found["returned"]
    assert returned["findings"] == []
    assert returned["build_summary"]["by_status"] == {"empty": 1, "ok": 9}
    assert returned["verify_summary"]["by_verdict"] == {"identical": 10}
    assert returned["audit_summary"]["blocked_partitions"] == 0


@pytest.mark.parametrize(("night", "engine"), [("clean", "spark"), ("blocked", "local")])
def test_the_jobs_run_on_the_engine_of_the_parameter(
    night: str, engine: str, request: pytest.FixtureRequest
) -> None:
    returned = request.getfixturevalue(night).answer["returned"]
    summaries = [returned[f"{job}_summary"] for job in ("build", "verify", "audit")]
    assert [summary["engine"] for summary in summaries] == [engine] * 3


def test_a_missing_connection_fails_the_first_task_and_is_not_tried_again(
    airflow: Airflow,
) -> None:
    """`kip33_retried` has the retries of the file, ten minutes later."""
    variable = places(airflow.home / "unconnected")
    asked = {"logical_date": None, "dag_id": "kip33_retried", "conf": {}}
    found = airflow.ask("run", json.dumps(asked), variable=variable, connection=None)

    assert found["state"] == "failed"
    assert found["states"]["build"] == "failed"
    assert found["tries"]["build"] == 1
    assert "airflow connections add spark_default --conn-type spark" in found["log"]
    assert "spark-submit --master" not in found["log"]


def test_without_an_interval_it_is_judged_as_of_run_after(clean: Night) -> None:
    found = clean.answer
    assert found["data_interval_end"] is None
    # Airflow knows microseconds, an archive milliseconds.
    now_ms = found["returned"]["audit_summary"]["now_ms"]
    assert abs(now_ms - milliseconds(found["run_after"])) <= 1


def test_the_summaries_stay_where_xcom_has_them_from(clean: Night, blocked: Night) -> None:
    for night in (clean, blocked):
        for job in ("build", "verify", "audit"):
            assert result_of(night, f"{job}.json") == night.answer["returned"][f"{job}_summary"]
        audit = night.answer["returned"]["audit_summary"]
        assert result_of(night, "audit/summary.json") | {"run": audit["run"]} == audit
        [folder] = night.results.iterdir()
        assert pq.read_table(folder / "audit" / "segments").num_rows == audit["segments"]


def test_whoever_waits_for_the_catalog_is_told_what_the_night_found(clean: Night) -> None:
    found = clean.answer
    [event] = found["events"]
    returned = found["returned"]
    summaries = {name: returned[f"{name}_summary"] for name in ("build", "verify", "audit")}
    assert event == {
        "uri": Path(clean.variable["catalog"]).as_uri(),
        "extra": {"findings": [], "report": returned["report"], **summaries},
    }
    assert result_of(clean, "report.json")["totals"]["segments"] == 10
    assert returned["report"].endswith("/report.html")
    may_go = returned["audit_summary"]["deletable_bytes"]
    assert may_go > 0
    assert found["woken"] == {"after_the_night": {"bytes": may_go, "findings": []}}


def test_a_blocked_partition_is_reported_and_no_failure(blocked: Night) -> None:
    found = blocked.answer
    assert found["state"] == "success", found["log"]
    skipped = {name for name, state in found["states"].items() if state == "skipped"}
    assert skipped == {"all_well"}
    [sentence] = found["returned"]["findings"]
    assert sentence.startswith("blocked partitions: 1; 3 expired segments stay")
    assert sentence in found["log"]
    assert "blocked by 00000000000000000200.log, which has a timestamp of" in found["log"]
    audit = found["returned"]["audit_summary"]
    assert found["data_interval_end"] == DECEMBER
    assert audit["now_ms"] == milliseconds(DECEMBER)
    assert audit["findings"] == ["blocked", "expired"]
    assert [event["extra"]["findings"] for event in found["events"]] == [[sentence]]


def test_openlineage_gets_what_the_jobs_read_and_wrote(airflow: Airflow, blocked: Night) -> None:
    lines = (airflow.home / LINEAGE).read_text().splitlines()
    complete = [one for one in map(json.loads, lines) if one["eventType"] == "COMPLETE"]
    lineage = {
        one["job"]["name"].removeprefix("kip33_nightly."): tuple(
            [(place["namespace"], place["name"]) for place in one[side]]
            for side in ("inputs", "outputs")
        )
        for one in complete
    }
    source, indexes, catalog = (
        ("file", blocked.variable[name]) for name in ("source", "index_dir", "catalog")
    )
    [folder] = blocked.results.iterdir()
    assert lineage["build"] == ([source], [indexes, catalog])
    assert lineage["verify"] == ([source, indexes], [])
    assert lineage["audit"] == ([catalog], [("file", str(folder / "audit"))])
    assert lineage["findings"] == ([], [catalog]), "the asset has the same name"


def test_the_moment_that_each_type_of_run_is_judged_at(airflow: Airflow) -> None:
    variable = places(airflow.home / "nowhere")
    found = airflow.ask("run_types", str(airflow.record), variable=variable, spark_submit=False)
    found.pop("log")
    kinds = {run["type"]: run for name, run in found.items() if name != "by_hand_of_a_date"}
    assert kinds.keys() == {"scheduled", "asset_triggered", "manual"}
    for run_ in found.values():
        words = run_["words"]
        now = words[words.index("--now") + 1]
        assert run_["state"] == "success"
        assert datetime.fromisoformat(now) == datetime.fromisoformat(
            run_["data_interval_end"] or run_["run_after"]
        )
        folder = datetime.fromisoformat(now).strftime("%Y%m%dT%H%M%S")
        summary = f"{variable['results']}/{folder}/audit.json"
        assert words[words.index("--summary") + 1] == summary
    midnight = kinds["scheduled"]["data_interval_end"]
    assert midnight.endswith("T00:00:00+00:00")
    assert kinds["asset_triggered"]["data_interval_end"] is None
    assert kinds["manual"]["data_interval_end"] is None
    assert found["by_hand_of_a_date"]["data_interval_end"] is not None
