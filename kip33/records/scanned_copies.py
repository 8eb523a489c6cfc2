"""The logs of an archive without a catalog: those of its catalog, if it had one.

Where a partition has one copy, no log is read. The copies of others are scanned once, as a build
does it, because leader epochs and ends say which of them is the log.
"""

import zlib
from collections import Counter
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kip33.archive.layouts import KAFKA, Layout
from kip33.archive.listing import (
    CHECKPOINTS,
    Listing,
    directories_of,
    log_uris,
    with_checkpoints,
    with_log_dirs_by_topic_id,
    with_neighbours,
    with_topic_ids,
)
from kip33.catalog.logs import IS_REMOTE, IS_UPLOAD, Logs, logs_of
from kip33.catalog.schema import SEGMENTS
from kip33.catalog.segment_order import order_of, partition_begins
from kip33.errors import CorruptSegmentError, FileReadError
from kip33.formats.batch import NO_TIMESTAMP
from kip33.formats.scan import BatchScan
from kip33.rules.index_entries import first_disordered
from kip33.rules.leader_epochs import LeaderEpochs, lowest_fall
from kip33.rules.offset_holes import Mask
from kip33.rules.segment_summary import SegmentStatus
from kip33.stores.concurrently import map_in_order
from kip33.stores.files import opened
from kip33.stores.locations import Location

_LISTED: Final = (
    *("log_dir", "topic", "partition", "base_offset", "size_bytes", "last_modified_ms"),
    *("error", "topic_id", *CHECKPOINTS),
)
_SCANNED: Final = (
    *("last_offset", "record_count", "max_timestamp", "batches_crc32"),
    *("leader_epochs", "leader_epoch_offsets", "epochs_fall"),
)


def logs_of_archive(
    listing: Listing,
    layout: Layout,
    replica: str | None = None,
    partitions: frozenset[int] | None = None,
) -> Logs:
    """The logs of listed segments, as of a catalog; rows have what a listing tells.

    Only those of some `partitions` are scanned; None: all.
    """
    source, files, warnings = listing.source, listing.table, list[str]()
    # Directories with one topic's name may be of several topics, also in one log directory.
    directories = pc.count_distinct(directories_of(files["path"])).as_py()
    if directories > pc.count_distinct(files["topic"]).as_py():
        files, told = with_topic_ids(source, files)
        warnings += told
        if layout != KAFKA:  # where log_dir is a path
            files = with_neighbours(with_log_dirs_by_topic_id(files))
    uris = log_uris(source, files["path"], files["inside"])
    files = files.take(pa.array(order_of(files, uris)))
    files, told = with_checkpoints(source, files, _are_first_of_several(files))
    warnings += told
    count = files.num_rows
    is_empty = pc.fill_null(pc.equal(files["size_bytes"], 0), False)
    status = pc.if_else(is_empty, SegmentStatus.EMPTY.value, SegmentStatus.UNVERIFIED.value)
    status = pc.if_else(pc.is_valid(files["error"]), SegmentStatus.UNREADABLE.value, status)
    columns: dict[str, Any] = {name: files[name] for name in _LISTED}
    columns |= {name: pa.nulls(count, SEGMENTS.field(name).type) for name in _SCANNED}
    columns |= {"log_uri": log_uris(source, files["path"], files["inside"]), "status": status}
    columns |= {IS_REMOTE: pa.nulls(count, pa.bool_())}
    columns |= {IS_UPLOAD: pa.repeat(layout != KAFKA, count)}

    def complete(rows: list[dict[str, Any]]) -> None:
        asked = [row for row in rows if partitions is None or row["partition"] in partitions]
        for row, found in zip(asked, map_in_order(source, asked, _scanned), strict=True):
            row.update(found)

    return logs_of(pa.table(columns), replica, complete)._replace(warnings=tuple(warnings))


def _are_first_of_several(files: pa.Table) -> Mask:
    """Which segments are the first of a log directory's partition that others have, too."""
    is_first = partition_begins(files)
    at = np.flatnonzero(is_first)
    names = files.select(["topic", "partition"]).take(pa.array(at)).to_pylist()
    keys = [(one["topic"], one["partition"]) for one in names]
    counts = Counter(keys)
    is_first[at] = [counts[key] > 1 for key in keys]
    return is_first


def _scanned(row: dict[str, Any]) -> dict[str, Any]:
    """What a scan finds of a log, with names of a catalog's columns; it raises no fault."""
    if row["status"] == SegmentStatus.UNREADABLE:  # the listing says why
        return {}
    try:
        with opened(Location.of(row["log_uri"])) as (read_into, size_bytes):
            return _found(BatchScan(read_into, size_bytes), row["base_offset"])
    except (FileReadError, CorruptSegmentError):
        return {"status": SegmentStatus.UNREADABLE}


def _found(scan: BatchScan, base_offset: int) -> dict[str, Any]:
    epochs, largest, last, records, crc32 = LeaderEpochs(), -1, -1, 0, 0
    max_timestamp = NO_TIMESTAMP
    is_invalid = falls = has_wrappers = False
    for batches in scan:
        is_invalid |= first_disordered(batches, base_offset, last) is not None
        falls |= lowest_fall(batches, largest) is not None
        is_invalid |= epochs.append(batches) is not None
        largest = max(largest, int(batches["leader_epoch"].max()))
        last = int(batches["last_offset"][-1])
        max_timestamp = max(max_timestamp, int(batches["max_timestamp"].max()))
        has_wrappers |= bool((batches["records_count"] < 0).any())
        records += int(batches["records_count"].sum())
        crc32 = zlib.crc32(batches["crc"].astype(">u4").tobytes(), crc32)
    if is_invalid or scan.load_failure:
        return {"status": SegmentStatus.INVALID}
    is_whole = scan.valid_bytes == scan.size_bytes or (scan.valid_bytes and scan.only_zeros_follow)
    status = SegmentStatus.OK if is_whole else SegmentStatus.TRUNCATED
    return {
        "status": status if scan.size_bytes else SegmentStatus.EMPTY,
        "last_offset": last if scan.valid_bytes else None,
        "record_count": None if has_wrappers else records,
        "max_timestamp": max_timestamp,
        "batches_crc32": crc32,
        "leader_epochs": [one.epoch for one in epochs.starts],
        "leader_epoch_offsets": [one.start_offset for one in epochs.starts],
        "epochs_fall": falls,
    }
