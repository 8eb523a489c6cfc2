"""Files of requests: valid forms, and every kind of error; files of committed offsets.

What the lines of committed offsets may be: tests/formats/test_group_offsets.py.
"""

import re
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kip33.errors import LocationError
from kip33.formats.kafka_configs import GroupOffset
from kip33.search.answers import (
    EXPECTED_COLUMNS,
    TimeRequest,
    load_group_offsets,
    load_time_requests,
)
from tests.cases import each_case

BOM = b"\xef\xbb\xbf"


def wrong(load: Callable[[str], Any], file: Path) -> str:
    """Return what a file is refused for, without its name; it is one line."""
    with pytest.raises(LocationError) as refused:
        load(str(file))
    said = str(refused.value)
    assert said.startswith(f"{file.as_uri()}: ")
    assert "\n" not in said
    return said.removeprefix(f"{file.as_uri()}: ")


OFFSETS = {
    "with a byte order mark and a header": BOM + b"topic,partition,offset\norders,0,17\n",
    "with Windows' line ends": b"orders,0,17\r\n",
}


@each_case("data", OFFSETS)
def test_offsets(data: Any, tmp_path: Path) -> None:
    file = tmp_path / "offsets"
    file.write_bytes(data)

    assert load_group_offsets(str(file)) == [GroupOffset("", "orders", 0, 17)]
    assert load_group_offsets(file.as_uri()) == load_group_offsets(str(file))


def test_a_group_without_commits_is_named(tmp_path: Path) -> None:
    (tmp_path / "g").write_text(
        "GROUP TOPIC PARTITION CURRENT-OFFSET\nbilling t 0 1\nbilling t 1 -\naudit t 0 -\n"
        "audit u 3 -\nidle - - -\nbilling - - -\n"
    )
    lines: list[str] = []

    assert load_group_offsets(tmp_path / "g", ["t"], lines.append) == [
        GroupOffset("billing", "t", 0, 1)
    ]
    assert lines == [
        "group billing has no committed offset in 1 partition of t: 1",
        "group audit has no committed offset in 1 partition of t: 0",
        "group idle has no committed offset",
    ]


WRONG_OFFSETS = {
    "two offsets": (b"t,0,1\nt,0,2\n", "line 2: t-0 has offset 2, but 1 above; expected one"),
    "a cell too large": (b"t,0,1\n" + b"x" * 140_000 + b",0,1\n", "line 2: field larger than"),
    "Parquet": (b"PAR1\x15\x04\xff\xff", "'utf-8' codec can't decode byte 0xff in position 6"),
}


@each_case(("data", "says"), WRONG_OFFSETS)
def test_wrong_offsets(data: Any, says: str, tmp_path: Path) -> None:
    file = tmp_path / "offsets"
    file.write_bytes(data)

    said = wrong(load_group_offsets, file)

    assert said.startswith(says)
    assert said.endswith(", or the output of kafka-consumer-groups.sh --describe")


LOADS = {"offsets": load_group_offsets, "requests": load_time_requests}


@each_case("load", LOADS)
def test_places_without_a_file(load: Any, tmp_path: Path) -> None:
    (tmp_path / "tmp_path").mkdir()

    assert wrong(load, tmp_path / "none") == "cannot be read: No such file or directory"
    assert wrong(load, tmp_path / "tmp_path") == "cannot be read: not a regular file"
    with pytest.raises(LocationError, match=re.escape("ftp://host/x: unknown scheme ftp://")):
        load("ftp://host/x")


REQUESTS: dict[str, tuple[bytes, list[TimeRequest]]] = {
    "the columns": (b"topic,partition,time\nt,0,5\n", [TimeRequest(2, "t", 0, "5", None)]),
    "all of a topic": (b"topic,partition,time\nt,,5\n", [TimeRequest(2, "t", None, "5", None)]),
    "in another order, more of them": (
        b"x,time,log_dir,topic,partition\n?,earliest,b-1,t,0\n",
        [TimeRequest(2, "t", 0, "earliest", "b-1")],
    ),
    "blanks": (
        b"topic, partition, time\n t , 0 , now-7d \n",
        [TimeRequest(2, "t", 0, "now-7d", None)],
    ),
    "a line in quotes": (
        b'topic,partition,time,log_dir\n"t",0,5,"a\nb"\nu,1,6,\n',
        [TimeRequest(3, "t", 0, "5", "a\nb"), TimeRequest(4, "u", 1, "6", None)],
    ),
    "a byte order mark": (
        BOM + b"topic,partition,time\nt,0,5\n",
        [TimeRequest(2, "t", 0, "5", None)],
    ),
}


