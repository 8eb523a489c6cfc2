"""The exit codes: each command, for each code that it can have."""

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from kip33.cli.main import COMMANDS
from kip33.errors import ExitCode
from tests.cli.command_lines import CATALOG, DONE, JUDGED, NOW, write_offsets
from tests.cli.console import PROJECT, Command

FINDINGS = {
    "build": "archive --index-dir new-indexes --fail-on invalid",
    "verify": "archive --topic payments --fail-on missing",
    "repair": "archive/broker-2 --topic clicks --fail-on by-hand",
    "retention": f"{JUDGED} --fail-on blocked",
    "roll": f"{CATALOG} {NOW} --fail-on unexplained",
    "status": f"{CATALOG} --fail-on problem",
    "timestamps": f"archive --topic clicks {NOW} --fail-on unreadable",
}
CONFIG = "from-nobody.toml"  # a pipe
WAITS = {  # commands that wait for a pipe; one place handles signals for all
    "build": f"{DONE['build']} --config {CONFIG}",
    "records": f"{DONE['records']} --config {CONFIG}",
    "init": "half-deployed",  # whose file is a pipe
}


@pytest.fixture
def beside(built: Path, new_folder: Callable[[], Path]) -> Callable[[], None]:
    """Return a function that changes into a new folder with what the commands read."""

    def enter() -> None:
        new_folder()
        Path("indexes").symlink_to(built / "indexes")
        write_offsets()

    return enter


@pytest.fixture
def run(command: Command, beside: Callable[[], None]) -> Command:
    """Return `kip33` beside an archive, its catalog and a file of offsets."""
    beside()
    return lambda name, arguments: command(name, *arguments.split())


def test_the_table_of_the_page_has_the_codes() -> None:
    page = (PROJECT / "kip33/docs/reference/commands.md").read_text()

    assert [int(code) for code in re.findall(r"(?m)^\| ([0-9]+) \|", page)] == [*ExitCode]
    assert DONE.keys() == COMMANDS.keys()


def test_done_is_0_and_wrong_usage_is_2(run: Command, subtests: pytest.Subtests) -> None:
    for name in DONE:
        with subtests.test(name):
            done = run(name, DONE[name])
            assert (done.exit_code, "Error: " in done.stderr) == (ExitCode.DONE, False), done.stderr

            wrong = run(name, f"{DONE[name]} --no-such-option")
            assert wrong.exit_code == ExitCode.USAGE
            assert wrong.stderr.startswith("Error: ")
            assert wrong.stderr.count("\n") == 1


def test_a_store_that_does_not_answer_is_1(
    run: Command, subtests: pytest.Subtests, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At ports that nobody listens on: the message names the one that was asked."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "any")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    once = "--conf spark.hadoop.fs.s3a.attempts.maximum=1"
    for name, arguments in {
        "verify": "s3a://b/x",
        "catalog": "s3a://b/x",
        "retention": "apply s3a://b/plan.jsonl",
        "dump": "s3a://b/0.log",
    }.items():
        with subtests.test(name):
            done = run(name, f"{arguments} {once}")
            assert done.exit_code == ExitCode.INCOMPLETE, done.stderr
            assert "127.0.0.1:9 " in done.stderr
    assert run("verify", "no-such-archive").exit_code == ExitCode.USAGE


def test_findings_are_3_only_if_they_are_asked_for(run: Command, subtests: pytest.Subtests) -> None:
    for name in FINDINGS:
        with subtests.test(name):
            line, _, finding = FINDINGS[name].rpartition(" ")
            done = run(name, FINDINGS[name])
            assert done.exit_code == ExitCode.FINDINGS
            *_, because = done.stderr.splitlines()
            assert f"\n{finding}: " in f"\n{done.stderr}"
            assert re.fullmatch(rf"exit 3: --fail-on {finding}: [1-9][0-9,]* [a-z ]+", because)
            assert run(name, f"{line} {finding},{finding}").stderr.endswith(f"{because}\n")
            assert run(name, FINDINGS[name].rpartition(" --fail-on ")[0]).exit_code == ExitCode.DONE


def test_output_that_cannot_be_written_is_1_and_an_ended_reader_is_141(
    run: Command,
    beside: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
    subtests: pytest.Subtests,
) -> None:
    for name in DONE:
        with subtests.test(name):
            beside()
            with monkeypatch.context() as patch, Path("/dev/full").open("w") as full:
                patch.setattr(sys, "stdout", full)
                done = run(name, DONE[name])
            assert done.exit_code == ExitCode.INCOMPLETE
            assert "Error: standard output cannot be written: No space left" in done.stderr

            beside()
            reader, writer = os.pipe()
            os.close(reader)
            with monkeypatch.context() as patch, os.fdopen(writer, "w") as closed:
                patch.setattr(sys, "stdout", closed)
                done = run(name, DONE[name])
            assert done.exit_code == ExitCode.CLOSED_PIPE
            assert "Error: " not in done.stderr


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # the pipe, open
def test_ctrl_c_is_130_and_sigterm_is_143(
    run: Command,
    beside: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
    subtests: pytest.Subtests,
) -> None:
    """The command waits for a file that is a pipe, and the signal comes while it does."""
    for name in WAITS:
        with subtests.test(name):
            beside()
            pipe = Path("half-deployed/conf/kip33.toml" if name == "init" else CONFIG)
            pipe.parent.mkdir(parents=True, exist_ok=True)
            os.mkfifo(pipe)
            for number, expected in (
                (signal.SIGINT, ExitCode.INTERRUPTED),
                (signal.SIGTERM, ExitCode.TERMINATED),
            ):
                is_over = threading.Event()

                def interrupt(
                    number: int = number, is_over: threading.Event = is_over, pipe: Path = pipe
                ) -> None:
                    with pipe.open("w"):  # when the command has opened it
                        os.kill(os.getpid(), number)
                        is_over.wait(600)

                other = threading.Thread(target=interrupt, daemon=True)
                before = signal.signal(number, signal.default_int_handler)
                try:
                    other.start()
                    done = run(name, WAITS[name])
                finally:
                    signal.signal(number, before)
                    is_over.set()
                    other.join(600)
                assert done.exit_code == expected
                assert done.stderr.startswith(f"Error: interrupted by {number.name}; ")


@pytest.mark.parametrize("module", ["kip33.cli", "click", "kip33.errors", "kip33.cli.main"])
def test_an_interrupt_while_modules_are_imported_leaves_no_trace(module: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-v", "-m", "kip33", "completion", "bash"],  # -v: a line an import
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as begun:
        assert begun.stderr
        for line in begun.stderr:
            if line.startswith(f"import '{module}' "):
                begun.send_signal(signal.SIGINT)
                break
        said = begun.stderr.read()
    assert begun.returncode == ExitCode.INTERRUPTED
    assert "Traceback" not in said
