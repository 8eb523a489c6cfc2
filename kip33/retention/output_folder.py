"""The results of `--output`: Parquet folders and a `summary.json` that is written last."""

import json
import os
import re
import uuid
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from kip33.archive.output_files import (
    MOST_SUMMARY_BYTES,
    is_retention_summary,
    require_replaceable,
)
from kip33.archive.sources import require_outside_brokers
from kip33.errors import LocationError
from kip33.stores.files import entries_of, one_line
from kip33.stores.locations import Location
from kip33.stores.own_files import publish, publish_or_raise, remove, remove_quietly

SUMMARY_FILE: Final = "summary.json"
UNFINISHED: Final = ".kip33-unfinished"  # in a folder without a summary: the run is not finished
_INCOMPLETE: Final = "the results are incomplete"
RESULT_ROWS_PER_PART: Final = 250_000
_SPARKS: Final = re.compile(  # Spark's names in a table's folder; ours have the same form
    r"part-[0-9]{5}-[0-9a-f-]{36}(?:-c[0-9]+)?\.[a-z0-9.]*parquet"
    r"|\.part-[0-9]{5}-[0-9a-f-]{36}(?:-c[0-9]+)?\.[a-z0-9.]*parquet\.crc"
    r"|_SUCCESS|\._SUCCESS\.crc|_temporary"
)


def require_results_place(folder: Location, names: tuple[str, ...]) -> None:
    """Raise LocationError unless `folder` is empty, new, or has results of an earlier run.

    The summary of `kip33 retention`, or the mark of an interrupted run, shows whose results they
    are. A broker would not start if the folder were in its log directory, so that is refused. The
    mark is written, so the folder can be written to; earlier results stay.
    """
    require_outside_brokers(folder, "the folder of --output")
    try:
        found = {info.base_name: info.type for info in entries_of(folder)}
        if not found.keys() <= {UNFINISHED}:
            _require_ours(folder, found, names)
        publish(folder.child(UNFINISHED), b"kip33 retention --output\n")
    except OSError as error:
        raise _unwritable(folder, error) from error


def remove_results(folder: Location, names: tuple[str, ...]) -> None:
    """Remove results of before, the summary first: only a folder with a summary is whole.

    `require_results_place` was asked before. LocationError where that fails.
    """
    try:
        remove(folder.child(SUMMARY_FILE))
        for name in sorted({info.base_name for info in entries_of(folder)} & set(names)):
            folder.filesystem().delete_dir(folder.child(name).path)
    except OSError as error:
        raise _unwritable(folder, error) from error


def _unwritable(folder: Location, error: OSError) -> LocationError:
    return LocationError(
        f"{folder.uri}: cannot be written: {one_line(error)}; fix it or choose another"
    )


def _require_ours(
    folder: Location, found: Mapping[str, fs.FileType], names: tuple[str, ...]
) -> None:
    """Raise LocationError for a folder with anything that this command did not write."""
    others = sorted(found.keys() - {SUMMARY_FILE, UNFINISHED, *names})
    for name in sorted(found.keys() & set(names)):
        others += [f"{name}/{one}" for one in _foreign(folder.child(name))]
    if others:
        raise LocationError(
            f"{folder.uri}: contains {others[0]}, which is not a result of this "
            "command; give a separate folder"
        )
    if SUMMARY_FILE in found:
        summary = folder.child(SUMMARY_FILE)
        require_replaceable(summary, "--output", is_retention_summary, MOST_SUMMARY_BYTES)
    elif UNFINISHED not in found:
        raise LocationError(
            f"{folder.uri}: contains {min(found)} but no {SUMMARY_FILE}, so kip33 cannot "
            "tell whether it wrote this; give a separate folder"
        )


def _foreign(table: Location) -> list[str]:
    """Return foreign files in a table's folder: an archive may also be named `segments`."""
    if table.is_local and os.path.islink(table.path):  # noqa: PTH114
        return ["., a link"]
    infos = table.filesystem().get_file_info(fs.FileSelector(table.path))
    return sorted(info.base_name for info in infos if not _SPARKS.fullmatch(info.base_name))


def write_summary(folder: Location, summary: Mapping[str, Any]) -> None:
    """Publish `summary.json`: now the results are complete. PublishError if that fails."""
    data = (json.dumps(summary, indent=1) + "\n").encode()
    publish_or_raise(folder.child(SUMMARY_FILE), data, "the results have no summary")
    remove_quietly(folder.child(UNFINISHED))


def write_tables(folder: Location, name: str, tables: Iterable[pa.Table]) -> None:
    """Write tables with one schema as one table to `folder/name`, in the form that Spark uses.

    PublishError if that fails.
    """
    place, parts, rows = folder.child(name), 0, 0
    pieces: list[pa.Table] = []
    for piece in chain.from_iterable(map(_slices, tables)):
        if pieces and rows + piece.num_rows > RESULT_ROWS_PER_PART:
            _write_part(place, parts, pieces)
            parts, rows, pieces = parts + 1, 0, []
        pieces.append(piece)
        rows += piece.num_rows
    _write_part(place, parts, pieces)
    publish_or_raise(place.child("_SUCCESS"), b"", _INCOMPLETE)


def _slices(table: pa.Table) -> list[pa.Table]:
    """Return a table in pieces that each fit a part; an empty one is one piece."""
    starts = range(0, max(1, table.num_rows), RESULT_ROWS_PER_PART)
    return [table.slice(start, RESULT_ROWS_PER_PART) for start in starts]


def _write_part(place: Location, number: int, pieces: list[pa.Table]) -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.concat_tables(pieces), sink, compression="snappy")
    part = place.child(f"part-{number:05d}-{uuid.uuid4()}-c000.snappy.parquet")
    publish_or_raise(part, sink.getvalue().to_pybytes(), _INCOMPLETE)
