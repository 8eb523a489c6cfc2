"""A cluster one of whose machines does not have the archive, or the index directory, mounted."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.console import KIP33, PROJECT, Finished, subprocess_of
from tests.integration.clusters.conftest import index_files
from tests.integration.servers.fixtures import or_skip
from tests.integration.servers.spark import SparkCluster

pytestmark = pytest.mark.integration
TWO_HOSTS = ("127.0.0.1", "127.0.0.2")
BINS = "8"  # each of the two machines gets some


@pytest.fixture
def indexes(archive: Path, tmp_path: Path) -> Path:
    """Return the index directory of a build here, with its catalog."""
    kip33("build", archive, "--index-dir", tmp_path / "indexes", "--engine", "local")
    return tmp_path / "indexes"


def kip33(*arguments: str | Path) -> Finished:
    return subprocess_of(KIP33, *arguments, cwd=PROJECT)


@pytest.fixture
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SparkCluster]:
    """Return a cluster whose second machine does not see the place that the test names."""
    hidden = request.getfixturevalue(request.param)
    place = SparkCluster(
        tmp_path / "spark", hosts=TWO_HOSTS, cores=1, has_kip33=True, hidden=[hidden]
    )
    with or_skip("a cluster"):
        place.start()
    yield place
    place.stop()


def on_cluster(cluster: SparkCluster, *arguments: str | Path) -> Finished:
    once = ("--conf", "spark.task.maxFailures=1")  # else the other machine may take the task over
    return kip33(*arguments, "--master", cluster.master, "--engine", "spark", *once)


def require_line(done: Finished, place: Path) -> None:
    """Raise AssertionError unless the last line names a machine and what it must mount."""
    assert done.exit_code == 1, done.stderr
    line = done.stderr.splitlines()[-1]
    assert line.startswith("Error: the Spark job failed: machine "), done.stderr
    assert f"does not see {place}" in line
    assert "mount it at the same path" in line
    assert "run the command again" not in line


@pytest.mark.parametrize("cluster", ["archive"], indirect=True)
def test_logs_that_one_machine_does_not_see_are_no_damage(
    cluster: SparkCluster, archive: Path, indexes: Path, tmp_path: Path
) -> None:
    new = tmp_path / "new"
    require_line(
        on_cluster(cluster, "build", archive, "--index-dir", new, "--parallelism", BINS), archive
    )
    assert not list(new.glob("_catalog/commits/*"))
    for command in (
        ("verify", archive, "--index-dir", indexes, "--parallelism", BINS),
        ("timestamps", archive, "--parallelism", BINS),
    ):
        require_line(on_cluster(cluster, *command), archive)


@pytest.mark.parametrize("cluster", ["indexes"], indirect=True)
def test_an_index_directory_that_one_machine_does_not_see_is_not_written(
    cluster: SparkCluster, archive: Path, indexes: Path, tmp_path: Path
) -> None:
    before, catalog = index_files(indexes), tmp_path / "catalog"
    where = ("--index-dir", indexes)
    for command in (
        ("build", archive, *where, "--catalog", catalog, "--full", "--overwrite"),
        ("verify", archive, *where),
    ):
        require_line(on_cluster(cluster, *command, "--parallelism", BINS), indexes)
    assert index_files(indexes) == before
    assert not list(catalog.glob("commits/*"))
    assert not list(indexes.glob(".*.tmp"))
