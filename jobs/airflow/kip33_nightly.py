"""Kafka's archive, every night: indexes built and verified, retention judged, findings told.

The tasks run `spark-submit`, so Airflow's own environment needs its provider
`apache-airflow-providers-apache-spark`, not kip33. A Variable says where things are:

    airflow variables set kip33 '{
      "home": "/opt/kip33",
      "source": "hdfs:///archive",
      "index_dir": "hdfs:///indexes",
      "catalog": "hdfs:///indexes/_catalog",
      "policy": "/opt/kip33/conf/retention.toml",
      "results": "hdfs:///kip33/nightly"
    }'

`home` is a copy of this project. Its `conf/kip33.toml` has every other option, topics and Kafka's
settings among them; leave `fail-on` out of it, for here the summaries decide. `results` gets a
folder a run, with a summary of each job and the audit as Parquet: Spark's driver writes there and
Airflow's workers read. The connection `spark_default` says where Spark runs. In the workers' `PATH`
the `spark-submit` and `python3` of the environment that kip33 is installed in come first; with
`SPARK_CONF_DIR=/opt/kip33/conf` their logs hold what the jobs say and nothing of Spark's.

- **build** reads what is new or has changed, in the archive as it is when the task runs.
- **verify** holds every index against its log. It reads the whole archive, and finds bit rot; where
  a night is too short for that, let it be a weekly DAG of its own.
- **audit** judges retention as of the end of the run's data interval, or as of `run_after` where a
  manual or asset-triggered run has no interval; cleared, a run asks for the same moment again.
  Nothing is deleted.
- **findings** says in words what the three found. The asset of the catalog's URI gets an event with
  that and the summaries as its extra, and the branch goes to **report_findings** or **all_well**.

A finding is no failure, unless the parameter `fail_on_findings` makes it one, which is not tried
again. A crash is: a build that was killed, at whatever moment, goes on where it was.
"""

import json
import logging
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import DAG, Asset, AssetAlias, ObjectStoragePath, Param, task
from airflow.sdk.exceptions import AirflowFailException

HOME = "{{ var.json.kip33.home }}"
SOURCE = "{{ var.json.kip33.source }}"
INDEX_DIR = "{{ var.json.kip33.index_dir }}"
CATALOG = "{{ var.json.kip33.catalog }}"
POLICY = "{{ var.json.kip33.policy }}"
RESULTS = "{{ var.json.kip33.results }}"
# Asked of the run: without an interval the name `data_interval_end` is not there at all.
MOMENT = "dag_run.data_interval_end or dag_run.run_after"
NOW = "{{ (" + MOMENT + ") | ts }}"
RUN = RESULTS + "/{{ (" + MOMENT + ") | ts_nodash }}"  # HDFS takes no colon

CATALOG_ASSET = AssetAlias("kip33_catalog")  # becomes the asset of the URI that the build names

DAMAGED = {
    "truncated": "indexed as far as a broker would keep them",
    "invalid": "a broker would keep no index of them",
    "unreadable": "the next build tries again",
}
# Not `missing`: a damaged segment has no index, and what could not be written the build counts.
INDEX_FILES = (
    (".timeindex", "by_verdict"),
    (".index", "by_offset_index_verdict"),
    (".txnindex", "by_transaction_index_verdict"),
)
NOT_AS_BUILT = ("wrong", "malformed", "padded", "incomplete", "sparse", "unreadable")

log = logging.getLogger("airflow.task")


def spark_submit(task_id: str, job: str, *arguments: str) -> SparkSubmitOperator:
    """Return the task that runs one of kip33's jobs and leaves its summary in RUN."""
    settings = ("--config", f"{HOME}/conf/kip33.toml", "--summary", f"{RUN}/{task_id}.json")
    return SparkSubmitOperator(
        task_id=task_id,
        name=f"kip33 {task_id}",
        conn_id="spark_default",
        application=f"{HOME}/jobs/{job}",
        application_args=[*arguments, *settings],
        retries=2,
        retry_delay=timedelta(minutes=10),
    )


@task(retries=2)
def summary(uri: str) -> dict[str, Any]:
    """Return a job's figures: what it prints never reaches Airflow, so it leaves them in a file."""
    found: dict[str, Any] = json.loads(ObjectStoragePath(uri).read_text())
    return found


@task(outlets=[CATALOG_ASSET])
def findings(
    build: dict[str, Any], verify: dict[str, Any], audit: dict[str, Any], *, outlet_events: Any
) -> list[str]:
    """Return what somebody should know, a line each; tell whoever waits for the catalog."""
    found = []
    for status, consequence in DAMAGED.items():
        if count := build["by_status"].get(status):
            found.append(f"segments with status {status}: {count:,}, {consequence}")
    if build["failed"]:
        found.append(f"segments whose index files could not be written: {build['failed']:,}")
    for kind, counts in INDEX_FILES:
        for verdict in NOT_AS_BUILT:
            if count := verify.get(counts, {}).get(verdict):
                found.append(f"{kind} files with verdict {verdict}: {count:,}")
    if audit["blocked_partitions"]:
        found.append(
            f"blocked partitions: {audit['blocked_partitions']:,}; "
            f"{audit['blocked_segments']:,} expired segments stay because an older "
            "segment is kept"
        )
    extra = {"findings": found, "build": build, "verify": verify, "audit": audit}
    outlet_events[CATALOG_ASSET].add(Asset(uri=build["catalog"]), extra=extra)
    return found


@task.branch
def anything_found(found: list[str]) -> str:
    return "report_findings" if found else "all_well"


@task
def report_findings(found: list[str], results: str, *, params: dict[str, Any]) -> None:
    """Log the findings; fail where `fail_on_findings` says so, without another try."""
    for finding in found:
        log.warning(finding)
    log.warning("details: the catalog, the log of task verify, and %s/audit", results)
    if params["fail_on_findings"]:
        raise AirflowFailException("; ".join(found))


@task
def all_well() -> None:
    log.info("all segments and index files are in order, and nothing blocks retention")


with DAG(
    "kip33_nightly",
    doc_md=__doc__,
    schedule="@daily",
    start_date=datetime(2021, 1, 1, tzinfo=UTC),  # a run of a date before it has no tasks
    catchup=False,
    max_active_runs=1,  # two builds of one catalog are safe, and twice the work
    tags=["kafka", "kip33"],
    params={
        "fail_on_findings": Param(
            False, type="boolean", description="Whether findings make a run fail."
        )
    },
) as dag:
    build = spark_submit(
        *("build", "build_index.py", SOURCE),
        *("--index-dir", INDEX_DIR, "--catalog", CATALOG),
    )
    verify = spark_submit(
        *("verify", "verify.py", SOURCE),
        *("--index-dir", INDEX_DIR),
    )
    audit = spark_submit(
        *("audit", "retention.py", CATALOG),
        *("--policy", POLICY, "--now", NOW, "--output", f"{RUN}/audit"),
    )
    build >> verify >> audit

    summaries = []
    for job in (build, verify, audit):
        counted = summary.override(task_id=f"{job.task_id}_summary")(f"{RUN}/{job.task_id}.json")
        job >> counted
        summaries.append(counted)
    found = findings(*summaries)
    anything_found(found) >> [report_findings(found, RUN), all_well()]
