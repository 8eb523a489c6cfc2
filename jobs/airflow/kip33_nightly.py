"""Every night: build and verify the indexes of an archive, audit retention, report findings.

A Variable has the places:

    airflow variables set kip33 '{
      "home": "/opt/kip33",
      "source": "hdfs:///archive",
      "index_dir": "hdfs:///indexes",
      "catalog": "hdfs:///indexes/_catalog",
      "policy": "/opt/kip33/conf/retention.toml",
      "results": "hdfs:///kip33/nightly"
    }'

`kip33 init /opt/kip33` writes `home`. Its `conf/kip33.toml` has all other options, such as topics
and Kafka's settings. Do not set `fail-on` there: in this DAG the summaries decide. Each run gets a
folder below `results`, with the summary of each job and the audit as Parquet. The jobs write there,
Airflow's workers read it.

The parameter `engine` says how the jobs run:

- `spark`: with spark-submit, on the Spark of the connection `spark_default`. Its host is the
  master: `yarn`, `spark://HOST:7077`, `k8s://https://HOST:6443`, or `local[*]` for the
  worker itself;
- `local`: with the command `kip33`, in processes of the Airflow worker, without Spark and Java.

    airflow connections add spark_default --conn-type spark --conn-host yarn

If the connection or a program is missing, the first task fails at once and says what to do.

Airflow's environment needs the provider `apache-airflow-providers-apache-spark` for either engine,
but not kip33. The environment that has kip33 must come first in the workers' `PATH`: its
`spark-submit`, `python3` and `kip33` are called. With `SPARK_CONF_DIR=/opt/kip33/conf` the tasks'
logs contain the jobs' messages, and no messages of Spark.

- **build** reads new and changed segments, of the archive as it is when the task runs.
- **verify** compares every index with its log. It reads the whole archive and finds bit rot. If a
  night is too short for that, set the parameter `verify_share` to `1/7`: each night reads another
  seventh, and everything is verified within a week.
- **audit** evaluates retention as of the end of the run's data interval, or as of `run_after` if a
  manual or asset-triggered run has no interval. If a run is cleared, the time stays the same.
  Nothing is deleted.
- **report** writes a page about the archive, `report.html`, with the command `kip33 report`. If
  that fails, the run goes on without a page.
- **findings** puts into words what the three jobs found, and names the first logs, index files
  and partitions of each; logs that are new since the last build are first. The asset with the
  catalog's URI gets an event; its extra has the findings, the summaries and the place of the page.
  The next task is **report_findings** or **all_well**.

If Airflow has the provider `apache-airflow-providers-openlineage`, the three jobs report to it what
they read and wrote: SOURCE, the index directory, the catalog and the audit's folder.

A finding is not a failure, unless the parameter `fail_on_findings` is set; then it is not retried.
A crash is a failure. A build that was killed continues in the next try, whenever it was killed.
"""

import json
import logging
import shutil
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.standard.hooks.subprocess import SubprocessHook
from airflow.sdk import DAG, Asset, AssetAlias, BaseHook, ObjectStoragePath, Param, task
from airflow.sdk.exceptions import (
    AirflowException,
    AirflowFailException,
    AirflowNotFoundException,
)

HOME = "{{ var.json.kip33.home }}"
SOURCE = "{{ var.json.kip33.source }}"
INDEX_DIR = "{{ var.json.kip33.index_dir }}"
CATALOG = "{{ var.json.kip33.catalog }}"
POLICY = "{{ var.json.kip33.policy }}"
RESULTS = "{{ var.json.kip33.results }}"
# From the run: if it has no interval, templates do not have the name `data_interval_end`.
MOMENT = "dag_run.data_interval_end or dag_run.run_after"
NOW = "{{ (" + MOMENT + ") | ts }}"
VERIFY_SHARE = "{{ params.verify_share }}"
RUN = RESULTS + "/{{ (" + MOMENT + ") | ts_nodash }}"  # HDFS takes no colon

CONNECTION = "spark_default"

CATALOG_ASSET = AssetAlias("kip33_catalog")  # becomes the asset of the URI that the build names

DAMAGED = {
    "truncated": "indexed as far as a broker would keep them",
    "invalid": "a broker would keep no index of them",
    "unreadable": "the next build tries again",
}
# Not `missing`: a damaged segment has no index, and `build` fails if it cannot write one.
INDEX_FILES = (
    (".timeindex", "by_verdict"),
    (".index", "by_offset_index_verdict"),
    (".txnindex", "by_transaction_index_verdict"),
)
NOT_AS_BUILT = ("wrong", "malformed", "padded", "incomplete", "sparse", "unreadable")

