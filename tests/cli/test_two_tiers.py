"""Commands with LOCAL and REMOTE, and `kip33.open_catalog([LOCAL, REMOTE])`.

tests/search and tests/records show that answers are those of the log in one place.
"""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

import kip33
from tests.builders.layouts import Stored
from tests.builders.schema_values import OLD, V1, registered
from tests.builders.segment_builder import Record, v2_batch
from tests.builders.two_tiers import (
    BOTH,
    GONE,
    NEWEST,
    OLDEST,
    OTHER_TIMES,
    PLAIN,
    built,
    stored,
)
from tests.cli.console import Command

LATER = stored("orders", 10, 900, 950)
Tiers = tuple[Path, Path]


@pytest.fixture
def tiers(tmp_path: Path) -> Tiers:
    return built(tmp_path, [BOTH, NEWEST, PLAIN], [OLDEST, BOTH, GONE])


def found(command: Command, *arguments: Any) -> Any:
    done = command("catalog", *arguments, "--format", "json")
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)


def test_a_healthy_pair_has_no_finding(command: Command, tiers: Tiers) -> None:
    answer = found(command, *tiers)
    names = ("topic", "only_remote", "copies", "only_local", "remote_first_offset")
    assert [tuple(row[name] for name in names) for row in answer["partitions"]] == [
        ("gone", 1, 0, 0, 0),
        ("orders", 1, 1, 1, 0),
        ("plain", 0, 0, 1, None),
    ]
    assert answer["findings"] == []
    for tier in ("local", "remote"):
        assert Path(answer[tier]["catalog"]).parent.name == tier
    assert found(command, *reversed(tiers)) == answer


def test_what_is_wrong_is_named_with_what_to_do(command: Command, tmp_path: Path) -> None:
    places = built(tmp_path, [BOTH, LATER], [OLDEST, OTHER_TIMES])
    answer = found(command, *places, "--topic", "orders")
    rows = [(row["finding"], row["first_offset"], row["last_offset"]) for row in answer["findings"]]
    assert rows == [("hole", 6, 9), ("difference", 3, 5)]
    hole, difference = answer["findings"]
    assert Path(hole["segments"][1]).name == f"{10:020d}.log"
    local, remote = difference["segments"]
    assert "/disks/" in local and "/bucket/" in remote
    assert "kip33 dump" in difference["advice"]


def test_the_segments_of_both_tiers(command: Command, tiers: Tiers) -> None:
    asked = ("--topic", "orders", "--status", "ok", "--format", "jsonl")
    rows = command("catalog", "segments", *tiers, *asked).lines
    names = ("tier", "base_offset", "is_copy", "is_different", "until_offset", "status")
    assert [tuple(row[name] for name in names) for row in rows[:-1]] == [
        ("remote", 0, False, False, None, "ok"),
        ("local", 3, False, False, None, "ok"),
        ("remote", 3, True, False, None, "ok"),
        ("local", 6, False, False, None, "ok"),
    ]
    assert rows[-1]["by_status"] == {"ok": 4}
    assert "│ remote │ copy" in command("catalog", "segments", *tiers).stdout
    none = command("catalog", "segments", *tiers, "--status", "invalid", "--format", "jsonl")
    assert none.lines[0]["by_status"] == {}


def test_the_holes_are_those_of_both_tiers(command: Command, tmp_path: Path) -> None:
    places = built(tmp_path, [BOTH, LATER], [NEWEST, OLDEST])
    holes = found(command, "holes", *places)["holes"]
    assert [(row["first_offset"], row["last_offset"], row["hole"]) for row in holes] == [
        (8, 9, "certain")
    ]
    policy = tmp_path / "policy.toml"
    policy.write_text('[defaults]\ncleanup.policy = "compact"\n')
    holes = found(command, "holes", *places, "--policy", policy)["holes"]
    assert [row["hole"] for row in holes] == ["possible"]


def test_a_report_has_the_findings_and_the_command_that_shows_them(
    command: Command, tmp_path: Path
) -> None:
    local, remote = built(tmp_path, [BOTH, LATER], [OLDEST, OTHER_TIMES])
    given = ("report", local, "--output", "r.html", "--format", "json")
    alone, both = (command(*given, *more).lines[0] for more in ((), (remote,)))
    added = [one for one in both["details"] if one not in alone["details"]]
    assert [(one["level"], one["text"].partition(":")[0]) for one in added] == [
        ("problem", "1 hole in the log of both tiers"),
        ("problem", "1 segment not the same in both tiers"),
        ("problem", "1 partition whose replicas have other bytes in the same leader epoch"),
    ]
    assert "orders-0: offsets 6 to 9, 0000" in added[0]["examples"][0]
    assert added[0]["text"] in " ".join(Path("r.html").read_text().split())
    words = shlex.split(added[0]["command"])
    assert "1 hole, 1 difference" in command(*words[1:]).stdout


SEARCHES = [  # time, --as, topic, offset, timestamp, result
    ("1970-01-01T00:00:00.350Z", "kip33", "orders", 1, 900, "found"),
    ("max-timestamp", "kafka", "orders", 7, 800, "found"),
    ("earliest-local", "kip33", "orders", 3, None, "found"),
    ("latest-tiered", "kafka", "orders", 5, None, "found"),
    ("latest-tiered", "kip33", "plain", None, None, "not_in_tier"),
]


