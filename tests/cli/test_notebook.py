"""jobs/five_questions.ipynb, run from top to bottom in a kernel of its own, on the demo archive.

The results of its Spark jobs are compared with those of the functions that need no Spark.
"""

import ast
import base64
import io
import os
import re
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import nbformat
import numpy as np
import pyarrow as pa
import pytest
from jupyter_client import AsyncKernelManager
from jupyter_client.kernelspec import KernelSpecManager
from matplotlib.pyplot import imread  # makes the font cache, of which the kernel would tell
from nbclient import NotebookClient

import kip33
import kip33.spark
from kip33.catalog.catalog import Catalog
from kip33.catalog.tiers import CatalogSnapshot
from kip33.demo import make_archive, make_sensors
from kip33.formats.kafka_configs import GroupOffset
from kip33.rules.policies import Policies
from kip33.rules.retention_rows import Limits, SegmentFigures, judge
from kip33.search.answers import SearchOptions
from kip33.search.catalog_search import by_partition, rows_of, search_rows
from kip33.search.group_lag import group_lags
from kip33.search.replica_search import PartitionKey, TimeQuestion
from kip33.spark.session import JavaMissingError, require_java
from tests.cli.console import PROJECT

NOTEBOOK = PROJECT / "jobs" / "five_questions.ipynb"
SECTIONS = ("timeline", "disorder", "retention", "search", "lag", "records")
DEMO = Path("demo")  # in the project's folder; the notebook's is one below
KERNEL = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
QUICK_JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"  # it lives for half a minute
NOT_INHERITED = {"MPLBACKEND", "PYSPARK_SUBMIT_ARGS"}
# A kernel waits for its children to end, but never looks whether they have, until it is killed.
END_THE_JVM = """\
from pyspark import SparkContext

spark.stop()
gateway = SparkContext._gateway
gateway.shutdown()
gateway.proc.stdin.close()
exit_code = gateway.proc.wait()
"""

Row = dict[str, str | None]


class Run(NamedTuple):
    """What the notebook was told, left behind and showed."""

    parameters: dict[str, Any]
    catalog: str
    outputs: dict[str, list[Any]]  # by cell

    def table(self, cell: str) -> list[Row]:
        """Return what a cell printed with `DataFrame.show`, a null as None."""
        [printed] = [one.text for one in self.outputs[cell] if one.output_type == "stream"]
        lines = [line for line in printed.splitlines() if line.startswith("|")]
        head, *rows = ([cell.strip() for cell in line[1:-1].split("|")] for line in lines)
        nulls = {"NULL": None}
        return [{k: nulls.get(v, v) for k, v in zip(head, row, strict=True)} for row in rows]

    def segments(self, *topics: str) -> pa.Table:
        """Return the catalog's rows of some topics."""
        stored = Catalog.at(self.catalog)
        return rows_of(CatalogSnapshot(stored, stored.require_newest()), topics)

    def partitions(self, *topics: str) -> dict[PartitionKey, list[dict[str, Any]]]:
        """Return the same by partition, each oldest first."""
        return by_partition(self.segments(*topics).sort_by("base_offset"))

    @property
    def now_ms(self) -> int:
        return milliseconds(self.parameters["now"])


def milliseconds(moment: datetime | str) -> int:
    if isinstance(moment, str):
        moment = datetime.fromisoformat(moment).replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def texts(*values: Any) -> tuple[str | None, ...]:
    return tuple(None if value is None else str(value) for value in values)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    try:
        require_java()
    except JavaMissingError as error:
        pytest.skip(str(error))
    return executed(tmp_path_factory.mktemp("notebook"))


def executed(root: Path) -> Run:
    """Run the notebook below a folder, on a demo archive."""
    make_archive(root / DEMO / "archive")
    make_sensors(root / DEMO / "archive")
    (root / "jobs").mkdir()
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    notebook.cells.append(nbformat.v4.new_code_cell(END_THE_JVM, id="end"))
    with TemporaryDirectory() as sockets:  # a short path, as a socket's has to be
        kernel = AsyncKernelManager(
            kernel_spec_manager=KernelSpecManager(kernel_dirs=[]),  # of this very interpreter
            connection_file=str(Path(sockets, "kernel.json")),
            transport="ipc",
        )
        inherited = {name: os.environ[name] for name in os.environ.keys() - NOT_INHERITED}
        NotebookClient(notebook, km=kernel, timeout=1800).execute(
            cleanup_kc=True,
            cwd=str(root / "jobs"),
            env=inherited | {"IPYTHONDIR": str(root / "ipython"), "JDK_JAVA_OPTIONS": QUICK_JVM},
        )
    cells = {cell.id: cell for cell in notebook.cells if cell.cell_type == "code"}
    parameters: dict[str, Any] = {}
    exec(cells["parameters"].source, parameters)
    outputs = {name: cell.outputs for name, cell in cells.items()}
    return Run(parameters, str(root / DEMO / "indexes" / "_catalog"), outputs)


