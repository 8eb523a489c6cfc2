"""Find rows whose files a change earlier in the partition may make wrong.

The `.txnindex` of a segment depends on the transactions that are open at its start. So if a build
reads a segment, it also reads the later segments with transactions again. On most nights the
segments that are read are the last ones of their partitions, and no segment follows them.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kip33.builds.reusable_rows import Mask, ReusableRows
from kip33.builds.reuse import ListingMatch


def transactions_may_differ(
    files: pa.Table, known: ReusableRows, found: ListingMatch, reusable: Mask
) -> Mask:
    """Return which of `files` must be read again because an earlier segment is read.

    `files` is a LISTING, `found` its match, `reusable` which rows would be reused. A row with
    unknown open transactions at its segment's end is read again each night and does not affect
    later ones.
    """
    if not known.rows:
        return np.zeros(files.num_rows, bool)
    is_known = found.at >= 0
    changed = ~reusable & pc.is_valid(files["base_offset"]).to_numpy()
    changed &= ~is_known | known.says_open_transactions[found.at]
    return _behind(files, changed) & is_known & known.has_transactions[found.at]


def producers_may_differ(
    files: pa.Table, known: ReusableRows, found: ListingMatch, reusable: Mask
) -> Mask:
    """Return which of `files` must be read again for their `.snapshot`.

    It depends on the producers of all earlier segments. A row without them, such as that of an
    unreadable log, is read again each night and does not affect later ones.
    """
    if not known.rows:
        return np.zeros(files.num_rows, bool)
    is_known = found.at >= 0
    changed = ~reusable & pc.is_valid(files["base_offset"]).to_numpy()
    changed &= ~is_known | known.says_producers[found.at]
    return _behind(files, changed) & is_known


def _behind(files: pa.Table, changed: Mask) -> Mask:
    """Return which segments follow one of `changed` in their partition, by base offset."""
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
    first = np.maximum.accumulate(np.where(begins, rows, 0))
    last_changed = np.maximum.accumulate(np.where(changed[order], rows, -1))
    behind = np.zeros(len(order), bool)
    behind[order] = last_changed >= first
    return behind & ~changed
