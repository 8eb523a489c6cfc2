"""What may happen to an index file, whatever the log says and whoever wrote the file."""

from collections.abc import Iterator
from itertools import product

from kip33.formats.index_kinds import IndexKind
from kip33.rules import publication
from kip33.rules.publication import (
    TABLE,
    Action,
    FileDecision,
    IndexFileState,
    Owner,
    There,
    Wanted,
    decide,
)
from kip33.rules.segment_notes import KEPT

CHANGES = (Action.WRITE, Action.REMOVE)
PROVES_NOTHING = (Wanted.UNPROVEN, Wanted.UNJUDGED, Wanted.GOOD, Wanted.REFUSED, Wanted.SPLIT)


def decisions() -> Iterator[tuple[Wanted, Owner, There, FileDecision]]:
    for kind, wanted, owner, there in product(IndexKind, Wanted, Owner, There):
        yield wanted, owner, there, decide(kind, wanted, owner, there)


def test_what_another_program_wrote_is_never_changed_unless_that_is_asked_for() -> None:
    for wanted, owner, there, decision in decisions():
        if owner is Owner.ANOTHERS and there is not There.NOTHING:
            assert decision.action not in CHANGES, (wanted, there)
            assert decision.state is not IndexFileState.WRITTEN, (wanted, there)


def test_what_a_build_beside_this_one_wrote_is_never_written_over() -> None:
    for wanted, owner, there, decision in decisions():
        if there is There.NEWER:
            assert decision.action is not Action.WRITE, (wanted, owner)


def test_a_file_is_written_only_if_the_log_gives_its_bytes_and_others_or_none_are_there() -> None:
    for wanted, owner, there, decision in decisions():
        if decision.action is Action.WRITE:
            assert wanted in (Wanted.BYTES, Wanted.EMPTY), owner
            assert there in (There.NOTHING, There.OTHER), (wanted, owner)
            is_repaired = owner is Owner.REPAIRED and wanted is Wanted.BYTES
            state = IndexFileState.KEPT if is_repaired else IndexFileState.WRITTEN
            assert (decision.state, decision.is_right) == (state, True)


def test_only_a_log_that_was_read_takes_our_file_away() -> None:
    for wanted, owner, _, decision in decisions():
        if decision.action is Action.REMOVE:
            is_repair = (owner, wanted) == (Owner.REPAIRED, Wanted.LEFT)  # a broker writes all
            assert owner is Owner.OURS or is_repair
            assert wanted not in PROVES_NOTHING


def test_what_is_called_ours_is_ours_or_was_to_be_replaced_and_has_the_bytes() -> None:
    for wanted, owner, there, decision in decisions():
        if decision.state is IndexFileState.WRITTEN and decision.action is Action.KEEP:
            assert there is not There.NOTHING, (wanted, owner)
            assert owner is Owner.OURS or there is There.SAME, (wanted, there)


def test_the_note_on_a_file_that_stays_names_its_kind() -> None:
    for kind in IndexKind:
        found = decide(kind, Wanted.BYTES, Owner.ANOTHERS, There.OTHER)
        assert (found.state, found.note) == (IndexFileState.KEPT, KEPT[kind])


def test_a_transaction_index_that_a_log_does_not_give_is_no_missing_file() -> None:
    for owner, there in product(Owner, There):
        assert not decide(IndexKind.TRANSACTION, Wanted.NONE, owner, there).counts
        assert decide(IndexKind.TIME, Wanted.NONE, owner, there).counts


def test_each_row_of_the_table_decides_something() -> None:
    reached = {
        next(
            number
            for number, (of, whose, what, *_) in enumerate(TABLE)
            if of == wanted and whose in (owner, None) and what in (there, None)
        )
        for wanted, owner, there in publication._DECISIONS
    }
    assert reached == set(range(len(TABLE)))
