"""A power failure at any moment: what was not flushed may be lost, in any combination.

A build runs under strace. Its writes, flushes and renames are replayed; a model of the disk knows
at each step which bytes and which names are certain to be there after a power failure. What is not
certain may be there or not, so a rename may survive alone, without the bytes of its file.
"""

import re
import shutil
import subprocess
import sys
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.changing_archive import batches

PROJECT = Path(__file__).parents[2]
CALLS = "openat,open,creat,write,pwrite64,rename,renameat,renameat2,mkdir,mkdirat,fsync,fdatasync"
CHILD = """
import sys
from pathlib import Path
from tests.faults.builds import build_here
source, index_dir, fsync = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3] == "fsync"
build_here(source, index_dir, offset_index=True, now_ms=int(sys.argv[4]), fsync=fsync,
           index_interval_bytes=200)
"""
NOW_MS = 1_800_000_000_000


class Event(NamedTuple):
    """A step of the build: what it does to which path; `new` is where a rename leads."""

    what: str  # create | write | rename | mkdir | flush | flush all
    path: str
    new: str = ""


class Disk:
    """What is certain to be on the disk."""

    def __init__(self) -> None:
        self.bytes_flushed: dict[str, bool] = {}  # of files that the build wrote
        self.name_flushed: dict[str, bool] = {}  # of these files, and of folders it made

    def apply(self, event: Event) -> None:
        what, path, new = event
        if what in ("create", "mkdir"):
            if path not in self.name_flushed:
                self.name_flushed[path] = False
            if what == "create":
                self.bytes_flushed[path] = False
        elif what == "write":
            self.bytes_flushed[path] = False
        elif what == "rename":
            self.bytes_flushed[new] = self.bytes_flushed.pop(path, True)
            self.name_flushed.pop(path, None)
            self.name_flushed[new] = False
        elif what == "flush all":
            self.bytes_flushed = dict.fromkeys(self.bytes_flushed, True)
            self.name_flushed = dict.fromkeys(self.name_flushed, True)
        elif path in self.bytes_flushed:
            self.bytes_flushed[path] = True
        else:
            for name in self.name_flushed:
                if name.rpartition("/")[0] == path:
                    self.name_flushed[name] = True

    def is_certain(self, path: str) -> bool:
        """Return whether a file is there to the byte after a power failure now."""
        above = [str(folder) for folder in Path(path).parents]
        names = all(self.name_flushed.get(name, True) for name in (path, *above))
        return names and self.bytes_flushed.get(path, True)


def events_of(trace: str) -> Iterator[Event]:
    """Yield a trace's steps; a flush counts when it has returned, everything else when it began."""
    unfinished: dict[str, str] = {}
    for line in trace.splitlines():
        process, _, call = line.partition(" ")
        call = call.strip()
        if call.endswith("<unfinished ...>"):
            began = call.removesuffix("<unfinished ...>")
            unfinished[process] = began
            if not began.startswith(("fsync", "fdatasync", "syncfs")):
                yield from event_of(began + ") = 0")
        elif resumed := re.match(r"<\.\.\. (\w+) resumed>", call):
            began = unfinished.pop(process, "")
            if resumed[1] in ("fsync", "fdatasync", "syncfs") and call.endswith("= 0"):
                yield from event_of(began + ") = 0")
        elif not re.search(r"= -1 E", call):
            yield from event_of(call)


def event_of(call: str) -> Iterator[Event]:
    name = call.partition("(")[0]
    texts = re.findall(r'"([^"]*)"', call)
    opened = re.match(r"\w+\(\d+<([^>]*)>", call)
    if name in ("openat", "open", "creat") and ("O_CREAT" in call or name == "creat"):
        yield Event("create", texts[0])
    elif name in ("write", "pwrite64") and opened:
        yield Event("write", opened[1])
    elif name.startswith("rename"):
        yield Event("rename", *texts[:2])
    elif name.startswith("mkdir"):
        yield Event("mkdir", texts[0])
    elif name in ("fsync", "fdatasync") and opened:
        yield Event("flush", opened[1])
    elif name == "syncfs" and opened:
        yield Event("flush all", opened[1])


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """Return a place with an archive of some partitions of two segments each."""
    for number in range(5):
        for base_offset in (0, 40):
            log = tmp_path / f"source/broker 1/t-{number}/{base_offset:020d}.log"
            log.parent.mkdir(parents=True, exist_ok=True)
            log.write_bytes(batches(base_offset, 12))
    return tmp_path