log = logging.getLogger("airflow.task")


class Kip33Job(SparkSubmitOperator):
    """A job of kip33, run by spark-submit or as a command, as the parameter `engine` says."""

    template_fields = (*SparkSubmitOperator.template_fields, "reads", "writes")

    def __init__(
        self,
        *,
        command: tuple[str, ...],
        reads: tuple[str, ...],
        writes: tuple[str, ...],
        **settings: Any,
    ):
        """Take the command with its arguments, and places for OpenLineage."""
        super().__init__(
            application=f"{HOME}/jobs/run_kip33.py", application_args=[*command], **settings
        )
        self.reads, self.writes = reads, writes
        self.process: SubprocessHook | None = None

    def execute(self, context: Any) -> None:
        """Run the job to its end; AirflowException if it fails."""
        engine = context["params"]["engine"]
        if missing := what_is_missing(engine):
            raise AirflowFailException(missing)  # a retry would not find it either
        if engine == "spark":
            super().execute(context)
            return
        self.process = SubprocessHook()
        words = ["kip33", *self.application_args, "--engine", "local"]
        exit_code = self.process.run_command(words).exit_code
        if exit_code:
            raise AirflowException(f"{' '.join(words[:2])} ended with exit code {exit_code}")

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> Any:
        """Return what the job read and wrote; only the provider of OpenLineage calls this."""
        from airflow.providers.common.compat.openlineage.facet import Dataset
        from airflow.providers.openlineage.extractors import OperatorLineage

        return OperatorLineage(
            inputs=[Dataset(*dataset_of(place)) for place in self.reads],
            outputs=[Dataset(*dataset_of(place)) for place in self.writes],
        )

    def on_kill(self) -> None:
        """Stop the job with SIGTERM; it publishes nothing half-written."""
        if self.process:
            self.process.send_sigterm()
        else:
            super().on_kill()


def what_is_missing(engine: str) -> str | None:
    """Return what this worker needs for an engine and does not have, None if all is there."""
    program = "kip33"
    if engine == "spark":
        try:
            settings = BaseHook.get_connection(CONNECTION).extra_dejson
        except AirflowNotFoundException:
            return (
                f"there is no connection {CONNECTION}: add it with airflow connections add "
                f"{CONNECTION} --conn-type spark --conn-host MASTER, or set the parameter engine "
                "to local"
            )
        program = settings.get("spark-binary", "spark-submit")
    if shutil.which(program):
        return None
    return (
        f"{program} is not in the PATH of this Airflow worker: the environment that has kip33 must "
        "come first there"
    )


def dataset_of(place: str) -> tuple[str, str]:
    """Return namespace and name of a path or URI, as OpenLineage names files of its store."""
    place = place.rstrip("/")
    if "://" not in place:
        return "file", place
    scheme, _, rest = place.partition("://")
    authority, _, path = rest.partition("/")
    if scheme == "file":
        return "file", f"/{path}"
    if scheme in ("s3", "s3a", "gs"):
        return f"{'gs' if scheme == 'gs' else 's3'}://{authority}", path or "/"
    return f"{scheme}://{authority}", f"/{path}"


def kip33_job(
    task_id: str,
    *command: str,
    reads: tuple[str, ...],
    writes: tuple[str, ...] = (),
) -> Kip33Job:
    """Return the task that runs a job; the job publishes its summary in RUN."""
    settings = ("--config", f"{HOME}/conf/kip33.toml", "--summary", f"{RUN}/{task_id}.json")
    return Kip33Job(
        command=(*command, *settings),
        reads=reads,
        writes=writes,
        task_id=task_id,
        name=f"kip33 {task_id}",
        conn_id=CONNECTION,
        retries=2,
        retry_delay=timedelta(minutes=10),
    )


@task(retries=2)
def summary(uri: str) -> dict[str, Any]:
    """Return a job's summary from its file, because Airflow does not get what a job prints."""
    found: dict[str, Any] = json.loads(ObjectStoragePath(uri).read_text())
    return found


@task
def report(catalog: str, policy: str, now: str, output: str, config: str) -> str | None:
    """Write the page about the archive; return its place, None if that fails."""
    words = ["kip33", "report", catalog, "--policy", policy, "--now", now]
    words += ["--output", output, "--config", config]
    if SubprocessHook().run_command(words).exit_code:
        log.warning("there is no page: kip33 report failed, its message is above")
        return None
    return output


def with_files(sentence: str, summary: dict[str, Any], finding: str, suffix: str = "") -> str:
    """Return a finding with a line for each of its examples whose file ends in `suffix`."""
    lines = [sentence]
    for one in summary.get("run", {}).get("findings", []):
        if one["finding"] == finding:
            files = ((example.partition(": ")[0], example) for example in one["examples"])
            lines += [f"  {example}" for file, example in files if file.endswith(suffix)]
    return "\n".join(lines)