def test_a_search_answers_of_both_tiers(command: Command, tiers: Tiers, no_spark: None) -> None:
    opened = kip33.open_catalog([str(place) for place in tiers])
    for number, (time, whom, topic, *expected) in enumerate(SEARCHES):
        places = reversed(tiers) if number % 2 else tiers
        options = ("--time", time, "--as", whom, "--topic", topic, "--format", "jsonl")
        [row] = command("search", *places, *options).lines
        [same] = opened.offsets_for_times([(topic, 0, time)], as_kafka=whom == "kafka").to_pylist()
        for one in (row, same):
            assert [one["offset"], one["timestamp"], one["result"]] == expected, (time, whom, topic)
        assert row["exactness"] == "record", row
        if (time, whom) == ("max-timestamp", "kafka"):  # KAFKA-17552
            assert "the remote tier has timestamp 900; " in row["note"]


def test_no_offset_is_emitted_for_a_partition_that_is_not_in_the_tier(
    command: Command, tiers: Tiers, no_spark: None
) -> None:
    asked = ("search", *tiers, "--time", "earliest-local", "--emit", "reset-offsets")
    done = command(*asked)
    assert done.stdout.splitlines() == ["orders,0,3", "plain,0,0"]
    assert "gone-0: not_in_tier, so the end of the partition would be used; " in done.stderr
    assert "gone,0,2" in command(*asked, "--allow-unsafe").stdout


def test_records_and_counts_are_of_both_tiers(command: Command, tiers: Tiers) -> None:
    for places in (tiers, tiers[::-1]):
        asked = (*places, "--topic", "orders", "--format", "jsonl")
        rows = command("records", *asked, "--columns", "offset").lines
        assert [row["offset"] for row in rows] == [*range(8)]
        periods = command("count", *asked, "--per", "500ms").lines
        assert [(row["period_start"], row["records"]) for row in periods] == [(0, 3), (500, 5)]


def test_values_are_decoded_by_the_schemas_of_one_tier(command: Command, tmp_path: Path) -> None:
    schemas = v2_batch(0, [Record(1, *registered("orders-value", 1, 1, V1))])
    uploaded = Stored("orders", 0, 0, v2_batch(0, [Record(1, b"k", OLD)]))
    tiers = built(tmp_path, [Stored("_schemas", 0, 0, schemas)], [uploaded])
    options = ("--topic", "orders", "--decode", "--columns", "value", "--format", "jsonl")
    [row] = command("records", *tiers, *options).lines
    assert row["value"] == {"id": 5}


REFUSED = [  # L and R are the catalogs of the local and the remote tier
    ("catalog L R --snapshot 1", "--snapshot requires one CATALOG, two found"),
    ("catalog holes L R --snapshot 1", "--snapshot requires one CATALOG, two found"),
    ("catalog prune L R --keep 1", "Got unexpected extra argument"),
    ("catalog L R --topic none", "none"),
    ("catalog L L", "two catalogs of the local tier found, expected one of log directories"),
    ("search L R --time 0 --snapshot 1", "--snapshot requires one CATALOG, two found"),
    ("search L --time latest-tiered", "latest-tiered needs both tiers: give the catalog of"),
    ("search R --time earliest-local", "earliest-local needs both tiers: give the catalog of"),
    ("search L nothing --time 0", "/nothing: REMOTE does not exist"),
    ("records nothing R", "/nothing: CATALOG does not exist"),
    ("records disks R", "disks: no committed snapshot found; `kip33 build` makes one"),
    ("count L nothing --per 1h", "/nothing: REMOTE does not exist"),
]


def test_what_two_tiers_do_not_answer_is_refused_in_one_line(
    command: Command, tiers: Tiers, subtests: pytest.Subtests
) -> None:
    for line, says in REFUSED:
        with subtests.test(line):
            by_letter = dict(zip("LR", tiers, strict=True))
            done = command(*(by_letter.get(word, word) for word in line.split()))
            assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
            assert says in done.stderr


def test_python_gives_what_the_commands_show(command: Command, tmp_path: Path) -> None:
    places = built(tmp_path, [BOTH, LATER], [OLDEST, OTHER_TIMES])
    opened = kip33.open_catalog(list(places))
    answer, compared = (
        found(command, *places, "--topic", "orders"),
        opened.compare(topics=["orders"]),
    )
    assert compared.partitions.to_pylist() == answer["partitions"]
    assert compared.findings.to_pylist() == answer["findings"] != []
    holes = found(command, "holes", *places)["holes"]
    assert opened.holes().to_pylist() == holes != []
    shown = found(command, "segments", *places, "--status", "ok")["segments"]
    columns = [
        one for one in shown[0] if one not in ("tier", "is_copy", "is_different", "until_offset")
    ]
    listed = opened.segments(columns=columns, statuses=["ok"])
    assert listed.select([*shown[0]]).to_pylist() == shown


def test_python_refuses_in_one_line_what_reads_one_catalog(tiers: Tiers) -> None:
    opened: Any = kip33.open_catalog(list(tiers))
    with pytest.raises(AttributeError, match=r"^topics reads one catalog, and two tiers were"):
        opened.topics()
    with pytest.raises(ValueError, match=r"^1 catalogs found, expected one, or one of each"):
        kip33.open_catalog([tiers[0]])
    with pytest.raises(ValueError, match=r"^latest-tiered needs both tiers"):
        kip33.open_catalog(tiers[0]).offsets_for_times([("orders", 0, "latest-tiered")])