def traced_build(place: Path, *, fsync: bool, now_ms: int) -> list[Event]:
    """Build in a process of its own; return the steps that touch the index directory."""
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("strace is not installed: nothing records the order of writes and flushes")
    trace = place / "trace"
    command = [
        *(strace, "-f", "-y", "-s", "0", "-e", f"trace={CALLS},syncfs", "-o", str(trace)),
        *(sys.executable, "-c", CHILD, str(place / "source"), str(place / "indexes")),
        *("fsync" if fsync else "none", str(now_ms)),
    ]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=300)
    if done.returncode and "ptrace" in done.stderr:
        pytest.skip(f"strace may not trace here: {done.stderr.splitlines()[0]}")
    assert done.returncode == 0, done.stderr
    root = str(place / "indexes")
    found = list(events_of(trace.read_text()))
    return [event for event in found if event.path.startswith(root) or event.new.startswith(root)]


def faults_of(events: list[Event], named: Collection[str] = ()) -> list[str]:
    """Return what a power failure could break, at any moment.

    `named` are the index files that the newest snapshot named before.
    """
    disk = Disk()
    faults = []
    indexes: set[str] = set()
    claimed = False
    for event in events:
        if event.what == "rename" and event.new.endswith("/claims.arrow"):
            claimed = True
        if event.what == "rename" and event.new.endswith((".timeindex", ".index")):
            if event.new in named and not disk.bytes_flushed[event.path]:
                faults.append(f"{event.new}: a snapshot names it, its new bytes may be lost")
            if not claimed:
                faults.append(f"{event.new}: written before the claims")
            indexes.add(event.new)
        if event.what == "rename" and "/commits/" in event.new:
            parts = [path for path in disk.bytes_flushed if "/snapshots/" in path]
            assert parts
            assert indexes
            if not disk.bytes_flushed[event.path]:
                faults.append(f"{event.new}: renamed before its bytes were flushed")
            faults += [
                f"{path}: not certain when the commit names it"
                for path in (*parts, *sorted(indexes))
                if not disk.is_certain(path)
            ]
        disk.apply(event)
    commits = [path for path in disk.bytes_flushed if "/commits/" in path]
    faults += [f"{path}: the build is done, it may be lost" for path in commits
               if not disk.is_certain(path)]  # fmt: skip
    return faults


def test_a_power_failure_at_any_moment_leaves_a_snapshot_with_all_that_it_names(
    archive: Path,
) -> None:
    """A first build, then one that replaces the index files of logs that grew."""
    events = traced_build(archive, fsync=True, now_ms=NOW_MS)
    assert faults_of(events) == []
    assert sum(event.what == "flush all" for event in events) <= 3, "one a task"
    named = {event.new for event in events if event.new.endswith("index")}
    for number in range(3):
        log = archive / f"source/broker 1/t-{number}/{40:020d}.log"
        log.write_bytes(batches(40, 30))

    events = traced_build(archive, fsync=True, now_ms=NOW_MS + 86_400_000)

    assert {event.new for event in events} & named, "index files are replaced"
    assert faults_of(events, named) == []


def test_the_replay_finds_what_a_build_without_flushes_may_lose(archive: Path) -> None:
    faults = faults_of(traced_build(archive, fsync=False, now_ms=NOW_MS))
    assert any("/commits/" in fault for fault in faults)
    assert any("part-" in fault for fault in faults)
    assert any(".timeindex: not certain" in fault for fault in faults)