@task(outlets=[CATALOG_ASSET])
def findings(
    build: dict[str, Any],
    verify: dict[str, Any],
    audit: dict[str, Any],
    page: str | None,
    *,
    outlet_events: Any,
) -> list[str]:
    """Return the findings and add them to the event of the catalog's asset.

    Each is a sentence, then a line for each of the first files or partitions; new ones are first.
    """
    found = []
    for status, consequence in DAMAGED.items():
        if count := build["by_status"].get(status):
            sentence = f"segments with status {status}: {count:,}, {consequence}"
            found.append(with_files(sentence, build, status))
    if count := audit.get("missing_offsets"):
        found.append(f"offsets missing between segments: {count:,}; kip33 catalog holes")
    by_log_status = verify.get("by_log_status", {})
    if count := sum(by_log_status.get(status, 0) for status in DAMAGED):
        sentence = f"damaged logs among those that verify read: {count:,}"
        found.append(with_files(sentence, verify, "damaged"))
    for kind, counts in INDEX_FILES:
        for verdict in NOT_AS_BUILT:
            if count := verify.get(counts, {}).get(verdict):
                sentence = f"{kind} files with verdict {verdict}: {count:,}"
                found.append(with_files(sentence, verify, verdict, kind))
    if audit["blocked_partitions"]:
        sentence = (
            f"blocked partitions: {audit['blocked_partitions']:,}; "
            f"{audit['blocked_segments']:,} expired segments stay because an older "
            "segment is kept"
        )
        found.append(with_files(sentence, audit, "blocked"))
    extra = {"findings": found, "build": build, "verify": verify, "audit": audit, "report": page}
    outlet_events[CATALOG_ASSET].add(Asset(uri=build["catalog"]), extra=extra)
    return found


@task.branch
def anything_found(found: list[str]) -> str:
    return "report_findings" if found else "all_well"


@task
def report_findings(found: list[str], results: str, *, params: dict[str, Any]) -> None:
    """Log the findings; fail without a retry if `fail_on_findings` is set."""
    for finding in found:
        log.warning(finding)
    log.warning("details: %s/report.html, %s/audit, and the log of task verify", results, results)
    if params["fail_on_findings"]:
        raise AirflowFailException("; ".join(found))


@task
def all_well() -> None:
    log.info("all segments and index files are in order, and nothing blocks retention")


with DAG(
    "kip33_nightly",
    doc_md=__doc__,
    schedule="@daily",
    start_date=datetime(2021, 1, 1, tzinfo=UTC),  # a run with an earlier date has no tasks
    catchup=False,
    max_active_runs=1,  # two builds of one catalog are safe, but twice the work
    tags=["kafka", "kip33"],
    params={
        "engine": Param(
            "spark",
            enum=["spark", "local"],
            description=f"spark: on the Spark of connection {CONNECTION}; local: on the worker.",
        ),
        "verify_share": Param(
            "1/1",
            type="string",
            pattern="^[0-9]{1,3}/[0-9]{1,3}$",
            description="Share of the logs that a night verifies: 1/7 verifies all in a week.",
        ),
        "fail_on_findings": Param(
            False, type="boolean", description="Whether findings make a run fail."
        ),
    },
) as dag:
    build = kip33_job(
        *("build", "build", SOURCE),
        *("--index-dir", INDEX_DIR, "--catalog", CATALOG),
        reads=(SOURCE,),
        writes=(INDEX_DIR, CATALOG),
    )
    verify = kip33_job(
        *("verify", "verify", SOURCE),
        *("--index-dir", INDEX_DIR, "--share", VERIFY_SHARE, "--as-of", NOW),
        reads=(SOURCE, INDEX_DIR),
    )
    audit = kip33_job(
        *("audit", "retention", CATALOG),
        *("--policy", POLICY, "--now", NOW, "--output", f"{RUN}/audit"),
        reads=(CATALOG,),
        writes=(f"{RUN}/audit",),
    )
    build >> verify >> audit

    summaries = []
    for job in (build, verify, audit):
        counted = summary.override(task_id=f"{job.task_id}_summary")(f"{RUN}/{job.task_id}.json")
        job >> counted
        summaries.append(counted)
    page = report(CATALOG, POLICY, NOW, f"{RUN}/report.html", f"{HOME}/conf/kip33.toml")
    audit >> page
    found = findings(*summaries, page)
    anything_found(found) >> [report_findings(found, RUN), all_well()]
