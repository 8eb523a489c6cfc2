"""The local engine's worker processes on S3 and HDFS: results, signals, killed workers, secrets."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kip33.demo import make_archive
from tests.cli.console import KIP33
from tests.faults.processes import Process, of_session, wait_until
from tests.integration.stores.places import Place

pytestmark = pytest.mark.integration
SCHEMES = ("s3a", "hdfs")
LOCAL = ("--engine", "local", "--workers", "2")
SPAWNED = "from multiprocessing.spawn import spawn_main"
INTERRUPTED = "Error: interrupted by {}; no file is half-written: run the command again\n"


@pytest.fixture(scope="module")
def archive_of(
    new_place: Callable[[str], Place], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Place]:
    """Return a function that returns the place of a scheme with the demo archive, made once."""
    tree = tmp_path_factory.mktemp("demo")
    make_archive(tree)
    made: dict[str, Place] = {}

    def of(scheme: str) -> Place:
        if scheme not in made:
            made[scheme] = new_place(scheme)
            made[scheme].put(tree, "logs")
        return made[scheme]

    return of


def build_into(place: Place, name: str) -> tuple[Any, ...]:
    return ("build", f"{place.uri}/logs", "--index-dir", f"{place.uri}/{name}", "--offset-index")


def index_files(place: Place, name: str) -> dict[str, bytes]:
    return {path: data for path, data in place.files(name).items() if "_catalog" not in path}


def snapshots(place: Place, name: str) -> list[str]:
    return [path for path in place.files(name) if "/commits/" in path]


@contextmanager
def started(place: Place, *arguments: Any) -> Iterator["subprocess.Popen[str]"]:
    """Run a command in a session of its own; at the end nothing of it runs."""
    config = place.folder / "kip33.toml"
    config.write_text(f"conf = {json.dumps([f'{k}={v}' for k, v in place.conf.items()])}\n")
    with subprocess.Popen(
        [KIP33, *map(str, arguments), "--config", config, "--format", "json"],
        cwd=place.folder,
        env=os.environ | place.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            for left in of_session(process.pid):
                left.signal(signal.SIGKILL)


def workers_of(process: "subprocess.Popen[str]") -> list[Process]:
    return [one for one in of_session(process.pid) if SPAWNED in one.command]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_two_workers_write_and_print_what_one_process_and_spark_do(
    scheme: str, archive_of: Callable[[str], Place]
) -> None:
    place = archive_of(scheme)
    verify = ("verify", f"{place.uri}/logs", "--index-dir", f"{place.uri}/alone", "--format")

    alone = place.run(*build_into(place, "alone"), "--format", "json", "--engine", "local")
    together = place.run(*build_into(place, "together"), "--format", "json", *LOCAL)
    on_spark = place.run(*build_into(place, "on-spark"), "--format", "json", "--engine", "spark")
    verified = [place.run(*verify, "jsonl", "--engine", "local", *more) for more in ((), LOCAL)]
    search = ("search", f"{place.uri}/alone/_catalog", "--time", "2023-11-15", "--format", "jsonl")
    found = [place.run(*search, "--engine", "local", *more) for more in ((), LOCAL)]

    for build in (alone, together, on_spark):
        assert build.code == 0, build.err
    assert (alone.record["workers"], together.record["workers"]) == (1, 2)
    names = ("by_status", "entries", "written", "indexed", "bytes_read", "failed")
    for name in ("unreadable_example", *names):
        assert alone.record[name] == together.record[name] == on_spark.record[name]
    files = [index_files(place, name) for name in ("alone", "together", "on-spark")]
    assert files == [files[0]] * 3
    assert len(files[0]) > 20
    assert verified[0] == verified[1]
    assert found[0] == found[1]
    assert (verified[0].code, found[0].code) == (0, 0)
    assert len(found[0].records) > 5


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize(
    "command", [("records",), ("count", "--per", "1m")], ids=lambda one: one[0]
)
def test_two_workers_read_the_records_that_one_process_reads(
    scheme: str, command: tuple[str, ...], archive_of: Callable[[str], Place]
) -> None:
    place = archive_of(scheme)
    read = (*command, f"{place.uri}/logs", "--format", "jsonl", "--workers")

    alone, together = place.run(*read, 1), place.run(*read, 2)

    assert alone == together
    assert alone.code == 0, alone.err
    assert len(alone.records) > 5


@pytest.mark.parametrize(("scheme", "number"), [("s3a", signal.SIGINT), ("hdfs", signal.SIGTERM)])
def test_an_interrupted_build_is_one_line_and_leaves_no_process(
    scheme: str, number: signal.Signals, archive_of: Callable[[str], Place]
) -> None:
    """Ctrl-C reaches every process of the group, SIGTERM only the command."""
    place, name = archive_of(scheme), f"interrupted-{number}"
    with started(place, *build_into(place, name), *LOCAL) as process:
        wait_until("two workers", lambda: len(workers_of(process)) == 2)
        if number == signal.SIGINT:
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)
        out, err = process.communicate(timeout=300)
        wait_until("every process gone", lambda: not of_session(process.pid))

    assert (process.returncode, out, err) == (128 + number, "", INTERRUPTED.format(number.name))
    assert snapshots(place, name) == []
    again = place.run(*build_into(place, name), "--format", "json", *LOCAL)
    assert again.code == 0, again.err
    assert again.record["by_status"].get("unreadable", 0) == 0


@pytest.mark.parametrize(
    ("engine", "program"),
    [(LOCAL, SPAWNED), (("--engine", "spark"), "org.apache.spark.deploy.SparkSubmit")],
    ids=["local", "spark"],
)
def test_no_process_has_a_key_in_its_command_line(
    engine: tuple[str, ...], program: str, archive_of: Callable[[str], Place]
) -> None:
    """The keys are in a configuration file; local workers get them through a pipe."""
    place = archive_of("s3a")
    secret = place.conf["spark.hadoop.fs.s3a.secret.key"]
    seen, environments = set(), b""
    with started(place, *build_into(place, f"secret-{engine[1]}"), *engine) as process:
        while process.poll() is None:
            seen |= {one.command for one in of_session(process.pid)}
            if engine == LOCAL and not environments and len(workers_of(process)) == 2:
                pids = [process.pid, *(worker.pid for worker in workers_of(process))]
                environments = b"".join(Path(f"/proc/{i}/environ").read_bytes() for i in pids)
            time.sleep(0.02)
        _, err = process.communicate()

    assert process.returncode == 0, err
    assert any(program in command for command in seen)
    assert not [command for command in seen if secret in command]
    assert secret.encode() not in environments
    assert (b"HOME=" in environments) == (engine == LOCAL)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_build_after_everything_was_deleted(
    scheme: str, new_place: Callable[[str], Place], archive_of: Callable[[str], Place]
) -> None:
    """In a bucket the empty SOURCE does not exist; on HDFS it is a directory that stays."""
    place, tree = new_place(scheme), archive_of(scheme).folder / "made"
    make_archive(tree)
    place.put(tree / "broker-1", "logs/broker-1")
    build = (*build_into(place, "indexes"), "--format", "json", "--engine", "local")
    assert place.run(*build).code == 0
    for name in place.files("logs"):
        place.filesystem.delete_file(f"{place.path}/logs/{name}")

    refused = place.run(*build)
    emptied = place.run(*build, "--allow-empty")

    assert refused.code == 2
    assert emptied.code == 0, emptied.err
    assert emptied.record["segments"] == 0 < emptied.record["dropped"]
    assert "give --allow-empty if all were deleted on purpose" in refused.err
