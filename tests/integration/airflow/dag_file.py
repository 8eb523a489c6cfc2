"""jobs/airflow/kip33_nightly.py without Airflow: its jobs and its functions, as written there."""

import json
import re
import runpy
from collections.abc import Callable
from typing import Any, NamedTuple
from unittest.mock import MagicMock, patch

from tests.cli.console import PROJECT

DAG_FILE = PROJECT / "jobs" / "airflow" / "kip33_nightly.py"
OPERATORS = "airflow.providers.apache.spark.operators.spark_submit"


class DagFile(NamedTuple):
    """What the file asks of Airflow, and what it says of itself."""

    jobs: list[dict[str, Any]]  # what each SparkSubmitOperator is given
    functions: dict[str, Callable[..., Any]]  # of the tasks, and helpers, by name
    variable: dict[str, str]  # the example in the docstring


def dag_file() -> DagFile:
    """Run the file where Airflow's names record what they are given."""
    functions: dict[str, Callable[..., Any]] = {}

    def task(function: Callable[..., Any] | None = None, **_: Any) -> Any:
        def taken(function: Callable[..., Any]) -> MagicMock:
            functions[function.__name__] = function
            return MagicMock()

        return taken(function) if function else taken

    task.branch = task  # type: ignore[attr-defined]
    jobs: list[dict[str, Any]] = []

    class RecordedOperator:
        template_fields = ("application_args",)

        def __init__(self, **given: Any) -> None:
            self.given, self.task_id = given, given["task_id"]
            self.application_args = given["application_args"]
            jobs.append(given)

        def __setattr__(self, name: str, value: Any) -> None:
            if name in ("reads", "writes"):
                self.given[name] = value
            super().__setattr__(name, value)

        def __rshift__(self, other: Any) -> Any:
            return other

    operators = MagicMock(SparkSubmitOperator=RecordedOperator)
    airflow = {
        "airflow.sdk": MagicMock(task=task),
        "airflow.sdk.exceptions": MagicMock(
            AirflowException=OSError,
            AirflowFailException=RuntimeError,
            AirflowNotFoundException=LookupError,
        ),
        "airflow.providers.standard.hooks.subprocess": MagicMock(),
        OPERATORS: operators,
    }
    with patch.dict("sys.modules", airflow):
        module = runpy.run_path(str(DAG_FILE))
    functions["dataset_of"] = module["dataset_of"]
    functions["what_is_missing"] = module["what_is_missing"]
    [example] = re.findall(r"airflow variables set kip33 '(\{.*?\})'", module["__doc__"], re.DOTALL)
    return DagFile(jobs, functions, json.loads(example))
