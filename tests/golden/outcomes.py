"""Records the outcomes of a golden set of commands: run it before and after a change of structure.

    python -m tests.golden.outcomes OUT.json
    python -m tests.golden.outcomes --compare BEFORE.json AFTER.json

The commands run with the code of the checkout that this file is in, in one process with one Spark
session. OUT.json has, of each command, its exit code, standard output, standard error and every
file that it wrote. Where kip33 does the same, two recordings are equal; `--compare` prints the
differences and exits 1 if there are any. A recording takes about two minutes.
"""

import difflib
import hashlib
import json
import os
import shlex
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final

PROJECT: Final = Path(__file__).parents[2]
MOST_SHOWN: Final = 40  # lines of one difference, and of an output of more than MOST_KEPT
MOST_KEPT: Final = 2_000
os.environ |= {
    "COLUMNS": "80",  # click wraps help by it
    "TZ": "UTC",
    "PYTHONPATH": str(PROJECT),  # Spark's workers run this checkout as well
    "SPARK_MASTER": "local[2]",  # how many tasks a build has depends on it
}
for _name in ("FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE"):
    os.environ.pop(_name, None)

import kip33  # noqa: E402
from kip33.cli.main import main as kip33_main  # noqa: E402
from tests.golden.recorded_commands import SECTIONS, prepare  # noqa: E402
from tests.golden.unstable_values import UnstableValues  # noqa: E402
from tests.golden.written_files import WrittenFiles  # noqa: E402

Outcome = dict[str, Any]


class Recording:
    """Runs commands in a folder and keeps their outcomes."""

    def __init__(self, folder: Path) -> None:
        """Begin in an empty folder: make what the commands need."""
        self.outcomes: list[Outcome] = []
        self._values = UnstableValues(folder)
        prepare(folder)
        self._files = WrittenFiles(folder, self._values)

    def section(self, commands: Callable[..., None]) -> None:
        """Run a section of the golden set."""
        started = time.monotonic()
        count = len(self.outcomes)
        commands(self.run)
        seconds = time.monotonic() - started
        done = len(self.outcomes) - count
        print(f"{commands.__name__}: {done} commands, {seconds:.0f} s", flush=True)

    def run(self, line: str) -> None:
        """Run `kip33` with the arguments in `line` and keep the outcome."""
        self._files.look_again()
        with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
            with _output_to(stdout, stderr):
                exit_code = _exit_code(shlex.split(line))
            said, warned = self._lines(stdout), self._lines(stderr)
        self.outcomes.append(
            {
                "command": f"kip33 {line}",
                "folder": self._values.mask(str(Path.cwd())),
                "exit_code": exit_code,
                "stdout": said,
                "stderr": warned,
                "files": self._files.changes(),
            }
        )

    def _lines(self, stream: IO[bytes]) -> list[str]:
        stream.seek(0)
        lines = self._values.mask(stream.read().decode()).split("\n")
        if len(lines) <= MOST_KEPT:
            return lines
        digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
        return [*lines[:MOST_SHOWN], f"{len(lines)} lines in all, SHA-256 {digest}"]


def _exit_code(arguments: list[str]) -> int:
    sys.argv = ["kip33", *arguments]
    try:
        kip33_main()
    except SystemExit as end:
        return int(end.code or 0)
    except Exception as error:  # a fault of kip33's: the trace's lines change when code moves
        print(*traceback.format_exception_only(error), file=sys.stderr)
        return 1
    return 0


@contextmanager
def _output_to(*files: IO[bytes]) -> Iterator[None]:
    """Let standard output and standard error, of children as well, go to two files meanwhile."""
    streams = (sys.stdout, sys.stderr)
    for stream in streams:
        stream.flush()
    ours = [os.dup(stream.fileno()) for stream in streams]
    for stream, file in zip(streams, files, strict=True):
        os.dup2(file.fileno(), stream.fileno())
    try:
        yield
    finally:
        for stream, descriptor in zip(streams, ours, strict=True):
            stream.flush()
            os.dup2(descriptor, stream.fileno())
            os.close(descriptor)


def record(out: Path) -> None:
    """Run the golden set in a temporary folder and write the outcomes to `out`."""
    if not Path(kip33.__file__).is_relative_to(PROJECT):
        sys.exit(f"{kip33.__file__}: not the code of {PROJECT}; start this in {PROJECT}")
    sys.modules["__main__"].__package__ = ""  # click names a program by it: not `python -m tests`
    out = out.absolute()
    folder = Path(tempfile.mkdtemp(prefix="kip33-golden-")).resolve()
    try:
        os.chdir(folder)
        _start_spark()
        recording = Recording(folder)
        for commands in SECTIONS:
            os.chdir(folder)
            recording.section(commands)
        out.write_text(json.dumps({"outcomes": recording.outcomes}, indent=1) + "\n")
        print(f"{len(recording.outcomes)} outcomes in {out}")
    finally:
        os.chdir(PROJECT)
        shutil.rmtree(folder)


def _start_spark() -> None:
    """Start the session that every command then finds, with little to compile and to shuffle."""
    from kip33.spark.session import create_session

    conf = {
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.sql.shuffle.partitions": "2",
    }
    create_session(conf=conf)


def compare(before: Path, after: Path) -> int:
    """Print what differs between two recordings; return how many commands do."""
    first, second = (_by_command(json.loads(path.read_text())) for path in (before, after))
    different = 0
    for name in first | second:
        one, other = first.get(name), second.get(name)
        if one == other:
            continue
        different += 1
        print(f"== {name}")
        if one is None or other is None:
            print(f"   only in {before if other is None else after}")
            continue
        for field in (field for field in one if one[field] != other[field]):
            print(f"   {field}:")
            texts = [json.dumps(value[field], indent=1).split("\n") for value in (one, other)]
            lines = list(difflib.unified_diff(*texts, lineterm="", n=0))[2:]
            print(*(f"     {line}" for line in lines[:MOST_SHOWN]), sep="\n")
            if len(lines) > MOST_SHOWN:
                print(f"     and {len(lines) - MOST_SHOWN} more lines")
    print(f"{different} of {len(first | second)} commands differ")
    return different


def _by_command(recording: dict[str, list[Outcome]]) -> dict[str, Outcome]:
    """Return the outcomes by command, folder, and how often it ran before."""
    found: dict[str, Outcome] = {}
    times: Counter[str] = Counter()
    for outcome in recording["outcomes"]:
        name = f"{outcome['command']}  # in {outcome['folder']}"
        times[name] += 1
        found[f"{name}, run {times[name]}"] = outcome
    return found


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["--compare", before, after]:
            sys.exit(1 if compare(Path(before), Path(after)) else 0)
        case [out] if not out.startswith("-"):
            record(Path(out))
        case _:
            sys.exit(__doc__)
