"""Compare index files with their CRCs in the catalog; no log is read: `verify quick`.

This finds index files that changed after the build that wrote them. It does not show whether they
matched their logs then, nor changes of the logs.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from functools import partial
from typing import Annotated, Any, Final, NamedTuple, TypedDict

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kip33.archive.bins import Engine, Work, first_seen
from kip33.archive.common_options import TopicGlobList
from kip33.archive.segment_paths import index_of_row
from kip33.catalog.catalog import CATALOG_FOLDER, Catalog, Snapshot, catalog_at, choose
from kip33.catalog.schema import SEGMENTS
from kip33.catalog.topic_totals import topics_of
from kip33.errors import FileReadError
from kip33.formats.byte_sources import PIECE_BYTES, read_fully
from kip33.formats.index_kinds import IndexKind
from kip33.formats.scan import SMALL_BYTES
from kip33.formats.time_index import index_crc32c
from kip33.options import Option, Path
from kip33.rules.policies import TopicGlobs, require_topics
from kip33.rules.publication import IndexFileState
from kip33.stores.concurrently import map_in_order
from kip33.stores.files import one_line, opened
from kip33.stores.locations import Location
from kip33.stores.progress import READ_SO_FAR, Phase

_FILE_COLUMNS: Final = [f"{kind}_{what}" for kind in IndexKind for what in ("bytes", "crc32c")]
_READ: Final = ["index_uri", *_FILE_COLUMNS]


class QuickVerdict(StrEnum):
    """How an index file compares with the catalog; each member is its own text.

    >>> QuickVerdict.CHANGED == "changed"
    True
    """

    IDENTICAL = "identical"  # the size and the CRC of the catalog
    CHANGED = "changed"  # another size or CRC
    MISSING = "missing"
    UNKNOWN = "unknown"  # the size of the catalog, which has no CRC
    UNREADABLE = "unreadable"


class CheckedIndexFile(NamedTuple):
    """An index file that is not as in the catalog; numbers are None where not known."""

    uri: str
    verdict: QuickVerdict
    expected_bytes: int
    expected_crc32c: int | None
    found_bytes: int | None
    found_crc32c: int | None  # None: not read
    problem: str


_CHECKED_FIELDS: Final[list["pa.Field[Any]"]] = [
    pa.field("uri", pa.string(), nullable=False),
    pa.field("verdict", pa.string(), nullable=False),
    pa.field("expected_bytes", pa.int64(), nullable=False),
    pa.field("expected_crc32c", pa.int64()),
    pa.field("found_bytes", pa.int64()),
    pa.field("found_crc32c", pa.int64()),
    pa.field("problem", pa.string(), nullable=False),
]
CHECKED_FILES: Final = pa.schema(_CHECKED_FIELDS)
"""The columns of `CheckedIndexFile`."""


class QuickOptions(TypedDict, total=False):
    """Which index files are compared, and with which catalog."""

    catalog: Annotated[
        Path | None,
        Option("Folder of the catalog [default: <index-dir>/_catalog].", metavar="DIR"),
    ]
    topics: TopicGlobList


class QuickRequest(QuickOptions):
    """What a quick verification is asked."""

    source: str  # a path or URI, like the next
    index_dir: str | None  # None: `catalog` names the catalog


class QuickAnswer(NamedTuple):
    """The result of a quick verification."""

    catalog: Catalog
    snapshot: Snapshot
    segments: int  # with index files
    without_index_files: int  # segments whose build wrote rows only
    by_verdict: dict[IndexKind, Counter[QuickVerdict]]
    bytes_read: int  # of index files
    not_identical: list[CheckedIndexFile]  # by URI

    def table(self) -> pa.Table:
        """Return `not_identical` as a table of CHECKED_FILES."""
        rows = [file._asdict() for file in self.not_identical]
        return pa.Table.from_pylist(rows, CHECKED_FILES)


def verify_quick(request: QuickRequest, engine: Engine, warn: Callable[[str], None]) -> QuickAnswer:
    """Compare the index files of a source with the newest snapshot of its catalog.

    Raises ValueError without any place of a catalog, CatalogError for one that is missing, damaged
    or of another source.
    """
    index_dir, topics = request["index_dir"], request["topics"]
    place = request["catalog"] or (index_dir and Location.of(index_dir).child(CATALOG_FOLDER).uri)
    if not place:
        raise ValueError("a quick verification requires the catalog: give --catalog or --index-dir")
    catalog = catalog_at(Location.of(str(place)), warn=warn)
    catalog.require_source(Location.of(request["source"]))
    snapshot = choose(catalog, None, warn).snapshot
    files, without = _plan(catalog, snapshot, topics)
    if not files.num_rows and not without:
        require_topics(topics, topics_of(catalog, snapshot))
    marks = first_seen(files["index_uri"].to_pylist())
    work = Work(Phase.READING_INDEXES, marks=marks, command="verify")
    found = engine.run_on_bins(files, _check_bin, work=work)
    by_verdict: dict[IndexKind, Counter[QuickVerdict]] = {kind: Counter() for kind in IndexKind}
    for checked in found:
        for (kind, verdict), count in checked.counts.items():
            by_verdict[kind][verdict] += count
    return QuickAnswer(
        catalog,
        snapshot,
        files.num_rows,
        without,
        by_verdict,
        sum(checked.bytes_read for checked in found),
        sorted(file for checked in found for file in checked.not_identical),
    )


class _Checked(NamedTuple):
    """The index files of some catalog rows: what one task returns."""

    counts: Counter[tuple[IndexKind, QuickVerdict]]
    bytes_read: int
    not_identical: list[CheckedIndexFile]


def _plan(catalog: Catalog, snapshot: Snapshot, topics: Sequence[str]) -> tuple[pa.Table, int]:
    """Return the rows that name index files, and how many segments have none.

    The rows have the files' sizes and CRCs; `topics` are globs. CatalogError if a part is damaged.
    """
    globs = TopicGlobs.of(topics)
    chosen = [*filter(globs.matches, topics_of(catalog, snapshot))] if topics else None
    pieces = catalog.read_pieces(snapshot, [*_READ, "index_file"], chosen)
    rows, without = [SEGMENTS.empty_table().select(_READ)], 0
    for piece in pieces:
        without += pc.sum(pc.equal(piece["index_file"], IndexFileState.NONE)).as_py() or 0
        rows.append(piece.filter(pc.is_valid(piece["index_uri"])).select(_READ))
    files = pa.concat_tables(rows)
    size = np.zeros(files.num_rows, np.int64)
    for kind in IndexKind:
        size += pc.fill_null(files[f"{kind}_bytes"], 0).to_numpy()
    return files.append_column("size_bytes", pa.array(size)), without


def _check_bin(number: int, files: pa.Table) -> Iterator[_Checked]:
    """Check the index files of one bin: the work of one task."""
    if not files.num_rows:
        return
    native = pc.sum(files["size_bytes"]).as_py() > SMALL_BYTES
    counts: Counter[tuple[IndexKind, QuickVerdict]] = Counter()
    bytes_read = 0
    not_identical = []
    store = Location.of(files["index_uri"][0].as_py())
    for kind, file in map_in_order(store, _expected(files), partial(_check, native=native)):
        counts[kind, file.verdict] += 1
        if file.found_crc32c is not None:
            bytes_read += file.found_bytes or 0
        if file.verdict != QuickVerdict.IDENTICAL:
            not_identical.append(file)
    yield _Checked(counts, bytes_read, not_identical)


class _Expected(NamedTuple):
    kind: IndexKind
    uri: str  # of the time index
    size_bytes: int
    crc32c: int | None


def _expected(files: pa.Table) -> Iterator[_Expected]:
    for batch in files.to_batches(max_chunksize=1 << 14):
        for row in batch.to_pylist():
            for kind in IndexKind:
                size_bytes = row[f"{kind}_bytes"]
                if size_bytes is not None:
                    crc32c = row[f"{kind}_crc32c"]
                    yield _Expected(kind, row["index_uri"], size_bytes, crc32c)


def _check(expected: _Expected, *, native: bool) -> tuple[IndexKind, CheckedIndexFile]:
    place = index_of_row(Location.of(expected.uri), expected.kind)
    size_and_crc: tuple[int | None, int | None] = (None, None)
    verdict, problem = QuickVerdict.IDENTICAL, ""
    try:
        with opened(place) as (read_into, size_bytes):
            size_and_crc = (size_bytes, None)
            if size_bytes != expected.size_bytes:
                verdict = QuickVerdict.CHANGED
                problem = f"{size_bytes:,} bytes found, the catalog says {expected.size_bytes:,}"
            elif expected.crc32c is None:
                verdict = QuickVerdict.UNKNOWN
                problem = "the catalog has no CRC of this file"
            else:
                crc32c = 0
                for at in range(0, size_bytes, PIECE_BYTES):
                    piece = read_fully(read_into, at, min(PIECE_BYTES, size_bytes - at))
                    crc32c = index_crc32c(piece, crc32c, native=native)
                size_and_crc = (size_bytes, crc32c)
                READ_SO_FAR.add(size_bytes, files=int(expected.kind is IndexKind.TIME))
                if crc32c != expected.crc32c:
                    verdict = QuickVerdict.CHANGED
                    problem = "the CRC differs from the catalog's"
    except FileNotFoundError:
        verdict, problem = QuickVerdict.MISSING, "the catalog says it is there"
    except FileReadError as error:
        verdict, problem = QuickVerdict.UNREADABLE, one_line(error)
    file = CheckedIndexFile(
        place.uri, verdict, expected.size_bytes, expected.crc32c, *size_and_crc, problem
    )
    return expected.kind, file
