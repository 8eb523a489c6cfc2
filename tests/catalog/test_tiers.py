"""The catalogs of a local and a remote tier, matched by topic."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kip33.catalog.tiers import IS_REMOTE, OUTSIDE_FROM, Tiers
from kip33.errors import CatalogError
from tests.builders.snapshots import row, snapshot_of

A, B = "A" * 22, "B" * 22
COLUMNS = ("topic", "topic_id", "partition", "base_offset", "last_offset", "status")


def segment(
    topic: str, base_offset: int, topic_id: str | None = A, **fields: Any
) -> dict[str, Any]:
    of_one = {"topic": topic, "topic_id": topic_id, "base_offset": base_offset}
    return row(0) | of_one | {"last_offset": base_offset + 9} | fields


def tiers(place: Path, local: list[dict[str, Any]], remote: list[dict[str, Any]]) -> Tiers:
    return Tiers.of(
        snapshot_of(place / "local", local, "kafka"), snapshot_of(place / "remote", remote, "aiven")
    )


def remote_rows(of_both: Tiers) -> pa.Table:
    return of_both.of_same_topics(*(tier.rows(COLUMNS) for tier in of_both))


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
            assert remote_rows(of_both)["base_offset"].to_pylist() == bases


MISMATCHES = [
    (("orders", A), ("orders", B), f"topic orders: topic id {A} in the local tier, {B}"),
    (("orders", A), ("clicks", A), f"topic id {A}: topic orders in the local tier, clicks"),
]


def test_a_mismatch_of_topics_is_one_line(tmp_path: Path, subtests: pytest.Subtests) -> None:
    for number, (local, remote, found) in enumerate(MISMATCHES):
        with subtests.test(found):
            folder = tmp_path / str(number)
            folder.mkdir()
            of_both = tiers(
                folder, [segment(local[0], 0, local[1])], [segment(remote[0], 0, remote[1])]
            )
            with pytest.raises(CatalogError, match=f"^[^\n]*{found}[^\n]*$"):
                remote_rows(of_both)


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


CHECKPOINTS = [
    ("0\n1\n0 0\n", None),  # the local log is behind
    ("0\n2\n0 0\n1 10\n", 10),  # its leader of epoch 1 wrote nothing yet
    ("no checkpoint", None),
    (None, None),
]


def test_the_checkpoint_beside_a_local_log_has_epochs_without_a_batch(
    tmp_path: Path, subtests: pytest.Subtests
) -> None:
    for number, (checkpoint, outside_from) in enumerate(CHECKPOINTS):
        with subtests.test(f"{checkpoint!r}"):
            folder = tmp_path / str(number)
            folder.mkdir()
            epochs = {"leader_epochs": [0], "leader_epoch_offsets": [0]}
            if checkpoint is not None:
                (folder / "leader-epoch-checkpoint").write_text(checkpoint)
            log = (folder / "0.log").as_uri()
            local, remote = segment("orders", 0, log_uri=log), segment("orders", 0, last_offset=19)
            both = tiers(folder, [local | epochs], [remote | epochs]).rows(["log_uri"])
            assert both.filter(both[IS_REMOTE])[OUTSIDE_FROM].to_pylist() == [outside_from]
