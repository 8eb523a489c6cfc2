"""Log start offsets from the brokers' checkpoints and a user's CSV file."""

from pathlib import Path

import pytest

from kip33.archive.log_start_offsets import LogStartOffsets, log_start_offsets
from kip33.errors import LocationError
from kip33.stores.locations import Location
from tests.cases import each_case

NAME = "log-start-offset-checkpoint"


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """Return an archive of two brokers with a checkpoint, and one without."""
    folder = tmp_path / "archive"
    for number, offset in ((1, 10), (2, 20)):
        (folder / f"broker-{number}").mkdir(parents=True)
        text = f"0\n2\norders 0 {offset}\norders.eu 1 {offset + 1}\n"
        (folder / f"broker-{number}" / NAME).write_text(text)
    (folder / "broker-3").mkdir()
    return folder


LOG_DIRS = ("broker-1", "broker-2", "broker-3")


def test_every_log_directory_has_its_own(archive: Path) -> None:
    expected = {
        ("broker-1", "orders", 0): 10,
        ("broker-1", "orders.eu", 1): 11,
        ("broker-2", "orders", 0): 20,
        ("broker-2", "orders.eu", 1): 21,
    }
    assert log_start_offsets(Location.of(archive), LOG_DIRS) == expected
    assert log_start_offsets(Location.of(archive), iter((*LOG_DIRS, *LOG_DIRS))) == expected


def test_an_archive_that_is_a_log_directory_itself(archive: Path) -> None:
    offsets = log_start_offsets(Location.of(archive / "broker-1"), [""])
    assert offsets == {("", "orders", 0): 10, ("", "orders.eu", 1): 11}


DAMAGES = {
    "cut short": (b"0\n2\norders 0 10\n", "1 entries found, expected 2 as line 2 says"),
    "zeros": (b"\0" * 100, r"line 1: '\x00\x00"),
    "no UTF-8": (b"0\n1\n\xff 0 1\n", "'utf-8' codec can't decode byte 0xff"),
}


@each_case(("data", "message"), DAMAGES)
def test_a_damaged_checkpoint_is_an_error_not_missing(
    archive: Path, data: bytes, message: str
) -> None:
    (archive / "broker-2" / NAME).write_bytes(data)
    with pytest.raises(LocationError) as raised:
        log_start_offsets(Location.of(archive), LOG_DIRS)
    assert str(raised.value).startswith(
        f"file://{archive}/broker-2/{NAME}: cannot be read: {message}"
    )
    assert str(raised.value).endswith(
        "; copy it again, or remove it so that each log starts with its first segment"
    )
    assert "\n" not in str(raised.value)


def test_a_checkpoint_that_is_a_folder(archive: Path) -> None:
    (archive / "broker-3" / NAME).mkdir()
    with pytest.raises(LocationError, match="cannot be read: not a regular file"):
        log_start_offsets(Location.of(archive), LOG_DIRS)


HEADER = "topic,partition,offset\n"
WIDE = "topic,partition,offset,log_dir\n"
FILES: dict[str, tuple[str, LogStartOffsets]] = {
    "a row is for every log directory": (
        HEADER + "orders,0,5\nnew,3,6\n",
        {(log_dir, "orders", 0): 5 for log_dir in LOG_DIRS}
        | {(log_dir, "new", 3): 6 for log_dir in LOG_DIRS},
    ),
    "a row of one log directory": (WIDE + "orders,0,5,broker-2\n", {("broker-2", "orders", 0): 5}),
    "a row of one over a row of all, wherever it stands": (
        WIDE + "orders,0,5,broker-2\norders,0,7,\n",
        {("broker-1", "orders", 0): 7, ("broker-2", "orders", 0): 5, ("broker-3", "orders", 0): 7},
    ),
    "columns in another order, quotes, blanks and blank lines": (
        'offset, topic,"log_dir",partition\r\n\r\n5,"orders", broker-1 ,0\r\n\r\n',
        {("broker-1", "orders", 0): 5},
    ),
    "a mark of the byte order": ("\ufeff" + WIDE + "a,0,5,broker-1\n", {("broker-1", "a", 0): 5}),
    "the largest numbers": (
        WIDE + f"a,{2**31 - 1},{2**63 - 1},broker-1\n",
        {("broker-1", "a", 2**31 - 1): 2**63 - 1},
    ),
}


@each_case(("text", "over"), FILES)
def test_a_file_overrides_the_checkpoints(archive: Path, text: str, over: LogStartOffsets) -> None:
    file = archive.parent / "starts.csv"
    file.write_text(text)
    source = Location.of(archive)
    offsets = log_start_offsets(source, LOG_DIRS, str(file))
    assert offsets == log_start_offsets(source, LOG_DIRS) | over


WRONG_FILES = {
    "nothing": ("", "line 1: '' found"),
    "no header": ("orders,0,5\n", "line 1: 'orders,0,5' found"),
    "a row with a cell less": (HEADER + "orders,0\n", "line 2: 'orders,0' found"),
    "an offset that is no number": (HEADER + "orders,0,5.0\n", "line 2: offset '5.0' found"),
    "a partition beyond int32": (HEADER + f"orders,{2**31},5\n", f"partition '{2**31}' found"),
    "another script's digits": (HEADER + "orders,0,٣\n", "line 2: offset '٣' found"),
    "two offsets of one partition": (
        HEADER + "orders,0,5\norders,0,6\n",
        "line 3: offset 6 found, but 5 above",
    ),
    "a quote that never ends": (HEADER + '"orders,0,5\n', "unexpected end of data"),
}


@each_case(("text", "message"), WRONG_FILES)
def test_a_wrong_file(archive: Path, text: str, message: str) -> None:
    file = archive.parent / "starts.csv"
    file.write_text(text)
    with pytest.raises(LocationError) as raised:
        log_start_offsets(Location.of(archive), LOG_DIRS, str(file))
    assert str(raised.value).startswith(f"{file}: ")
    assert message in str(raised.value)
    assert str(raised.value).endswith(
        "; expected CSV with the header topic,partition,offset or topic,partition,offset,log_dir"
    )
    assert "\n" not in str(raised.value)
