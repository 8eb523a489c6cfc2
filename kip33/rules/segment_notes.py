"""What a build notes about a segment and its index files: codes, and their texts for people.

The next build, a search or a summary decides by the codes, which a catalog has in its column
`notes`. So a text may be reworded, but a code stays as it is: old catalogs have it.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, Final

from kip33.formats.index_kinds import IndexKind

_REMOVE_IT: Final = "stop the broker, remove the .index, start the broker"


class SegmentNote(StrEnum):
    """A note on a segment; each member is its own text in a catalog."""

    UNDERSTATED = "understated_timestamp"
    TIME_INDEX_KEPT = "time_index_kept"
    OFFSET_INDEX_KEPT = "offset_index_kept"
    TRANSACTION_INDEX_KEPT = "transaction_index_kept"
    BEFORE_LOG = "index_before_log"
    NOT_JUDGED = "transaction_index_not_judged"
    OF_ANOTHER_BUILD = "index_of_another_build"
    OWNER_NOT_GIVEN = "owner_not_given"
    HIDES_DAMAGE = "index_hides_damage"
    HIDES_ABORTS = "index_hides_aborts"
    LEFT_TO_BROKER = "index_left_to_broker"
    BROKER_CUTS = "broker_cuts_log"
    BROKER_SPLITS = "broker_splits_log"
    STARTS_BY_INDEX = "broker_starts_by_index"
    MAY_NOT_START = "broker_may_not_start"


KEPT: Final = {kind: SegmentNote(f"{kind}_kept") for kind in IndexKind}
"""The note on an index file of another program that stays; `--overwrite` replaces it."""

_TEXTS: Final[dict[str, str]] = {
    SegmentNote.UNDERSTATED: (
        "the header of a batch has a max timestamp below its base timestamp: a search by time may "
        "miss its records, in kip33 and in a broker"
    ),
    **{
        note: f"kept the existing {name}: kip33 did not write it; --overwrite replaces it"
        for note, name in zip(KEPT.values(), ("time index", ".index", ".txnindex"), strict=True)
    },
    SegmentNote.BEFORE_LOG: (
        "an index file is older than this catalog's first row for its log, so another program is "
        "taken to have written it"
    ),
    SegmentNote.NOT_JUDGED: (
        "kept the existing .txnindex: kip33 did not write it, and what it should have is not known"
    ),
    SegmentNote.OF_ANOTHER_BUILD: (
        "another build wrote an index file after this build listed its log, and the log has "
        "changed: the file is kept, and the next build reads the log again"
    ),
    SegmentNote.OWNER_NOT_GIVEN: (
        "an index file has another owner than the log, and a broker that runs as another user may "
        "not start: use chown and chmod, or run kip33 as the broker's user"
    ),
    SegmentNote.HIDES_DAMAGE: (
        "the .index keeps a broker from cutting this log to its {valid_bytes} valid bytes: "
        f"{_REMOVE_IT}"
    ),
    SegmentNote.HIDES_ABORTS: (
        "the .index keeps a broker from writing the .txnindex of this log, so read_committed "
        f"consumers may read aborted records: {_REMOVE_IT}"
    ),
    SegmentNote.LEFT_TO_BROKER: (
        "the .index is not written: a broker rebuilds all index files if it finds no .index"
    ),
    SegmentNote.BROKER_CUTS: (
        "no .index is written: a starting broker cuts this log to {valid_bytes} bytes"
    ),
    SegmentNote.BROKER_SPLITS: (
        "no .index is written: a broker that starts splits this segment, and nothing is lost"
    ),
    SegmentNote.STARTS_BY_INDEX: (
        "the .index stays: without it a broker may not start, because it cannot recover this log"
    ),
    SegmentNote.MAY_NOT_START: (
        "the .index is missing, and a broker may not start because it cannot recover this log: "
        "restore the log from a replica or a backup; if an index is full, give the topic a larger "
        "segment.index.bytes, or build again with a larger --segment-index-bytes"
    ),
}
OF_REMARKS: Final = ("error", "index_error", "notes", "valid_bytes")
"""The columns of a catalog that are remarks for people."""


def note_texts(notes: Iterable[str], valid_bytes: int | None) -> list[str]:
    """Return the texts of codes; a code of another version is its own text.

    >>> note_texts(["broker_cuts_log", "{new_code}"], 120)
    ['no .index is written: a starting broker cuts this log to 120 bytes', '{new_code}']
    """
    return [
        _TEXTS[note].format(valid_bytes=valid_bytes) if note in _TEXTS else note for note in notes
    ]


def with_remarks(row: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Return some columns of a catalog's row for people: `error` has all remarks, in one line.

    The row has OF_REMARKS.
    """
    texts = [row["error"], row["index_error"]]
    texts += note_texts(row["notes"] or (), row["valid_bytes"])
    error = "; ".join(filter(None, texts)) or None
    return {name: error if name == "error" else row[name] for name in names}
