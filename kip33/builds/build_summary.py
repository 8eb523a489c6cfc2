"""The summary of a build: what its snapshot contains, and a line for what needs attention."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from kip33.builds.index_files import CANNOT_BE_WRITTEN, NOT_OURS
from kip33.catalog.catalog import Catalog, Snapshot
from kip33.catalog.holes import DirectoriesOfPartitions
from kip33.catalog.schema import IndexFileState
from kip33.errors import unreadable_logs_text
from kip33.rules.broker_start import HIDDEN, HIDDEN_ABORTS, MAY_NOT_START
from kip33.rules.segment_summary import SegmentStatus
from kip33.stores.file_owners import NOT_GIVEN


@dataclass(frozen=True)
class BuildSummary:
    """What a snapshot contains and what its build did, read from its parts."""

    snapshot: str
    catalog: str
    segments: int
    by_status: dict[str, int]
    entries: int
    log_bytes: int
    index_bytes: int  # of existing index files
    indexed: int  # segments that this build read or tried to read
    reused: int  # copied rows of unchanged segments
    dropped: int  # rows of segments that no longer exist
    carried: int  # rows of topics or directories not listed, or of a concurrent build
    bytes_read: int  # of logs, by this build
    written: int  # segments with correct index files of kip33
    kept: int  # segments with index files of other programs
    kept_though_other: int  # of these, with other bytes than this build's
    failed: int  # segments of which an index file could not be written
    passed_over: dict[str, int]
    warnings: tuple[str, ...]
    hidden_from_recovery: int  # in place: damaged logs whose .index keeps a broker from cutting
    aborts_hidden: int  # in place: logs whose .index keeps a broker from writing their .txnindex
    may_not_start: int  # in place: logs that keep a broker from starting
    owner_not_given: int  # in place: with index files of another owner than the log's
    unreadable_example: str | None  # the first log that could not be read, and the reason
    failed_example: str | None  # of `failed`: one index file, or log, and the reason
    two_directories: tuple[str, ...]  # "A and B", of each partition with two directories
    orphaned: int  # our index files whose logs no longer exist
    orphaned_bytes: int
    by_hole: dict[str, int]  # missing offsets between two segments: holes by kind
    missing_offsets: int  # in holes that no other replica fills


NOTES: Final = {  # texts in a row's `error`: problems that a build in place cannot repair
    "hidden_from_recovery": HIDDEN,
    "aborts_hidden": HIDDEN_ABORTS,
    "may_not_start": MAY_NOT_START,
    "owner_not_given": NOT_GIVEN,
}


def warnings_of(summary: BuildSummary) -> Iterator[str]:
    """Yield a line for each kind of segment that needs attention.

    These are logs that could not be read, index files that could not be written, partitions in two
    directories, and, in place, index files that can make a broker fail.
    """
    if count := summary.by_status.get(SegmentStatus.UNREADABLE):
        said = unreadable_logs_text(count, summary.unreadable_example or "", of=summary.segments)
        yield (
            f"{said}; kip33 catalog {summary.catalog} --segments --status "
            "unreadable lists them; --fail-on unreadable makes this exit 3"
        )
    rows = "column `error` of their rows says what to do"
    if count := summary.failed:
        yield (
            f"index files of {count} segments could not be written, for example "
            f"{summary.failed_example}; column `error` of their rows has the reasons; "
            "the next build tries again"
        )
    if count := summary.hidden_from_recovery:
        yield (
            f"{count} damaged logs have an .index that {HIDDEN} them: stop the broker, remove "
            f"these .index files, start the broker; {rows}"
        )
    if count := summary.aborts_hidden:
        yield (
            f"{count} logs have an .index that {HIDDEN_ABORTS} they need, so read_committed "
            "consumers may read aborted records: stop the broker, run kip33 repair --apply for "
            f"its log directory, which removes these .index files, start the broker; {rows}"
        )
    if count := summary.may_not_start:
        yield (
            f"{count} logs are damaged so that {MAY_NOT_START} if it has to recover "
            f"them; {rows}; --fail-on invalid makes this exit 3"
        )
    if count := summary.owner_not_given:
        yield f"{count} segments have index files that {NOT_GIVEN} of the log; {rows}"
    if count := len(summary.two_directories):  # such as orders-0 and orders-00
        yield (
            f"{count} partitions have two directories each, for example "
            f"{summary.two_directories[0]}: their searches are unsure, and retention "
            "keeps all their segments; remove or rename one of the directories"
        )


def row_totals(catalog: Catalog, snapshot: Snapshot) -> dict[str, Any]:
    """Return the counts over all rows of a snapshot, computed one row group at a time."""
    by_status: dict[str, int] = {}
    totals = dict.fromkeys(
        ("entries", "log_bytes", "index_bytes", "written", "kept", "kept_though_other", "failed"), 0
    )
    totals |= dict.fromkeys(NOTES, 0)
    sizes = ["time_index_bytes", "offset_index_bytes", "transaction_index_bytes"]
    sizes += ["producer_snapshot_bytes"]
    columns = ["status", "time_index_entries", "size_bytes", "index_file", "error", "log_uri"]
    columns += ["log_dir", "topic", "partition", "base_offset"]
    directories = DirectoriesOfPartitions()
    example: tuple[str, str] | None = None
    unread: tuple[str, str] | None = None
    for piece in catalog.read_pieces(snapshot, columns + sizes):
        directories.add(piece)
        for status, count in _counts(piece["status"]).items():
            by_status[status] = by_status.get(status, 0) + count
        totals["entries"] += pc.sum(piece["time_index_entries"]).as_py() or 0
        totals["log_bytes"] += pc.sum(piece["size_bytes"]).as_py() or 0
        totals["index_bytes"] += sum(pc.sum(piece[size]).as_py() or 0 for size in sizes)
        states = _counts(piece["index_file"])
        totals["written"] += states.get(IndexFileState.WRITTEN, 0)
        totals["kept"] += states.get(IndexFileState.KEPT, 0)
        other = pc.match_substring(piece["error"], NOT_OURS)
        totals["kept_though_other"] += piece.filter(other).num_rows
        for name, text in NOTES.items():
            totals[name] += piece.filter(pc.match_substring(piece["error"], text)).num_rows
        unread = min(filter(None, (unread, _first_unreadable(piece))), default=None)
        failed = _failed(piece)
        totals["failed"] += failed.num_rows
        example = min(filter(None, (example, _example(failed))), default=None)
    counts = dict(sorted(by_status.items()))
    return {
        "by_status": counts,
        **totals,
        "unreadable_example": unread and ": ".join(unread),
        "failed_example": example[1] if example else None,
        "two_directories": directories.doubled(),
    }


def _failed(rows: pa.Table) -> pa.Table:
    """Return the rows whose logs give index files that are missing or wrong."""
    is_expected = pc.is_valid(rows["time_index_entries"])
    good = pa.array([IndexFileState.WRITTEN, IndexFileState.KEPT])
    is_there = pc.is_in(rows["index_file"], value_set=good)
    return rows.filter(pc.and_(is_expected, pc.invert(is_there)))


def _first_unreadable(rows: pa.Table) -> tuple[str, str] | None:
    """Return the smallest URI of a log that could not be read, and the reason."""
    found = rows.filter(pc.equal(rows["status"], SegmentStatus.UNREADABLE.value))
    rows_found: list[dict[str, Any]] = found.select(["log_uri", "error"]).to_pylist()
    return min(((row["log_uri"], row["error"] or "") for row in rows_found), default=None)


def _example(failed: pa.Table) -> tuple[str, str] | None:
    """Return the smallest log URI, and its file that could not be written with the reason.

    The reason is in the row's `error`. None without rows.
    """
    uris: list[Any] = failed["log_uri"].to_pylist()
    if not uris:
        return None
    uri: str = min(uris)
    error: str | None = failed["error"][uris.index(uri)].as_py()
    unwritten = (note for note in (error or "").split("; ") if CANNOT_BE_WRITTEN in note)
    return uri, next(unwritten, f"those of {uri}: {error}")


def _counts(column: Any) -> dict[str, int]:
    pairs = pc.value_counts(column.drop_null()).to_pylist()
    return {pair["values"]: pair["counts"] for pair in pairs}
