"""Clusters, and what is sent to them."""

import os
import subprocess
from pathlib import Path

import pytest

from kip33.demo import make_archive, make_sensors
from tests.integration.servers.environments import made_once
from tests.integration.servers.fixtures import spark_cluster

__all__ = ["spark_cluster"]
PROJECT = Path(__file__).parents[3]


@pytest.fixture(scope="session")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder that `make dist` made: the wheels, kip33.zip and kip33-env.tar.gz."""
    folder = made_once(tmp_path_factory, "dist", _make_dist) / "dist"
    wheels = {path.name for path in folder.glob("kip33-*.whl")}
    platforms = {name.rpartition("-")[2] for name in wheels}
    assert platforms == {"any.whl", "manylinux_2_17_x86_64.whl", "manylinux_2_17_aarch64.whl"}
    others = {path.name for path in folder.iterdir()} - wheels
    assert others == {"kip33.zip", "kip33-env.tar.gz"}
    return folder


def _make_dist(folder: Path) -> None:
    made = subprocess.run(
        ["make", "dist", f"DIST={folder / 'dist'}"],
        cwd=PROJECT,
        # It is unpacked a minute later; pip takes the first for the value of `compile`.
        env=os.environ | {"PIP_NO_COMPILE": "0", "GZIP": "-1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stderr


@pytest.fixture(scope="session")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the demo archive with its sensors."""
    root = tmp_path_factory.mktemp("archive")
    make_archive(root)
    make_sensors(root)
    return root


def index_files(folder: Path) -> dict[str, bytes]:
    """Return the bytes of the index files below a folder, by their paths there."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*index")
        if path.is_file()
    }