@pytest.mark.spark
@pytest.mark.integration
@pytest.mark.parametrize("section", SECTIONS)
def test_every_question_is_answered_by_a_plot(section: str, run: Run) -> None:
    [plot] = [one for one in run.outputs[f"{section}-plot"] if one.output_type == "display_data"]
    pixels = imread(io.BytesIO(base64.b64decode(plot.data["image/png"])))[..., :3]
    colored = np.ptp(pixels, axis=2) > 0.2  # axes and text are black on white
    assert colored.mean() > 0.002


@pytest.mark.spark
@pytest.mark.integration
def test_nothing_is_said_on_standard_error(run: Run) -> None:
    shown = [one for outputs in run.outputs.values() for one in outputs]
    assert {one.get("name", one.output_type) for one in shown} == {"stdout", "display_data"}


@pytest.mark.spark
@pytest.mark.integration
def test_the_catalog_is_built_once(run: Run) -> None:
    [snapshot] = Catalog.at(run.catalog).snapshots()
    counted = sum(int(row["segments"]) for row in run.table("catalog"))
    assert counted == snapshot.rows == 25


@pytest.mark.spark
@pytest.mark.integration
def test_the_timeline_of_the_partition(run: Run) -> None:
    rows = run.partitions("sensors")["sensors", 0]
    shown = run.table("timeline-rows")
    assert [(row["base_offset"], milliseconds(row["largest"])) for row in shown] == [
        (str(row["base_offset"]), row["largest_timestamp"]) for row in rows
    ]
    ahead = [row["base_offset"] for row in shown if milliseconds(row["largest"]) > run.now_ms]
    assert ahead == ["200"]


@pytest.mark.spark
@pytest.mark.integration
def test_the_disorder_of_each_topic(run: Run) -> None:
    disorder = {row["topic"]: (row["late"], row["batches"]) for row in run.table("disorder-rows")}
    assert disorder.pop("sensors") == ("6", "120")
    assert len(disorder) == 5
    assert {late for late, _ in disorder.values()} == {"0"}


@pytest.mark.spark
@pytest.mark.integration
def test_what_is_blocked_and_by_which_segment(run: Run) -> None:
    limits = Limits(Policies(run.parameters["retention"]).of("sensors").retention_ms)
    expected = []
    for (_, number), rows in run.partitions("sensors").items():
        segments = [
            SegmentFigures(*(row[name] for name in SegmentFigures._fields[:4])) for row in rows
        ]
        judged = zip(segments, judge(segments, limits, now_ms=run.now_ms), strict=True)
        blocked = [(one, why) for one, why in judged if why.reason == "blocked"]
        _, first = blocked[0]
        size = sum(one.size_bytes for one, _ in blocked)
        expected.append((number, size, first.blocked_by_base_offset, first.deletable_at_ms))
    shown = run.table("retention-rows")
    columns = ("partition", "blocked_bytes", "blocking_base_offset")
    assert [
        (*(int(row[name]) for name in columns), milliseconds(row["ends"])) for row in shown
    ] == sorted(expected)
    assert {row["topic"] for row in shown} == {"sensors"}
    assert [row["blocking_base_offset"] for row in shown] == ["200", "600"]


@pytest.mark.spark
@pytest.mark.integration
def test_the_offsets_at_which_the_day_begins(run: Run) -> None:
    day_ms = milliseconds(run.parameters["day"])
    topics = [row["topic"] for row in run.table("disorder-rows")]
    questions = [TimeQuestion(topic, None, day_ms) for topic in topics]
    answers = search_rows(run.segments(*topics), questions, SearchOptions())
    columns = ("log_dir", "topic", "partition", "offset", "result")
    shown = [tuple(row[name] for name in columns) for row in run.table("search-rows")]
    assert shown == [
        texts(located.log_dir, topic, number, located.answer.offset, located.answer.result)
        for _, topic, number, located in answers
    ]
    assert ("broker-1", "sensors", "0", "107", "found") in shown
    assert len(shown) == 10


