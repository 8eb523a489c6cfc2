"""What happens to an index file: one table decides, for every kind of file and every store.

    wanted      what the log says of the file
    owner       whose file is there: one that was not there when the log was listed is ours, because
                another attempt of this task, or a build beside this one, wrote it; but no build
                writes an `.index` that a broker's recovery should not find
    there       what is there now, compared with the bytes that are wanted

The table gives an action, the file's share in the column `index_file`, a note, and whether the file
then is as its log has it. No other code decides whether a file may be written or removed.
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import Final, NamedTuple, TypeAlias

from kip33.formats.index_kinds import IndexKind
from kip33.rules.segment_notes import KEPT
from kip33.rules.segment_notes import SegmentNote as Note


class IndexFileState(StrEnum):
    """The column `index_file`: who owns a segment's index files; each member is its own text.

    The column is null if a file is missing or could not be written. A `stale` row is never reused:
    the next build tries again.

    >>> IndexFileState.KEPT == "kept"
    True
    """

    WRITTEN = "written"  # kip33 owns the files, and they match the log
    KEPT = "kept"  # at least one file belongs to another program and was kept
    STALE = "stale"  # kip33 owns the files, but one does not match the log: the next build retries
    NONE = "none"  # the build wrote rows only, with --no-index-files


def state_together(states: Iterable[IndexFileState | None]) -> IndexFileState | None:
    """Return the state of a segment's index files from those of each file; None: one is missing."""
    states = set(states)
    is_ours = IndexFileState.KEPT not in states
    if is_ours and (IndexFileState.STALE in states or states == {IndexFileState.WRITTEN, None}):
        return IndexFileState.STALE
    if not states or None in states:
        return None
    return IndexFileState.WRITTEN if states == {IndexFileState.WRITTEN} else IndexFileState.KEPT


class Wanted(StrEnum):
    """What a log says of one of its index files."""

    BYTES = "bytes"  # it gives these bytes
    EMPTY = "empty"  # it gives no entry, and the file of a broker may then be missing
    GOOD = "good"  # what is there was verified: its entries are true, and it stays
    NONE = "none"  # it gives no such file
    UNPROVEN = "unproven"  # it cannot be read, which proves nothing
    UNJUDGED = "unjudged"  # what the file should have is not known; a broker's is trusted
    CUT = "cut"  # in place: a broker's recovery cuts the log, if it finds no such file
    REFUSED = "refused"  # in place: a broker's recovery fails, if it finds no such file
    SPLIT = "split"  # in place: a broker's recovery splits the segment, if it finds no such file
    LEFT = "left"  # in place: the log or a file beside it is not right, so a broker writes all


class Owner(StrEnum):
    """Whose an index file is, if there is one."""

    OURS = "ours"
    REPLACED = "replaced"  # another program's, and kip33 is asked to overwrite it
    REPAIRED = "repaired"  # a broker's, wrong, and kip33 is asked to repair it: it stays a broker's
    ANOTHERS = "another's"


class There(StrEnum):
    """What is at the place of an index file."""

    NOTHING = "nothing"
    SAME = "same"  # the wanted bytes
    OTHER = "other"
    NEWER = "newer"  # other bytes, written since the log was listed, and the log changed since


class Action(StrEnum):
    """What is done with an index file."""

    KEEP = "keep"  # also: nothing is there, and nothing should be
    WRITE = "write"
    REMOVE = "remove"
    WITHHOLD = "withhold"  # the log gives the file, but it is not written


class FileDecision(NamedTuple):
    """What is done with an index file, and what a catalog then says of it."""

    action: Action
    state: IndexFileState | None = None
    counts: bool = True  # whether the state counts in `index_file`; None counts as a missing file
    is_right: bool = False  # a broker that finds the file, or none, is not misled
    note: Note | None = None


_ANY: Final = None
_Row: TypeAlias = tuple[Wanted, Owner | None, There | None, FileDecision, Note | None]
_WRITE: Final = FileDecision(Action.WRITE, IndexFileState.WRITTEN, is_right=True)
_GONE: Final = FileDecision(Action.REMOVE, counts=False)
_GONE_RIGHT: Final = FileDecision(Action.REMOVE, counts=False, is_right=True)
_GONE_MISSING: Final = FileDecision(Action.REMOVE)
_OURS: Final = FileDecision(Action.KEEP, IndexFileState.WRITTEN, is_right=True)
_UNPROVEN: Final = FileDecision(Action.KEEP, IndexFileState.WRITTEN)
_OURS_WRONG: Final = FileDecision(Action.KEEP, IndexFileState.STALE)
_THEIRS: Final = FileDecision(Action.KEEP, IndexFileState.KEPT, is_right=True)
_REPAIRED: Final = FileDecision(Action.WRITE, IndexFileState.KEPT, is_right=True)
_THEIRS_OTHER: Final = FileDecision(Action.KEEP, IndexFileState.KEPT)
_MISSING: Final = FileDecision(Action.KEEP)
_NEITHER: Final = FileDecision(Action.KEEP, counts=False)
_ALL_RIGHT: Final = FileDecision(Action.KEEP, counts=False, is_right=True)
_WITHHELD: Final = FileDecision(Action.WITHHOLD, counts=False)
_NEWER: Final = FileDecision(Action.WITHHOLD, IndexFileState.STALE)


