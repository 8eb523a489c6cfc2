"""Logs of random catalogs on disk, with the index files of a broker, a crash or a copy."""

import os
import random
import struct
from pathlib import Path
from typing import Any

from kip33.stores.locations import Location
from tests.builders.random_catalogs import DAY_MS, LONG_MAX, NOW_MS


def rows_with_files(rows: list[dict[str, Any]], root: Path, seed: int) -> list[dict[str, Any]]:
    """Write the files of all rows below `root`; return the rows that a build would write."""
    chance = random.Random(seed)
    return [_with_files(chance, row, root) for row in rows]


def _with_files(chance: random.Random, row: dict[str, Any], root: Path) -> dict[str, Any]:
    """Write a row's log and the files beside it; return the row that a build would write."""
    name = row["log_uri"].split("/")[-1 if row["base_offset"] is None else -2]
    directory = root / row["log_dir"] / name
    directory.mkdir(parents=True, exist_ok=True)
    if row["base_offset"] is None:
        return row | {"log_uri": Location.of(directory).uri}
    log = directory / row["log_uri"].rpartition("/")[2]
    largest = row["largest_timestamp"]
    if row["status"] in ("invalid", "unreadable"):
        max_timestamp = None
    elif largest is None or largest < 0 or row["largest_timestamp_source"] == "last_modified":
        max_timestamp = -1
    else:
        max_timestamp = largest
    log.write_bytes(bytes(5 if row["size_bytes"] is None else row["size_bytes"]))
    touched_ms = row["last_modified_ms"] + chance.choice((0, 0, DAY_MS))
    os.utime(log, ns=(0, touched_ms * 1_000_000 + chance.randrange(1_000_000)))
    index = _time_index(chance, max_timestamp)
    if index is not None:
        log.with_suffix(".timeindex").write_bytes(index)
    if chance.random() < 0.8:
        log.with_suffix(".index").touch()
    if chance.random() < 0.03:
        log.unlink()  # deleted after the build
    return row | {"log_uri": Location.of(log).uri, "max_timestamp": max_timestamp}


def _time_index(chance: random.Random, max_timestamp: int | None) -> bytes | None:
    """Return a `.timeindex` that a broker, a crash or a bad copy may have left."""
    truth = max_timestamp if max_timestamp is not None and max_timestamp >= 0 else NOW_MS
    true_index = _entries(max(0, truth - 5_000), truth)
    state = chance.choice(("true", "true", "true", "missing", "empty", "zeros", "padded", "torn",
                           "stale", "garbage", "negative"))  # fmt: skip
    match state:
        case "missing":
            return None
        case "empty":
            return true_index[: chance.randrange(12)]
        case "zeros":
            return bytes(chance.choice((12, 4_096, 4_100)))
        case "padded":
            return true_index + bytes(12 * chance.randint(1, 20))
        case "torn":
            return true_index[:-1]
        case "stale":
            return true_index + _entries(chance.choice((1, NOW_MS - DAY_MS, NOW_MS + DAY_MS)))
        case "garbage":
            return chance.randbytes(chance.randint(12, 100))
        case "negative":
            return _entries(truth, -1) + b"\xff" * 5
    return true_index


def _entries(*timestamps: int) -> bytes:
    return b"".join(struct.pack(">qi", min(one, LONG_MAX), 1) for one in timestamps)
