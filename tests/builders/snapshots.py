"""Catalog rows and snapshots for tests, written like those of a build."""

import json
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kip33.archive.listing import CHECKPOINTS
from kip33.catalog import draft
from kip33.catalog.catalog import Catalog, Snapshot
from kip33.catalog.draft import Draft, PartWriter
from kip33.catalog.ordered_parts import parts_in_order
from kip33.catalog.schema import PARTS, SEGMENTS
from kip33.catalog.segment_order import KEY, key_of, place_of
from kip33.catalog.tiers import CatalogSnapshot
from kip33.stores.locations import Location

SOURCE = Location.of("/archive")
NOW_MS = 1_700_000_000_000


def row(number: int, **fields: Any) -> dict[str, Any]:
    """Return a row with a value in every column, of every type."""
    return {
        "log_dir": "b1", "topic": "orders", "partition": number, "base_offset": 2**62 + number,
        "last_offset": 2**62 + number, "log_uri": f"file:///archive/{number}.log",
        "index_uri": None, "size_bytes": 10, "valid_bytes": 10, "batch_count": 1,
        "record_count": 1, "first_batch_timestamp": 5, "max_timestamp": 2**63 - 1,
        "offset_of_max_timestamp": 7, "largest_timestamp": 2**63 - 1,
        "largest_timestamp_source": "log", "last_modified_ms": NOW_MS,
        "timestamp_types": ["CreateTime", "LogAppendTime"], "magics": [-1, 2], "codecs": [],
        "out_of_order_batches": 0, "time_index_entries": 1, "active_segment": False,
        "dialect": "recover", "index_interval_bytes": 4096, "segment_index_bytes": 10485760,
        "check_crc": True, "untimestamped": "none", "offset_index": False,
        "bytes_version": 1, "status": "ok", "error": None,
        "index_error": None, "notes": None, "index_file": "written",
        "time_index_bytes": 12, "offset_index_bytes": None,
        "time_index_matches": True, "offset_index_matches": None, "file_time_offset": None,
        "time_index_modified_ms": NOW_MS, "offset_index_modified_ms": None,
        "transaction_index_bytes": None, "transaction_index_modified_ms": None,
        "open_transactions": '{"5": 1000}', "smallest_timestamp": 5, "kip33_version": "0.2.0",
        "time_index_crc32c": 2**32 - 1, "offset_index_crc32c": None,
        "transaction_index_crc32c": None,
        "topic_id": "bn9RMmT4REWVDFQzf3IUaQ", "partition_metadata_modified_ms": None,
        "leader_epochs": [0], "leader_epoch_offsets": [2**62 + number], "batches_crc32": 2**32 - 1,
        "epochs_fall": False, "checkpoint_epochs": [0, 3], "checkpoint_epoch_offsets": [0, 2**62],
        "checkpoint_log_start_offset": 2**62, "decided_by": [None] * 4,
    } | fields  # fmt: skip


def segment_row(base: int, last: int | None, size: int = 100, **fields: Any) -> dict[str, Any]:
    """Return a row with these offsets and bytes, by default of orders-0, and little else."""
    place = {"topic": "orders", "partition": 0, "log_dir": "", "status": "ok", "topic_id": "A" * 22}
    figures = {"base_offset": base, "last_offset": last, "size_bytes": size}
    one = dict.fromkeys(SEGMENTS.names) | place | figures | fields
    log = f"file:///a/{one['topic']}-{one['partition']}/{base:020d}-{one['topic_id']}-{last}.log"
    return one | {"log_uri": log} | fields


def snapshot_of(folder: Path, rows: list[dict[str, Any]], layout: str) -> CatalogSnapshot:
    """Commit a snapshot of an archive at the folder to a catalog in it."""
    catalog = Catalog.at(str(folder))
    snapshot = write(catalog, rows, layout=layout, source=Location.of(str(folder)))
    return CatalogSnapshot(catalog, snapshot)


def write(
    catalog: Catalog,
    *parts: list[dict[str, Any]],
    now_ms: int = NOW_MS,
    layout: str = "kafka",
    source: Location = SOURCE,
) -> Snapshot:
    """Commit a snapshot with these rows, one part for each list unless they overlap."""
    begun = Draft.begin(catalog, source)
    written = []
    for number, rows in enumerate(parts):
        writer = PartWriter(begun.staging, number)
        append_rows(writer, sorted(rows, key=place_of_row))
        written.append(writer.publish())
    ordered = parts_in_order(begun, written)
    return begun.commit(ordered, settings={"build": "{}", "layout": layout}, now_ms=now_ms)