# fmt: off
TABLE: Final[tuple[_Row, ...]] = (
    # wanted          owner           there          what is done   what is noted
    (Wanted.BYTES,    Owner.REPAIRED, There.NOTHING, _REPAIRED,     None),
    (Wanted.BYTES,    Owner.REPAIRED, There.SAME,    _THEIRS,       None),
    (Wanted.BYTES,    Owner.REPAIRED, There.OTHER,   _REPAIRED,     None),
    (Wanted.BYTES,    _ANY,           There.NOTHING, _WRITE,        None),
    (Wanted.BYTES,    Owner.ANOTHERS, There.SAME,    _THEIRS,       None),
    (Wanted.BYTES,    Owner.ANOTHERS, _ANY,          _THEIRS_OTHER, Note.TIME_INDEX_KEPT),
    (Wanted.BYTES,    _ANY,           There.SAME,    _OURS,         None),
    (Wanted.BYTES,    _ANY,           There.NEWER,   _NEWER,        Note.OF_ANOTHER_BUILD),
    (Wanted.BYTES,    _ANY,           There.OTHER,   _WRITE,        None),
    (Wanted.EMPTY,    _ANY,           There.NOTHING, _ALL_RIGHT,    None),
    (Wanted.EMPTY,    Owner.OURS,     _ANY,          _GONE_RIGHT,   None),
    (Wanted.EMPTY,    Owner.REPLACED, There.SAME,    _OURS,         None),
    (Wanted.EMPTY,    Owner.REPLACED, There.NEWER,   _NEWER,        Note.OF_ANOTHER_BUILD),
    (Wanted.EMPTY,    Owner.REPLACED, There.OTHER,   _WRITE,        None),
    (Wanted.EMPTY,    _ANY,           There.SAME,    _THEIRS,       None),
    (Wanted.EMPTY,    _ANY,           _ANY,          _THEIRS_OTHER, Note.TIME_INDEX_KEPT),
    (Wanted.GOOD,     _ANY,           There.NOTHING, _MISSING,      None),
    (Wanted.GOOD,     Owner.OURS,     _ANY,          _OURS,         None),
    (Wanted.GOOD,     _ANY,           _ANY,          _THEIRS,       None),
    (Wanted.NONE,     _ANY,           There.NOTHING, _MISSING,      None),
    (Wanted.NONE,     Owner.OURS,     _ANY,          _GONE_MISSING, None),
    (Wanted.NONE,     _ANY,           _ANY,          _MISSING,      None),
    (Wanted.UNPROVEN, _ANY,           There.NOTHING, _MISSING,      None),
    (Wanted.UNPROVEN, Owner.OURS,     _ANY,          _UNPROVEN,     None),
    (Wanted.UNPROVEN, _ANY,           _ANY,          _MISSING,      None),
    (Wanted.UNJUDGED, _ANY,           There.NOTHING, _NEITHER,      None),
    (Wanted.UNJUDGED, Owner.OURS,     _ANY,          _ALL_RIGHT,    None),
    (Wanted.UNJUDGED, _ANY,           _ANY,          _ALL_RIGHT,    Note.NOT_JUDGED),
    (Wanted.CUT,      _ANY,           There.NOTHING, _WITHHELD,     Note.BROKER_CUTS),
    (Wanted.CUT,      Owner.OURS,     _ANY,          _GONE,         Note.BROKER_CUTS),
    (Wanted.CUT,      _ANY,           _ANY,          _THEIRS_OTHER, Note.HIDES_DAMAGE),
    (Wanted.REFUSED,  _ANY,           There.NOTHING, _WITHHELD,     Note.MAY_NOT_START),
    (Wanted.REFUSED,  Owner.OURS,     _ANY,          _OURS_WRONG,   Note.STARTS_BY_INDEX),
    (Wanted.REFUSED,  _ANY,           _ANY,          _THEIRS_OTHER, Note.STARTS_BY_INDEX),
    (Wanted.SPLIT,    _ANY,           There.NOTHING, _WITHHELD,     Note.BROKER_SPLITS),
    (Wanted.SPLIT,    Owner.OURS,     _ANY,          _OURS_WRONG,   None),
    (Wanted.SPLIT,    _ANY,           _ANY,          _THEIRS_OTHER, None),
    (Wanted.LEFT,     Owner.REPAIRED, _ANY,          _GONE_RIGHT,   None),
    (Wanted.LEFT,     _ANY,           _ANY,          _WITHHELD,     Note.LEFT_TO_BROKER),
)
# fmt: on
"""The first row that fits decides; _ANY fits all. The note on a file that stays names its kind."""


def decide(kind: IndexKind, wanted: Wanted, owner: Owner, there: There) -> FileDecision:
    """Return what is done with a file of a kind.

    A `.txnindex` that the log does not give is no missing file: a broker has none, either.
    """
    decision = _DECISIONS[wanted, owner, there]
    if decision.note is Note.TIME_INDEX_KEPT:
        return decision._replace(note=KEPT[kind])
    if kind is IndexKind.TRANSACTION and wanted in (Wanted.NONE, Wanted.UNPROVEN):
        return decision._replace(counts=False)
    return decision


def _first(wanted: Wanted, owner: Owner, there: There) -> FileDecision:
    return next(
        decision._replace(note=note)
        for of, whose, what, decision, note in TABLE
        if of == wanted and whose in (owner, _ANY) and what in (there, _ANY)
    )


_DECISIONS: Final = {
    (wanted, owner, there): _first(wanted, owner, there)
    for wanted in Wanted
    for owner in Owner
    for there in There
}
