"""The how-to page about restoring runs step by step, with a real broker, and shows what it prints.

Kafka's shell scripts are not in its jars: each is a line here that runs the same class.
"""

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kip33.demo import make_archive
from tests.integration.kafka import broker
from tests.integration.kafka.broker import free_ports, java_command
from tests.integration.kafka.lost_cluster import nodes_or_skip
from tests.pages import blocks_of, is_printed

pytestmark = [pytest.mark.kafka, pytest.mark.integration]

PROJECT = Path(__file__).parents[3]
PAGE = PROJECT / "kip33/docs/how-to/restore.md"
MARK = "needs: a broker; tests/integration/kafka/test_restore_page.py runs it"
SCRIPTS = {
    "kafka-storage.sh": broker.STORAGE_TOOL,
    "kafka-topics.sh": broker.TOPIC_COMMAND,
    "kafka-configs.sh": broker.CONFIG_COMMAND,
    "kafka-get-offsets.sh": broker.GET_OFFSET_SHELL,
}
# Starts return when the broker answers, stops when it has ended.
START = """\
{kafka} "$2" > broker.out 2>&1 & echo $! > broker.pid
until (exec 3<> /dev/tcp/127.0.0.1/{port}) 2> /dev/null; do
  kill -0 "$(cat broker.pid)" || {{ cat broker.out >&2; exit 1; }}
  sleep 0.2
done
"""
STOP = """\
[ -e broker.pid ] || exit 0
kill "$(cat broker.pid)"
while kill -0 "$(cat broker.pid)" 2> /dev/null; do sleep 0.1; done
rm broker.pid
"""


def put_script(folder: Path, name: str, text: str) -> None:
    file = folder / name
    file.write_text(f"#!/bin/bash\n{text}")
    file.chmod(0o755)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Return a folder with the demo archive, a broker's configuration, and Kafka's scripts."""
    nodes_or_skip(tmp_path)
    make_archive(tmp_path / "archive")
    port, controller = free_ports(2)
    settings = (PROJECT / "tests/integration/kafka/restore_page.properties").read_text()
    settings = settings.replace("9092", str(port)).replace("9093", str(controller))
    (tmp_path / "server.properties").write_text(settings)
    scripts = tmp_path / "bin"
    scripts.mkdir()
    for name, main_class in SCRIPTS.items():
        put_script(scripts, name, f'exec {shlex.join(java_command(main_class))} "$@"\n')
    start = START.format(kafka=shlex.join(java_command("kafka.Kafka")), port=port)
    put_script(scripts, "kafka-server-start.sh", start)
    put_script(scripts, "kafka-server-stop.sh", STOP)
    (tmp_path / "port").write_text(str(port))
    yield tmp_path
    subprocess.run([scripts / "kafka-server-stop.sh"], cwd=tmp_path, check=True)


def test_the_page_shows_what_one_sees(folder: Path) -> None:
    port = (folder / "port").read_text()
    path = f"{folder / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    steps = [block for block in blocks_of(PAGE) if block.mark == MARK]
    assert len(steps) > 6
    for step in steps:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", step.code.replace("9092", port)],
            cwd=folder,
            env=os.environ | {"PATH": path},
            capture_output=True,
            text=True,
            timeout=900,
        )
        assert done.returncode == 0, (step.code, done.stdout, done.stderr)
        assert step.output is None or is_printed(step.output, done.stdout), done.stdout
    assert not list((folder / "logs").glob("*-stray"))
