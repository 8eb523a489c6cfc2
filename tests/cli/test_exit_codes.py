"""The exit codes: each command, for each code that it can have."""

import os
import re
import shutil
import signal
import sys
import threading
from pathlib import Path

import pytest

from kip33.cli.main import COMMANDS
from kip33.errors import ExitCode
from tests.cli.console import PROJECT, Command

CATALOG = "made/indexes/_catalog"
NOW = "--now 2023-12-01"
JUDGED = f"{CATALOG} --retention-ms 8d {NOW}"
PAYMENTS = "archive/broker-1/payments-0/00000000000000000000.log"
DONE = {
    "build": "archive --index-dir indexes --topic orders",
    "verify": "archive --topic orders",
    "repair": "archive/broker-2 --topic metrics",
    "restore": "archive/broker-1 --to logs --topic orders --dry-run",
    "truncate": "archive/broker-1/orders-0 --to 100",
    "dump": PAYMENTS,
    "retention": JUDGED,
    "roll": f"{CATALOG} {NOW}",
    "search": f"{CATALOG} --time latest",
    "records": f"{PAYMENTS} --limit 1",
    "count": f"{PAYMENTS} --per 1d",
    "timestamps": f"archive --topic orders {NOW}",
    "lag": f"{CATALOG} --offsets offsets.csv",
    "failover": f"--from {CATALOG} --to {CATALOG} --offsets offsets.csv --buffer 1m",
    "dialects": "archive --topic orders --dialect recover",
    "catalog": CATALOG,
    "report": f"{CATALOG} --output report.html",
    "init": "deployed",
    "completion": "bash",
    "demo": "new",
}
FINDINGS = {
    "build": "archive --index-dir indexes --fail-on invalid",
    "verify": "archive --topic payments --fail-on missing",
    "repair": "archive/broker-2 --topic clicks --fail-on by-hand",
    "retention": f"{JUDGED} --fail-on blocked",
    "roll": f"{CATALOG} {NOW} --fail-on unexplained",
    "timestamps": f"archive --topic clicks {NOW} --fail-on unreadable",
}
CONFIG = "from-nobody.toml"  # a pipe
READS_CONFIG = {name: f"{arguments} --config {CONFIG}" for name, arguments in DONE.items()}
READS_CONFIG["init"] = "half-deployed"  # whose file is a pipe
del READS_CONFIG["completion"]  # reads nothing


@pytest.fixture
def run(command: Command, built: Path) -> Command:
    """Return `kip33` beside an archive, its catalog and a file of offsets."""
    Path("made").symlink_to(built)
    Path("offsets.csv").write_text("topic,partition,offset\norders,0,100\n")
    return lambda name, arguments: command(name, *arguments.split())


def test_the_table_of_the_page_has_the_codes() -> None:
    page = (PROJECT / "kip33/docs/reference/commands.md").read_text()

    assert [int(code) for code in re.findall(r"(?m)^\| ([0-9]+) \|", page)] == [*ExitCode]
    assert DONE.keys() == COMMANDS.keys()


@pytest.mark.parametrize("name", DONE)
def test_done_is_0_and_wrong_usage_is_2(name: str, run: Command) -> None:
    done = run(name, DONE[name])
    assert (done.exit_code, "Error: " in done.stderr) == (ExitCode.DONE, False), done.stderr

    wrong = run(name, f"{DONE[name]} --no-such-option")
    assert wrong.exit_code == ExitCode.USAGE
    assert wrong.stderr.startswith("Error: ")
    assert wrong.stderr.count("\n") == 1


@pytest.mark.parametrize("name", FINDINGS)
def test_findings_are_3_only_if_they_are_asked_for(name: str, run: Command) -> None:
    assert run(name, FINDINGS[name]).exit_code == ExitCode.FINDINGS
    assert run(name, FINDINGS[name].rpartition(" --fail-on ")[0]).exit_code == ExitCode.DONE


@pytest.mark.parametrize("name", DONE)
def test_output_that_cannot_be_written_is_1_and_an_ended_reader_is_141(
    name: str, run: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch, Path("/dev/full").open("w") as full:
        patch.setattr(sys, "stdout", full)
        done = run(name, DONE[name])
    assert done.exit_code == ExitCode.INCOMPLETE
    assert "Error: standard output cannot be written: No space left" in done.stderr

    for path in map(Path, ("indexes", "new")):
        shutil.rmtree(path, ignore_errors=True)
    reader, writer = os.pipe()
    os.close(reader)
    with monkeypatch.context() as patch, os.fdopen(writer, "w") as closed:
        patch.setattr(sys, "stdout", closed)
        done = run(name, DONE[name])
    assert done.exit_code == ExitCode.CLOSED_PIPE
    assert "Error: " not in done.stderr


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # the pipe, open
@pytest.mark.parametrize("name", READS_CONFIG)
def test_ctrl_c_is_130_and_sigterm_is_143(
    name: str, run: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command waits for a file that is a pipe, and the signal comes while it does."""
    pipe = Path("half-deployed/conf/kip33.toml" if name == "init" else CONFIG)
    pipe.parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(pipe)
    for number, expected in (
        (signal.SIGINT, ExitCode.INTERRUPTED),
        (signal.SIGTERM, ExitCode.TERMINATED),
    ):
        is_over = threading.Event()

        def interrupt(number: int = number, is_over: threading.Event = is_over) -> None:
            with pipe.open("w"):  # when the command has opened it
                os.kill(os.getpid(), number)
                is_over.wait(60)

        other = threading.Thread(target=interrupt, daemon=True)
        before = signal.signal(number, signal.default_int_handler)
        try:
            other.start()
            done = run(name, READS_CONFIG[name])
        finally:
            signal.signal(number, before)
            is_over.set()
            other.join(60)
        assert done.exit_code == expected
        assert done.stderr.startswith(f"Error: interrupted by {number.name}; ")


def test_a_part_that_is_refused_is_4(run: Command, tmp_path: Path, built: Path) -> None:
    refused = run("restore", f"{CATALOG} --replica broker-2 --to logs --dry-run")
    assert refused.exit_code == ExitCode.REFUSED

    mine = tmp_path / "mine"
    shutil.copytree(built / "archive", mine)
    run("build", "mine --index-dir own")
    policy = f"--policy {PROJECT}/conf/retention.toml"
    run("retention", f"own/_catalog {policy} {NOW} --plan plan.jsonl")
    changed = mine / "broker-1/orders-0/00000000000000000000.log"
    changed.write_bytes(changed.read_bytes() + b"more")
    assert run("retention", "--apply plan.jsonl").exit_code == ExitCode.REFUSED

    unknown = mine / "broker-1/orders-0/00000000000000000000.log.deleted"
    unknown.write_bytes(b"one")
    os.utime(unknown, (0, 0))  # such files of today are not planned
    run("catalog", "own/_catalog --orphans --plan orphans.jsonl --remove deleted-files")
    unknown.write_bytes(b"other")
    kept = run("catalog", "own/_catalog --orphans --apply orphans.jsonl")
    assert kept.exit_code == ExitCode.REFUSED
