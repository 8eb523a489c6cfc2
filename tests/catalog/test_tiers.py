"""The catalogs of a local and a remote tier, matched by topic."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kip33.catalog import tiers as tiers_module
from kip33.catalog.logs import IS_REMOTE, OUTSIDE_FROM, UNSURE_FROM
from kip33.catalog.segment_order import KEY, joined
from kip33.catalog.tiers import (
    OtherTopic,
    Tiers,
    of_same_topics,
)
from kip33.errors import CatalogError
from tests.builders.snapshots import row, snapshot_of

A, B = "A" * 22, "B" * 22
COLUMNS = ("topic", "topic_id", "partition", "base_offset", "last_offset", "status")


def segment(
    topic: str, base_offset: int, topic_id: str | None = A, **fields: Any
) -> dict[str, Any]:
    none = dict.fromkeys(
        ("checkpoint_epochs", "checkpoint_epoch_offsets", "checkpoint_log_start_offset")
    )
    of_one = {"topic": topic, "topic_id": topic_id, "base_offset": base_offset, **none}
    return row(0) | of_one | {"last_offset": base_offset + 9} | fields


def tiers(place: Path, local: list[dict[str, Any]], remote: list[dict[str, Any]]) -> Tiers:
    return Tiers.of(
        snapshot_of(place / "local", local, "kafka"), snapshot_of(place / "remote", remote, "aiven")
    )


def remote_rows(of_both: Tiers) -> tuple[pa.Table, tuple[OtherTopic, ...]]:
    return of_same_topics(of_both, *(tier.rows(COLUMNS) for tier in of_both))


def test_the_layouts_say_which_catalog_is_of_which_tier(
    tmp_path: Path, subtests: pytest.Subtests
) -> None:
    for number, remote in enumerate(("aiven", "local-tiered", "hdfs-rsm", "pinterest", "{topic}")):
        with subtests.test(remote):
            folder = tmp_path / str(number)
            folder.mkdir()
            disks, bucket = (
                snapshot_of(folder / "a", [], "kafka"),
                snapshot_of(folder / "b", [], remote),
            )
            assert Tiers.of(disks, bucket) == Tiers.of(bucket, disks) == Tiers(disks, bucket)


ONE_TIER = [
    ("kafka", "two catalogs of the local"),
    ("aiven", "of the remote tier"),
]


def test_two_catalogs_of_one_tier_are_refused_in_one_line(
    tmp_path: Path, subtests: pytest.Subtests
) -> None:
    for number, (layout, found) in enumerate(ONE_TIER):
        with subtests.test(layout):
            folder = tmp_path / str(number)
            folder.mkdir()
            one, other = (snapshot_of(folder / name, [], layout) for name in "ab")
            with pytest.raises(CatalogError, match=f"^[^\n]*{found}[^\n]*$"):
                Tiers.of(one, other)


IDS = [
    ([A], [A], [0]),
    ([A], [None], [0]),  # by name
    ([None], [A], [0]),
    ([None], [None], [0]),
    ([A], [A, B], [0]),  # B was deleted before A was created
    ([A, B], [B], [0]),
    ([A], [], []),
    ([], [A], [0]),
]


def test_topics_are_matched_by_id_then_by_name(tmp_path: Path, subtests: pytest.Subtests) -> None:
    for number, (local, remote, bases) in enumerate(IDS):
        with subtests.test(f"{local} {remote}"):
            folder = tmp_path / str(number)
            folder.mkdir()
            of_both = tiers(
                folder,
                [segment("orders", 10 * n, topic_id) for n, topic_id in enumerate(local)],
                [segment("orders", 10 * n, topic_id) for n, topic_id in enumerate(remote)],
            )
            rows, others = remote_rows(of_both)
            assert rows["base_offset"].to_pylist() == bases
            assert not others


def test_a_topic_id_of_two_names_is_an_error_of_one_line(tmp_path: Path) -> None:
    of_both = tiers(tmp_path, [segment("orders", 0)], [segment("clicks", 0)])
    found = f"topic id {A}: topic orders in the local tier, clicks"
    with pytest.raises(CatalogError, match=f"^[^\n]*{found}[^\n]*$"):
        remote_rows(of_both)


def test_remote_segments_of_another_topic_of_the_name_are_left_out_with_one_line(
    tmp_path: Path,
) -> None:
    local = [segment("orders", 0, B), segment("clicks", 0, None)]
    remote = [segment("orders", 0), segment("orders", 10), segment("clicks", 0, None)]
    said: list[str] = []
    both = Tiers.of(*tiers(tmp_path, local, remote), said.append)
    for _ in range(2):
        rows = both.logs(["topic"]).rows
        assert sorted(rows["topic"].to_pylist()) == ["clicks", "orders"]
    [line] = said
    assert line.startswith(f"topic orders: topic id {B} in {both.local.catalog.location.uri}, {A} ")
    assert line.endswith("; its remote segments are left out")


def test_a_remote_segment_is_put_only_to_a_replica_of_its_topic(tmp_path: Path) -> None:
    # Without an id a log belongs to the only topic of its name; of several, to none.
    cases: list[tuple[list[tuple[str, str | None]], list[tuple[str, str | None]], list[str]]] = [
        ([("b1", A)], [("", A)], ["b1"]),
        ([("b1", None)], [("", A)], ["b1"]),
        ([("b1", A)], [("", None)], ["b1"]),
        ([("b1", None)], [(A, A), (B, B)], [A, B]),
        ([("b1", A), ("b2", B)], [("", B)], ["b2"]),
        ([("b1", A), ("b2", B)], [("", None)], [""]),
        ([("", None)], [("", A), (B, B)], [A, B]),
        ([("", A), ("b2", B)], [("", None)], ["remote"]),
    ]
    for number, (local, remote, log_dirs) in enumerate(cases):
        both = tiers(
            tmp_path / str(number),
            [segment("orders", 0, topic_id, log_dir=place) for place, topic_id in local],
            [segment("orders", 0, topic_id, log_dir=place) for place, topic_id in remote],
        ).rows(["log_dir"])
        found = both.filter(both[IS_REMOTE])["log_dir"].to_pylist()
        assert found == log_dirs, number


def test_a_partition_of_which_only_an_older_topic_is_here_keeps_its_remote_segments(
    tmp_path: Path,
) -> None:
    local = [
        segment("orders", 0, A, log_dir=""),
        segment("orders", 0, B, log_dir="b2", partition=1),
    ]
    both = tiers(tmp_path, local, [segment("orders", 0, B, log_dir="")]).rows(["log_dir"])
    assert both.filter(both[IS_REMOTE])["log_dir"].to_pylist() == [B]


CHECKPOINTS: list[tuple[list[tuple[int, int]], int | None]] = [
    ([(0, 0)], None),  # the local log is behind
    ([(0, 0), (1, 10)], 10),  # its leader of epoch 1 wrote nothing yet
    ([], None),
]


def test_the_checkpoint_of_a_local_log_has_epochs_without_a_batch(
    tmp_path: Path, subtests: pytest.Subtests
) -> None:
    for number, (starts, outside_from) in enumerate(CHECKPOINTS):
        with subtests.test(f"{starts!r}"):
            epochs = {"leader_epochs": [0], "leader_epoch_offsets": [0]}
            checkpoint = {
                "checkpoint_epochs": [epoch for epoch, _ in starts] or None,
                "checkpoint_epoch_offsets": [offset for _, offset in starts] or None,
            }
            local, remote = segment("orders", 0), segment("orders", 0, last_offset=19)
            folder = tmp_path / str(number)
            both = tiers(folder, [local | epochs | checkpoint], [remote | epochs]).rows(["log_uri"])
            assert both.filter(both[IS_REMOTE])[OUTSIDE_FROM].to_pylist() == [outside_from]


def test_the_rows_of_logs_have_what_could_not_be_listed(tmp_path: Path) -> None:
    unlisted = {"base_offset": None, "last_offset": None, "status": "unreadable"}
    local = [segment("orders", 10, log_dir=place) for place in ("b1", "b2")]
    remote = [segment("orders", base, log_dir="") for base in (0, 10)]
    remote.append(segment("orders", 0, log_dir="") | unlisted)
    both = tiers(tmp_path, local, remote)
    rows = both.logs(["log_dir", "base_offset"]).rows
    assert rows.select(["log_dir", "base_offset", IS_REMOTE]).to_pylist() == [
        {"log_dir": "b1", "base_offset": base, IS_REMOTE: is_remote}
        for base, is_remote in ((0, True), (10, False), (None, True))
    ]
    alone = both.remote.logs(["base_offset"]).rows
    assert alone.schema == both.logs(["base_offset"]).rows.schema
    assert [one[IS_REMOTE] for one in alone.to_pylist()] == [None] * 3


def test_some_topics_at_a_time_are_all_rows_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("clicks", "orders", "views")
    local = [
        segment(
            name, base, name[0] * 22, log_dir=log_dir, log_uri=f"file:///{log_dir}/{name}{base}"
        )
        for name in names
        for log_dir in ("b1", "b2")
        for base in (10, 20)
    ]
    remote = [
        segment(name, base, name[0] * 22, log_dir="", log_uri=f"file:///a/{name}{base}")
        for name in names
        for base in (0, 10)
    ]
    both = tiers(tmp_path, local, remote)
    [every] = both.tables(["log_uri", *KEY[:4]])
    each = every.select([*KEY[:4], IS_REMOTE]).to_pylist()
    assert each == sorted(each, key=lambda one: tuple(one.values()))
    monkeypatch.setattr(tiers_module, "TABLE_ROWS", 7)
    tables = list(both.tables(["log_uri", *KEY[:4]]))
    assert [set(rows["topic"].to_pylist()) for rows in tables] == [{name} for name in names]
    assert joined(tables, [*KEY[:4], IS_REMOTE]) == every


def test_an_id_of_two_names_is_found_in_topics_that_are_read_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiers_module, "TABLE_ROWS", 1)
    both = tiers(tmp_path, [segment("orders", 0, A)], [segment("clicks", 0, A)])
    with pytest.raises(CatalogError, match=f"topic id {A}: topic orders in the local tier"):
        next(both.tables(["topic"]))


NOT_READ = dict.fromkeys(("last_offset", "leader_epochs", "leader_epoch_offsets"))


def test_what_no_build_has_read_is_unsure_after_the_local_log(
    tmp_path: Path, subtests: pytest.Subtests
) -> None:
    cases: list[tuple[str, dict[str, Any], int | None]] = [
        ("with leader epochs", {}, None),
        ("without leader epochs", {"leader_epochs": None, "leader_epoch_offsets": None}, 10),
        ("judged by its index", NOT_READ | {"status": "unverified"}, 20),
        ("unreadable: no record of it is read", NOT_READ | {"status": "unreadable"}, None),
    ]
    epochs = {"leader_epochs": [0], "leader_epoch_offsets": [0]}
    for name, fields, unsure_from in cases:
        upload = segment("orders", 0, last_offset=29) | epochs | fields
        upload |= {"base_offset": 20} if unsure_from == 20 else {}
        with subtests.test(name):
            both = tiers(tmp_path / name, [segment("orders", 0) | epochs], [upload])
            rows = both.rows(["log_uri"])
            assert rows.filter(rows[IS_REMOTE])[UNSURE_FROM].to_pylist() == [unsure_from]
