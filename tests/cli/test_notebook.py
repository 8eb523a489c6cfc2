"""jobs/five_questions.ipynb, run from top to bottom in a kernel of its own, on the demo archive.

The results of its Spark jobs are compared with those of the functions that need no Spark.
"""

import ast
import base64
import io
import os
import re
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import nbformat
import numpy as np
import pytest
from jupyter_client import AsyncKernelManager
from jupyter_client.kernelspec import KernelSpecManager
from matplotlib.pyplot import imread  # makes the font cache, of which the kernel would tell
from nbclient import NotebookClient

import kip33
import kip33.spark
from kip33.catalog.catalog import Catalog
from kip33.demo import make_archive, make_sensors
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
        NotebookClient(notebook, km=kernel, timeout=1800, startup_timeout=1800).execute(
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
def test_every_question_is_answered_by_a_plot(run: Run, subtests: pytest.Subtests) -> None:
    for section in SECTIONS:
        with subtests.test(f"{section}"):
            [plot] = [
                one for one in run.outputs[f"{section}-plot"] if one.output_type == "display_data"
            ]
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
