"""Commands in children of one process that has loaded everything, each killed around an operation.

A child is a process of its own, with its exit code and its streams. It saves the seconds that a
program spends on imports and on loading kernels. `Forks` starts the process:

    forks.run("restore", source, log_dir, die=["before", 17])

gives the child SIGKILL right before its operation 17. An operation changes a directory or a file.
A text in place of the number is a pattern: the first rename or link whose target matches it.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import IO, Any, Final, Self

import kip33
from kip33.archive import removal
from kip33.builds.leftovers import read_leftover_plan, remove_leftovers
from kip33.catalog.catalog import Catalog
from kip33.cli import main as cli_main
from kip33.cli.engine_option import ENGINE_VARIABLE
from kip33.errors import Kip33Error
from kip33.local.local_engine import LocalEngine
from kip33.restore import restore_apply
from kip33.restore.restore_request import RestoreRequest
from kip33.restore.truncate_apply import truncate
from kip33.retention import apply_segment
from kip33.rules.index_builder import IndexSettings, TopicSettings
from kip33.stores import files, own_files
from kip33.stores.locations import Location
from tests.builders.expiring_archive import only_within_a_directory
from tests.builders.partition_copies import INTERVAL_BYTES
from tests.cli.console import PROJECT, Finished
from tests.faults.applies import apply_here, undo_here
from tests.faults.builds import build_here
from tests.faults.nights import first_day


class Forks:
    """The process whose children run COMMANDS."""

    def __init__(self, *prefix: object) -> None:
        """Start it through another program: one that takes privileges away, or enters a disk."""
        self._process = subprocess.Popen(
            [*map(str, prefix), sys.executable, "-m", "tests.faults.forks"],
            cwd=PROJECT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._answer() == "ready"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def run(self, command: str, *arguments: object, **options: Any) -> Finished:
        """Run a command to its end, or to where `die` ends it."""
        self.begin(command, *arguments, **options)
        return self.end()

    def begin(self, command: str, *arguments: object, **options: Any) -> int:
        """Begin a command; return its process, which remains until `end`."""
        return int(self._answer([command, [str(one) for one in arguments], options]))

    def end(self) -> Finished:
        """Wait for the command that was begun."""
        return Finished(*json.loads(self._answer("wait")))

    def _answer(self, *lines: object) -> str:
        """Send what is given as a line, and return the next one of the process."""
        assert self._process.stdin and self._process.stdout
        self._process.stdin.writelines(json.dumps(line) + "\n" for line in lines)
        self._process.stdin.flush()
        return self._process.stdout.readline().removesuffix("\n")


def restore_request(source: str, log_dir: str, *, is_linked: bool = False) -> RestoreRequest:
    """Return the request of the command `restore`."""
    return RestoreRequest(
        source=Location.of(source),
        log_dir=Location.of(log_dir),
        settings=TopicSettings(IndexSettings("recover", INTERVAL_BYTES)),
        is_linked=is_linked,
    )


def _build(source: str, index_dir: str, **settings: Any) -> None:
    build_here(Path(source), Path(index_dir), offset_index=True, **settings)


def _builds_at_once(source: str, index_dir: str, *topics: str) -> None:
    """Build each topic in a process of its own, all at once."""
    processes = []
    for topic in topics:
        if pid := os.fork():
            processes.append(pid)
            continue
        code = _run("build", [source, index_dir], {"topics": [topic]})
        sys.stderr.flush()
        os._exit(code)
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in processes]
    if any(codes):
        sys.exit(f"exit codes {codes}")


def _apply(
    plan_file: str,
    trash_folder: str,
    *,
    trash: bool = False,
    other_disk: bool = False,
    threads: int = 1,
) -> None:
    """Apply a plan; with `other_disk` no rename goes to the trash."""
    if other_disk:
        os.rename = only_within_a_directory(os.rename)  # type: ignore[assignment]
    try:
        applied = apply_here(plan_file, trash_folder if trash else None, threads=threads)
    except Kip33Error as error:
        sys.exit(str(error))
    if why := "; ".join(one.why for one in applied.partitions if one.why):
        sys.exit(why)


def _undo(plan_file: str, trash_folder: str, *, other_disk: bool = False, threads: int = 1) -> None:
    """Put back what is in the trash; with `other_disk` no rename goes from it."""
    if other_disk:
        os.rename = only_within_a_directory(os.rename)  # type: ignore[assignment]
    undone = undo_here(plan_file, trash_folder, threads=threads)
    if why := "; ".join(one.why for one in undone.partitions if one.why):
        sys.exit(why)


def _applies(plan_file: str, trash: str | None = None) -> None:
    """Apply a plan; print its partitions."""
    print(json.dumps([one._asdict() for one in apply_here(plan_file, trash).partitions]))


def _console(*arguments: str) -> None:
    """Run `kip33` on the local engine."""
    sys.argv = ["kip33", *arguments]
    cli_main.main()


def _restore(source: str, log_dir: str, *, blind: bool = False) -> None:
    """Restore an archive; `blind` does not look at the free space before."""
    own_files.set_flushing(False)  # what a process has written survives it
    if blind:
        restore_apply._require_space = lambda plan, job: None
    restore_apply.restore(restore_request(source, log_dir), LocalEngine())


def _truncate(directory: str, offset: str) -> None:
    own_files.set_flushing(False)
    truncate(Location.of(directory), int(offset))


def _remove(catalog: str, plan: str) -> None:
    remove_leftovers(Catalog.at(catalog), read_leftover_plan(Location.of(plan)))


def _write_records(catalog: str, to: str) -> None:
    own_files.set_flushing(False)
    kip33.write_records(catalog, to, workers=1)


COMMANDS: Final[dict[str, Callable[..., object]]] = {
    "applies": _applies,
    "apply": _apply,
    "build": _build,
    "builds at once": _builds_at_once,
    "console": _console,
    "remove": _remove,
    "restore": _restore,
    "truncate": _truncate,
    "undo": _undo,
    "write records": _write_records,
}


def file_operations() -> Iterator[tuple[Any, str]]:
    """Yield the functions that change files: what has each, and its name there."""
    names = ("copy_file_range", "link", "mkdir", "pwrite", "rename", "replace", "rmdir")
    yield from ((os, name) for name in (*names, "truncate", "unlink"))
    yield shutil, "copy2"
    yield apply_segment.SegmentStep, "_remove"
    yield removal, "_copy"
    for module in [one for name, one in sys.modules.items() if name.startswith("kip33.")]:
        yield from ((module, name) for name, value in vars(module).items() if _changes_files(value))


def _changes_files(value: object) -> bool:
    """Return whether a name in some module is one of kip33's functions that change files."""
    own = (files.write_new, own_files.remove, own_files.remove_empty_folder)
    return any(value is one for one in own)


