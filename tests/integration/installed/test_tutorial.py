"""A stranger follows the tutorial: a new environment with the wheel, no checkout, every block."""

import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.installed.stranger import (
    JAVA,
    PROJECT,
    Printed,
    Stranger,
    java_home,
)
from tests.pages import Block, blocks_of, is_printed

pytestmark = pytest.mark.integration
PAGE = PROJECT / "kip33" / "docs" / "tutorial.md"
BLOCKS = [
    block
    for block in blocks_of(PAGE)
    if block.language in ("bash", "python") and (java_home() or JAVA not in block.mark)
]
CRON = re.compile(r"^\d+ \d+ \* \* \* (.+)$", re.MULTILINE)


def name_of(block: Block) -> str:
    lines = [line for line in block.code.splitlines() if line.strip() and line[:1] != " "]
    return next((line for line in lines if line.startswith("kip33")), lines[0])[:50]


@pytest.fixture(scope="module")
def stranger(wheel: Path) -> Iterator[Stranger]:
    """Return a stranger who was given a wheel and nothing else; they leave 1 GB behind."""
    with tempfile.TemporaryDirectory(prefix="kip33-stranger-") as folder:
        found = Stranger(Path(folder))
        shutil.copy(wheel, found.folder)
        yield found


@pytest.fixture(scope="module")
def walk(stranger: Stranger) -> list[Printed]:
    """Return what each block printed."""
    return stranger.follow(BLOCKS)


def test_a_stranger_has_nothing_of_kip33(stranger: Stranger) -> None:
    assert stranger.run("bash", "-c", "command -v kip33 spark-submit").stdout == ""
    assert stranger.run("python3", "-c", "import kip33").exit_code == 1


def test_a_block_prints_what_the_page_shows(walk: list[Printed], subtests: pytest.Subtests) -> None:
    for block, printed in zip(BLOCKS, walk, strict=False):
        with subtests.test(name_of(block)):
            assert printed.exit_code == 0, printed.stderr
            assert block.output is None or is_printed(block.output, printed.stdout), printed.stdout
    assert len(walk) == len(BLOCKS), "a block failed"


def test_a_block_that_fails_is_the_last(stranger: Stranger) -> None:
    steps = [Block("step", "bash", f"{command}\n", None) for command in ("echo 1", "false", "ls")]
    assert [printed.exit_code for printed in stranger.follow(steps)] == [0, 1]


def test_only_spark_needs_java(stranger: Stranger, walk: list[Printed]) -> None:
    assert walk
    assert not stranger.java_calls.exists()


def test_cron_runs_the_script_and_mails_what_it_found(
    stranger: Stranger, walk: list[Printed]
) -> None:
    """cron gives a job neither a directory nor an environment of Python."""
    assert walk
    [line] = CRON.findall(PAGE.read_text(encoding="utf-8"))
    variables = (f"HOME={stranger.home}", "SHELL=/bin/sh", "PATH=/usr/bin:/bin")
    report = stranger.folder / "report.html"
    report.unlink()

    night = stranger.run("env", "-i", *variables, "sh", "-c", f"cd; {line}")

    assert (night.exit_code, night.stderr) == (0, "")
    assert "2 truncated" in night.stdout
    assert report.exists()
