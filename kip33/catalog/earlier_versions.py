"""Rows of catalogs of schema versions 1 to 5, in today's columns; only builds read them.

Versions 1 to 4, and the first states of 5, had texts where there are codes and columns now: notes
were sentences in `error`, settings were JSON. Columns that a version did not have are null: 1 ended
with `offset_index_bytes`, 2 had no times, 3 nothing about leader epochs and CRCs, 5 nothing of
brokers' checkpoints.
"""

import json
import re
from collections.abc import Callable, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from kip33.catalog.schema import BUILD_SETTINGS, PARTS, SEGMENTS
from kip33.formats.index_kinds import IndexKind
from kip33.rules.segment_notes import KEPT, SegmentNote

TEXT_COLUMNS: Final = ("error", "build_settings", "time_index_settings", "offset_index_settings")
"""The columns whose values become those of other columns, or some of them."""

_LATER_SETTINGS: Final = {"untimestamped": "none"}  # if not named
_FILE_TIME: Final = r'"file_time_offset": (?P<offset>[0-9]+)'
_OVERWRITE: Final = "(?:; --overwrite replaces it)?"
_SENTENCES: Final[list[tuple[SegmentNote | None, str]]] = [
    *(
        (KEPT[kind], rf"\.{kind.file}: kip33 did not write it[^;]*{_OVERWRITE}")
        for kind in (IndexKind.OFFSET, IndexKind.TRANSACTION)
    ),
    (None, rf"\.snapshot: kip33 did not write it[^;]*{_OVERWRITE}"),  # builds write none now
    (
        SegmentNote.TIME_INDEX_KEPT,
        r"\.(?!index:|txnindex:|snapshot:)[a-z0-9]+: kip33 did not write it"
        rf"[^;]*{_OVERWRITE}",
    ),
    (SegmentNote.BEFORE_LOG, "it was there before this catalog first saw its log"),
    (SegmentNote.NOT_JUDGED, r"the \.txnindex that is there is not of kip33"),
    (SegmentNote.UNDERSTATED, "has a max timestamp below its base timestamp"),
    (SegmentNote.OF_ANOTHER_BUILD, "another build wrote this file after this build listed"),
    (SegmentNote.OWNER_NOT_GIVEN, "cannot be given the owner[^;]*(?:; the file has)?"),
    (SegmentNote.HIDES_DAMAGE, "keeps a broker from cutting"),
    (SegmentNote.HIDES_ABORTS, r"keeps a broker from writing the \.txnindex"),
    (SegmentNote.LEFT_TO_BROKER, r"the \.index is not written either"),
    (SegmentNote.BROKER_CUTS, r"no \.index is written: a starting broker cuts"),
    (SegmentNote.BROKER_SPLITS, r"no \.index is written: a broker that starts splits"),
    (SegmentNote.STARTS_BY_INDEX, "stays: without it a broker may not start"),
    (SegmentNote.MAY_NOT_START, r"\.index(?: is missing)?, and a broker may not start"),
]
_PATTERNS: Final = [(note, re.compile(rf"[^;]*{text}[^;]*")) for note, text in _SENTENCES]
"""The sentences of `error`, each with its note, if it is one now; semicolons were between them."""


def has_texts_for_codes(names: Sequence[str]) -> bool:
    """Whether a part with these columns is of a version that had texts."""
    return "notes" not in names


def in_this_version(rows: pa.Table, columns: Sequence[str], *, has_texts: bool) -> pa.Table:
    """Rows of an earlier version, which have TEXT_COLUMNS if it did, with these columns."""
    made: dict[str, Any] = {}
    if has_texts:
        notes = _converted(rows, "error", _notes, SEGMENTS.field("notes").type)
        error = _converted(rows, "error", _error, pa.string())
        made = {"notes": notes, "error": error} | _settings_of(rows)
    found = {}
    for name in columns:
        values = made.get(name, rows[name] if name in rows.column_names else None)
        is_none = values is None
        found[name] = pa.nulls(rows.num_rows, PARTS.field(name).type) if is_none else values
    return pa.table(found, schema=pa.schema([PARTS.field(name) for name in columns]))


def _settings_of(rows: pa.Table) -> dict[str, Any]:
    """Return the columns of settings."""
    kind = pa.struct([SEGMENTS.field(name) for name in BUILD_SETTINGS])
    settings = _converted(rows, "build_settings", _settings, kind)
    found = {name: pc.struct_field(settings, name) for name in BUILD_SETTINGS}
    for file in (IndexKind.TIME, IndexKind.OFFSET):
        known = pc.is_valid(_texts(rows, f"{file}_settings"))
        found[f"{file}_matches"] = pc.if_else(known, True, None)
    match = pc.extract_regex(_texts(rows, "time_index_settings"), _FILE_TIME)
    found["file_time_offset"] = pc.struct_field(match, "offset").cast(pa.int64())
    return found


def _settings(text: str) -> dict[str, Any]:
    """Return the settings of a row; without a version if they are not all that a build has now."""
    record = _LATER_SETTINGS | json.loads(text)
    record.pop("producer_snapshots", None)  # its build wrote `.snapshot` files; this one does not
    if set(record) != set(BUILD_SETTINGS):
        record["bytes_version"] = None
    return {name: record.get(name) for name in BUILD_SETTINGS}


def _notes(text: str) -> list[str] | None:
    """Return the notes in a row's `error`, None without one.

    >>> _notes("a.index keeps a broker from cutting this log to its 9 valid bytes: stop the broker")
    ['index_hides_damage']
    """
    return [str(note) for note, pattern in _PATTERNS if note and pattern.search(text)] or None


def _error(text: str) -> str | None:
    """Return a row's `error` without its notes.

    >>> _error("damaged at byte 9; kept file:///a/0.index: kip33 did not write it; --overwrite ...")
    'damaged at byte 9; --overwrite ...'
    """
    without = text
    for _, pattern in _PATTERNS:
        without = pattern.sub("", without)
    if without == text:
        return text
    return "; ".join(filter(None, map(str.strip, without.split(";")))) or None


def _texts(rows: pa.Table, name: str) -> Any:
    if name not in rows.column_names:
        return pa.nulls(rows.num_rows, pa.string())
    return rows[name].combine_chunks()


def _converted(
    rows: pa.Table, name: str, convert: Callable[[str], Any], kind: "pa.DataType"
) -> Any:
    """Return a column of texts, each converted; equal texts are converted once."""
    texts = _texts(rows, name).dictionary_encode()
    return pa.array(map(convert, texts.dictionary.to_pylist()), kind).take(texts.indices)
