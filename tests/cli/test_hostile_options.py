"""Every option of every command with hostile values: one line and an exit code, no trace.

A value comes from the command line or from a --config file. Nothing here may start Spark, so the
commands go as far as they go without. Seeds are printed with what failed.
"""

import os
import random
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import click
import pytest

from kip33.errors import Kip33Error
from tests.cli.command_lines import DONE, OF_MODES, commands_and_modes
from tests.cli.console import KIP33, Command, Finished, file_named, subprocess_of
from tests.long_forms import short_and_long

SEED = int(os.environ.get("KIP33_SEED", "14"))
MOST_SECONDS = 1_800  # it would read /dev/zero for ever
LOG = f"{0:020d}.log"
REMOTE = "REMOTE"
SEGMENT = f"archive/broker-1/orders-0/{LOG}"

WITH_SECRET: Final = "s3a://KEY:s3cr3t@b/x"
VALUES: Final = (
    *("", " ", "-", "--", ".", "..", "\n", "*", "[", "{", "{topic}", "=", "k=v", "%", "%s", "a,b"),
    *("nan", "NaN", "inf", "1e400", "-1", "0", "1", "-0", "1.5", "0x10", "1_000", "true", "null"),
    *("99999999999999999999", "9223372036854775807", "9223372036854775808", "2147483648"),
    *("-9223372036854775809", "9" * 400, "9" * 5_000, "\u0663", "\u00b2", "106751991167d"),
    *("now", "now-1d", "now+99999999999d", "-99999999999d", "9999-12-31", "0001-01-01", "latest"),
    *("2024-02-30", "24:00", "2024-01-01T00:00+23:59", "earliest", "max-timestamp"),
    *("\udcff", "\udcff.json", "x\udcff/y.jsonl", "\u00e9", "\U0001f984", "\u202e", "a" * 5_000),
    *("/dev/null", "/dev/zero", "/dev/full", "pipe", "folder", "link", "nothing", "text", "binary"),
    *(SEGMENT, "archive", "indexes/_catalog", "text/inside", "out.json", "out.jsonl", "empty"),
    *(WITH_SECRET, "s3a://", "s3a://b:9", "ftp://host/x", "x://[", "://"),
    *("file:///%ff", "file:///%00", "file://elsewhere/x", "hdfs://[", "gs://", "abfs://a:b@c"),
)
IN_FILES: Final = (
    *("1", "-1", "0", "1.5", "nan", "inf", "true", "[]", "[1]", "[[]]", '[""]', "{}", "{a = 1}"),
    *('""', '"\\u0000"', '"\\U0001f984"', "99999999999999999999", "1979-05-27", "07:32:00"),
    *("1979-05-27T07:32:00Z", '["a", 1, true]', '"x"', '"s3a://KEY:s3cr3t@b/x"'),
)
BASES: Final = {name: [*name.split(), *line.split()] for name, line in (DONE | OF_MODES).items()}


class Case(NamedTuple):
    """One option of a command with a value, on the command line or in a file."""

    command: str
    option: str
    value: str
    is_in_file: bool = False

    def arguments(self) -> list[str]:
        base = BASES[self.command]
        if self.is_in_file:
            key = self.option.removeprefix("--")
            table = self.command.replace(" ", ".")
            Path("kip33.toml").write_text(f"[{table}]\n{key} = {self.value}\n")
            return [*base, "--config", "kip33.toml"]
        if self.option in ("", REMOTE):
            first = len(self.command.split())
            given = [base[first], self.value] if self.option else [self.value]
            return [*base[:first], *given, *base[first + 1 :]]
        return [*base, *filter(None, [self.option]), self.value]


def options_of(command: click.Command) -> list[str]:
    """Return a command's options that take a value; "" is its argument, REMOTE a second one."""
    taking = (p for p in command.params if isinstance(p, click.Option) and not p.is_flag)
    names = [param.opts[0] for param in taking]
    arguments = [param for param in command.params if isinstance(param, click.Argument)]
    return [*names, *("", REMOTE)[: len(arguments)]]


def all_cases() -> Iterator[Case]:
    for name, command in commands_and_modes():
        for option in options_of(command):
            for value in VALUES:
                if (option, value) != ("--config", "pipe"):  # it waits for its writer
                    yield Case(name, option, value)
            if option.startswith("--") and option != "--config":
                yield from (Case(name, option, value, is_in_file=True) for value in IN_FILES)


@pytest.fixture
def run(command: Command, built: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Finished]:
    """Return a function that runs a command beside hostile files, without Spark."""

    def no_spark(**_: object) -> None:
        raise Kip33Error("Spark would start here")

    def ring(*_: object) -> None:
        raise AssertionError(f"no end after {MOST_SECONDS} s")

    for name in ("create_session", "create_context"):
        monkeypatch.setattr(f"kip33.spark.session.{name}", no_spark)
    shutil.copytree(built / "indexes", "indexes")
    Path("archive").unlink()
    shutil.copytree(built / "archive", "archive")
    Path("folder").mkdir()
    os.mkfifo("pipe")
    Path("link").symlink_to("nothing")
    file_named("text", b"some text\n")
    file_named("binary", bytes(range(256)))
    file_named("empty", b"")
    file_named("configs.txt", b"Dynamic configs for topic orders are:\n")
    file_named("policy.toml", b"[defaults]\nretention.ms = '1d'\n")
    file_named("offsets.csv", b"group,topic,partition,offset\ng,orders,0,5\n")

    def timed(*arguments: str) -> Finished:
        before = signal.signal(signal.SIGALRM, ring)
        signal.alarm(MOST_SECONDS)
        try:
            return command(*arguments)
        finally:
            signal.alarm(0)
            signal.signal(signal.SIGALRM, before)

    return timed


def fault_of(done: Finished) -> str | None:
    """Return what is wrong with how a command ended, None if nothing is."""
    lines = done.stderr.splitlines()
    others = ("Warning: ", "KIP33_RESULT ", "Engine: ", "Newer records ", "Buffer: ")
    errors = [line for line in lines if not line.startswith(others)]
    if done.exit_code not in range(5):  # 4: a restore that refused some partitions
        return f"exit code {done.exit_code}"
    if "Traceback" in done.stderr + done.stdout:
        return "a trace"
    if len(errors) > 1 or not all(line.startswith("Error: ") for line in errors):
        return f"standard error: {done.stderr[:300]!r}"
    if done.exit_code in (1, 2) and not errors and " is not restored: " not in done.stderr:
        return f"exit code {done.exit_code} without a word"
    return "a secret is shown" if "s3cr3t" in done.stderr + done.stdout else None


@pytest.mark.parametrize("count", short_and_long(12, 1_500, "KIP33_OPTIONS"))
def test_no_value_of_an_option_ends_in_a_trace(count: int, run: Callable[..., Finished]) -> None:
    cases = list(all_cases())
    random.Random(SEED).shuffle(cases)

    found = []
    for case in cases[:count]:
        try:
            fault = fault_of(run(*case.arguments()))
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # what a command does not handle is its trace
            fault = f"{type(error).__name__}: {error}"[:300]
        if fault:
            found.append(f"{case!a}: {fault}")

    assert not found, f"seed {SEED}: {len(found)}\n" + "\n".join(found)


def test_so_does_a_process_of_its_own(archive: Path) -> None:
    done = subprocess_of(KIP33, "dump", "\udcff", cwd=archive.parent)

    assert fault_of(done) is None, done
    assert done.exit_code == 2