def _die(when: str, at: int | str) -> None:
    """End this process around one of its operations, those within others counted as well."""
    numbers = count()

    def around(operation: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*arguments: Any, **how: Any) -> Any:
            is_it = next(numbers) == at
            if is_it and when == "before":
                _kill()
            try:
                return operation(*arguments, **how)
            finally:
                if is_it:
                    _kill()

        return watched

    def watch_names(event: str, arguments: tuple[Any, ...]) -> None:
        if event in ("os.rename", "os.link") and re.search(str(at), os.fsdecode(arguments[1])):
            _kill() if when == "before" else sys.setprofile(_kill)  # called when it returns

    if isinstance(at, str):
        sys.addaudithook(watch_names)
        return
    for owner, name in list(file_operations()):
        setattr(owner, name, around(getattr(owner, name)))


def _kill(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _run(command: str, arguments: list[str], options: dict[str, Any]) -> int:
    """Run a command in this process; return its exit code."""
    if end := options.pop("die", None):
        _die(*end)
    try:
        COMMANDS[command](*arguments, **options)
    except Kip33Error as error:
        print(error, file=sys.stderr)
        return error.exit_code
    except SystemExit as stop:
        if isinstance(stop.code, str):
            print(stop.code, file=sys.stderr)
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def _child(out: IO[bytes], err: IO[bytes], asked: list[Any]) -> None:
    with Path(os.devnull).open("rb") as nothing:
        for ours, theirs in enumerate((nothing, out, err)):
            os.dup2(theirs.fileno(), ours)
    code = _run(*asked)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _written(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode()


def main() -> None:
    """Answer pairs of lines: a command by its child's pid, the next one by how the child ended."""
    os.environ[ENGINE_VARIABLE] = "local"
    with tempfile.TemporaryDirectory() as folder:  # loads the kernels
        first_day(Path(folder) / "archive", 1)
        _build(f"{folder}/archive", f"{folder}/indexes")
    print("ready", flush=True)
    while line := sys.stdin.readline():
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            pid = os.fork()
            if not pid:
                _child(out, err, json.loads(line))
            print(pid, flush=True)
            sys.stdin.readline()
            _, status = os.waitpid(pid, 0)
            ended = [os.waitstatus_to_exitcode(status), _written(out), _written(err)]
        print(json.dumps(ended), flush=True)


if __name__ == "__main__":
    main()
