"""Small logs, one after another in one buffer, scanned and indexed by one call of compiled code.

A segment of a few kilobytes costs more in objects of Python than in work. So the logs of a group
share one call, which applies the same functions to each: the walk, the summary, the index rule. It
only decides whether a log is plain: every byte is of a valid batch, with one leader epoch, without
transactions, markers or anything that Kafka refuses. Whatever is not plain is left to
`indexing.segment`, which says what it is.
"""

from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from kip33.formats.batch import BATCH
from kip33.formats.crc import crc32, crc32c
from kip33.formats.native import compiled, crc32c_tables
from kip33.formats.time_index import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES
from kip33.formats.walk import END, FULL, STATE, walk
from kip33.rules.index_builder import IndexSettings
from kip33.rules.index_entries import BASE_OFFSETS, append_batches, close_index
from kip33.rules.leader_epochs import refused_epoch
from kip33.rules.segment_summary import new_summary, summarize

BATCHES_AT_ONCE: Final = 4096
_HEADER_BYTES: Final = 26  # the least that a batch takes, so an upper limit of the entries
_KNOWN_MAGICS: Final = 3
TIME_SIZES: Final = (8, 4)  # of the numbers of an entry
OFFSET_SIZES: Final = (4, 4)

SCANNED: Final = np.dtype(
    [
        ("is_plain", np.int64),  # 1, or 0: the other fields say nothing
        ("magics", np.int64),  # a bit for each
        ("epoch", np.int64),  # the leader epoch, -1 without
        ("epoch_offset", np.int64),
        ("batches_crc32", np.int64),  # of the CRCs of its batches, big-endian
        ("time_index_end", np.int64),  # in its arena, where its entries follow the last log's
        ("offset_index_end", np.int64),
        ("time_index_crc32c", np.int64),
        ("offset_index_crc32c", np.int64),
    ]
)


def put_number(target: Any, at: int, value: int, size: int) -> None:
    """Write a number of `size` bytes, big-endian."""
    for k in range(size):
        target[at + k] = (value >> (8 * (size - 1 - k))) & 0xFF


def put_entries(arena: Any, at: int, entries: Any, count: int, sizes: tuple[int, int]) -> int:
    """Write index entries of two numbers of these sizes; return the position after them."""
    first, second = sizes
    for k in range(count):
        put_number(arena, at, entries[k, 0], first)
        put_number(arena, at + first, entries[k, 1], second)
        at += first + second
    return at


def crc_of_crcs(value: int, batches: Any, room: Any) -> int:
    """Continue a CRC-32 with the CRCs of batches."""
    for k in range(batches.size):
        put_number(room, 4 * k, int(batches[k]["crc"]), 4)
    return crc32(value, room, 0, 4 * batches.size)


def scan_log(  # parameters: compiled code takes arrays and numbers, no objects
    data: Any,
    at: int,
    state: Any,
    entry: Any,
    summary: Any,
    found: Any,
    memory: Any,
    check_crc: bool,
    tables: Any,
) -> None:
    """Scan one log at `at` of the data; if it is plain, its entries follow the last log's.

    The arguments are those of `scan_logs`, of this log; `memory` has those to work in.
    """
    columns, times, offsets, magics, room, time_arena, offset_arena, ends = memory
    stop = at + state[0]["end"]
    time_end, offset_end = ends[0], ends[1]
    epoch, epoch_offset, crcs, is_first = -1, 0, 0, True
    while True:
        why, at = walk(data, at, stop, state, columns, check_crc, False, tables)
        rows = int(state[0]["rows"])
        if why != FULL and (why != END or at != stop):
            return
        batches = columns[:rows]
        summarize(batches, summary, magics)
        if summary[0]["marked"] != 0 or summary[0]["understated"] != 0:
            return
        refused, latest_epoch = refused_epoch(batches, epoch)
        if is_first and rows > 0:
            epoch = max(epoch, columns[0]["leader_epoch"])
            epoch_offset = columns[0]["base_offset"]
            is_first = False
        if refused >= 0 or latest_epoch > epoch:
            return
        crcs = crc_of_crcs(crcs, batches, room)
        counts = append_batches(batches, batches["last_offset"], entry, times, offsets)
        if entry[0]["refusal"] != 0:
            return
        time_end = put_entries(time_arena, time_end, times, counts[0], TIME_SIZES)
        offset_end = put_entries(offset_arena, offset_end, offsets, counts[1], OFFSET_SIZES)
        state[0]["rows"] = 0
        if why == END:
            break
    count = close_index(entry, state[0]["end"], times)
    time_end = put_entries(time_arena, time_end, times, count, TIME_SIZES)
    if entry[0]["refusal"] != 0:
        return
    for magic in range(256):
        if magics[magic] != 0 and (magic < 128 or magic >= 128 + _KNOWN_MAGICS):
            return
    found[0]["is_plain"] = 1
    found[0]["magics"] = magics[128] | (magics[129] << 1) | (magics[130] << 2)
    found[0]["epoch"], found[0]["epoch_offset"] = epoch, epoch_offset
    found[0]["batches_crc32"] = crcs
    found[0]["time_index_crc32c"] = crc32c(0, time_arena, ends[0], time_end, tables)
    found[0]["offset_index_crc32c"] = crc32c(0, offset_arena, ends[1], offset_end, tables)
    ends[0], ends[1] = time_end, offset_end


