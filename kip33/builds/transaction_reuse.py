"""Find rows whose files a change earlier in the partition may make wrong.

The `.txnindex` of a segment depends on the transactions that are open at its start, its `.snapshot`
on the producers of all earlier segments. So if a build reads a segment, it also reads the later
ones again that depend on it. On most nights the segments that are read are the last ones of their
partitions, and no segment follows them.

Behind a log that could not be read the transactions and the producers are unknown. A build tries
such a log each night, but reads the segments behind it again only when the log can be opened.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kip33.archive.listing import Column
from kip33.builds.build_spec import BuildSpec
from kip33.builds.reusable_rows import Int64s, Mask, ReusableRows
from kip33.builds.reuse import ListingMatch
from kip33.stores.concurrently import map_in_order
from kip33.stores.files import opened
from kip33.stores.locations import Location


def may_differ(
    build: BuildSpec,
    files: pa.Table,
    uris: Column,
    known: ReusableRows,
    found: ListingMatch,
    reusable: Mask,
) -> Mask:
    """Return which of the reusable rows must be read again because an earlier segment is read.

    `files` is a LISTING whose logs are at `uris`, `found` its match, `reusable` which rows would
    be reused.
    """
    if not known.rows or not build.offset_index:
        return np.zeros(files.num_rows, bool)
    depends = reusable if build.producer_snapshots else reusable & known.has_transactions[found.at]
    changed = ~reusable & pc.is_valid(files["base_offset"]).to_numpy()
    order, first = _by_partition(files)
    in_order = np.arange(len(order))
    was_unread = changed & (found.at >= 0) & known.is_unread[found.at]
    last_unread = np.maximum.accumulate(np.where(was_unread[order], in_order, -1))
    # What is behind two such logs depends on the later one.
    asked = np.unique(last_unread[depends[order] & (last_unread >= first)])
    logs = uris.take(pa.array(order[asked])).to_pylist()
    can_be_opened = np.fromiter(map_in_order(build.source, logs, _can_be_opened), bool)
    still_unread = asked[~can_be_opened]
    sources = np.where(changed[order], in_order, -1)
    sources[still_unread] = -1
    ends = np.full(len(order), -1)
    ends[still_unread] = still_unread
    last_changed = np.maximum.accumulate(sources)
    behind = np.zeros(len(order), bool)
    behind[order] = (last_changed >= first) & (last_changed > np.maximum.accumulate(ends))
    return behind & depends


def _by_partition(files: pa.Table) -> tuple[Int64s, Int64s]:
    """Return the order by partition and base offset, and where each partition begins in it."""
    codes = [
        pc.index_in(files[name], value_set=pc.unique(files[name])).to_numpy()
        for name in ("log_dir", "topic", "partition")
    ]
    offsets = pc.fill_null(files["base_offset"], -1).to_numpy()
    order = np.lexsort((offsets, *codes))
    rows = np.arange(len(order))
    begins = np.zeros(len(order), bool)
    begins[:1] = True
    for code in codes:
        begins[1:] |= np.diff(code[order]) != 0
    return order, np.maximum.accumulate(np.where(begins, rows, 0))


def _can_be_opened(log_uri: str) -> bool:
    """Return whether the first byte of a log can be read, if it has one."""
    try:
        with opened(Location.of(log_uri)) as (read_into, _):
            read_into(0, memoryview(bytearray(1)))
    except (OSError, ValueError):
        return False
    return True
