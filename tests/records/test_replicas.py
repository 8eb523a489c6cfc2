"""The log of a partition with several replicas: every user reads the same one."""

import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kip33
from kip33.errors import CorruptSegmentError, LocationError, UnreadableLogError
from tests.builders.log_file import write_log
from tests.builders.segment_builder import Record, v2_batch, with_broken_crc
from tests.cases import each_case
from tests.records.test_levels import build

T = 1_700_000_000_000


def batches(first: int, count: int, epoch: int = 0) -> list[bytes]:
    value = b"%d" % epoch
    numbers = range(first, first + count)
    return [v2_batch(at, [Record(T + at, value=value)], leader_epoch=epoch) for at in numbers]


Copy = dict[int, list[bytes]]

REPLICAS: dict[str, tuple[dict[str, Copy], list[tuple[str, range]], str]] = {
    "the same bytes": (
        {"b1": {7: batches(7, 5)}, "b2": {7: batches(7, 5)}},
        [("b1", range(7, 12))],
        "",
    ),
    "one goes farther": (
        {"b1": {7: batches(7, 5)}, "b2": {7: batches(7, 6)}},
        [("b2", range(7, 13))],
        "",
    ),
    "an invalid log": (
        {"b1": {7: [*batches(7, 9), *batches(3, 1)]}, "b2": {7: batches(7, 2)}},
        [("b2", range(7, 9))],
        "the last log of replica 'b1' is damaged from offset 7 on; if it had records after the "
        "end of the other copies, they are lost",
    ),
    "a deposed leader has more bytes": (
        {"b1": {0: batches(0, 20)}, "b2": {0: [*batches(0, 5), *batches(5, 7, epoch=2)]}},
        [("b2", range(12))],
        "replica 'b1' differs from the log from offset 5 on: a later leader never had its records",
    ),
    "what retention deleted on one": (
        {"b1": {0: batches(0, 60), 60: batches(60, 40)}, "b2": {60: batches(60, 90)}},
        [("b1", range(60)), ("b2", range(60, 150))],
        "offsets 0 to 59 are read from replica 'b1', because replica 'b2' begins later",
    ),
    "a lost segment": (
        {"b1": {0: batches(0, 9), 20: batches(20, 9)}, "b2": {5: batches(5, 17)}},
        [("b1", range(9)), ("b2", range(9, 20)), ("b1", range(20, 29))],
        "offsets 9 to 19 are read from replica 'b2', because replica 'b1' lacks them",
    ),
}


@each_case(("replicas", "expected", "line"), REPLICAS)
def test_all_users_read_the_same_log(
    replicas: Any, expected: Any, line: str, tmp_path: Path
) -> None:
    for log_dir, copy in replicas.items():
        for base, log in copy.items():
            write_log(tmp_path / "archive" / log_dir / "orders-0", base, *log)
    of_log = [(log_dir, offset) for log_dir, offsets in expected for offset in offsets]
    catalog = build(tmp_path / "archive", tmp_path)
    for source in (tmp_path / "archive", catalog):
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            read = kip33.read_arrow(source, columns=["log_dir", "offset"], on_error="fail")
            rows = read.read_all().to_pylist()
        assert [(row["log_dir"], row["offset"]) for row in rows] == of_log
        assert [str(one.message).partition(": ")[2] for one in told] == [line] * bool(line)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        of_segments = kip33.read_arrow(catalog, level="segments", on_error="row").read_all()
    assert sum(of_segments["record_count"].to_pylist()) == len(of_log)
    opened = kip33.open_catalog(catalog)
    first, last = of_log[0][1], of_log[-1][1]
    times = ("earliest", "latest", "max-timestamp", T + first + 1)
    found = opened.offsets_for_times([("orders", 0, time) for time in times]).to_pylist()
    assert [row["offset"] for row in found] == [first, last + 1, last, first + 1]
    assert {row["exactness"] for row in found} == {"record"}
    [ranged] = opened.offsets_for_times([("orders", 0, T)], until=T + last).to_pylist()
    assert ranged["records"] == last - first
    [lag] = opened.group_lags([("group", "orders", 0, first)])
    assert (lag.log_start_offset, lag.log_end_offset) == (first, last + 1)


HOLES: dict[str, tuple[dict[str, Copy], str]] = {
    "between segments": (
        {"b1": {0: batches(0, 5), 9: batches(9, 2)}, "b2": {0: batches(0, 3)}},
        "5 to 8",
    ),
    "behind damage": (
        {
            "b1": {0: [*batches(0, 5), with_broken_crc(*batches(5, 1))], 9: batches(9, 2)},
            "b2": {0: batches(0, 7)},
        },
        "7 to 8",
    ),
}


@pytest.mark.filterwarnings("ignore:.*are read from replica 'b2', because")
@each_case(("replicas", "missing"), HOLES)
def test_what_no_replica_has_is_said(replicas: Any, missing: str, tmp_path: Path) -> None:
    for log_dir, copy in replicas.items():
        for base, log in copy.items():
            write_log(tmp_path / "archive" / log_dir / "orders-0", base, *log)
    for source in (tmp_path / "archive", build(tmp_path / "archive", tmp_path)):
        with pytest.raises(CorruptSegmentError, match=f"offsets {missing} are missing before it"):
            kip33.read_arrow(source, on_error="fail").read_all()


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("orders-0/leader-epoch-checkpoint", "the leader epochs in them are not known"),
        ("log-start-offset-checkpoint", "cannot be read: line 1"),
        ("orders-0/partition.metadata", "the topic ids of the logs beside them are not known"),
    ],
)
def test_a_small_file_that_cannot_be_used_for_the_choice_is_named(
    name: str, line: str, tmp_path: Path
) -> None:
    for log_dir in ("b1", "b2"):
        write_log(tmp_path / log_dir / "orders-0", 0, *batches(0, 5))
    (tmp_path / "b2" / name).write_text("damaged")
    with pytest.warns(match=line):
        kip33.read_arrow(tmp_path).read_all()


SWAPS: dict[str, list[str]] = {
    "beside the logs that it replaces": ["0.log", "5.log", "0.log.swap"],
    "the logs are gone": ["0.log.swap", "10.log"],
    "of the only log": ["0.log.swap", "0.log"],
}


@each_case("names", SWAPS)
def test_a_log_that_no_broker_renamed_into_place_is_read_by_nobody(
    names: list[str], tmp_path: Path
) -> None:
    """By a catalog, too, which tries other logs again that its build could not read."""
    for name in names:
        log = write_log(tmp_path / "archive" / "orders-0", int(name.partition(".")[0]))
        is_swap = name.endswith(".swap")
        data = b"".join(batches(0, 10) if is_swap else batches(int(log.stem), 5))
        log.with_name(f"{int(log.stem):020d}{name[name.index('.') :]}").write_bytes(data)
        if is_swap:
            log.unlink()
    write_log(tmp_path / "archive" / "readable-0", 0, *batches(0, 1))
    catalog = build(tmp_path / "archive", tmp_path)
    copy = tmp_path / "a copy of it"
    shutil.copytree(tmp_path / "archive" / "orders-0", copy)
    doors: list[tuple[type[Exception], Callable[[], object]]] = [
        *(
            (UnreadableLogError, kip33.read_arrow(source, topic="orders", on_error="fail").read_all)
            for source in (tmp_path / "archive", catalog)
        ),
        (LocationError, lambda: kip33.read_arrow(copy)),
        (LocationError, lambda: kip33.find_offset(copy, T)),
    ]
    for error, read in doors:
        with pytest.raises(error, match=r"0\.log\.swap: cannot be read: a broker that starts"):
            read()