def scan_logs(  # parameters: compiled code takes arrays and numbers, no objects
    data: Any,
    starts: Any,
    states: Any,
    entries: Any,
    summaries: Any,
    found: Any,
    columns: Any,
    times: Any,
    offsets: Any,
    magics: Any,
    room: Any,
    time_arena: Any,
    offset_arena: Any,
    ends: Any,
    check_crc: bool,
    tables: Any,
) -> None:
    """Scan the logs that begin at `starts` of the data.

    `states`, `entries`, `summaries` and `found` have an element for each log: of `walk.STATE` with
    the log's size, of ENTRY_STATE with its base offset, of SUMMARY_RECORD, of SCANNED. The others
    are memory to work in; the arenas get the bytes of the indexes, up to `ends`, which begin as 0.
    """
    memory = (columns, times, offsets, magics, room, time_arena, offset_arena, ends)
    for i in range(starts.size):
        for k in range(256):
            magics[k] = 0
        one = slice(i, i + 1)
        scan_log(
            data,
            starts[i],
            states[one],
            entries[one],
            summaries[one],
            found[one],
            memory,
            check_crc,
            tables,
        )
        found[i]["time_index_end"], found[i]["offset_index_end"] = ends[0], ends[1]


class ScannedLogs(NamedTuple):
    """What was found of some logs, an element for each."""

    found: npt.NDArray[np.void]  # SCANNED
    summaries: npt.NDArray[np.void]  # SUMMARY_RECORD
    time_indexes: list[bytes]  # empty of a log that is not plain
    offset_indexes: list[bytes]


class GroupScan:
    """Scans groups of logs; one object serves one thread."""

    def __init__(self, settings: IndexSettings) -> None:
        """Take the settings, whose dialect records the last offset of a batch."""
        self._check_crc = settings.check_crc
        self._entry = settings.entry_state(settings.kafka_dialect, 0)
        self._columns = np.empty(BATCHES_AT_ONCE, BATCH)
        self._times, self._offsets = (np.empty((BATCHES_AT_ONCE, 2), np.int64) for _ in range(2))
        self._magics = np.zeros(256, np.uint8)
        self._room = np.empty(4 * BATCHES_AT_ONCE, np.uint8)
        self._time_arena = self._offset_arena = np.empty(0, np.uint8)
        self._scan, self._tables = compiled(scan_logs), crc32c_tables()

    def scan(
        self,
        data: npt.NDArray[np.uint8],
        starts: npt.NDArray[np.int64],
        sizes: npt.NDArray[np.int64],
        base_offsets: npt.NDArray[np.int64],
    ) -> ScannedLogs:
        """Scan the logs at these places of the data, of these sizes and base offsets."""
        count = starts.size
        states, found = np.zeros(count, STATE), np.zeros(count, SCANNED)
        states["end"] = sizes
        same = np.zeros(count, np.intp)  # `np.repeat` would compare the fields of the types
        entries, summaries = self._entry[same], new_summary()[same]
        for name in BASE_OFFSETS:
            entries[name] = base_offsets
        most = int(sizes.sum()) // _HEADER_BYTES + 2 * count  # entries
        if self._time_arena.size < most * TIME_ENTRY_BYTES:
            self._time_arena = np.empty(most * TIME_ENTRY_BYTES, np.uint8)
            self._offset_arena = np.empty(most * OFFSET_ENTRY_BYTES, np.uint8)
        ends = np.zeros(2, np.int64)
        self._scan(
            data,
            starts,
            states,
            entries,
            summaries,
            found,
            self._columns,
            self._times,
            self._offsets,
            self._magics,
            self._room,
            self._time_arena,
            self._offset_arena,
            ends,
            self._check_crc,
            self._tables,
        )
        return ScannedLogs(
            found,
            summaries,
            _pieces(self._time_arena[: ends[0]], found["time_index_end"]),
            _pieces(self._offset_arena[: ends[1]], found["offset_index_end"]),
        )


def _pieces(written: npt.NDArray[np.uint8], stops: npt.NDArray[np.int64]) -> list[bytes]:
    """Return the bytes up to each of the places where one ends and the next begins."""
    data, each = written.tobytes(), [0, *stops.tolist()]
    return [data[begin:stop] for begin, stop in pairwise(each)]
