"""Synthetic catalogs of any number of rows, made without a scan in a second or two."""

import json
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from kip33.catalog.catalog import Catalog
from kip33.catalog.draft import Draft, PartWriter
from kip33.catalog.ordered_parts import ROWS_PER_PART
from kip33.catalog.schema import SEGMENTS
from kip33.stores.locations import Location

NOW_MS: Final = 1_700_000_000_000
HOUR_MS: Final = 3_600_000
PARTITIONS_PER_TOPIC: Final = 50
DEFAULTS: Final = {"retention.ms": "3d", "cleanup.policy": "delete"}


def write_policy(file: Path) -> Path:
    """Write a policy file with DEFAULTS for all topics."""
    settings = (f"{json.dumps(key)} = {json.dumps(value)}" for key, value in DEFAULTS.items())
    file.write_text("\n".join(("[defaults]", *settings)))
    return file


def make_catalog(folder: Path, *, segments: int, partitions: int) -> Catalog:
    """Commit a snapshot of `partitions` with one segment per hour up to now.

    One segment in a thousand has a timestamp a year ahead: about half the partitions are blocked.
    """
    catalog = Catalog.at(str(folder))
    draft = Draft.begin(catalog, Location.of("/archive"))
    parts = []
    for number, first in enumerate(range(0, segments, ROWS_PER_PART)):
        writer = PartWriter(draft.staging, number)
        rows = np.arange(first, min(segments, first + ROWS_PER_PART))
        writer.append_table(table(rows, each=segments // partitions))
        parts.append(writer.publish())
    draft.commit(parts, settings={"build": "{}"}, now_ms=NOW_MS)
    return catalog


def table(rows: "np.ndarray[tuple[int], np.dtype[np.int64]]", *, each: int) -> pa.Table:
    """Return these rows of the catalog: row r is segment r % each of partition r // each."""
    partition, segment = np.divmod(rows, each)
    chance = np.random.default_rng(int(rows[0]))
    largest = NOW_MS - (each - segment) * HOUR_MS
    largest = largest + np.where(chance.random(rows.size) < 0.001, 366 * 24 * HOUR_MS, 0)
    topics = [f"topic-{number // PARTITIONS_PER_TOPIC:04d}" for number in partition]
    within = partition % PARTITIONS_PER_TOPIC
    sizes = chance.integers(1 << 20, 1 << 30, rows.size)
    uris = [
        f"file:///archive/broker-1/{topic}-{number}/{base:020d}.log"
        for topic, number, base in zip(topics, within, segment * 100_000, strict=True)
    ]
    columns = {
        "log_dir": ["broker-1"] * rows.size,
        "topic": topics,
        "partition": within,
        "base_offset": segment * 100_000,
        "last_offset": segment * 100_000 + 99_999,
        "log_uri": uris,
        "index_uri": [uri.replace("archive", "indexes", 1) for uri in uris],
        "size_bytes": sizes,
        "valid_bytes": sizes,
        "batch_count": sizes >> 14,
        "record_count": np.full(rows.size, 100_000),
        "first_batch_timestamp": NOW_MS - (each - segment + 1) * HOUR_MS,
        "max_timestamp": largest,
        "offset_of_max_timestamp": segment * 100_000 + 99_999,
        "largest_timestamp": largest,
        "largest_timestamp_source": ["log"] * rows.size,
        "last_modified_ms": largest,
        "timestamp_types": [["CreateTime"]] * rows.size,
        "codecs": [["lz4"]] * rows.size,
        "active_segment": segment == each - 1,
        "status": ["ok"] * rows.size,
        "index_file": ["written"] * rows.size,
    }
    return pa.table(
        [
            pa.array(columns[field.name], field.type)
            if field.name in columns
            else pa.nulls(rows.size, field.type)
            for field in SEGMENTS
        ],
        schema=SEGMENTS,
    )
