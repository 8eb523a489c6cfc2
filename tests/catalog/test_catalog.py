"""The catalog: a snapshot is visible after its commit, completely, and any engine reads it."""

import json
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kip33.catalog import draft
from kip33.catalog.catalog import Catalog, Snapshot, choose
from kip33.catalog.draft import ROWS_PER_GROUP, Draft, PartWriter
from kip33.catalog.schema import SCHEMA_VERSION, SEGMENTS
from kip33.catalog.topic_totals import topic_totals
from kip33.catalog.topics_by_name import IS_OLDER, with_older_topics
from kip33.errors import CatalogError
from kip33.stores.locations import Location
from tests.builders.snapshots import (
    NOW_MS,
    SOURCE,
    as_earlier_version,
    commit_path,
    part_path,
    path_of,
    row,
    write,
)
from tests.cases import each_case


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return Catalog.at(str(tmp_path / "_catalog"))


def test_an_empty_place_has_no_snapshot(catalog: Catalog) -> None:
    assert (catalog.snapshots(), catalog.newest()) == ([], None)
    with pytest.raises(CatalogError, match="no committed snapshot found"):
        catalog.require_newest()


def test_what_was_written_is_read(catalog: Catalog) -> None:
    snapshot = write(catalog, [row(0), row(1, index_uri="file:///x", error="two words")], [row(2)])
    table = catalog.read(snapshot)
    assert table.schema == SEGMENTS
    assert table.to_pylist() == [row(0), row(1, index_uri="file:///x", error="two words"), row(2)]
    assert catalog.newest() == snapshot == catalog.require_newest()
    assert (snapshot.sequence, snapshot.source, snapshot.created_ms) == (1, SOURCE.uri, NOW_MS)
    assert (snapshot.rows, snapshot.settings) == (3, {"build": "{}", "layout": "kafka"})


def test_columns_that_a_row_lacks_are_null(catalog: Catalog) -> None:
    snapshot = write(catalog, [{"log_uri": "file:///x", "status": "unreadable"}])
    (read,) = catalog.read(snapshot).to_pylist()
    assert {name for name, value in read.items() if value is not None} == {"log_uri", "status"}


def test_columns_that_an_earlier_version_did_not_write_are_read_as_null(catalog: Catalog) -> None:
    as_earlier_version(catalog, write(catalog, [row(0)]), 1)
    newest = catalog.newest()
    assert newest is not None
    table = catalog.read(newest)
    assert table.schema == SEGMENTS
    names = SEGMENTS.names[SEGMENTS.get_field_index("time_index_matches") :]
    none = dict.fromkeys((*names, "bytes_version"))
    assert table.to_pylist() == [row(0) | none]
    some = catalog.read(newest, ["kip33_version", "topic"])
    assert some.to_pylist() == [{"kip33_version": None, "topic": "orders"}]
    for ask in (catalog.require_newest, lambda: choose(catalog, None), lambda: catalog.named("1")):
        with pytest.raises(CatalogError, match=r"version 1 found, expected 6: .*`kip33 build`"):
            ask()


