"""Keys that a configuration file holds are on no command line while a build runs with them."""

import json
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kip33.demo import make_archive
from tests.faults.processes import of_session
from tests.integration.stores.places import KIP33, Place

pytestmark = pytest.mark.integration
JVM = "org.apache.spark.deploy.SparkSubmit"


def test_a_build_on_spark_shows_no_key_to_those_who_list_processes(
    new_place: Callable[[str], Place], tmp_path: Path
) -> None:
    """`test_local_engine.py` has the same of the local engine's workers."""
    place = new_place("s3a")
    make_archive(tmp_path / "demo")
    place.put(tmp_path / "demo", "logs")
    config = place.folder / "kip33.toml"
    config.write_text(f"conf = {json.dumps([f'{k}={v}' for k, v in place.conf.items()])}\n")
    build = (
        "build",
        f"{place.uri}/logs",
        "--index-dir",
        f"{place.uri}/indexes",
        "--engine",
        "spark",
    )
    with subprocess.Popen(
        [KIP33, *build, "--config", config, "--format", "json"],
        cwd=place.folder,
        env=os.environ | {"SPARK_LOCAL_DIRS": str(place.folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        seen = set()
        while process.poll() is None:
            seen |= {one.command for one in of_session(process.pid)}
            time.sleep(0.02)
        out, err = process.communicate()
    assert process.returncode == 0, err
    assert json.loads(out)["by_status"]["ok"] == 9
    assert any(JVM in command for command in seen)
    keys = [place.conf[f"spark.hadoop.fs.s3a.{name}.key"] for name in ("access", "secret")]
    assert not [command for command in seen for key in keys if key in command]