@pytest.mark.spark
@pytest.mark.integration
def test_how_far_the_groups_are_behind(run: Run) -> None:
    offsets = [GroupOffset(*one) for one in run.parameters["committed"]]
    lags = group_lags(
        run.partitions(*(one.topic for one in offsets)),
        offsets,
        policies=Policies(run.parameters["retention"]),
        now_ms=run.now_ms,
    )
    columns = ("group", "topic", "partition", "result", "lag_records", "lag_ms")
    shown = run.table("lag-rows")
    assert [tuple(row[name] for name in columns) for row in shown] == [
        texts(*(getattr(lag, name) for name in columns)) for lag in lags
    ]
    assert [row["lag_records"] for row in shown] == ["8500", "10", "0", None, "500", "700"]
    ends = [row["unread_expires"] for row in shown]
    assert [end and milliseconds(end) for end in ends] == [lag.unread_expires_at_ms for lag in lags]


def records_of_orders(run: Run) -> list[dict[str, Any]]:
    """Return the day's records by `read_arrow`, from the archive itself."""
    day = run.parameters["day"]
    archive = Path(run.catalog).parents[1] / "archive"
    reader = kip33.read_arrow(
        archive,
        topic="orders",
        columns=["partition", "offset", "timestamp", "key"],
        start_time=day,
        end_time=day + timedelta(days=1),
    )
    return reader.read_all().to_pylist()


@pytest.mark.spark
@pytest.mark.integration
def test_the_orders_of_each_minute(run: Run) -> None:
    minutes = Counter(
        milliseconds(row["timestamp"]) // 60_000 * 60_000 for row in records_of_orders(run)
    )
    shown = [(int(row["minute_ms"]), int(row["count"])) for row in run.table("records-rows")]
    assert shown == sorted(minutes.items())[:20]


@pytest.mark.spark
@pytest.mark.integration
def test_the_records_of_one_customer(run: Run) -> None:
    key = run.parameters["customer"].encode()
    expected = [row for row in records_of_orders(run) if row["key"] == key]
    shown = run.table("customer-rows")
    assert [(row["partition"], row["offset"]) for row in shown] == [
        texts(row["partition"], row["offset"]) for row in expected
    ]
    assert [milliseconds(row["time"] or "") for row in shown] == [
        milliseconds(row["timestamp"]) for row in expected
    ]
    assert expected


@pytest.mark.spark
@pytest.mark.integration
def test_a_join_of_two_topics_as_parquet(run: Run) -> None:
    archive = Path(run.catalog).parents[1] / "archive"
    clicks = Counter(
        row["key"]
        for row in kip33.read_arrow(archive, topic="clicks", columns=["key"], on_error="skip")
        .read_all()
        .to_pylist()
    )
    pairs: Counter[str] = Counter()
    for row in records_of_orders(run):
        pairs[str(row["partition"])] += clicks[row["key"]]
    shown = {row["partition"]: int(row["count"] or "") for row in run.table("joined-rows")}
    assert shown == +pairs
    assert shown


def names_of_ours(code: str) -> set[str]:
    """Return what a text imports of kip33, in full."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return {name for name in found if name.partition(".")[0] == "kip33"}


def test_it_uses_public_names_only() -> None:
    public = {"kip33", "kip33.spark"}
    public.update(f"kip33.{name}" for name in kip33.__all__)
    public.update(f"kip33.spark.{name}" for name in kip33.spark.__all__)
    cells = nbformat.read(NOTEBOOK, as_version=4).cells
    used = {one for cell in cells if cell.cell_type == "code" for one in names_of_ours(cell.source)}
    assert used - public == set() != used
    assert names_of_ours("def f():\n    from kip33.catalog import catalog") - public


def test_it_is_stored_without_what_a_run_leaves() -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    names = [cell.id for cell in notebook.cells]
    assert all(re.fullmatch(r"[a-z-]+", name) for name in names)  # no random ones
    assert len(set(names)) == len(names)
    tagged = {cell.id: cell.metadata for cell in notebook.cells if cell.metadata}
    assert tagged == {"parameters": {"tags": ["parameters"]}}
    for cell in notebook.cells:
        if cell.cell_type == "code":
            assert (cell.execution_count, cell.outputs) == (None, []), cell.id
    assert notebook.metadata == KERNEL
    assert NOTEBOOK.read_text() == nbformat.writes(notebook) + "\n"


@pytest.mark.parametrize("command", [("check",), ("format", "--check")], ids=" ".join)
def test_its_cells_are_as_clean_as_the_modules(command: tuple[str, ...]) -> None:
    ruff = [sys.executable, "-m", "ruff", *command, "--no-cache", str(NOTEBOOK)]
    done = subprocess.run(ruff, cwd=PROJECT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
