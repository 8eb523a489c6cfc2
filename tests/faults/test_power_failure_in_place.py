"""A power failure while a build in place runs: no `.index` without its `.txnindex`.

A broker writes a lost `.txnindex` anew only while the segment's `.index` is missing. So on the disk
an `.index` that is new must never be there without the `.txnindex` that belongs to it.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.builders.segment_builder import segment
from tests.builds.test_transaction_files import FIRST, SECOND, SEGMENTS, THIRD, Q, abort, data
from tests.faults.crash_disk import Disk
from tests.faults.traces import Event, record

NOW_MS, DAY_MS = 1_800_000_000_000, 86_400_000
BUILD = """
import sys
from pathlib import Path
from tests.faults.builds import build_here
source, catalog, now_ms = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
build_here(source, None, in_place=True, catalog=catalog, offset_index=True, now_ms=now_ms)
"""


def write(source: Path, logs: dict[int, bytes]) -> None:
    (source / "t-0").mkdir(parents=True, exist_ok=True)
    for base_offset, log in logs.items():
        (source / f"t-0/{base_offset:020d}.log").write_bytes(log)


def build(source: Path, now_ms: int = NOW_MS) -> list[Event]:
    return record(BUILD, source, source.parent / "catalog", now_ms, root=source)


def faults_of(disk: Disk, events: Iterable[Event], whole: dict[str, set[bytes]]) -> Iterator[str]:
    """Yield each state of the disk in which an `.index` is there and its `.txnindex` is not whole.

    `whole` has what each `.txnindex` may hold.
    """
    for event in events:
        disk.apply(event)
        for path, contents in whole.items():
            pair = (path, path.replace(".txnindex", ".index"))
            for tree in disk.trees(lambda one, pair=pair: one in pair):
                if pair[1] in tree and tree.get(path) not in contents:
                    found = tree.get(path)
                    length = "no file" if found is None else f"{len(found)} bytes"
                    yield f"{event.what} {event.path}: {path}: {length} beside an .index"


def transaction_indexes(source: Path) -> dict[str, set[bytes]]:
    return {str(path): {path.read_bytes()} for path in source.rglob("*.txnindex")}


def test_an_index_is_never_on_the_disk_without_its_transaction_index(tmp_path: Path) -> None:
    """A first build, then one of a log that went on."""
    source = tmp_path / "source"
    write(source, {0: FIRST, 3: SECOND, 6: THIRD})
    disk = Disk(source)
    events = build(source)
    first = transaction_indexes(source)
    assert [path[-len("0.txnindex") :] for path in sorted(first)] == ["3.txnindex", "6.txnindex"]
    assert len(list(source.rglob("*.index"))) == len(SEGMENTS)
    assert list(faults_of(disk, events, first)) == []

    write(source, {6: THIRD + segment([data(8, Q), abort(9, Q)])})
    disk = Disk(source)
    events = build(source, NOW_MS + DAY_MS)
    second = transaction_indexes(source)
    assert second != first
    either = {path: contents | first[path] for path, contents in second.items()}
    assert list(faults_of(disk, events, either)) == []


def test_the_replay_finds_a_transaction_index_that_was_not_flushed(tmp_path: Path) -> None:
    source = tmp_path / "source"
    write(source, {0: FIRST, 3: SECOND})
    disk = Disk(source)
    events = [event for event in build(source) if not event.what.startswith("flush")]

    assert list(faults_of(disk, events, transaction_indexes(source)))
