"""The catalog: what is committed is there whole, what is not is not there; any engine reads it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from kip33.errors import CatalogError
from kip33.storage.catalog import (
    SCHEMA_VERSION,
    SEGMENTS,
    Catalog,
    Part,
    Snapshot,
)
from kip33.storage.locations import Location
from kip33.storage.parts import ROWS_PER_GROUP, PartWriter
from kip33.storage.totals import topic_totals

SOURCE = Location.of("/archive")
NOW_MS = 1_700_000_000_000


def row(number: int, **fields: Any) -> dict[str, Any]:
    """A row with a value in every column, of every type."""
    return {
        "log_dir": "b1", "topic": "orders", "partition": number, "base_offset": 2**62 + number,
        "last_offset": 2**62 + number, "log_uri": f"file:///archive/{number}.log",
        "index_uri": None, "size_bytes": 10, "valid_bytes": 10, "batch_count": 1,
        "record_count": 1, "first_batch_timestamp": 5, "max_timestamp": 2**63 - 1,
        "offset_of_max_timestamp": 7, "largest_timestamp": 2**63 - 1,
        "largest_timestamp_source": "log", "last_modified_ms": NOW_MS,
        "timestamp_types": ["CreateTime", "LogAppendTime"], "magics": [-1, 2], "codecs": [],
        "out_of_order_batches": 0, "time_index_entries": 1, "active_segment": False,
        "build_settings": "{}", "status": "ok", "error": None, "index_file": "written",
    } | fields  # fmt: skip


def write(catalog: Catalog, *parts: list[dict[str, Any]]) -> Snapshot:
    draft = catalog.begin(SOURCE)
    written = []
    for number, rows in enumerate(parts):
        writer = PartWriter(draft.folder, number)
        for one in rows:
            writer.append(one)
        written.append(writer.publish())
    return draft.commit(written, settings={"build": "{}"}, now_ms=NOW_MS)


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return Catalog.at(str(tmp_path / "_catalog"))


def path_of(place: Location) -> Path:
    return Path(place.path)


def commit_path(catalog: Catalog, snapshot: Snapshot) -> Path:
    return path_of(catalog.location.child(f"commits/{snapshot.name}.json"))


def test_an_empty_place_has_no_snapshot(catalog: Catalog) -> None:
    assert (catalog.snapshots(), catalog.newest()) == ([], None)
    with pytest.raises(CatalogError, match="no committed snapshot here"):
        catalog.require_newest()


def test_what_was_written_is_read(catalog: Catalog) -> None:
    snapshot = write(catalog, [row(0), row(1, index_uri="file:///x", error="two words")], [row(2)])
    table = catalog.read(snapshot)
    assert table.schema == SEGMENTS
    assert table.to_pylist() == [row(0), row(1, index_uri="file:///x", error="two words"), row(2)]
    assert catalog.newest() == snapshot == catalog.require_newest()
    assert (snapshot.sequence, snapshot.source, snapshot.created_ms) == (1, SOURCE.uri, NOW_MS)
    assert (snapshot.rows, snapshot.settings) == (3, {"build": "{}"})


def test_columns_that_a_row_lacks_are_null(catalog: Catalog) -> None:
    snapshot = write(catalog, [{"log_uri": "file:///x", "status": "unreadable"}])
    (read,) = catalog.read(snapshot).to_pylist()
    assert {name for name, value in read.items() if value is not None} == {"log_uri", "status"}


def test_a_snapshot_without_rows(catalog: Catalog) -> None:
    assert catalog.read(write(catalog, [])).equals(SEGMENTS.empty_table())
    nothing = write(catalog)
    assert catalog.read(nothing).schema == SEGMENTS
    assert catalog.read(nothing, ["topic"]).schema.names == ["topic"]


def test_some_columns(catalog: Catalog) -> None:
    snapshot = write(catalog, [row(0)], [row(1)])
    assert catalog.read(snapshot, ["partition", "topic"]).column_names == ["partition", "topic"]


def test_a_large_part_has_several_row_groups(catalog: Catalog) -> None:
    snapshot = write(catalog, [row(i % 7) for i in range(ROWS_PER_GROUP + 5)])
    (part,) = snapshot.parts
    file = path_of(catalog.snapshot_folder(snapshot.name)) / part.name
    assert pq.ParquetFile(file).num_row_groups == 2
    assert catalog.read(snapshot).num_rows == part.rows == ROWS_PER_GROUP + 5


def test_the_newest_is_the_highest_sequence_number_not_the_latest_clock(catalog: Catalog) -> None:
    first, second = write(catalog, [row(0)]), write(catalog, [row(1)])
    assert (first.sequence, second.sequence) == (1, 2)
    commit = commit_path(catalog, second)
    commit.write_text(commit.read_text().replace(str(NOW_MS), "5"))
    newest = catalog.require_newest()
    assert (newest.name, newest.created_ms) == (second.name, 5)
    assert [s.name for s in catalog.snapshots()] == [first.name, second.name]


def test_ties_go_to_the_higher_id(catalog: Catalog) -> None:
    one, other = catalog.begin(SOURCE), catalog.begin(SOURCE)
    assert one.sequence == other.sequence
    drafts = sorted([one, other], key=lambda draft: draft.snapshot_id)
    for draft in reversed(drafts):  # the higher id is committed first
        part = PartWriter(draft.folder, 0).publish()
        draft.commit([part], settings={}, now_ms=NOW_MS)
    assert catalog.require_newest().snapshot_id == drafts[1].snapshot_id
    assert catalog.begin(SOURCE).sequence == 2


def test_sequence_numbers_of_more_than_one_digit(catalog: Catalog) -> None:
    snapshots = [write(catalog, []) for _ in range(12)]
    assert catalog.require_newest() == snapshots[-1]
    assert snapshots[-1].sequence == 12
    assert snapshots[-1].name.startswith("00000000000000000012-")


def test_what_is_not_committed_is_not_there(catalog: Catalog) -> None:
    committed = write(catalog, [row(0)])
    draft = catalog.begin(SOURCE)
    PartWriter(draft.folder, 0).publish()
    assert catalog.require_newest() == committed
    assert catalog.begin(SOURCE).sequence == draft.sequence


def lose_a_part(catalog: Catalog, snapshot: Snapshot) -> None:
    (path_of(catalog.snapshot_folder(snapshot.name)) / snapshot.parts[0].name).unlink()


def cut_a_part(catalog: Catalog, snapshot: Snapshot) -> None:
    path = path_of(catalog.snapshot_folder(snapshot.name)) / snapshot.parts[0].name
    path.write_bytes(path.read_bytes()[:-1])


def lose_the_folder(catalog: Catalog, snapshot: Snapshot) -> None:
    folder = path_of(catalog.snapshot_folder(snapshot.name))
    folder.rename(folder.with_name("elsewhere"))


def change_commit(text: Callable[[str], str]) -> Callable[[Catalog, Snapshot], None]:
    def damage(catalog: Catalog, snapshot: Snapshot) -> None:
        path = commit_path(catalog, snapshot)
        path.write_text(text(path.read_text()))

    return damage


DAMAGES = [
    pytest.param(lose_a_part, id="a part is missing"),
    pytest.param(cut_a_part, id="a part is shorter"),
    pytest.param(lose_the_folder, id="the folder is missing"),
    pytest.param(change_commit(lambda text: ""), id="an empty commit file"),
    pytest.param(change_commit(lambda text: text[:-20]), id="a commit file cut short"),
    pytest.param(change_commit(lambda text: "[]"), id="a commit file of another shape"),
    pytest.param(change_commit(lambda text: "{}"), id="a commit file without fields"),
    pytest.param(change_commit(lambda text: '"\\udcff"'), id="a commit file of one string"),
    pytest.param(
        change_commit(lambda text: text.replace('"parts": [', '"parts": [["x"], ')),
        id="a part without its size",
    ),
    pytest.param(
        change_commit(lambda text: text.replace('"schema_version": 1', '"schema_version": "1"')),
        id="a schema version that is no number",
    ),
]  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_newest_snapshot_counts_as_none(
    catalog: Catalog, damage: Callable[[Catalog, Snapshot], None]
) -> None:
    good, newer = write(catalog, [row(0)]), write(catalog, [row(1)])
    damage(catalog, newer)
    assert catalog.require_newest() == good
    after = write(catalog, [row(2)])
    assert after.sequence == 3
    assert catalog.require_newest() == after


def test_a_commit_file_that_is_no_text(catalog: Catalog) -> None:
    good, newer = write(catalog, [row(0)]), write(catalog, [row(1)])
    commit_path(catalog, newer).write_bytes(b"\xff\xfe\x00")
    assert catalog.require_newest() == good


def test_strange_files_among_the_commits_are_passed_over(catalog: Catalog) -> None:
    good = write(catalog, [row(0)])
    commits = path_of(catalog.location.child("commits"))
    for name in ("README", "latest.json", ".00000000000000000009-x.json.tmp", f"{9:020d}.json"):
        (commits / name).write_text("{}")
    assert catalog.snapshots() == [good]
    assert catalog.begin(SOURCE).sequence == 2


def test_a_newer_schema_version_is_told(catalog: Catalog) -> None:
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
        catalog.begin(SOURCE)


def test_one_source_per_catalog(catalog: Catalog) -> None:
    write(catalog, [row(0)])
    catalog.require_source(SOURCE)
    with pytest.raises(CatalogError, match="describes file:///archive, not file:///other"):
        catalog.begin(Location.of("/other"))


@pytest.mark.parametrize(
    ("part", "says"),
    [
        (Part("part-00000.parquet", 0, 5), "bytes, the commit says 5"),
        (Part("part-00007.parquet", 0, 5), "part-00007.parquet: no bytes"),
    ],
)
def test_a_part_that_is_not_as_it_was_written_is_not_committed(
    catalog: Catalog, part: Part, says: str
) -> None:
    draft = catalog.begin(SOURCE)
    PartWriter(draft.folder, 0).publish()
    with pytest.raises(CatalogError, match=says):
        draft.commit([part], settings={}, now_ms=NOW_MS)
    assert catalog.snapshots() == []


def test_leftovers_of_a_killed_task_are_removed_before_the_commit(catalog: Catalog) -> None:
    draft = catalog.begin(SOURCE)
    listed = PartWriter(draft.folder, 0).publish()
    PartWriter(draft.folder, 1).publish()
    folder = path_of(draft.folder)
    (folder / ".part-00002.parquet.0f.tmp").write_bytes(b"half")
    draft.commit([listed], settings={}, now_ms=NOW_MS)
    assert [path.name for path in folder.iterdir()] == [listed.name]


def test_a_retried_task_replaces_its_part_with_the_same_bytes(catalog: Catalog) -> None:
    draft = catalog.begin(SOURCE)
    parts, contents = [], []
    for _ in range(2):
        writer = PartWriter(draft.folder, 3)
        writer.append(row(0))
        parts.append(writer.publish())
        contents.append((path_of(draft.folder) / parts[-1].name).read_bytes())
    assert parts[0] == parts[1]
    assert contents[0] == contents[1]
    assert parts[0].name == "part-00003.parquet"


def test_rows_that_do_not_match_the_commit_are_told(catalog: Catalog) -> None:
    snapshot = write(catalog, [row(0)])
    commit = commit_path(catalog, snapshot)
    record = json.loads(commit.read_text())
    record["parts"][0][1] = 9
    commit.write_text(json.dumps(record))
    with pytest.raises(CatalogError, match="1 rows, the commit says 9"):
        catalog.read(catalog.require_newest())


def test_a_part_that_is_no_parquet_is_told(catalog: Catalog) -> None:
    snapshot = write(catalog, [row(0)])
    (part,) = snapshot.parts
    file = path_of(catalog.snapshot_folder(snapshot.name)) / part.name
    file.write_bytes(bytes(part.size_bytes))
    with pytest.raises(CatalogError, match="cannot be read"):
        catalog.read(catalog.require_newest())


def test_a_row_of_the_wrong_type_is_not_written(catalog: Catalog) -> None:
    writer = PartWriter(catalog.begin(SOURCE).folder, 0)
    writer.append(row(0, partition="zero"))
    with pytest.raises(pa.ArrowException):
        writer.publish()


# Other engines read the folder that `kip33 catalog --path` prints.

ROWS = [row(i, error=None if i else "bad") for i in range(3)]


@pytest.fixture
def folder(catalog: Catalog) -> str:
    return catalog.snapshot_folder(write(catalog, ROWS[:2], ROWS[2:]).name).path


def test_the_folder_holds_parquet_only(folder: str) -> None:
    assert sorted(path.name for path in Path(folder).iterdir()) == [
        "part-00000.parquet", "part-00001.parquet",
    ]  # fmt: skip


def test_pyarrow_reads_it(folder: str) -> None:
    table = ds.dataset(folder, format="parquet").to_table()
    assert sorted(table.to_pylist(), key=lambda r: r["partition"]) == ROWS


def test_pandas_reads_it(folder: str) -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    frame = pandas.read_parquet(folder).sort_values("partition")
    assert frame["largest_timestamp"].tolist() == [2**63 - 1] * 3
    assert [list(magics) for magics in frame["magics"]] == [[-1, 2]] * 3


def test_duckdb_reads_it(folder: str) -> None:
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")
    query = f"select partition, largest_timestamp, magics from '{folder}/*.parquet' order by 1"
    assert duckdb.sql(query).fetchall() == [(i, 2**63 - 1, [-1, 2]) for i in range(3)]


def test_polars_reads_it(folder: str) -> None:
    polars = pytest.importorskip("polars", reason="polars is not installed")
    frame = polars.read_parquet(folder).sort("partition")
    assert frame["base_offset"].to_list() == [2**62 + i for i in range(3)]
    assert frame["magics"].to_list() == [[-1, 2]] * 3


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
    assert (unlisted.first_timestamp, unlisted.largest_timestamp) == (-1, -1)
    assert (audit.topic, audit.record_count, audit.not_ok) == ("audit", None, {"truncated": 1})
    assert (audit.first_timestamp, audit.largest_timestamp) == (5, 50)
    assert (b.first_timestamp, b.largest_timestamp) == (9, NOW_MS)
    assert (orders.partitions, orders.segments, orders.log_bytes) == (3, 3, 30)
    assert (orders.record_count, orders.time_index_entries, orders.not_ok) == (3, 3, {})
