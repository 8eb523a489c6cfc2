"""Too little address space for Python workers is one line; what that line asks for is enough."""

import json
from pathlib import Path

import pytest

from kip33.spark.tasks import ENOUGH_MEMORY, WORKER_MEMORY
from tests.builders.large_segments import filling, write_hollow_segment
from tests.cli.console import KIP33, Finished, subprocess_of

pytestmark = pytest.mark.integration
MIB = 1 << 20


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Return an archive of a batch of 256 MiB and of a GiB of small ones."""
    for number, sizes in enumerate(([256 * MIB], filling(1 << 30, 64 << 10))):
        log = tmp_path / "archive" / f"large-{number}" / f"{0:020d}.log"
        log.parent.mkdir(parents=True)
        write_hollow_segment(log, sizes)
    return tmp_path / "archive"


def build(source: Path, memory: str) -> Finished:
    where = ("build", source, "--index-dir", source.with_name(f"indexes-{memory}"))
    how = ("--offset-index", "--master", "local[2]", "--parallelism", "2", "--format", "json")
    memory_of_workers = ("--conf", f"{WORKER_MEMORY}={memory}")
    return subprocess_of(KIP33, *where, *how, *memory_of_workers, cwd=source.parent)


def test_too_little_is_said_in_a_line_that_helps(source: Path) -> None:
    done = build(source, "300m")
    assert (done.exit_code, done.stdout) == (1, "")
    [line] = done.stderr.splitlines()
    assert line.startswith("Error: the Spark job failed: a Python worker ran out of memory: ")
    assert f"{WORKER_MEMORY} is 300m" in line
    assert f"expected {ENOUGH_MEMORY} or more" in line

    done = build(source, ENOUGH_MEMORY)
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["by_status"] == {"ok": 2}
