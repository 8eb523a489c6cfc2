"""What tests ask of Airflow, run by the Python of its own environment.

    python in_airflow.py ANSWER.json shape
    python in_airflow.py ANSWER.json run '{"logical_date": "2023-12-01T00:00:00+00:00", "conf": {}}'
    python in_airflow.py ANSWER.json run_types RECORD

Standard output is Airflow's log; the answer is a JSON file.
"""

import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from airflow.api.common.trigger_dag import trigger_dag
from airflow.assets.manager import asset_manager
from airflow.dag_processing.dagbag import DagBag
from airflow.jobs.job import Job
from airflow.jobs.scheduler_job_runner import SchedulerJobRunner
from airflow.models.asset import AssetEvent
from airflow.models.dagrun import DagRun
from airflow.sdk import Asset
from airflow.sdk.definitions.dag import _run_task
from airflow.settings import DAGS_FOLDER
from airflow.utils.session import create_session
from airflow.utils.sqlalchemy import prohibit_commit
from airflow.utils.types import DagRunTriggeredByType, DagRunType
from sqlalchemy import select

DAG_ID = "kip33_nightly"


def moment(at: datetime | None) -> str | None:
    return at.astimezone(UTC).isoformat() if at else None


def shape() -> dict[str, Any]:
    """Return how the DAG file was taken, and each task with those behind it."""
    bag = DagBag(DAGS_FOLDER)
    dag = bag.dags[DAG_ID]
    return {
        "import_errors": bag.import_errors,
        "dags": sorted(bag.dags),
        "tasks": {one.task_id: sorted(one.downstream_task_ids) for one in dag.tasks},
        "outlets": [alias.name for alias in dag.get_task("findings").outlets],
        "catchup": dag.catchup,
        "max_active_runs": dag.max_active_runs,
        "doc": dag.doc_md,
    }


def run(asked: dict[str, Any]) -> dict[str, Any]:
    """Run every task; return states, what the tasks returned and who was told what."""
    dag = DagBag(DAGS_FOLDER).dags[asked.get("dag_id", DAG_ID)]
    logical_date = asked["logical_date"]
    done = dag.test(
        logical_date=datetime.fromisoformat(logical_date) if logical_date else None,
        run_conf=asked["conf"],
    )
    with create_session() as session:
        events = session.scalars(select(AssetEvent).where(AssetEvent.source_run_id == done.run_id))
        told = [{"uri": event.asset.uri, "extra": event.extra} for event in events]
    instances = done.get_task_instances()
    schedule()
    return {
        "state": done.state,
        "data_interval_end": moment(done.data_interval_end),
        "run_after": moment(done.run_after),
        "states": {one.task_id: one.state for one in instances},
        "tries": {one.task_id: one.try_number for one in instances},
        "returned": {one.task_id: one.xcom_pull(task_ids=one.task_id) for one in instances},
        "events": told,
        "woken": dict(woken()),
    }


def schedule() -> None:
    """Make the runs that are due, as the scheduler does in its loop."""
    with create_session() as session, prohibit_commit(session) as guard:
        SchedulerJobRunner(Job())._create_dagruns_for_dags(guard, session)


def woken() -> Iterator[tuple[str, Any]]:
    """Run what assets triggered; yield each DAG and what its task returned."""
    with create_session() as session:
        triggered = DagRun.run_type == DagRunType.ASSET_TRIGGERED
        for one in session.scalars(select(DagRun).where(triggered, DagRun.state == "queued")):
            [instance] = one.get_task_instances()
            task = DagBag(DAGS_FOLDER).dags[one.dag_id].get_task(instance.task_id)
            _run_task(ti=instance, task=task)
            yield one.dag_id, instance.xcom_pull(task_ids=instance.task_id)


def run_types(record: Path) -> dict[str, Any]:
    """Return of a run of each type what it is, and the spark-submit of its task `audit`.

    The scheduler's own functions make the scheduled and the asset-triggered run, the command
    line's the manual ones. Only `audit` runs, with a spark-submit that leaves its words in RECORD.
    """
    bag = DagBag(DAGS_FOLDER)
    with create_session() as session:
        asset_manager.register_asset_change(asset=Asset("kafka://archive"), session=session)
    schedule()
    by_hand = {"triggered_by": DagRunTriggeredByType.CLI, "run_after": None}
    trigger_dag(DAG_ID, run_id="by_hand", logical_date=None, **by_hand)
    date = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
    trigger_dag(DAG_ID, run_id="by_hand_of_a_date", logical_date=date, **by_hand)
    found = {}
    with create_session() as session:
        ours = DagRun.dag_id.startswith("kip33_")
        for one in session.scalars(select(DagRun).where(ours, DagRun.state == "queued")).all():
            task = bag.dags[one.dag_id].get_task("audit")
            [instance] = [ti for ti in one.get_task_instances() if ti.task_id == "audit"]
            _run_task(ti=instance, task=task)
            found[one.run_id] = {
                "type": one.run_type,
                "data_interval_end": moment(one.data_interval_end),
                "run_after": moment(one.run_after),
                "state": instance.state,
                "words": json.loads(record.read_text()),
            }
            record.unlink()
    return found


if __name__ == "__main__":
    answer, question, *arguments = sys.argv[1:]
    if question == "shape":
        answered = shape()
    elif question == "run":
        answered = run(json.loads(arguments[0]))
    else:
        answered = run_types(Path(arguments[0]))
    Path(answer).write_text(json.dumps(answered))
