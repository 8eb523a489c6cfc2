"""Every example of README.md and of the how-to pages runs, in a folder with the demo archive.

An example is a fenced block below a line `<!-- test: name -->`.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from kip33.cli.main import COMMANDS
from kip33.demo import make_archive, make_sensors

PROJECT = Path(__file__).parents[1]
HOW_TO = sorted((PROJECT / "kip33/docs/how-to").glob("*.md"))
PAGES = "".join(page.read_text() for page in (PROJECT / "README.md", *HOW_TO))
BLOCK = re.compile(r"^<!-- test: (\w+) -->\n```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
OUR_CODE = f'File "{PROJECT / "kip33"}'  # in a trace; PySpark's workers may leave one of their own


class Example(NamedTuple):
    """A block of a page."""

    name: str
    language: str
    code: str

    @property
    def interpreter(self) -> list[str]:
        """Return how to run the block's text."""
        if self.language == "python":
            return [sys.executable, "-W", "error", "-c"]
        return ["bash", "-euo", "pipefail", "-c"]


EXAMPLES = {found[1]: Example(*found.groups()) for found in BLOCK.finditer(PAGES)}
RUN = [
    example for example in EXAMPLES.values() if example.name != "airflow"
]  # see tests/integration/airflow


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("demo") / "archive"
    make_archive(root)
    make_sensors(root)
    return root


def test_every_marked_block_is_found() -> None:
    assert len(EXAMPLES) == PAGES.count("<!-- test:") > 0
    assert {example.language for example in EXAMPLES.values()} <= {"bash", "console", "python"}


@pytest.mark.spark
@pytest.mark.integration  # every command starts a JVM
@pytest.mark.parametrize("example", RUN, ids=lambda example: example.name)
def test_the_example_runs(example: Example, archive: Path, tmp_path: Path) -> None:
    if "kip33 demo archive" not in example.code:
        shutil.copytree(archive, tmp_path / "archive")  # an example may change it
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        [*example.interpreter, example.code],
        cwd=tmp_path,
        env=os.environ | {"PATH": path, "KIP33": str(PROJECT)},
        capture_output=True,
        text=True,
        timeout=1800,
    )
    assert done.returncode == 0, done.stderr
    assert OUR_CODE not in done.stderr
    assert done.stdout
    if "indexes" in example.code:
        assert list((tmp_path / "indexes" / "_catalog" / "commits").glob("*.json"))


def test_the_pages_name_commands_that_there_are() -> None:
    blocks = re.findall(r"^```(?:bash|console)\n(.*?)^```$", PAGES, re.MULTILINE | re.DOTALL)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    words = [shlex.split(line, comments=True) for line in lines if line.split()[:1] == ["kip33"]]
    named = {line[1] for line in words}
    assert named == set(COMMANDS)


FIRST_BLOCKS = (  # what a newcomer copies, in this order
    ("git clone", "make demo", "make test"),
    ("make wheel", "python3 -m venv", "pip install dist/"),
)


def test_the_first_blocks_begin_with_what_a_fresh_clone_has() -> None:
    text = (PROJECT / "README.md").read_text()
    blocks = re.findall(r"^```bash\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    for block, begins in zip(blocks, FIRST_BLOCKS, strict=False):
        assert [
            line.startswith(begin) for line, begin in zip(block.splitlines(), begins, strict=True)
        ] == [True] * len(begins)
    targets = set(re.findall(r"^make ([a-z]+)", "".join(blocks), re.MULTILINE))
    assert targets <= set(
        re.findall(r"^([a-z-]+):", (PROJECT / "Makefile").read_text(), re.MULTILINE)
    )
    assert "pip brings PySpark" in text
