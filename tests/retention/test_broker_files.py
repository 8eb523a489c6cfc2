"""A broker's view of a segment, from the current files beside its log.

What the files mean is `tests/rules/test_broker_view.py`; here they are real ones, some of them bad.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyarrow import fs

from kip33.retention.broker_files import SeenByBroker, seen_by_broker
from kip33.rules.broker_start import BrokerTimestampSource, IndexFault
from kip33.stores.files import OpenedFile
from kip33.stores.locations import Location
from tests.cases import each_case
from tests.rules.test_broker_view import (
    EARLIER,
    LARGEST,
    LATER,
    MODIFIED,
    RIGHT,
    Beside,
    entries,
)

FROM_TIME_INDEX, LAST_MODIFIED, RECOVERED = BrokerTimestampSource
(
    MISSING_INDEX,
    EMPTY_INDEX,
    ZERO_TIMESTAMP,
    NEGATIVE_TIMESTAMP,
    OTHER_TIMESTAMP,
    INDEX_UNREADABLE,
) = IndexFault
NOTHING = (None, None, INDEX_UNREADABLE)
LOG, INDEX, TIMEINDEX = (f"{0:020d}.{kind}" for kind in ("log", "index", "timeindex"))


class Row(NamedTuple):
    """The columns that are asked for."""

    log_uri: str
    max_timestamp: int | None = LARGEST


class Disk:
    """The local disk, which counts what it is asked for; `before_opening` is done to a file."""

    tells_times = True

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._local = fs.LocalFileSystem()
        self.listed: list[str] = []
        self.opened: list[str] = []
        self.before_opening: dict[str, Any] = {}
        monkeypatch.setattr("kip33.stores.locations._LOCAL", self)
        monkeypatch.setattr("kip33.stores.files.OpenedFile", self.opened_locally)

    def get_file_info(self, selector: fs.FileSelector) -> Any:
        self.listed.append(Path(selector.base_dir).name)
        infos = self._local.get_file_info(selector)
        if self.tells_times:
            return infos
        return [fs.FileInfo(info.path, info.type, size=info.size) for info in infos]

    def opened_locally(self, path: str) -> Any:
        self.opened.append(Path(path).name)
        self.before_opening.get(Path(path).name, lambda _: None)(path)
        return OpenedFile(path)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


def write(directory: Path, name: str, beside: Beside) -> Row:
    """Write a log's name and what lies beside it; return its row."""
    directory.mkdir(exist_ok=True)
    log = directory / f"{name}.log"
    log.touch()
    os.utime(log, ns=(0, MODIFIED * 1_000_000 + 999_999))  # a part of a millisecond is cut off
    if beside.time_index is not None:
        log.with_suffix(".timeindex").write_bytes(beside.time_index)
    if beside.has_offset_index:
        log.with_suffix(".index").touch()
    return Row(Location.of(log).uri, beside.max_timestamp)


def seen(*rows: Row) -> list[tuple[Any, ...]]:
    """Return what a broker sees of each row, which is in the order of the rows."""
    found = list(seen_by_broker(iter(rows)))
    assert [one.log_uri for one in found] == [row.log_uri for row in rows]
    assert all(type(one) is SeenByBroker for one in found)
    return [one[1:] for one in found]


FELL_BACK = (MODIFIED, LAST_MODIFIED)
UNKNOWN = {
    # What the log says is not known: no broker keeps such a segment, or nobody read it.
    "a time index": (Beside(RIGHT), (LARGEST, FROM_TIME_INDEX, OTHER_TIMESTAMP)),
    "zeros": (Beside(bytes(24)), (0, FROM_TIME_INDEX, ZERO_TIMESTAMP)),
    "no .timeindex": (Beside(None), (*FELL_BACK, None)),
    "an empty .timeindex": (Beside(b""), (*FELL_BACK, None)),
    "a negative timestamp": (Beside(entries(-2)), (*FELL_BACK, None)),
    "no .index: it would be recovered, to what?": (Beside(RIGHT, has_offset_index=False), NOTHING),
    "neither": (Beside(None, has_offset_index=False), NOTHING),
}


@each_case(("beside", "expected"), UNKNOWN)
def test_a_log_that_was_not_read(beside: Any, expected: Any, tmp_path: Path) -> None:
    row = write(tmp_path / "t-0", f"{0:020d}", beside)
    assert seen(row._replace(max_timestamp=None)) == [expected]


def replace_by(kind: str, file: Path) -> None:
    """Put something that is no file of bytes where a file was."""
    file.unlink()
    match kind:
        case "a folder":
            file.mkdir()
        case "a named pipe":
            os.mkfifo(file)
        case "a link to nowhere":
            file.symlink_to("nowhere")
        case "a link to itself":
            file.symlink_to(file.name)


