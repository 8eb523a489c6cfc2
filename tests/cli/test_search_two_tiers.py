"""`kip33 search LOCAL REMOTE` and `kip33.open_catalog([LOCAL, REMOTE])`."""

from pathlib import Path
from typing import Any

import pytest

import kip33
from tests.builders.two_tiers import BOTH, GONE, NEWEST, OLDEST, PLAIN, built
from tests.cli.console import Command, Finished


@pytest.fixture
def catalogs(tmp_path: Path) -> tuple[Path, Path]:
    return built(tmp_path, [BOTH, NEWEST, PLAIN], [OLDEST, BOTH, GONE])


@pytest.fixture
def search(command: Command, catalogs: tuple[Path, Path], no_spark: None) -> Command:
    def run(*arguments: Any, swapped: bool = False) -> Finished:
        places = reversed(catalogs) if swapped else catalogs
        return command("search", *places, *arguments)

    return run


AT = "1970-01-01T00:00:00.{}Z"
CASES = [  # time, --as, topic, offset, timestamp, result
    (AT.format(350), "kip33", "orders", 1, 900, "found"),
    (AT.format(950), "kip33", "orders", None, None, "after_end"),
    (AT.format("050"), "kip33", "orders", 0, 100, "before_start"),
    ("earliest", "kip33", "orders", 0, None, "found"),
    ("latest", "kip33", "orders", 8, None, "found"),
    ("max-timestamp", "kip33", "orders", 1, 900, "found"),
    ("max-timestamp", "kafka", "orders", 7, 800, "found"),
    (AT.format(350), "kafka", "orders", 1, 900, "found"),
    *(
        (time, whom, topic, offset, None, "not_in_tier" if offset is None else "found")
        for whom in ("kip33", "kafka")
        for time, topic, offset in (
            ("earliest-local", "orders", 3),
            ("earliest-local", "plain", 0),
            ("earliest-local", "gone", None),
            ("latest-tiered", "orders", 5),
            ("latest-tiered", "plain", None),
            ("latest-tiered", "gone", 1),
        )
    ),
]


@pytest.mark.parametrize("swapped", [False, True])
def test_answers_are_of_both_tiers(search: Command, swapped: bool) -> None:
    for time, whom, topic, *expected in CASES:
        options = ("--time", time, "--as", whom, "--topic", topic, "--format", "jsonl")
        [row] = search(*options, swapped=swapped).lines
        assert [row["offset"], row["timestamp"], row["result"]] == expected, (time, whom, topic)
        assert row["exactness"] == "record", row


def test_a_broker_does_not_find_the_largest_timestamp_in_the_remote_tier(search: Command) -> None:
    options = ("--time", "max-timestamp", "--as", "kafka", "--topic", "orders")
    [row] = search(*options, "--format", "jsonl").lines
    assert "the remote tier has timestamp 900; " in row["note"]
    assert "KAFKA-17552" in row["note"]


def test_no_offset_is_emitted_for_a_partition_that_is_not_in_the_tier(search: Command) -> None:
    asked = ("--time", "earliest-local", "--emit", "reset-offsets")
    done = search(*asked)
    assert done.stdout.splitlines() == ["orders,0,3", "plain,0,0"]
    assert "gone-0: not_in_tier, so the end of the partition would be used; " in done.stderr
    assert "gone,0,2" in search(*asked, "--allow-unsafe").stdout


def test_python_gives_the_same_answers(catalogs: tuple[Path, Path]) -> None:
    opened = kip33.open_catalog([str(place) for place in catalogs])
    for time, whom, topic, *expected in CASES:
        [row] = opened.offsets_for_times([(topic, 0, time)], as_kafka=whom == "kafka").to_pylist()
        assert [row["offset"], row["timestamp"], row["result"]] == expected


def test_what_two_tiers_do_not_answer_is_refused_in_one_line(
    command: Command, catalogs: tuple[Path, Path], subtests: pytest.Subtests
) -> None:
    for places, options, found in [
        ("LR", ["--snapshot", "1"], "--snapshot requires one CATALOG, two found"),
        ("L", ["--time", "latest-tiered"], "latest-tiered needs both tiers: give the catalog of"),
        ("R", ["--time", "earliest-local"], "earliest-local needs both tiers: give the catalog of"),
    ]:
        with subtests.test(f"{places}"):
            by_letter = dict(zip("LR", catalogs, strict=True))
            given = [by_letter[letter] for letter in places]
            done = command("search", *given, "--time", "earliest", *options)
            assert done.exit_code == 2
            assert found in done.stderr.splitlines()[-1]


def test_python_refuses_in_one_line_what_reads_one_catalog(catalogs: tuple[Path, Path]) -> None:
    opened: Any = kip33.open_catalog(list(catalogs))
    with pytest.raises(AttributeError, match=r"^segments reads one catalog, and two tiers were"):
        opened.segments()
    with pytest.raises(ValueError, match=r"^1 catalogs found, expected one, or one of each"):
        kip33.open_catalog([catalogs[0]])
    with pytest.raises(ValueError, match=r"^latest-tiered needs both tiers"):
        kip33.open_catalog(catalogs[0]).offsets_for_times([("orders", 0, "latest-tiered")])
