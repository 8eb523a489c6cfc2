"""`spark-submit jobs/retention.py`: the exit code and the last line, which schedulers use."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from kip33.demo import COPIED_MS, make_archive, make_sensors
from tests.cli.console import result_in
from tests.cli.test_spark_submit import OUR_CODE, spark_submit
from tests.faults.builds import build_here

pytestmark = [pytest.mark.spark, pytest.mark.integration]

JUDGED = ("--retention-ms", "8d", "--now", "2023-12-01")  # seventeen days after the first record


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo archive with its sensors, one of which blocks a partition, indexed."""
    root = tmp_path_factory.mktemp("retention-submit")
    make_archive(root / "archive")
    make_sensors(root / "archive")
    build_here(root / "archive", root / "indexes", now_ms=COPIED_MS)
    return root


def test_the_result_line_and_the_files_say_what_was_found(built: Path) -> None:
    options = ("indexes/_catalog", *JUDGED, "--output", "out", "--result-line")

    done = spark_submit("retention.py", *options, cwd=built)

    assert done.exit_code == 0, done
    assert OUR_CODE not in done.stderr
    found = result_in(done)
    assert found["catalog"] == (built / "indexes/_catalog").as_uri()
    assert (found["segments"], found["deletable_segments"]) == (25, 10)
    assert (found["blocked_partitions"], found["blocked_segments"]) == (1, 3)
    assert json.loads((built / "out/summary.json").read_text()) == found
    segments = pq.read_table(built / "out/segments")
    assert sum(segments["deletable"].to_pylist()) == 10


def test_a_finding_that_was_asked_for_is_the_exit_code(built: Path) -> None:
    options = (*JUDGED, "--fail-on", "blocked", "--topic", "sensors", "--result-line")

    done = spark_submit("retention.py", "indexes/_catalog", *options, cwd=built)

    assert done.exit_code == 3, done
    assert OUR_CODE not in done.stderr
    assert "blocked" in result_in(done)["findings"]
