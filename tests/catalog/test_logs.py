"""The log of a partition: which segments of its copies are read, between which offsets."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from kip33.catalog import logs
from kip33.catalog.logs import (
    IS_REMOTE,
    IS_UPLOAD,
    OF_COPIES,
    REMOTE_TIER,
    Log,
    log_of,
    logs_of,
    replica_lines,
    unsure_text,
)
from kip33.catalog.schema import SEGMENTS
from kip33.rules.which_log import Status
from tests.builders.small_kafka import Archive, digest_of, epochs_of, worlds
from tests.cases import each_case
from tests.long_forms import seeds, short_and_long

Row = dict[str, Any]
NONE = dict.fromkeys(
    ("checkpoint_epochs", "checkpoint_epoch_offsets", "checkpoint_log_start_offset", "topic_id")
)
UNKNOWN = {"leader_epochs": None, "leader_epoch_offsets": None}


def segment(copy: str, base: int, end: int | None, *epochs: tuple[int, int], **fields: Any) -> Row:
    """Return a row: `r...` is in the remote tier, all others are log directories."""
    starts = epochs or ((0, base),)
    return {
        **NONE,
        **{"log_dir": copy, "topic": "orders", "partition": 0, "base_offset": base},
        **{"last_offset": None if end is None else end - 1, "epochs_fall": False},
        **{"record_count": None if end is None else end - base, "status": "ok"},
        **{"batches_crc32": hash((base, end)) & 0xFFFF, "log_uri": f"file:///{copy}/{base}.log"},
        "leader_epochs": [epoch for epoch, _ in starts],
        "leader_epoch_offsets": [offset for _, offset in starts],
        **{IS_REMOTE: copy.startswith("r")},
        **fields,
    }


def checkpoint(*epochs: tuple[int, int]) -> Row:
    names = ("checkpoint_epochs", "checkpoint_epoch_offsets")
    return {name: list(part) for name, part in zip(names, zip(*epochs, strict=True), strict=True)}


def lost(copy: str, base: int) -> Row:
    return segment(copy, base, None, status="unreadable", **UNKNOWN)


def cut(copy: str, base: int, end: int) -> Row:
    return segment(copy, base, end, status="truncated")


def active(copy: str, base: int) -> Row:
    return segment(copy, base, None, status="empty") | UNKNOWN


def read(log: Log) -> list[tuple[Any, ...]]:
    """Return what is read: copy and base offset, from, until, unsure from."""
    return [
        (
            "/".join(row["log_uri"].removesuffix(".log").split("/")[-2:]),
            *(row[name] for name in ("from_offset", "until_offset", "unsure_from")),
        )
        for row in log.rows
    ]


ALL = (None, None, None)
DEPOSED = [segment("b1", 0, 20), segment("b2", 0, 12, (0, 0), (2, 5))]
LOGS: dict[str, tuple[list[Row], str | None, list[tuple[Any, ...]]]] = {
    "one copy": ([segment("b1", 0, 9), lost("b1", 9)], None, [("b1/0", *ALL), ("b1/9", *ALL)]),
    "a deposed leader has more": (DEPOSED, None, [("b2/0", *ALL)]),
    "the deposed leader is asked": (DEPOSED, "b1", [("b1/0", None, None, 5)]),
    "a directory that is not there": (DEPOSED, "b3", []),
    "one begins later and goes farther": (
        [segment("b1", 0, 60), segment("b1", 60, 90), segment("b2", 60, 150)],
        None,
        [("b1/0", *ALL), ("b2/60", *ALL)],
    ),
    "each lacks something": (
        [segment("b1", 0, 9), segment("b1", 20, 29), segment("b2", 5, 22)],
        None,
        [("b1/0", *ALL), ("b2/5", 9, 20, None), ("b1/20", *ALL)],
    ),
    "what follows damage is another's": (
        [cut("b1", 0, 4), segment("b1", 10, 20), segment("b2", 0, 10)],
        None,
        [("b1/0", None, 4, None), ("b2/0", 4, None, None), ("b1/10", *ALL)],
    ),
    "damage at the end of all": (
        [segment("b1", 0, 9), cut("b1", 9, 15), segment("b2", 0, 9)],
        None,
        [("b1/0", *ALL), ("b1/9", *ALL)],
    ),
    "a lost segment that another has": (
        [lost("b1", 0), segment("b1", 10, 20), segment("b2", 0, 10)],
        None,
        [("b2/0", *ALL), ("b1/10", *ALL)],
    ),
    "a lost segment of which another has a part": (
        [lost("b1", 0), segment("b1", 10, 20), segment("b2", 0, 4)],
        None,
        [("b2/0", *ALL), ("b1/0", 4, None, None), ("b1/10", *ALL)],
    ),
    "a lost segment after the log was left": (
        [segment("b1", 0, 9), lost("b1", 9), segment("b2", 0, 12, (0, 0), (2, 5))],
        None,
        [("b2/0", *ALL)],
    ),
    "the active segment has no batch": (
        [segment("b1", 0, 9), active("b1", 9), segment("b2", 0, 7), active("b2", 7)],
        None,
        [("b1/0", *ALL), ("b1/9", *ALL)],
    ),
    "all records were deleted": (
        [active("b1", 9), active("b2", 12)], None, [("b2/12", *ALL)],
    ),
    "a leader is known from its checkpoint alone": (
        [segment("b1", 0, 9), segment("b2", 0, 7, **checkpoint((0, 0), (3, 5)))],
        None,
        [("b1/0", None, 5, None)],
    ),
    "no common epoch": (
        [segment("b1", 0, 9, (4, 0)), segment("b2", 9, 20, (5, 9))],
        None,
        [("b1/0", None, None, 0), ("b2/9", *ALL)],
    ),
    "other bytes in one leader epoch": (
        [segment("b1", 0, 9), segment("b2", 0, 9, batches_crc32=1)],
        None,
        [("b1/0", None, None, 0)],
    ),
    "leader epochs are not known": (
        [segment("b1", 0, 9, **UNKNOWN), segment("b2", 0, 7, **UNKNOWN)],
        None,
        [("b1/0", None, None, 0)],
    ),
    "epochs that fall show nothing": (
        [segment("b1", 0, 9, epochs_fall=True), segment("b2", 0, 7)],
        None,
        [("b2/0", None, None, 0), ("b1/0", 7, None, 7)],
    ),
    "both tiers": (
        [segment("b1", 20, 40), segment("r", 0, 20), segment("r", 20, 30)],
        None,
        [("r/0", *ALL), ("b1/20", *ALL)],
    ),
    "a remote segment ends in the local log": (
        [segment("b1", 4, 12), segment("r", 0, 10)],
        None,
        [("r/0", None, 4, None), ("b1/4", *ALL)],
    ),
    "an upload of a leader that lost its records": (
        [segment("b1", 5, 20, (0, 5), (2, 10)), segment("r", 0, 10), segment("r", 10, 30)],
        None,
        [("r/0", None, 5, None), ("b1/5", *ALL)],
    ),
    "of two uploads with one base offset the longer one": (
        [segment("r", 0, 10), segment("r", 10, 14), segment("r", 10, 20)],
        None,
        [("r/0", *ALL), ("r/10", *ALL)],
    ),
}  # fmt: skip


@each_case(("rows", "replica", "expected"), LOGS)
def test_what_is_read_of_the_copies(rows: Any, replica: Any, expected: Any) -> None:
    for order in (rows, rows[::-1]):
        assert read(log_of(order, replica)) == expected


def test_the_end_of_the_largest_offset_is_no_special_one() -> None:
    rows = [segment(copy, 0, 2**63) for copy in ("b1", "b2")]
    assert read(log_of(rows)) == [("b1/0", *ALL)]


def test_why_records_are_unsure_is_said() -> None:
    of_dead = log_of(DEPOSED, "b1").rows[0]
    of_unsure = log_of(LOGS["no common epoch"][0]).rows[0]
    of_unknown = log_of(LOGS["leader epochs are not known"][0]).rows[0]
    texts = [unsure_text(5, row["certainty"]) for row in (of_dead, of_unsure, of_unknown)]
    starts = ("a later leader never had", "no copy shows", "leader epochs are not known")
    assert [text.startswith(start) for text, start in zip(texts, starts, strict=True)] == [True] * 3


def test_lines_name_the_replicas_and_say_how_many_partitions_are_alike() -> None:
    notes = log_of(DEPOSED).notes
    assert [*replica_lines(notes)] == [
        "orders-0: replica 'b1' differs from the log from offset 5 on: "
        "a later leader never had its records"
    ]
    assert [line.partition("; ")[2] for line in replica_lines(notes * 3)] == [
        "and 2 more like this"
    ]
    tiers = [segment("b1", 4, 12), segment("r", 0, 10)]
    assert not [*replica_lines(log_of(tiers).notes)]  # the remote tier is there for this


def table(rows: Sequence[Row]) -> pa.Table:
    more = {"last_modified_ms": 1, "max_timestamp": 1, IS_UPLOAD: False}
    kinds = {IS_REMOTE: pa.bool_(), IS_UPLOAD: pa.bool_()}
    fields = [
        pa.field(name, kinds.get(name) or SEGMENTS.field(name).type)
        for name in dict.fromkeys(OF_COPIES)
    ]
    return pa.Table.from_pylist([more | row for row in rows], pa.schema(fields))


def test_the_logs_of_a_table_are_those_of_its_partitions() -> None:
    rows: list[Row] = []
    for number, (some, _, _) in enumerate(LOGS.values()):
        rows += [row | {"partition": number} for row in some]
    found = logs_of(table(rows)).rows.to_pylist()
    for number, (some, _, _) in enumerate(LOGS.values()):
        of_one = [row for row in found if row["partition"] == number]
        assert read(Log(of_one, [], None)) == read(log_of(some)), [*LOGS][number]


def test_a_directory_that_was_not_listed_may_have_a_later_leader() -> None:
    unlisted = dict.fromkeys(SEGMENTS.names) | {"topic": "orders", "partition": 0, "log_dir": "b2"}
    rows = [segment("b1", 0, 9), unlisted | {"log_uri": "file:///b2", IS_REMOTE: False}]
    found = logs_of(table(rows))
    assert found.rows["log_dir"].to_pylist() == ["b1"]
    assert [note.text for note in found.notes] == [
        "orders-0: replica 'b2' cannot be listed; it may have the log of a later leader"
    ]
    assert logs_of(table(rows[1:])).rows["log_dir"].to_pylist() == ["b2"]


def rows_of(archive: Archive) -> list[Row]:
    """Return the rows of a small world's archive."""
    statuses = {Status.OK: "ok", Status.CUT: "truncated", Status.LOST: "unreadable"}
    rows = []
    for number, one in enumerate(archive.rows):
        copy = archive.copies[one.copy]
        starts = epochs_of(one.batches) if one.shows_epochs else []
        row = segment(copy.name, one.base, one.end if one.batches else None, *starts)
        row |= {"log_uri": f"file:///{copy.name}/{number}", IS_REMOTE: copy.is_remote}
        row |= {"status": statuses[one.status], "batches_crc32": digest_of(one.batches)}
        row |= {"record_count": sum(len(batch.records) for batch in one.batches)}
        row |= {} if starts else UNKNOWN
        row |= checkpoint(*copy.checkpoint) if copy.checkpoint else {}
        rows.append(row | {"checkpoint_log_start_offset": copy.log_start or None})
    return rows


@pytest.mark.parametrize("many", short_and_long(300, 20_000, "KIP33_WORLDS"))
def test_where_all_copies_have_the_same_segments_the_rule_need_not_be_asked(many: int) -> None:
    plain = 0
    for made in worlds(seeds(many), damage=0):
        rows = rows_of(made.archive)
        rows.sort(key=lambda row: (row["base_offset"], row[IS_REMOTE], row["log_uri"]))
        names = sorted({row["log_dir"] for row in rows if not row[IS_REMOTE]})
        found = (
            logs._plain_log(rows) if names and len({row["log_dir"] for row in rows}) > 1 else None
        )
        if found:
            plain += 1
            asked = logs._chosen(rows, names, None)
            assert read(found) == read(asked), made.seed
            told = [note for note in asked.notes if note.other != REMOTE_TIER]  # no news
            assert {*found.notes} == {*told}, made.seed
    assert plain > many / 50
