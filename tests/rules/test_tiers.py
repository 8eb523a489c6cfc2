"""Two tiers put together: what both have, where they differ, where a remote segment ends."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kip33.formats.partition_metadata import EpochStart
from kip33.rules import tiers
from kip33.rules.offset_holes import UNKNOWN_END
from kip33.rules.tiers import UNKNOWN_FIGURE, EpochColumns, PutTogether, TierSegments
from tests.cases import each_case
from tests.long_forms import examples

WHOLE, SECOND, DAMAGED, CUT, NOT_COUNTED = "whole", "second", "damaged", "cut", "not counted"
FIGURES = {WHOLE: 7, SECOND: 8, DAMAGED: 7, CUT: 7, NOT_COUNTED: UNKNOWN_FIGURE}

Segment = tuple[Any, ...]  # base offset, end, what it is, and its leader epochs with their offsets


def columns(local: list[Segment], remote: list[Segment], partition: int = 0) -> TierSegments:
    every = [*local, *remote]
    what = [segment[2] for segment in every]
    epochs = [starts for segment in every for starts in segment[3:]]
    return TierSegments(
        np.full(len(every), partition, np.int64),
        np.array([segment[0] for segment in every], np.int64),
        np.array([segment[1] for segment in every], np.int64),
        np.arange(len(every)) >= len(local),
        np.array([one not in (DAMAGED, CUT) for one in what], bool),
        np.array([one == CUT for one in what], bool),
        np.array([[FIGURES[one]] for one in what], np.int64).reshape(-1, 1),
        EpochColumns(
            np.cumsum([0, *(len(segment[3:]) for segment in every)]),
            *np.array(epochs, np.int64).reshape(-1, 2).T,
        ),
    )


def put_together(segments: TierSegments, *checkpoints_of: Any) -> PutTogether:
    """Put segments in any order together."""
    order = np.lexsort((segments.is_remote, *segments[1::-1]))
    epochs = [segments.epochs.of(number) for number in order]
    ordered = TierSegments(
        *(column[order] for column in segments[:-1]),
        EpochColumns(
            np.cumsum([0, *map(len, epochs)]),
            *np.array([one for some in epochs for one in some], np.int64).reshape(-1, 2).T,
        ),
    )
    back = np.argsort(order)
    return PutTogether(*(column[back] for column in tiers.put_together(ordered, *checkpoints_of)))


def places(mask: Any, local: list[Segment]) -> list[int]:
    """Return the places of the remote segments that have a flag."""
    return np.flatnonzero(mask[len(local) :]).tolist()


def offsets(column: Any, local: list[Segment]) -> dict[int, int]:
    """Return the offsets of the remote segments that have one, by their places."""
    remote = column[len(local) :].tolist()
    return {place: offset for place, offset in enumerate(remote) if offset != UNKNOWN_END}


@each_case(
    ("local", "remote", "copies", "different", "until"),
    {
        "apart": ([(10, 20, WHOLE)], [(0, 10, WHOLE)], [], [], {}),
        "a copy": ([(0, 10, WHOLE)], [(0, 10, WHOLE)], [0], [], {}),
        "not counted": ([(0, 10, WHOLE)], [(0, 10, NOT_COUNTED)], [0], [], {}),
        "a difference": ([(0, 10, WHOLE)], [(0, 10, SECOND)], [], [0], {}),
        "other boundaries": ([(0, 7, WHOLE), (7, 20, WHOLE)], [(5, 10, WHOLE)], [0], [], {}),
        "reaches into the local tier": ([(5, 20, WHOLE)], [(0, 10, WHOLE)], [], [], {0: 5}),
        "has more than the local tier": ([(5, 7, WHOLE)], [(0, 10, WHOLE)], [], [], {}),
        "the local one is damaged": ([(5, 20, DAMAGED)], [(0, 10, WHOLE)], [], [], {}),
        "damaged copy": ([(0, 10, WHOLE), (10, 20, WHOLE)], [(0, 5, DAMAGED)], [0], [], {}),
        "unreadable copy": (
            [(0, 10, WHOLE), (10, 20, WHOLE)], [(0, UNKNOWN_END, DAMAGED)], [0], [], {}),
        "damaged, and there is no other copy": (
            [(20, 30, WHOLE)], [(0, 5, DAMAGED), (10, 20, WHOLE)], [], [], {}),
        "uploaded twice": ([], [(0, 10, WHOLE), (0, 10, WHOLE)], [1], [], {}),
        "two differ": ([], [(0, 10, WHOLE), (0, 10, SECOND)], [], [1], {}),
        "nothing": ([], [], [], [], {}),
    })  # fmt: skip
def test_what_two_tiers_have(
    local: list[Segment],
    remote: list[Segment],
    copies: list[int],
    different: list[int],
    until: dict[int, int],
) -> None:
    found = put_together(columns(local, remote))
    assert not found.is_copy[: len(local)].any()
    assert places(found.is_copy, local) == copies
    assert places(found.is_different, local) == different
    assert offsets(found.until_offsets, local) == until
    assert not offsets(found.outside_from, local)


A, B, C = (0, 0), (1, 40), (2, 60)


@each_case(
    ("local", "remote", "checkpoint", "copies", "outside", "until"),
    {
        "a later leader wrote from 40 on": ([(60, 90, WHOLE, C)],
            [(0, 50, WHOLE, A), (40, 60, WHOLE, B)],
            [], [], {0: 40}, {0: 40}),
        "a leader's records were lost": ([(60, 90, WHOLE, C)],
            [(0, 30, WHOLE, A), (20, 60, WHOLE, (0, 20)), (40, 55, WHOLE, B)],
            [A, C], [], {2: 40}, {0: 20, 2: 40}),
        "each leader has its own segments": ([(60, 90, WHOLE, C)],
            [(0, 30, WHOLE, A), (20, 60, WHOLE, (0, 20)), (50, 70, WHOLE, (0, 50), C)],
            [], [2], {}, {0: 20}),
        "one within another": (
            [], [(0, 30, WHOLE, A), (10, 20, WHOLE, (0, 10)), (30, 50, WHOLE, (0, 30))],
            [], [1], {}, {}),
        "the new leader has no batch yet: its checkpoint tells": (
            [(0, 40, WHOLE, A)], [(0, 60, WHOLE, A)], [A, B], [0], {0: 40}, {0: 40}),
        "the local log is behind": ([(0, 40, WHOLE, A)], [(0, 60, WHOLE, A)], [A], [], {}, {}),
        "a stale replica and a later leader": (
            [(0, 40, WHOLE, A), (40, 80, WHOLE, B)], [(0, 60, WHOLE, A), (60, 90, WHOLE, C)],
            [A, B], [0], {0: 40}, {0: 40}),
        "the whole one of the bucket stands for a damaged one": (
            [(0, 10, CUT, A), (20, 30, WHOLE, (0, 20))], [(0, 20, WHOLE, A)], [], [], {}, {}),
        "an upload that failed, and the next one": (
            [(60, 90, WHOLE, C)], [(40, 60, DAMAGED, B), (40, 60, WHOLE, B)], [], [0], {}, {}),
        "the checkpoint begins at the log start": (
            [(500, 600, WHOLE, (1, 500))], [(0, 400, WHOLE, A), (400, 500, WHOLE, (1, 400))],
            [(1, 450)], [], {}, {}),
        "the later leader began before the local log, and its upload is not there": (
            [(60, 90, WHOLE, C)], [(0, 60, WHOLE, A)], [A, (2, 50)], [], {0: 50}, {0: 50}),
        "a checkpoint of another log tells nothing": (
            [(60, 90, WHOLE, C)], [(0, 60, WHOLE, A)], [A, (5, 50)], [], {}, {}),
        "a new leader in a new segment": (
            [(60, 90, WHOLE, C)], [(0, 60, WHOLE, A)], [A, C], [], {}, {}),
    })  # fmt: skip
def test_leader_epochs_say_which_records_are_of_the_log(
    local: list[Segment],
    remote: list[Segment],
    checkpoint: list[tuple[int, int]],
    copies: list[int],
    outside: dict[int, int],
    until: dict[int, int],
) -> None:
    checkpoints = {0: tuple(EpochStart(*one) for one in checkpoint)}
    found = put_together(columns(local, remote), lambda _: checkpoints)
    assert places(found.is_copy, local) == copies
    assert offsets(found.outside_from, local) == outside
    assert offsets(found.until_offsets, local) == until
    assert not found.is_different.any()


@each_case("first", [30, 50])
def test_a_local_log_with_earlier_epochs_than_what_is_before_it_was_lost(first: int) -> None:
    local = [(first, 60, WHOLE, (0, first)), (60, 90, WHOLE, (0, 60)), (90, 99, WHOLE, (0, 90))]
    checkpoints = {0: (EpochStart(0, 0),)}
    found = put_together(columns(local, [(0, 50, WHOLE, A, B)]), lambda _: checkpoints)
    assert found.outside_from.tolist() == [40, 40, 40, UNKNOWN_END]


@each_case(
    ("local", "remote", "copies"),
    {
        "has all of it": ([(0, 4, CUT), (10, 20, WHOLE)], [(0, 10, WHOLE)], [0]),
        "in two": ([(0, 4, CUT), (10, 20, WHOLE)], [(0, 3, WHOLE), (3, 12, WHOLE)], [0]),
        "has more of it": ([(0, 4, CUT), (10, 20, WHOLE)], [(0, 7, WHOLE)], [0]),
        "not the first ones": ([(0, 4, CUT), (10, 20, WHOLE)], [(4, 10, WHOLE)], []),
        "damaged, too": ([(0, 4, CUT), (10, 20, WHOLE)], [(0, 10, DAMAGED)], []),
        "nothing was lost": ([(0, 4, CUT), (4, 20, WHOLE)], [(0, 4, WHOLE)], [2]),
        "the newest one": ([(0, 4, CUT)], [(0, 10, WHOLE)], [0]),
        "the newest one, which has the same": ([(0, 4, CUT)], [(0, 4, WHOLE)], [1]),
        "the newest one, all of it": ([(0, UNKNOWN_END, CUT)], [(0, 4, WHOLE)], [0]),
    },
)
def test_a_cut_local_log_is_a_copy_if_the_remote_tier_has_its_records(
    local: list[Segment], remote: list[Segment], copies: list[int]
) -> None:
    found = put_together(columns(local, remote))
    assert np.flatnonzero(found.is_copy).tolist() == copies
    assert not found.is_different.any()


def test_partitions_are_strangers() -> None:
    both = columns([(0, 10, WHOLE)], [(0, 10, WHOLE)])
    assert put_together(both).is_copy.tolist() == [False, True]
    apart = both._replace(partitions=np.arange(2))
    assert not put_together(apart).is_copy.any()


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[int], list[EpochStart], list[tuple[int, list[int]]]]:
    """Return a log, its checkpoint, and what its leaders uploaded: slices with their offsets.

    A log is the leader epoch of each of its records: two logs with one epoch at an offset have the
    same records up to there.
    """
    log: list[int] = []
    checkpoint: list[EpochStart] = []
    uploads: list[tuple[int, list[int]]] = []
    for epoch in range(draw(st.integers(1, 5))):
        if draw(st.booleans()):  # an unclean election: the new leader has less
            log = log[: draw(st.integers(0, len(log)))]
        checkpoint = [one for one in checkpoint if one.start_offset < len(log)]
        checkpoint.append(EpochStart(epoch, len(log)))
        log = [*log, *[epoch] * draw(st.integers(0, 6))]
        for _ in range(draw(st.integers(0, 3))):
            begin = draw(st.integers(0, len(log)))
            end = draw(st.integers(begin, len(log)))
            if end > begin:
                uploads.append((begin, log[begin:end]))
    cut = draw(st.integers(0, len(log)))  # the last leader uploads what is not there
    again = [(0, log[:cut]), (cut, log[cut:])]
    return log, checkpoint, [*uploads, *(one for one in again if one[1])]


def epochs_of(begin: int, log: list[int]) -> list[tuple[int, int]]:
    return [
        (epoch, begin + at) for at, epoch in enumerate(log) if not at or log[at - 1] != epoch
    ]  # fmt: skip


@settings(max_examples=examples(300))
@given(history=histories(), data=st.data())
def test_what_is_read_is_each_record_of_the_log_once_and_no_other(
    history: tuple[list[int], list[EpochStart], list[tuple[int, list[int]]]], data: st.DataObject
) -> None:
    log, checkpoint, uploads = history
    cuts = sorted(data.draw(st.sets(st.integers(0, len(log)), max_size=4)) | {len(log)})
    local = [(begin, log[begin:end]) for begin, end in pairwise(cuts)]
    if local:  # the remote catalog may be older, or segments are lost
        uploads = [one for one in uploads if data.draw(st.booleans())]
    of_both = [
        [(begin, begin + len(part), NOT_COUNTED, *epochs_of(begin, part)) for begin, part in parts]
        for parts in (local, uploads)
    ]
    of_both[0].append((len(log), UNKNOWN_END, DAMAGED))  # the active segment is empty
    found = put_together(columns(*of_both), lambda _: {0: tuple(checkpoint)})

    read: list[tuple[int, int]] = []
    for place, (begin, part) in enumerate([*local, (len(log), []), *uploads]):
        until = int(found.until_offsets[place])
        kept = len(part) if until == UNKNOWN_END else max(until - begin, 0)
        if not found.is_copy[place]:
            read += enumerate(part[:kept], begin)
    there = {
        offset
        for begin, part in [*local, *uploads]
        for offset, epoch in enumerate(part, begin)
        if offset < len(log) and log[offset] == epoch
    }
    assert sorted(read) == [(offset, log[offset]) for offset in sorted(there)]


NOT_READ = (UNKNOWN_END, DAMAGED)  # as after a build with --read tail


def test_without_leader_epochs_what_is_after_the_local_log_is_unsure(
    subtests: pytest.Subtests,
) -> None:
    whole = [(0, 5, WHOLE, A), (5, 8, WHOLE, (2, 5))]
    lost = (8, 13, WHOLE, (1, 8))
    cases: list[tuple[str, list[Segment], list[Segment], list[Any], dict[int, int]]] = [
        ("all epochs are known", whole, [lost], [A, (2, 5)], {}),
        ("those of the upload are not", whole, [(8, 13, WHOLE)], [A, (2, 5)], {0: 8}),
        ("it begins before", whole, [(5, 13, WHOLE)], [A, (2, 5)], {0: 8}),
        ("nor those of the local log", [(0, 8, WHOLE)], [lost], [], {0: 8}),
        ("but its checkpoint tells them", [(0, 8, WHOLE)], [lost], [A, (2, 5)], {}),
        ("those of its first segment", [(0, 5, WHOLE), whole[1]], [(8, 13, WHOLE, (2, 8))], [], {}),
        ("those of its last one", [whole[0], (5, 8, WHOLE)], [lost], [], {0: 8}),
        ("no log was read", [(0, *NOT_READ)], [(0, *NOT_READ), (8, *NOT_READ)], [A], {0: 0, 1: 8}),
        ("what is before it", [(5, *NOT_READ)], [(0, *NOT_READ), (5, *NOT_READ)], [A], {1: 5}),
        ("nothing is after it", [(0, 8, WHOLE)], [(0, 5, WHOLE), (5, 8, WHOLE)], [], {}),
        ("there is no local log", [], [(0, 5, WHOLE), (5, 8, WHOLE)], [], {}),
        ("a checkpoint of another log", [whole[0]], [lost], [(0, 3), (7, 4)], {}),
    ]
    for name, local, remote, checkpoint, unsure in cases:
        checkpoints = {0: tuple(EpochStart(*one) for one in checkpoint)}
        with subtests.test(name):
            found = put_together(columns(local, remote), lambda _, known=checkpoints: known)
            assert offsets(found.unsure_from, local) == unsure
            assert (found.unsure_from[: len(local)] == UNKNOWN_END).all()


def test_an_empty_segment_within_one_that_is_read_is_a_copy(subtests: pytest.Subtests) -> None:
    # As the active one of a local log that is behind: without it there is nothing to be in doubt.
    cases: list[tuple[str, list[Segment], list[Segment], list[int]]] = [
        ("within it", [(0, 8, WHOLE, A), (8, 8, WHOLE)], [(5, 12, WHOLE, (0, 5))], [1]),
        ("at its begin", [(8, 8, WHOLE)], [(0, 8, WHOLE, A), (8, 12, WHOLE, (0, 8))], [0]),
        ("at its end", [(12, 12, WHOLE)], [(5, 12, WHOLE, (0, 5))], []),
        ("a remote one", [(0, 8, WHOLE, A)], [(3, 3, WHOLE)], [1]),
    ]
    for name, local, remote, copies in cases:
        with subtests.test(name):
            found = put_together(columns(local, remote))
            assert np.flatnonzero(found.is_copy).tolist() == copies
            assert (found.unsure_from == UNKNOWN_END).all()
