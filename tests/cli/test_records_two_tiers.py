"""`kip33 records` and `kip33 count` with two catalogs print what they print of the whole log."""

import re
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.builders import layouts
from tests.builders.layouts import Stored
from tests.builders.schema_values import NEW, OLD, V1, V2, framed, registered
from tests.builders.segment_builder import Record, v2_batch
from tests.builders.two_tiers import built
from tests.cli.console import Command, Finished

T = 1_700_000_000_000
VALUES = (OLD, NEW, None, framed(2, b"\x02"), b"plain 1", b"plain 2")


def orders(first: int, end: int) -> Stored:
    """Return the records of some offsets; even ones are compressed, and batches have one or two."""
    log = b""
    for base in range(first - first % 3, end, 3):
        for at, count in ((base, 1), (base + 1, 2)):
            if first <= at < end:
                some = [
                    Record(T + n, b"%d" % (n % 5), VALUES[n % 6]) for n in range(at, at + count)
                ]
                log += v2_batch(at, some, codec="zstd" if at % 2 else "none")
    return Stored("orders", 0, first, log)


SCHEMAS = Stored(
    *("_schemas", 0, 0),
    v2_batch(
        0,
        [
            Record(T, *registered("orders-value", number, number, schema))
            for number, schema in ((1, V1), (2, V2))
        ],
    ),
)


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, list[Path]]:
    """Return an archive of the whole log, and the catalogs of two tiers with other segments."""
    layouts.kafka(tmp_path / "whole", [orders(0, 60), SCHEMAS])
    tiers = built(
        tmp_path,
        [orders(31, 48), orders(48, 60), SCHEMAS],
        [orders(0, 9), orders(9, 24), orders(24, 45)],
    )
    return tmp_path / "whole", list(tiers)


OPTIONS: list[tuple[Any, ...]] = [
    (),
    ("--from", T + 20, "--until", T + 40),
    ("--until", T + 40, "--disorder", "1s"),
    ("--where-key", "3", "--limit", 5),
    ("--grep", "plain"),
    ("--decode", "--on-error", "fail"),
    ("--isolation", "read_committed"),
]


@pytest.mark.parametrize("ending", ["table", "json", "jsonl", "csv", "parquet"])
def test_records_are_those_of_the_whole_log(
    command: Command, places: tuple[Path, list[Path]], ending: str
) -> None:
    whole, tiers = places
    options = ("--topic", "orders", "--columns", "topic,partition,offset,timestamp,key,value")
    for number, more in enumerate(OPTIONS if ending == "jsonl" else OPTIONS[-2:]):
        given = tiers if number % 2 else reversed(tiers)

        def printed(source: Any, name: str, more: Any = more) -> Any:
            asked = ("records", *source, *options, *more)
            if ending == "parquet":
                done = command(*asked, "--output", name)
                assert done.exit_code == 0, done.stderr
                return pq.read_table(name)
            done = command(*asked, "--format", ending)
            assert (done.exit_code, done.stderr) == (0, "")
            found = re.sub(r'(read in [0-9.]+ s|"seconds": [0-9.]+)', "", done.stdout)
            return re.sub(r'("segments": |of )[0-9]+( segments?)?', "", found)

        found = printed(given, f"a{number}.parquet")
        assert found == printed([whole], f"b{number}.parquet"), more
        assert len(found) > 0


def test_counts_are_those_of_the_whole_log(
    command: Command, places: tuple[Path, list[Path]]
) -> None:
    whole, tiers = places
    for more in ((), ("--from", T + 20, "--until", T + 50), ("--isolation", "read_committed")):
        options = ("--per", "10ms", "--topic", "orders", *more, "--format", "csv")
        expected = command("count", whole, *options)
        assert command("count", *tiers, *options).stdout == expected.stdout
        assert len(expected.stdout.splitlines()) > 3


COMMANDS: dict[str, tuple[str, ...]] = {
    "search": ("--time", "earliest"),
    "records": (),
    "count": ("--per", "1h"),
}


def test_what_is_not_two_tiers_is_one_line_that_names_the_argument(
    command: Command, places: tuple[Path, list[Path]], subtests: pytest.Subtests
) -> None:
    for name in COMMANDS:
        with subtests.test(name):
            whole, (local, remote) = places

            def line(*arguments: Any, name: str = name) -> str:
                done: Finished = command(name, *arguments, *COMMANDS[name])
                assert done.exit_code == 2
                return done.stderr.splitlines()[-1]

            assert line(local, "nothing").endswith("/nothing: REMOTE does not exist")
            assert line("nothing", remote).endswith("/nothing: CATALOG does not exist")
            assert "two catalogs of the local tier found, expected one of log" in line(local, local)
            assert "whole: no committed snapshot found; `kip33 build` makes one" in line(
                whole, remote
            )