def test_rows_of_some_topics_are_read_without_the_others(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parts and row groups without them are not opened; the pages that are read have CRCs."""
    monkeypatch.setattr(draft, "ROWS_PER_GROUP", 50)
    names = [f"topic-{number:02d}" for number in range(20)]
    rows = [row(number, topic=name) for name in names for number in range(10)]
    snapshot = write(catalog, rows[:100], rows[100:])
    part_path(catalog, snapshot, 1).write_bytes(b"not read")
    assert list(catalog.read_pieces(snapshot, ["partition"], ["none"])) == []
    for topic in ("topic-03", "topic-04"):
        [found] = catalog.read_pieces(snapshot, ["partition"], [topic])
        assert found["partition"].to_pylist() == list(range(10))
    part = part_path(catalog, snapshot)
    offsets = pq.read_metadata(part).row_group(0).column(SEGMENTS.get_field_index("last_offset"))
    end_of_page = offsets.data_page_offset + offsets.total_compressed_size
    for at in (*range(end_of_page - 40, end_of_page), -20):
        flip(part, at)
        with pytest.raises(CatalogError, match="the CRC does not match"):
            list(catalog.read_pieces(snapshot, None, names[:5]))
        flip(part, at)


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def test_a_snapshot_without_rows(catalog: Catalog) -> None:
    assert catalog.read(write(catalog, [])).equals(SEGMENTS.empty_table())
    nothing = write(catalog)
    assert catalog.read(nothing).schema == SEGMENTS
    assert catalog.read(nothing, ["topic"]).schema.names == ["topic"]


def test_a_large_part_has_several_row_groups(catalog: Catalog) -> None:
    snapshot = write(catalog, [row(i % 7) for i in range(ROWS_PER_GROUP + 5)])
    assert pq.ParquetFile(part_path(catalog, snapshot)).num_row_groups == 2
    assert [piece.num_rows for piece in catalog.read_pieces(snapshot)] == [ROWS_PER_GROUP, 5]
    assert catalog.read(snapshot).num_rows == snapshot.rows == ROWS_PER_GROUP + 5


def test_the_newest_is_the_highest_sequence_number_not_the_latest_clock(catalog: Catalog) -> None:
    first, second = write(catalog, [row(0)]), write(catalog, [row(1)])
    assert (first.sequence, second.sequence) == (1, 2)
    commit = commit_path(catalog, second)
    commit.write_text(commit.read_text().replace(str(NOW_MS), "5"))
    newest = catalog.require_newest()
    assert (newest.name, newest.created_ms) == (second.name, 5)
    assert [s.name for s in catalog.snapshots()] == [first.name, second.name]


def two_of_one_number(catalog: Catalog, folder: Path) -> list[Snapshot]:
    """Commit two snapshots at the same moment: each build saw an empty catalog."""
    other = Catalog.at(str(folder / "other"))
    snapshots = [write(catalog, [row(0)]), write(other, [row(1)])]
    shutil.copytree(path_of(other.location), path_of(catalog.location), dirs_exist_ok=True)
    return sorted(snapshots, key=lambda snapshot: snapshot.name)


def test_ties_go_to_the_higher_id(catalog: Catalog, tmp_path: Path) -> None:
    _, higher = two_of_one_number(catalog, tmp_path)
    assert catalog.require_newest() == higher
    assert [one.sequence for one in catalog.snapshots()] == [1, 1]


def test_an_uncommitted_snapshot_is_invisible(catalog: Catalog) -> None:
    committed = write(catalog, [row(0)])
    draft = Draft.begin(catalog, SOURCE)
    PartWriter(draft.staging, 0).publish()
    assert catalog.require_newest() == committed
    assert Draft.begin(catalog, SOURCE).sequence == draft.sequence


def lose_a_part(catalog: Catalog, snapshot: Snapshot) -> None:
    (path_of(catalog.snapshot_folder(snapshot.name)) / snapshot.parts[0].name).unlink()


def cut_a_part(catalog: Catalog, snapshot: Snapshot) -> None:
    path = part_path(catalog, snapshot)
    path.write_bytes(path.read_bytes()[:-1])


def lose_the_folder(catalog: Catalog, snapshot: Snapshot) -> None:
    folder = path_of(catalog.snapshot_folder(snapshot.name))
    folder.rename(folder.with_name("elsewhere"))


def change_commit(text: Callable[[str], str]) -> Callable[[Catalog, Snapshot], None]:
    def damage(catalog: Catalog, snapshot: Snapshot) -> None:
        path = commit_path(catalog, snapshot)
        path.write_text(text(path.read_text()))

    return damage


DAMAGES = {
    "a part is missing": lose_a_part,
    "a part is shorter": cut_a_part,
    "the folder is missing": lose_the_folder,
    "an empty commit file": change_commit(lambda text: ""),
    "a commit file cut short": change_commit(lambda text: text[:-20]),
    "a commit file of another shape": change_commit(lambda text: "[]"),
    "a commit file without fields": change_commit(lambda text: "{}"),
    "a commit file of one string": change_commit(lambda text: '"\\udcff"'),
    "a part without its size": change_commit(
        lambda text: text.replace('"parts": [', '"parts": [["x"], ')
    ),
    "a schema version that is no number": change_commit(
        lambda text: text.replace('"schema_version": 6', '"schema_version": "6"')
    ),
}


@each_case("damage", DAMAGES)
def test_a_damaged_newest_snapshot_is_ignored(damage: Any, tmp_path: Path) -> None:
    catalog = Catalog.at(str(tmp_path))
    good, newer = write(catalog, [row(0)]), write(catalog, [row(1)])
    damage(catalog, newer)
    assert catalog.require_newest() == good
    after = write(catalog, [row(2)])
    assert after.sequence == 3
    assert catalog.require_newest() == after


def test_unknown_files_among_the_commits_are_ignored(catalog: Catalog) -> None:
    good = write(catalog, [row(0)])
    commits = path_of(catalog.location.child("commits"))
    for name in ("README", "latest.json", ".00000000000000000009-x.json.tmp", f"{9:020d}.json"):
        (commits / name).write_text("{}")
    assert catalog.snapshots() == [good]
    assert Draft.begin(catalog, SOURCE).sequence == 2


def test_a_newer_schema_version_is_an_error(catalog: Catalog) -> None:
    write(catalog, [row(0)])
    newer = write(catalog, [row(1)])
    later = f'"schema_version": {SCHEMA_VERSION + 1}'
    change_commit(lambda text: text.replace(f'"schema_version": {SCHEMA_VERSION}', later))(
        catalog, newer
    )
    for ask in (catalog.newest, catalog.snapshots, catalog.require_newest):
        with pytest.raises(CatalogError, match="use a newer kip33"):
            ask()
    with pytest.raises(CatalogError, match="use a newer kip33"):
        Draft.begin(catalog, SOURCE)


def test_one_source_per_catalog(catalog: Catalog) -> None:
    write(catalog, [row(0)])
    catalog.require_source(SOURCE)
    with pytest.raises(CatalogError, match="describes file:///archive, not file:///other"):
        Draft.begin(catalog, Location.of("/other"))


def test_rows_that_do_not_match_the_commit_are_an_error(catalog: Catalog) -> None:
    snapshot = write(catalog, [row(0)])
    commit = commit_path(catalog, snapshot)
    record = json.loads(commit.read_text())
    record["parts"][0][1] = 9
    commit.write_text(json.dumps(record))
    with pytest.raises(CatalogError, match="1 rows found, the commit file says 9"):
        catalog.read(catalog.require_newest())


def test_a_part_with_a_changed_byte_is_an_error(catalog: Catalog) -> None:
    snapshot = write(catalog, [row(0)])
    file = part_path(catalog, snapshot)
    data = bytearray(file.read_bytes())
    data[50] ^= 1
    file.write_bytes(data)
    with pytest.raises(CatalogError, match=r"part-00000.parquet: the CRC"):
        catalog.read(catalog.require_newest())


def test_a_part_that_is_not_parquet_is_an_error(catalog: Catalog) -> None:
    snapshot = write(catalog, [row(0)])
    data = bytes(snapshot.parts[0].size_bytes)
    part_path(catalog, snapshot).write_bytes(data)
    change_commit(lambda text: text.replace(str(snapshot.parts[0].crc32), str(zlib.crc32(data))))(
        catalog, snapshot
    )
    with pytest.raises(CatalogError, match=r"part-00000.parquet: cannot be read"):
        catalog.read(catalog.require_newest())


def test_candidates_are_the_newest_first_each_with_what_is_wrong(catalog: Catalog) -> None:
    snapshots = [write(catalog, [row(0)]) for _ in range(3)]
    lose_a_part(catalog, snapshots[1])
    commit_path(catalog, snapshots[0]).write_text("[")
    newest, lost, corrupt = catalog.candidates()
    assert (newest.snapshot, newest.problem) == (snapshots[2], None)
    assert (lost.snapshot, corrupt.snapshot) == (snapshots[1], None)
    assert lost.problem
    assert corrupt.problem
    assert "part-00000.parquet: no bytes found, the commit file says" in lost.problem
    assert corrupt.problem.endswith(
        f"{corrupt.name}.json: not a valid commit file: it is damaged or truncated"
    )


@each_case("of", ("name", "sequence", "snapshot_id"))
def test_a_snapshot_is_named_by(of: str, catalog: Catalog) -> None:
    first, second = write(catalog, [row(0)]), write(catalog, [row(1)])
    assert [catalog.named(str(getattr(one, of))) for one in (first, second)] == [first, second]


def test_an_ambiguous_or_unknown_number_is_an_error(catalog: Catalog, tmp_path: Path) -> None:
    names = " and ".join(one.name for one in two_of_one_number(catalog, tmp_path))
    with pytest.raises(CatalogError, match=f": 1 matches {names}; give one of these"):
        catalog.named("1")
    with pytest.raises(CatalogError, match="no snapshot 2; `kip33 catalog` lists the snapshots"):
        catalog.named("2")


# Other engines read the folder that `kip33 catalog snapshots --path` prints.


def test_totals_of_topics(catalog: Catalog) -> None:
    no_time = {"largest_timestamp_source": "last_modified", "first_batch_timestamp": -1}
    snapshot = write(
        catalog,
        [row(0, largest_timestamp=50), row(0, log_dir="b2", largest_timestamp=90), row(1)],
        [
            row(0, topic="audit", record_count=None, largest_timestamp=50, status="truncated"),
            row(0, topic="audit", largest_timestamp=NOW_MS, **no_time),
            row(0, topic="b", largest_timestamp=NOW_MS, first_batch_timestamp=9, max_timestamp=9),
            {"log_uri": "x", "status": "unreadable", "topic": None, "error": "no"},
        ],
    )
    unlisted, audit, b, orders = topic_totals(catalog, snapshot)
    assert (unlisted.topic, unlisted.not_ok, unlisted.log_bytes) == ("", {"unreadable": 1}, 0)
    assert (unlisted.first_timestamp, unlisted.largest_timestamp) == (None, None)
    assert (audit.topic, audit.record_count, audit.not_ok) == ("audit", None, {"truncated": 1})
    assert (audit.first_timestamp, audit.largest_timestamp) == (5, 50)
    assert (b.first_timestamp, b.largest_timestamp) == (9, NOW_MS)
    assert (orders.partitions, orders.segments, orders.log_bytes) == (3, 3, 30)
    assert (orders.record_count, orders.time_index_entries, orders.not_ok) == (3, 3, {})


TOPICS_OF_NAMES = [
    ({"a": ["A"], "b": ["B", "B"]}, [False] * 3),
    ({"a": [None], "b": ["B1", "B2"]}, [False, True, False]),
    ({"a": [None, None], "b": [None, "B1"], "c": ["C1", "C2"]}, [*[False] * 4, True, False]),
    ({"a": ["A1", "A2"], "b": ["A2"]}, [True, False, False]),
]


@each_case(("ids", "older"), TOPICS_OF_NAMES)
def test_the_topic_that_changed_last_is_the_newest(ids: Any, older: Any) -> None:
    pairs = [(topic, topic_id) for topic, known in ids.items() for topic_id in known]
    rows = [
        row(number, topic=topic, topic_id=topic_id, last_modified_ms=NOW_MS + number)
        for number, (topic, topic_id) in enumerate(pairs)
    ]
    table = pa.Table.from_pylist(rows, schema=SEGMENTS)
    assert with_older_topics(table)[IS_OLDER].to_pylist() == older