@each_case(("data", "requests"), REQUESTS)
def test_requests(data: Any, requests: Any, tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_bytes(data)

    assert load_time_requests(str(tmp_path / "r.csv")) == requests


MOMENT = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
TIMES: dict[str, tuple[Any, str]] = {
    "milliseconds": (pa.array([5]), "5"),
    "text": (pa.array(["earliest"]), "earliest"),
    "a timestamp with a zone": (
        pa.array([MOMENT], pa.timestamp("ms", tz="UTC")),
        "2023-11-14T22:13:20+00:00",
    ),
    "a timestamp without": (pa.array([MOMENT], pa.timestamp("us")), "2023-11-14T22:13:20"),
    "a date": (pa.array([date(2023, 11, 14)]), "2023-11-14"),
}


def test_requests_in_parquet(tmp_path: Path, subtests: pytest.Subtests) -> None:
    for name, (times, text) in TIMES.items():
        with subtests.test(name):
            columns = {"topic": ["t"], "partition": pa.array([None], pa.int32()), "time": times}
            pq.write_table(pa.table(columns), tmp_path / "r")  # whatever its name

            assert load_time_requests(str(tmp_path / "r")) == [
                TimeRequest(1, "t", None, text, None)
            ]


HEADER = b"topic,partition,time\n"
WRONG_REQUESTS = {
    "empty": (b"", f"the columns (none) found, expected {EXPECTED_COLUMNS}"),
    "a header alone": (HEADER, f"no requests found, expected lines of {EXPECTED_COLUMNS}"),
    "other columns": (b"a,b\n1,2\n", f"the columns a,b found, expected {EXPECTED_COLUMNS}"),
    "a cell too few": (HEADER + b"t,0,5\nt,0\n", "line 3: expected as many cells"),
    "a cell too many": (HEADER + b"t,0,5,6\n", "line 2: expected as many cells as the header has"),
    "no topic": (HEADER + b",0,5\n", f"line 2: the topic is empty, expected {EXPECTED_COLUMNS}"),
    "a negative partition": (
        HEADER + b"t,-1,5\n",
        "line 2: partition '-1' found, expected a number up to 2147483647",
    ),
    "a partition beyond int32": (
        HEADER + b"t,2147483648,5\n",
        "line 2: partition '2147483648' found, expected a number up to 2147483647",
    ),
    "a cell too large": (HEADER + b"t,0," + b"5" * 140_000 + b"\n", "field larger than"),
    "no text": (b"\xff\xfe\x00", "'utf-8' codec can't decode byte 0xff in position 0"),
    "Parquet cut short": (b"PAR1" + bytes(20), "Could not open Parquet"),
}


@each_case(("data", "says"), WRONG_REQUESTS)
def test_wrong_requests(data: Any, says: str, tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_bytes(data)

    assert wrong(load_time_requests, tmp_path / "r.csv").startswith(says)


WRONG_TABLES: dict[str, tuple[dict[str, list[Any]], str]] = {
    "other columns": ({"a": [1]}, f"the columns a found, expected {EXPECTED_COLUMNS}"),
    "no rows": ({"topic": [], "partition": [], "time": []}, "no requests found, expected lines of"),
    "no topic": ({"topic": [None], "partition": [0], "time": [5]}, "line 1: the topic is empty"),
    "a partition with a fraction": (
        {"topic": ["t", "t"], "partition": [0.5, 1.0], "time": [5, 5]},
        "line 1: partition '0.5' found, expected a number up to 2147483647",
    ),
}


@each_case(("columns", "says"), WRONG_TABLES)
def test_wrong_requests_in_parquet(columns: Any, says: str, tmp_path: Path) -> None:
    pq.write_table(pa.table(columns), tmp_path / "r.parquet")

    assert wrong(load_time_requests, tmp_path / "r.parquet").startswith(says)
