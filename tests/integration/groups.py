"""The integration tests in groups that run side by side: they wait more than they compute.

    python -m tests.integration.groups                all groups at once
    python -m tests.integration.groups kafka stores   two of them

Each group is a process of pytest with workers of its own. Its output is shown when it ends, and the
closing lines of all groups are shown last. Files belong to the first group that has their folder.
The last group has every other file, so no test is in none: `conftest` refuses a mark that is not
written in its file. Each has two workers or more: the one that ends last then has both cores.
"""

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

TESTS = Path(__file__).parents[1]
MARKS = ("kafka", "integration")
IS_MARKED = re.compile(rf"\bmark\.({'|'.join(MARKS)})\b")


class Group(NamedTuple):
    """Some folders of tests, the number of their workers, and the files that begin: the longest."""

    name: str
    workers: int
    folders: tuple[str, ...]
    first: tuple[str, ...] = ()

    def has(self, file: Path) -> bool:
        """Return whether a file of tests is in one of the folders."""
        return any(file.is_relative_to(TESTS / folder) for folder in self.folders)


GROUPS = (
    Group(
        "kafka",
        workers=3,
        folders=("integration/kafka",),
        first=("test_restore_on_a_broker.py", "test_tiered_cluster.py", "test_tiered_search.py"),
    ),
    Group(
        "stores",
        workers=2,
        folders=("integration/stores",),
        first=("test_s3_faults.py", "test_hdfs_faults.py", "test_kerberos.py"),
    ),
    Group(
        "machines",
        workers=2,
        folders=("integration",),
        first=("test_older_spark.py", "test_nightly.py", "test_how_to_pages.py"),
    ),
    Group("others", workers=2, folders=("",), first=("test_table_formats.py",)),
)


def files_of(group: Group) -> list[Path]:
    """Return the files with integration tests of a group, the longest first."""
    marked = [file for file in sorted(TESTS.rglob("test_*.py")) if group_of(file) == group]
    marked = [file for file in marked if IS_MARKED.search(file.read_text(encoding="utf-8"))]
    return sorted(marked, key=lambda file: file.name not in group.first)


def group_of(file: Path) -> Group:
    """Return the group that a file of tests belongs to."""
    return next(group for group in GROUPS if group.has(file))


def command_of(group: Group) -> list[str]:
    """Return the command that runs a group."""
    workers = ("-n", str(group.workers), "--dist", "loadfile", "--no-loadscope-reorder")
    return [
        *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *workers),
        *("--durations", "10", "--durations-min", "10"),
        *("-m", f"({' or '.join(MARKS)}) and not long"),
        *(str(file.relative_to(TESTS.parent)) for file in files_of(group)),
    ]


class Running:
    """A group that was started; its output goes to a file."""

    def __init__(self, group: Group, folder: Path) -> None:
        self.name = group.name
        self._log = folder / group.name
        self._since = time.monotonic()
        with self._log.open("wb") as log:
            # Servers and brokers write to a disk: memory is for what the programs need.
            environment = os.environ | {"TMPDIR": tempfile.gettempdir()}
            self.process = subprocess.Popen(
                command_of(group),
                cwd=TESTS.parent,
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    @property
    def output(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace").rstrip()

    def show(self) -> None:
        """Print what it printed."""
        minutes, seconds = divmod(round(time.monotonic() - self._since), 60)
        print(f"\n{self.name}, {minutes}:{seconds:02d} minutes\n{self.output}", flush=True)


def run(groups: Sequence[Group]) -> int:
    """Run groups at once; return the number of those that failed."""
    with tempfile.TemporaryDirectory() as folder:
        started = [Running(group, Path(folder)) for group in groups]
        print("running:", ", ".join(f"{one.name} ({one.workers})" for one in groups), flush=True)
        try:
            left = list(started)
            while left:
                time.sleep(0.5)
                for one in [one for one in left if one.process.poll() is not None]:
                    left.remove(one)
                    one.show()
        finally:
            for one in started:
                one.process.terminate()
                one.process.wait()
        print()
        for one in started:
            print(f"{one.name}:\n{one.output.rpartition(chr(10))[2]}")
        return sum(one.process.returncode != 0 for one in started)


def main(names: Sequence[str]) -> int:
    """Run the groups of these names, or all."""
    known = {group.name: group for group in GROUPS}
    if unknown := set(names) - set(known):
        print(f"no group {', '.join(sorted(unknown))}; there are {', '.join(known)}")
        return 2
    return min(1, run([known[name] for name in names or known]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
