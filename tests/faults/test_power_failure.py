"""A power failure while a build runs: what was not flushed may be lost, in any combination.

A build runs under strace. After each of its steps, every state that the disk could be left in is
made (`tests.faults.crash_disk`) and looked at.
"""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kip33.catalog.catalog import Catalog
from kip33.errors import Kip33Error
from kip33.stores.locations import Location
from tests.builders.changing_archive import batches
from tests.faults.crash_disk import Disk, Tree
from tests.faults.traces import Event, record

NOW_MS = 1_800_000_000_000
DAY_MS = 86_400_000
INTERVAL = 200  # bytes between index entries
BUILD = """
import sys
from pathlib import Path
from tests.faults.builds import build_here
source, index_dir, fsync = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3] == "True"
build_here(source, index_dir, offset_index=True, now_ms=int(sys.argv[4]), fsync=fsync,
           index_interval_bytes=int(sys.argv[5]))
"""


def write_archive(place: Path, *, partitions: int) -> Path:
    """Write an archive of partitions of two segments each below a place; return the place."""
    for number in range(partitions):
        for base_offset in (0, 40):
            write_log(place, f"t-{number}", base_offset, 12)
    return place


def write_log(place: Path, partition: str, base_offset: int, count: int) -> None:
    log = place / f"source/broker 1/{partition}/{base_offset:020d}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_bytes(batches(base_offset, count))


def grow(place: Path, *, partitions: int) -> None:
    """Let logs have more batches, so that a build replaces their index files, and add one."""
    for number in range(partitions):
        write_log(place, f"t-{number}", 40, 30)
    write_log(place, "new-0", 0, 12)


class Build:
    """A recorded build, and the disk as it was before."""

    def __init__(self, place: Path, *, fsync: bool = True, now_ms: int = NOW_MS) -> None:
        """Build in a process of its own."""
        self.place, self.index_dir = place, place / "indexes"
        self.index_dir.mkdir(exist_ok=True)
        self._before = self._saved()
        arguments = (place / "source", self.index_dir, fsync, now_ms, INTERVAL)
        self.events = record(BUILD, *arguments, root=self.index_dir)
        after = Disk(self.index_dir)
        self.after = {path: file.data for path in after.names if (file := after.file(path))}

    def _saved(self) -> Path:
        before = self.place / "before"
        shutil.rmtree(before, ignore_errors=True)
        return Path(shutil.copytree(self.index_dir, before))

    def disk(self) -> Disk:
        """Return the disk before the build."""
        disk = Disk(self._before)
        disk.names = {self._there(path): names for path, names in disk.names.items()}
        disk.folders = {self._there(path): True for path in disk.folders}
        disk.root = str(self.index_dir)
        return disk

    def _there(self, path: str) -> str:
        return str(self.index_dir / Path(path).relative_to(self._before))


class Snapshots:
    """What the newest snapshot of a catalog names; each state of the catalog is read once."""

    def __init__(self, build: Build) -> None:
        """Begin with no state."""
        self._build = build
        self._known: dict[frozenset[tuple[str, bytes]], tuple[str, dict[str, int], str]] = {}

    def read(self, tree: Tree) -> tuple[str, dict[str, int], str]:
        """Return the newest snapshot's name, its index files with their sizes, and a fault."""
        key = frozenset(tree.items())
        if key not in self._known:
            write_tree(tree, self._build.place / "indexes", self._build.place / "state")
            self._known[key] = self._read(self._build.place / "state")
        return self._known[key]

    def _read(self, state: Path) -> tuple[str, dict[str, int], str]:
        catalog = Catalog.at(str(state / "_catalog"))
        try:
            for candidate in catalog.candidates():
                if candidate.problem or candidate.snapshot is None:
                    return "", {}, f"{candidate.name}: {candidate.problem}"
                catalog.require_whole(candidate.snapshot)
            newest = catalog.newest()
            if newest is None:
                return "", {}, ""
            rows = catalog.read(newest).to_pylist()
        except Kip33Error as error:
            return "", {}, str(error)
        named = {}
        for row in rows:
            stem = Location.of(row["index_uri"]).path.removesuffix(".timeindex")
            for column, kind in (("time", "time"), ("offset", ""), ("transaction", "txn")):
                size = row[f"{column}_index_bytes"]
                if size is not None:
                    named[f"{stem}.{kind}index"] = size
        return newest.name, named, ""


def write_tree(tree: Tree, root: Path, target: Path) -> None:
    """Write the files of a state that are below `root` below `target`, which is made empty."""
    shutil.rmtree(target, ignore_errors=True)
    for path, data in tree.items():
        file = target / Path(path).relative_to(root)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)


