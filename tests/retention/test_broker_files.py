"""A broker's view of a segment, from the current files beside its log.

What the files mean is `tests/rules/test_broker_view.py`; here they are real ones, some of them bad.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyarrow import fs

from kip33.retention.broker_files import SeenByBroker, seen_by_broker
from kip33.rules.broker_start import BrokerTimestampSource, BrokerView, IndexFault
from kip33.stores.files import opened_locally
from kip33.stores.locations import Location
from tests.faults.privileges import AS_ANY_OWNER, shut, why_not
from tests.rules.test_broker_view import (
    EARLIER,
    LARGEST,
    LATER,
    MODIFIED,
    RIGHT,
    Beside,
    each_state,
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
        monkeypatch.setattr("kip33.stores.files.opened_locally", self.opened_locally)

    def get_file_info(self, selector: fs.FileSelector) -> Any:
        self.listed.append(Path(selector.base_dir).name)
        infos = self._local.get_file_info(selector)
        if self.tells_times:
            return infos
        return [fs.FileInfo(info.path, info.type, size=info.size) for info in infos]

    def opened_locally(self, path: str) -> Any:
        self.opened.append(Path(path).name)
        self.before_opening.get(Path(path).name, lambda _: None)(path)
        return opened_locally(path)


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


@each_state
def test_files_are_read_as_a_broker_reads_them(
    beside: Beside, view: BrokerView, tmp_path: Path
) -> None:
    assert seen(write(tmp_path / "t-0", f"{42:020d}", beside)) == [view]


FELL_BACK = (MODIFIED, LAST_MODIFIED)
UNKNOWN = [
    # What the log says is not known: no broker keeps such a segment, or nobody read it.
    ("a time index", Beside(RIGHT), (LARGEST, FROM_TIME_INDEX, OTHER_TIMESTAMP)),
    ("zeros", Beside(bytes(24)), (0, FROM_TIME_INDEX, ZERO_TIMESTAMP)),
    ("no .timeindex", Beside(None), (*FELL_BACK, None)),
    ("an empty .timeindex", Beside(b""), (*FELL_BACK, None)),
    ("a negative timestamp", Beside(entries(-2)), (*FELL_BACK, None)),
    ("no .index: it would be recovered, to what?", Beside(RIGHT, has_offset_index=False), NOTHING),
    ("neither", Beside(None, has_offset_index=False), NOTHING),
]


@pytest.mark.parametrize(
    ("beside", "expected"), [pytest.param(b, e, id=name) for name, b, e in UNKNOWN]
)
def test_a_log_that_was_not_read(beside: Beside, expected: tuple[Any, ...], tmp_path: Path) -> None:
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


GONE = ["nothing", "a link to nowhere", "a link to itself"]


@pytest.mark.parametrize("kind", GONE)
def test_a_time_index_that_is_not_there(kind: str, tmp_path: Path) -> None:
    row = write(tmp_path / "t-0", f"{0:020d}", Beside(RIGHT))
    replace_by(kind, tmp_path / "t-0" / TIMEINDEX)
    assert seen(row) == [(*FELL_BACK, MISSING_INDEX)]


@pytest.mark.parametrize("kind", ["a folder", "a named pipe"])
def test_a_time_index_that_is_no_file_is_not_waited_for(kind: str, tmp_path: Path) -> None:
    row = write(tmp_path / "t-0", f"{0:020d}", Beside(RIGHT))
    replace_by(kind, tmp_path / "t-0" / TIMEINDEX)
    [(largest_timestamp, _, fault)] = seen(row)
    assert largest_timestamp in (None, MODIFIED)
    assert fault in (MISSING_INDEX, INDEX_UNREADABLE)


@pytest.mark.parametrize("kind", GONE)
def test_a_log_that_is_not_there(kind: str, tmp_path: Path) -> None:
    row = write(tmp_path / "t-0", f"{0:020d}", Beside(RIGHT))
    replace_by(kind, tmp_path / "t-0" / LOG)
    assert seen(row) == [NOTHING]


def test_links_to_files_are_files(tmp_path: Path) -> None:
    row = write(tmp_path / "t-0", f"{0:020d}", Beside(RIGHT))
    (tmp_path / "elsewhere").mkdir()
    for name in (LOG, INDEX, TIMEINDEX):
        (tmp_path / "t-0" / name).rename(tmp_path / "elsewhere" / name)
        (tmp_path / "t-0" / name).symlink_to(tmp_path / "elsewhere" / name)
    assert seen(row) == [(LARGEST, FROM_TIME_INDEX, None)]


def test_nothing_is_asked_but_one_listing_and_the_last_entry(tmp_path: Path, disk: Disk) -> None:
    row = write(tmp_path / "t-0", f"{0:020d}", Beside(entries(*range(1, 1000), LARGEST)))
    assert seen(row) == [(LARGEST, FROM_TIME_INDEX, None)]
    assert (disk.listed, disk.opened) == (["t-0"], [TIMEINDEX])


def shorten_to(size: int) -> Any:
    return lambda path: os.truncate(path, size)


SHORTENED = [
    ("by one byte", 23, NOTHING),
    ("to the entry before", 12, NOTHING),
    ("to nothing", 0, NOTHING),
    ("lengthened, which does not matter", 36, (LARGEST, FROM_TIME_INDEX, None)),
]


@pytest.mark.parametrize(
    ("size", "expected"), [pytest.param(size, e, id=name) for name, size, e in SHORTENED]
)
def test_a_time_index_that_changes_after_the_listing(
    size: int, expected: tuple[Any, ...], tmp_path: Path, disk: Disk
) -> None:
    rows = [write(tmp_path / "t-0", f"{base:020d}", Beside(RIGHT)) for base in (0, 10)]
    disk.before_opening = {TIMEINDEX: shorten_to(size)}
    assert seen(*rows) == [expected, (LARGEST, FROM_TIME_INDEX, None)]


def test_a_time_index_that_is_deleted_after_the_listing(tmp_path: Path, disk: Disk) -> None:
    rows = [write(tmp_path / "t-0", f"{base:020d}", Beside(RIGHT)) for base in (0, 10)]
    disk.before_opening = {TIMEINDEX: os.unlink}
    assert seen(*rows) == [NOTHING, (LARGEST, FROM_TIME_INDEX, None)]


def test_a_log_that_grows_after_the_listing_has_the_listings_time(
    tmp_path: Path, disk: Disk
) -> None:
    rows = [write(tmp_path / "t-0", f"{b:020d}", Beside(t)) for b, t in ((0, RIGHT), (10, None))]
    later = tmp_path / "t-0" / f"{10:020d}.log"
    disk.before_opening = {TIMEINDEX: lambda _: later.write_bytes(b"more")}
    assert seen(*rows) == [(LARGEST, FROM_TIME_INDEX, None), (*FELL_BACK, MISSING_INDEX)]


def test_a_store_that_tells_no_modification_times(tmp_path: Path, disk: Disk) -> None:
    row = write(tmp_path / "t-0", f"{0:020d}", Beside(None))
    disk.tells_times = False
    assert seen(row) == [NOTHING]


@pytest.fixture
def denying(tmp_path: Path) -> None:
    """Skip where permissions hold for nobody."""
    problem = why_not(tmp_path)
    if problem:
        pytest.skip(f"nothing to be denied: {problem}")


SEEN = """
import json, sys
from collections import namedtuple
from kip33.retention.broker_files import seen_by_broker
Row = namedtuple("Row", "log_uri max_timestamp")
rows = [Row(*row) for row in json.loads(sys.argv[1])]
print(json.dumps([one[1:] for one in seen_by_broker(rows)]))
"""


def seen_by_any_owner(*rows: Row) -> list[tuple[Any, ...]]:
    """Return what is seen by a user to whom what is shut is shut."""
    done = subprocess.run(
        [*AS_ANY_OWNER, sys.executable, "-c", SEEN, json.dumps(rows)],
        capture_output=True,
        text=True,
        check=True,
    )
    return [tuple(one) for one in json.loads(done.stdout)]


@pytest.mark.usefixtures("denying")
def test_a_time_index_that_may_not_be_read(tmp_path: Path) -> None:
    rows = [write(tmp_path / "t-0", f"{base:020d}", Beside(RIGHT)) for base in (0, 10)]
    with shut(tmp_path / "t-0" / TIMEINDEX):
        assert seen_by_any_owner(*rows) == [NOTHING, (LARGEST, FROM_TIME_INDEX, None)]


@pytest.mark.usefixtures("denying")
def test_what_is_not_read_need_not_be_readable(tmp_path: Path) -> None:
    rows = [write(tmp_path / "t-0", f"{b:020d}", Beside(t)) for b, t in ((0, RIGHT), (10, b""))]
    shut_ones = [tmp_path / "t-0" / name for name in (LOG, INDEX, f"{10:020d}.timeindex")]
    with shut(shut_ones[0]), shut(shut_ones[1]), shut(shut_ones[2]):
        assert seen_by_any_owner(*rows) == [
            (LARGEST, FROM_TIME_INDEX, None),
            (*FELL_BACK, EMPTY_INDEX),
        ]


@pytest.mark.usefixtures("denying")
def test_a_directory_that_may_not_be_listed(tmp_path: Path) -> None:
    rows = [write(tmp_path / name, f"{0:020d}", Beside(RIGHT)) for name in ("a-0", "b-0", "c-0")]
    with shut(tmp_path / "b-0"):
        seen_now = seen_by_any_owner(*rows)
    assert seen_now == [(LARGEST, FROM_TIME_INDEX, None), NOTHING, (LARGEST, FROM_TIME_INDEX, None)]


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


def test_a_directory_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "t-0").touch()
    assert seen(Row(Location.of(tmp_path / "t-0" / LOG).uri)) == [NOTHING]


def test_no_rows() -> None:
    assert seen() == []


def in_directories(root: Path, order: str) -> Iterator[tuple[Row, tuple[Any, ...]]]:
    """Yield a row in directory `a`, `b`, ... for each letter, and what is seen of it."""
    for number, letter in enumerate(order):
        timestamp = LARGEST + ord(letter) * 1000 + number
        row = write(root / f"{letter}-0", f"{number:020d}", Beside(entries(timestamp)))
        yield row._replace(max_timestamp=timestamp), (timestamp, FROM_TIME_INDEX, None)


@pytest.mark.parametrize(
    ("order", "listed"),
    [
        ("aaaa", "a"),
        ("aaabbbccc", "abc"),
        ("abababab", "abababab"),
        ("aabba", "aba"),
    ],
)
def test_rows_that_follow_each_other_share_a_listing(
    order: str, listed: str, tmp_path: Path, disk: Disk
) -> None:
    pairs = list(in_directories(tmp_path, order))
    assert seen(*(row for row, _ in pairs)) == [expected for _, expected in pairs]
    assert [name.removesuffix("-0") for name in disk.listed] == list(listed)


def test_directories_of_one_name_in_two_log_directories(tmp_path: Path, disk: Disk) -> None:
    """The same names of files say one thing here and another there."""
    rows = []
    for broker, timestamp in (("broker-1", EARLIER), ("broker-2", LATER)):
        (tmp_path / broker).mkdir()
        row = write(tmp_path / broker / "t-0", f"{0:020d}", Beside(entries(timestamp)))
        rows.append(row._replace(max_timestamp=timestamp))
    assert seen(*rows) == [(EARLIER, FROM_TIME_INDEX, None), (LATER, FROM_TIME_INDEX, None)]
    assert disk.listed == ["t-0", "t-0"]


def test_two_logs_of_one_base_offset_have_the_index_of_their_own_name(tmp_path: Path) -> None:
    """`7.log`: Kafka takes any number of digits for a base offset."""
    short = write(tmp_path / "t-0", "7", Beside(entries(EARLIER)))
    long = write(tmp_path / "t-0", f"{7:020d}", Beside(entries(LATER)))
    assert seen(short, long) == [
        (EARLIER, FROM_TIME_INDEX, OTHER_TIMESTAMP),
        (LATER, FROM_TIME_INDEX, OTHER_TIMESTAMP),
    ]


@pytest.mark.parametrize(
    "name",
    ["7", f"{2**63 - 1}", "0" * 40 + "7", "00000000000000000007 (copy)", "café", "a%20b", "x#y?"],
)
@pytest.mark.parametrize("directory", ["t-0", "a folder, [x]*? %20 é-0", "t.log"])
def test_odd_names(directory: str, name: str, tmp_path: Path) -> None:
    row = write(tmp_path / directory, name, Beside(RIGHT))
    bare = write(tmp_path / directory, f"{name}1", Beside(None))
    assert seen(row, bare) == [(LARGEST, FROM_TIME_INDEX, None), (*FELL_BACK, MISSING_INDEX)]


def test_index_files_that_wait_for_deletion_are_not_there(tmp_path: Path) -> None:
    row = write(tmp_path / "t-0", f"{0:020d}", Beside(None, has_offset_index=False))
    for suffix in ("deleted", "cleaned", "swap"):
        (tmp_path / "t-0" / f"{TIMEINDEX}.{suffix}").write_bytes(entries(LATER))
        (tmp_path / "t-0" / f"{INDEX}.{suffix}").touch()
    assert seen(row) == [(LARGEST, RECOVERED, None)]


def test_every_fault_was_seen_on_files(tmp_path: Path) -> None:
    """One directory with all of them: none spoils its neighbours."""
    states = {
        MISSING_INDEX: Beside(None),
        EMPTY_INDEX: Beside(RIGHT[:11]),
        ZERO_TIMESTAMP: Beside(bytes(10485756)),
        NEGATIVE_TIMESTAMP: Beside(b"\xff" * 25),
        OTHER_TIMESTAMP: Beside(RIGHT[:12]),
        None: Beside(RIGHT),
    }
    rows = [write(tmp_path / "t-0", f"{n:020d}", one) for n, one in enumerate(states.values())]
    gone = Row(Location.of(tmp_path / "t-0" / f"{99:020d}.log").uri)
    assert [fault for *_, fault in seen(*rows, gone)] == [*states, INDEX_UNREADABLE]
    assert {*states, INDEX_UNREADABLE} == {*IndexFault, None}
