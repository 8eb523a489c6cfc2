"""A catalog of many parts: replicas, holes, topics that were created again."""

import random
from pathlib import Path

from kip33.catalog.catalog import Catalog
from tests.builders.random_catalogs import LogStartOffsets, random_catalogs
from tests.builders.snapshots import write

BROKERS = 5
ROWS_OF_A_PART = 300


def ranged_catalog(folder: Path, seed: int = 29) -> tuple[Catalog, LogStartOffsets]:
    """Write a catalog of some thousand rows; return it with log start offsets of some replicas."""
    chance = random.Random(seed)
    rows, _ = random_catalogs(250, seed, doubled=0.01)
    starts: LogStartOffsets = {}
    for row in rows:
        number = int(row["log_dir"].removeprefix("broker-"))
        broker = number % BROKERS
        row |= {"log_dir": f"broker-{broker}", "partition": number // BROKERS % 7}
        row["log_uri"] = row["log_uri"].replace(f"/broker-{number}/", f"/broker-{broker}/{number}/")
        if row["base_offset"] is not None:
            row |= {"last_offset": row["base_offset"] + 9, "record_count": 10}
            if row["topic"] == "default" and broker == 0:
                row["record_count"] = chance.choice((10, 9))
        if row["topic"] in ("hourly", "both", "sized"):
            row["topic_id"] = chance.choice((None, f"{row['topic']}-{number % 2}"))
        if chance.random() < 0.05:
            starts[row["log_dir"], row["topic"], row["partition"]] = (row["base_offset"] or 0) + 5
    nowhere = dict.fromkeys(rows[0]) | {"status": "unreadable"}
    rows += [nowhere | {"log_uri": f"file:///no/{name}"} for name in "ab"]
    rows += [nowhere | {"log_uri": "file:///no/c", "log_dir": "broker-1"}]
    rows += [nowhere | {"log_uri": "file:///no/d", "log_dir": "broker-1", "topic": "hourly"}]
    chance.shuffle(rows)
    catalog = Catalog.at(str(folder / "catalog"))
    parts = [rows[at : at + ROWS_OF_A_PART] for at in range(0, len(rows), ROWS_OF_A_PART)]
    write(catalog, *parts)
    return catalog, starts
