"""The verdicts on a tree, in a temporary file: memory does not grow with the number of segments.

Tasks send what they verified in compressed blocks, bin by bin, in any order. SQLite holds the rows
in a file without a name, which the system removes when the process ends, however that is. It sorts
them by path, and finds the segments of the partitions that need the fold
(`indexing.folded_verdicts`).
"""

import pickle
import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Final, Self

from kip33.errors import ExitCode, Kip33Error
from kip33.indexing.folded_verdicts import VerifiedSegment, with_folded_verdicts
from kip33.indexing.verification import SegmentVerdict

SEGMENTS_IN_A_BLOCK: Final = 1_000
_TABLE: Final = (  # `partition` and `link` are what the fold needs, null if unknown
    "CREATE TABLE segments (number INTEGER PRIMARY KEY, log_uri BLOB, has_problem, "
    "has_offset_index, needs_fold, verdict BLOB, partition TEXT, link BLOB)"
)
_INSERT: Final = "INSERT INTO segments VALUES (NULL, ?, ?, ?, ?, ?, ?, ?)"
_CHANGE: Final = "UPDATE segments SET has_problem = ?, verdict = ? WHERE number = ?"


class VerdictFileError(Kip33Error):
    """The temporary file of a verification cannot be written: a full disk."""

    exit_code = ExitCode.INCOMPLETE


def blocks_of(segments: Iterable[VerifiedSegment]) -> Iterator[bytes]:
    """Yield rows of the file, as a task sends them: compressed, some twenty bytes a segment."""
    each = map(_row_of, segments)
    while some := list(islice(each, SEGMENTS_IN_A_BLOCK)):
        yield zlib.compress(pickle.dumps(some), 1)


def _row_of(segment: VerifiedSegment) -> tuple[object, ...]:
    verdict, partition, link, file = segment
    rest = pickle.dumps((partition, link, file)) if link else None
    return (
        verdict.log_uri.encode(),
        verdict.has_problem,
        verdict.offset_index_verdict is not None,
        segment.needs_fold,
        _packed(verdict),
        repr(partition) if link else None,  # equal for equal keys, as pickles need not be
        rest,
    )


class TreeVerdicts:
    """One verdict per segment, in order of path; it may be iterated more than once."""

    def __init__(self) -> None:
        """Begin without verdicts; VerdictFileError if the disk is full, here and below."""
        self._file = sqlite3.connect("", isolation_level=None)
        self._count = 0
        self._expects_offset_index = False
        self._run("PRAGMA journal_mode = OFF")
        self._run(_TABLE)

    @classmethod
    def of(cls, blocks: Iterable[bytes]) -> Self:
        """Return the complete verdicts on a tree of which these are the blocks, in any order."""
        verdicts = cls()
        for block in blocks:
            verdicts._add(pickle.loads(zlib.decompress(block)))
        verdicts._fold()
        return verdicts

    def _add(self, rows: Sequence[tuple[object, ...]]) -> None:
        self._count += len(rows)
        with _says_what_failed():
            self._file.execute("BEGIN")
            self._file.executemany(_INSERT, rows)
            self._file.execute("COMMIT")

    def _fold(self) -> None:
        """Add the verdicts that need all segments of a partition: one partition at a time."""
        has_offset_index = "SELECT 1 FROM segments WHERE has_offset_index LIMIT 1"
        self._expects_offset_index = self._run(has_offset_index).fetchone() is not None
        partitions = self._run(
            "SELECT DISTINCT partition FROM segments WHERE needs_fold AND partition IS NOT NULL"
        ).fetchall()
        if partitions:
            self._run("CREATE INDEX by_partition ON segments (partition)")
        for partition in partitions:
            rows = self._run(
                "SELECT number, verdict, link FROM segments WHERE partition = ?", partition
            ).fetchall()
            judged = with_folded_verdicts(
                VerifiedSegment(_unpacked(verdict), *pickle.loads(link))
                for _, verdict, link in rows
            )
            changes = [
                (verdict.has_problem, _packed(verdict), number)
                for verdict, (number, _, _) in zip(judged, rows, strict=True)
            ]
            with _says_what_failed():
                self._file.executemany(_CHANGE, changes)

    def __len__(self) -> int:
        """Return the number of segments."""
        return self._count

    def __iter__(self) -> Iterator[SegmentVerdict]:
        """Yield the verdicts by path."""
        return self._verdicts("")

    def with_problems(self) -> Iterator[SegmentVerdict]:
        """Yield the verdicts on segments with a problem of an index file or the log, by path."""
        also = "OR NOT has_offset_index" if self._expects_offset_index else ""
        for verdict in self._verdicts(f"WHERE has_problem {also}"):
            if verdict.has_problem:
                yield verdict

    def _verdicts(self, where: str) -> Iterator[SegmentVerdict]:
        """Yield some; if one segment of the tree has a `.index`, every other one needs one."""
        rows = self._run(f"SELECT verdict FROM segments {where} ORDER BY log_uri, number")
        while True:
            with _says_what_failed():
                some = rows.fetchmany(SEGMENTS_IN_A_BLOCK)
            if not some:
                return
            for (data,) in some:
                verdict = _unpacked(data)
                yield verdict.with_missing_offset_index() if self._expects_offset_index else verdict

    def _run(self, statement: str, values: Iterable[object] = ()) -> sqlite3.Cursor:
        with _says_what_failed():
            return self._file.execute(statement, tuple(values))


@contextmanager
def _says_what_failed() -> Iterator[None]:
    try:
        yield
    except sqlite3.OperationalError as error:
        raise VerdictFileError(
            f"the temporary file of the verdicts cannot be written: {error}; free some space, or "
            "name another directory with TMPDIR, and run the command again"
        ) from error


def _packed(verdict: SegmentVerdict) -> bytes:
    return pickle.dumps(tuple(verdict.as_row().values()))


def _unpacked(data: bytes) -> SegmentVerdict:
    return SegmentVerdict.of_row(pickle.loads(data))
