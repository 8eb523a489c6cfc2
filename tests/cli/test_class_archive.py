"""README's way to a JVM that starts sooner: classes archived once, read by every later command."""

import time
from pathlib import Path

import pytest

from kip33.demo import make_archive
from tests.cli.console import KIP33, Finished, subprocess_of
from tests.faults.builds import build_here

pytestmark = [pytest.mark.integration, pytest.mark.spark]

WRITTEN_WITHIN_S = 600  # the JVM writes it after the command has ended
READING = "-XX:SharedArchiveFile={} -Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+load:file={}"


def judged(folder: Path, java_options: str) -> Finished:
    return subprocess_of(
        *(KIP33, "retention", "indexes/_catalog", "--retention-ms", "7d", "--now", "2023-12-01"),
        *("--engine", "spark", "--conf", f"spark.driver.extraJavaOptions={java_options}"),
        cwd=folder,
    )


def test_a_later_command_reads_them_and_answers_the_same(tmp_path: Path) -> None:
    make_archive(tmp_path / "archive")
    build_here(tmp_path / "archive", tmp_path / "indexes")
    file, loaded = tmp_path / "kip33.jsa", tmp_path / "loaded.log"
    assert judged(tmp_path, f"-XX:ArchiveClassesAtExit={file}").exit_code == 0
    until = time.monotonic() + WRITTEN_WITHIN_S
    size = -1
    while not file.exists() or file.stat().st_size != size:
        assert time.monotonic() < until, f"{file}: not written"
        size = file.stat().st_size if file.exists() else -1
        time.sleep(2)

    plain, sooner = judged(tmp_path, ""), judged(tmp_path, READING.format(file, loaded))

    without_seconds = [
        [line for line in done.stdout.splitlines() if "seconds" not in line]
        for done in (plain, sooner)
    ]
    assert without_seconds[0] == without_seconds[1]
    session = "org.apache.spark.sql.classic.SparkSession "
    [line] = [line for line in loaded.read_text().splitlines() if session in line]
    assert line.endswith("source: shared objects file (top)")
