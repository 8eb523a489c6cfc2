"""A power failure while a build in place runs: no `.index` without the files beside it.

A broker writes a lost `.timeindex` or `.txnindex` anew only while the `.index` is missing. So a new
`.index` must never be on the disk without the two that belong to it, and it must have all its
bytes.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests.builders.changing_archive import batches
from tests.builders.segment_builder import segment
from tests.builds.test_transaction_files import FIRST, SECOND, SEGMENTS, THIRD, Q, abort, data
from tests.faults.crash_disk import Disk
from tests.faults.traces import Event, record
from tests.long_forms import one_in

NOW_MS, DAY_MS = 1_800_000_000_000, 86_400_000
BUILD = """
import sys
from pathlib import Path
from kip33.indexing import published_files
from tests.faults.builds import build_here
published_files.MOST_SEGMENTS_TOGETHER = int(sys.argv[4])
source, catalog, now_ms = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
build_here(source, None, in_place=True, catalog=catalog, offset_index=True, now_ms=now_ms,
           index_interval_bytes=200)
"""


def write(source: Path, logs: dict[int, bytes]) -> None:
    (source / "t-0").mkdir(parents=True, exist_ok=True)
    for base_offset, log in logs.items():
        (source / f"t-0/{base_offset:020d}.log").write_bytes(log)


def build(source: Path, now_ms: int = NOW_MS, *, segments_at_once: int = 1024) -> list[Event]:
    catalog = source.parent / "catalog"
    return record(BUILD, source, catalog, now_ms, segments_at_once, root=source)


def faults_of(disk: Disk, events: Iterable[Event], whole: dict[str, set[bytes]]) -> Iterator[str]:
    """Yield each state of the disk in which an `.index` is there and a file beside it is not whole.

    `whole` has what each of these files may hold.
    """
    for event in events:
        disk.apply(event)
        for path, contents in whole.items():
            pair = (path, str(Path(path).with_suffix(".index")))
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


@pytest.mark.long
def test_the_replay_finds_a_transaction_index_that_was_not_flushed(tmp_path: Path) -> None:
    source = tmp_path / "source"
    write(source, {0: FIRST, 3: SECOND})
    disk = Disk(source)
    events = [event for event in build(source) if not event.what.startswith("flush")]

    assert list(faults_of(disk, events, transaction_indexes(source)))


def others(source: Path) -> dict[str, set[bytes]]:
    """Return what each `.timeindex` and `.index` holds."""
    return {
        str(path): {path.read_bytes()}
        for kind in ("*.timeindex", "*.index")
        for path in source.rglob(kind)
    }


def write_plain(source: Path, count: int) -> None:
    """Write segments of ten batches, without transactions."""
    write(source, {base: batches(base, 10) for base in range(0, 20 * count, 20)})


@pytest.mark.parametrize("segments_at_once", one_in(2, [1024, 1]))
def test_an_index_is_never_on_the_disk_without_its_time_index(
    tmp_path: Path, segments_at_once: int
) -> None:
    source = tmp_path / "source"
    write_plain(source, 3)
    disk = Disk(source)
    events = build(source, segments_at_once=segments_at_once)
    first = others(source)
    assert len(first) == 6 and all(len(*contents) > 8 for contents in first.values())
    assert list(faults_of(disk, events, first)) == []


@pytest.mark.long
def test_a_time_index_that_is_lost_with_its_flush_is_found(tmp_path: Path) -> None:
    source = tmp_path / "source"
    write_plain(source, 2)
    disk = Disk(source)
    events = [event for event in build(source) if not event.what.startswith("flush")]

    assert list(faults_of(disk, events, others(source)))