def catalog_of_topics(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Catalog:
    """Commit a snapshot of 20 topics with 10 segments each; a topic is a row group."""
    monkeypatch.setattr(draft, "ROWS_PER_GROUP", 10)
    catalog = Catalog.at(str(folder / "catalog"))
    each = [(f"topic-{number:02d}", base) for number in range(20) for base in range(10)]
    write(catalog, [segment_row(base, base, topic=topic) for topic, base in each])
    return catalog


def append_rows(writer: PartWriter, rows: Sequence[dict[str, Any]]) -> None:
    """Add rows, dicts by columns of SEGMENTS; missing ones are null."""
    if rows:
        writer.append_table(pa.Table.from_pylist(rows, SEGMENTS))


def place_of_row(row: dict[str, Any]) -> Any:
    """Return the place of a row in a snapshot's order."""
    return place_of(key_of([row.get(name) for name in KEY]))


def path_of(place: Location) -> Path:
    """Return a location on this machine as a path."""
    return Path(place.path)


def commit_path(catalog: Catalog, snapshot: Snapshot) -> Path:
    """Return the commit file."""
    return path_of(catalog.commit_place(snapshot.commit_name))


def part_path(catalog: Catalog, snapshot: Snapshot, number: int = 0) -> Path:
    """Return one of the Parquet files."""
    return path_of(catalog.snapshot_folder(snapshot.name)) / snapshot.parts[number].name


SETTINGS_OF_4 = ("dialect", "index_interval_bytes", "segment_index_bytes", "check_crc")
TEXTS_OF_4 = {  # notes in the words of version 4, behind the URI of the `.index`
    "transaction_index_not_judged": "the .txnindex that is there is not of kip33",
    "index_hides_aborts": (
        "{} keeps a broker from writing the .txnindex of this log, so read_committed consumers may "
        "read aborted records: stop the broker, remove that file, start the broker"
    ),
    "index_hides_damage": (
        "{} keeps a broker from cutting this log to its 9 valid bytes: stop the broker, remove "
        "that file, start the broker"
    ),
    "offset_index_kept": "kept {}: kip33 did not write it; --overwrite replaces it",
}
LAST_COLUMN = {1: "offset_index_bytes", 2: "producer_snapshot_crc32c"}
LAST_COLUMN |= {3: "producer_snapshot_crc32c", 4: "batches_crc32"}
OF_SNAPSHOT_FILES = {  # of builds that wrote `.snapshot` files: columns that versions 2 to 5 had
    "producer_changes": "[[5,[0,9,99,9,1000],null,false,-1]]", "producer_snapshot_bytes": 56,
    "producer_snapshot_modified_ms": NOW_MS, "producer_snapshot_crc32c": 1,
}  # fmt: skip


OF_VERSION_6 = ("epochs_fall", *CHECKPOINTS, "decided_by")


def with_snapshot_files(fields: list["pa.Field[Any]"]) -> pa.Schema:
    """Return the columns of SEGMENTS or PARTS with those of `.snapshot` files."""
    found = []
    for field in fields:
        if field.name == "bytes_version":
            found.append(pa.field("producer_snapshots", pa.bool_()))
        if field.name == "leader_epochs":
            texts = ("producer_changes",)
            kinds = {
                name: pa.string() if name in texts else pa.int64() for name in OF_SNAPSHOT_FILES
            }
            found += [pa.field(name, kind) for name, kind in kinds.items()]
        found.append(field)
    return pa.schema(found)


def schema_of_version(version: int) -> pa.Schema:
    """Return the columns of a version from 1 to 4, without those of times, or of version 5."""
    if version == 5:
        return with_snapshot_files([field for field in PARTS if field.name not in OF_VERSION_6])
    columns = with_snapshot_files(list(SEGMENTS))
    names = list(columns.names)
    first, behind = names.index("dialect"), names.index("bytes_version") + 1
    names[first:behind] = ["build_settings"]
    names = [name for name in names if name not in ("index_error", "notes", "file_time_offset")]
    names = [name.replace("_index_matches", "_index_settings") for name in names]
    names = names[: names.index(LAST_COLUMN[version]) + 1]
    texts = ("build_settings", "time_index_settings", "offset_index_settings")
    return pa.schema(
        [pa.field(name, pa.string()) if name in texts else columns.field(name) for name in names]
    )


def row_of_version(row: dict[str, Any], version: int) -> dict[str, Any]:
    """Return a row as a version from 1 to 5 had it, where builds wrote all index files."""
    row = row | OF_SNAPSHOT_FILES | {"producer_snapshots": row["offset_index"]}
    if version == 5:
        return row
    settings = {name: row[name] for name in SETTINGS_OF_4}
    if row["untimestamped"] != "none":
        settings["untimestamped"] = row["untimestamped"]
    build = settings | {"offset_index": row["offset_index"], "bytes_version": row["bytes_version"]}
    if version == 1:
        del build["bytes_version"]
    if version > 2 and row["producer_snapshots"]:
        build["producer_snapshots"] = True
    in_file_time = {"file_time_offset": row["file_time_offset"]}
    of_time_index = settings | (in_file_time if row["file_time_offset"] is not None else {})
    texts = [TEXTS_OF_4[note].format("file:///a/0.index") for note in row["notes"] or ()]
    texts = [text for text in (row["error"], row["index_error"], *texts) if text]
    return row | {
        "build_settings": json.dumps(build) if row["bytes_version"] else None,
        "time_index_settings": json.dumps(of_time_index) if row["time_index_matches"] else None,
        "offset_index_settings": json.dumps(settings) if row["offset_index_matches"] else None,
        "error": "; ".join(texts) or None,
    }


def as_earlier_version(catalog: Catalog, snapshot: Snapshot, version: int) -> None:
    """Make a snapshot one that an earlier version wrote, with the columns and texts of it.

    Before version 5 its rows are in no order. The builds of version 5 wrote `.snapshot` files.
    """
    in_order = version == 5
    path = commit_path(catalog, snapshot)
    record = json.loads(path.read_text())
    for number, listed in enumerate(record["parts"]):
        part = part_path(catalog, snapshot, number)
        table = pq.read_table(part)
        rows = [row_of_version(row, version) for row in table.to_pylist()[:: 1 if in_order else -1]]
        pq.write_table(pa.Table.from_pylist(rows, schema_of_version(version)), part)
        data = part.read_bytes()
        footer = data[-8 - int.from_bytes(data[-8:-4], "little") :]
        more = [*listed[4:6], len(footer), zlib.crc32(footer)] if in_order else []
        listed[2:] = [len(data), zlib.crc32(data), *more]
    path.write_text(json.dumps(record | {"schema_version": version}))
    path.rename(path.with_name(f"{snapshot.name}.json"))