@each_case("kind", ("nothing", "a link to nowhere", "a link to itself", "a folder", "a named pipe"))
def test_a_file_that_is_none(kind: str, tmp_path: Path) -> None:
    """A folder or a pipe is not waited for."""
    no_index, no_log = (
        write(tmp_path / f"{kind} {name}-0", f"{0:020d}", Beside(RIGHT))
        for name in ("index", "log")
    )
    replace_by(kind, tmp_path / f"{kind} index-0" / TIMEINDEX)
    replace_by(kind, tmp_path / f"{kind} log-0" / LOG)
    [(timestamp, _, fault)], log = seen(no_index), seen(no_log)
    if kind in ("a folder", "a named pipe"):
        assert timestamp in (None, MODIFIED)
        assert fault in (MISSING_INDEX, INDEX_UNREADABLE)
    else:
        assert (timestamp, fault, log) == (MODIFIED, MISSING_INDEX, [NOTHING])


def test_nothing_is_asked_but_one_listing_and_the_last_entry(tmp_path: Path, disk: Disk) -> None:
    row = write(tmp_path / "t-0", f"{0:020d}", Beside(entries(*range(1, 1000), LARGEST)))
    assert seen(row) == [(LARGEST, FROM_TIME_INDEX, None)]
    assert (disk.listed, disk.opened) == (["t-0"], [TIMEINDEX])


AFTER_THE_LISTING = {
    "shorter by one byte": (lambda path: os.truncate(path, 23), NOTHING),
    "shorter by an entry": (lambda path: os.truncate(path, 12), NOTHING),
    "empty": (lambda path: os.truncate(path, 0), NOTHING),
    "longer, which does not matter": (
        *(lambda path: os.truncate(path, 36), (LARGEST, FROM_TIME_INDEX, None)),
    ),
    "deleted": (os.unlink, NOTHING),
}


def test_a_time_index_that_changes_after_the_listing(
    tmp_path: Path, disk: Disk, subtests: pytest.Subtests
) -> None:
    for name, (change, expected) in AFTER_THE_LISTING.items():
        with subtests.test(name):
            rows = [write(tmp_path / f"{name}-0", f"{b:020d}", Beside(RIGHT)) for b in (0, 10)]
            disk.before_opening = {TIMEINDEX: change}
            assert seen(*rows) == [expected, (LARGEST, FROM_TIME_INDEX, None)]


def test_a_store_that_tells_no_modification_times(tmp_path: Path, disk: Disk) -> None:
    row = write(tmp_path / "t-0", f"{0:020d}", Beside(None))
    disk.tells_times = False
    assert seen(row) == [NOTHING]


def test_a_directory_that_does_not_exist(tmp_path: Path) -> None:
    there = write(tmp_path / "a-0", f"{0:020d}", Beside(RIGHT))
    gone = Row(Location.of(tmp_path / "b-0" / LOG).uri)
    assert seen(gone, there, gone, gone, there) == [
        NOTHING,
        (LARGEST, FROM_TIME_INDEX, None),
        NOTHING,
        NOTHING,
        (LARGEST, FROM_TIME_INDEX, None),
    ]


def in_directories(root: Path, order: str) -> Iterator[tuple[Row, tuple[Any, ...]]]:
    """Yield a row in directory `a`, `b`, ... for each letter, and what is seen of it."""
    for number, letter in enumerate(order):
        timestamp = LARGEST + ord(letter) * 1000 + number
        row = write(root / f"{letter}-0", f"{number:020d}", Beside(entries(timestamp)))
        yield row._replace(max_timestamp=timestamp), (timestamp, FROM_TIME_INDEX, None)


def test_rows_that_follow_each_other_share_a_listing(tmp_path: Path, disk: Disk) -> None:
    pairs = list(in_directories(tmp_path, "aabba"))
    assert seen(*(row for row, _ in pairs)) == [expected for _, expected in pairs]
    assert disk.listed == ["a-0", "b-0", "a-0"]


def test_two_logs_of_one_base_offset_have_the_index_of_their_own_name(tmp_path: Path) -> None:
    """`7.log`: Kafka takes any number of digits for a base offset."""
    short = write(tmp_path / "t-0", "7", Beside(entries(EARLIER)))
    long = write(tmp_path / "t-0", f"{7:020d}", Beside(entries(LATER)))
    assert seen(short, long) == [
        (EARLIER, FROM_TIME_INDEX, OTHER_TIMESTAMP),
        (LATER, FROM_TIME_INDEX, OTHER_TIMESTAMP),
    ]