def is_of_snapshots(path: str) -> bool:
    return "/_catalog/commits/" in path or "/_catalog/snapshots/" in path


def faults_of(build: Build, events: list[Event] | None = None) -> Iterator[str]:
    """Yield what a power failure could break, at any moment.

    The files of snapshots are read in all their states. Nothing ties a state of an index file to
    one of the snapshots' files, so each is looked at beside each.
    """
    disk, snapshots = build.disk(), Snapshots(build)
    before = {path: file.data for path in disk.names if (file := disk.file(path))}
    trees = list(disk.trees(is_of_snapshots))
    [old] = {snapshots.read(tree)[0] for tree in trees}
    for event in [*(build.events if events is None else events), None]:
        if event:
            disk.apply(event)
        if event and touches_snapshots(event):
            trees = list(disk.trees(is_of_snapshots))
        indexes = {path: disk.possible(path) for path in disk.names if path.endswith("index")}
        for tree in trees:
            name, named, fault = snapshots.read(tree)
            if fault:
                yield f"a snapshot is not whole: {fault}"
                continue
            if event is None and name == old:
                yield "the build is done, its snapshot may be lost"
            for path, size in named.items():
                whole = {build.after.get(path)} | ({before.get(path)} if name == old else set())
                for found in indexes.get(path, {None}):
                    if found not in whole or (name != old and len(found or b"") != size):
                        length = "no file" if found is None else f"{len(found)} bytes"
                        yield f"{path}: {length}, named by a snapshot"
            if name == old and not claims_are_certain(disk):
                for path, possible in indexes.items():
                    if possible - {before.get(path)}:
                        yield f"{path}: may be there before the claims are"


def claims_are_certain(disk: Disk) -> bool:
    claims = [disk.possible(path) for path in disk.names if path.endswith("/claims.arrow")]
    return any(len(found) == 1 and not found & {None, b""} for found in claims)


def touches_snapshots(event: Event) -> bool:
    return (
        event.what.startswith("flush")
        or event.what == "mkdir"
        or any(is_of_snapshots(path) for path in (event.path, event.new))
    )


def test_a_power_failure_at_any_moment_leaves_a_snapshot_with_all_that_it_names(
    tmp_path: Path,
) -> None:
    """A first build, then one that replaces the index files of logs that grew."""
    place = write_archive(tmp_path, partitions=3)
    first = Build(place)
    assert list(faults_of(first)) == []
    grow(place, partitions=2)

    second = Build(place, now_ms=NOW_MS + DAY_MS)

    named = {path for path in first.after if path.endswith("index")}
    assert {event.new for event in second.events} & named, "index files are replaced"
    assert list(faults_of(second)) == []


@pytest.mark.long
def test_the_replay_finds_what_a_build_without_flushes_may_lose(tmp_path: Path) -> None:
    place = write_archive(tmp_path, partitions=1)
    faults = set(faults_of(Build(place, fsync=False)))
    assert any("a snapshot is not whole" in fault for fault in faults)
    assert any("its snapshot may be lost" in fault for fault in faults)
    assert any(".timeindex: 0 bytes" in fault for fault in faults)
    assert any("before the claims" in fault for fault in faults)


LEFT_OUT: dict[str, Callable[[Event], bool]] = {
    "claims": lambda event: "/.claims.arrow." in event.path,
    "parts": lambda event: "/.part-" in event.path,
    "replaced index files": lambda event: "index." in event.path and event.path.endswith(".tmp"),
    "new index files": lambda event: event.path.endswith("index"),
    "folders of index files": lambda event: (
        "/broker 1/" in event.path and not event.path.endswith(("index", ".tmp"))
    ),
    "the snapshot's folder": lambda event: "/_catalog/snapshots" in event.path,
    "the commit": lambda event: "/commits/." in event.path,
    "the folder of commits": lambda event: event.path.endswith("/commits"),
}


@pytest.mark.long
def test_the_replay_finds_each_kind_of_flush_that_is_left_out(tmp_path: Path) -> None:
    place = write_archive(tmp_path, partitions=1)
    Build(place)
    grow(place, partitions=1)
    build = Build(place, now_ms=NOW_MS + DAY_MS)
    for kind, is_left_out in LEFT_OUT.items():
        events = [
            event
            for event in build.events
            if not (event.what.startswith("flush") and is_left_out(event))
        ]
        assert len(events) < len(build.events), kind
        assert any(faults_of(build, events)), f"not seen: no flush of {kind}"
