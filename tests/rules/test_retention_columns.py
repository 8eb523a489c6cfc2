"""The rule over whole columns against a plain loop over each partition."""

from itertools import groupby
from random import Random
from typing import Any

import numpy as np

from kip33.rules.policies import Policies
from kip33.rules.retention import (
    DELETABLE_REASONS,
    KEPT_REASONS,
    NEVER_MS,
    LimitColumns,
    SegmentColumns,
    doubt_codes,
    judge_columns,
    reason_codes,
)
from kip33.rules.retention_rows import (
    Decision,
    Limits,
    SegmentFigures,
    decision_rows,
    int64_column,
    limit_columns,
)
from tests.builders.random_catalogs import NOW_MS, POLICY, figures_of, random_catalogs
from tests.builders.retention_model import judge_in_a_loop
from tests.cases import each_case

SEED = 33
POLICIES = Policies(POLICY)
Partition = tuple[list[SegmentFigures], Limits]


def key(row: dict[str, Any]) -> tuple[str, str]:
    return row["log_dir"], row["topic"]


def place(row: dict[str, Any]) -> tuple[Any, ...]:
    base_offset = row["base_offset"]
    return *key(row), base_offset is not None, base_offset or 0, row["log_uri"]


def partitions_of(count: int, seed: int, **how: str) -> list[Partition]:
    """Return random partitions and what each is judged by."""
    rows, starts = random_catalogs(count, seed, doubled=0.01)
    chance = Random(seed)
    found = []
    for (log_dir, topic), group in groupby(sorted(rows, key=place), key):
        policy = POLICIES.of(topic)
        is_known = chance.random() < 0.5  # what was uploaded
        policy = policy.of_local_tier() if is_known else policy
        limits = Limits.of(policy, starts.get((log_dir, topic, 0)))._replace(**how)
        lags = {"copy_lag_ms": chance.choice([0, 1_000, 2**60]), "copy_lag_bytes": -1}
        limits = limits._replace(bytes_after=chance.choice([0, 0, 5_000]), **lags)
        figures = [_in_other_tier(figures_of(row), chance) for row in group]
        found.append((figures, limits))
    return found


def _in_other_tier(segment: SegmentFigures, chance: Random) -> SegmentFigures:
    whys = (None, "not_uploaded", "other_records", "unreferenced")
    [why] = chance.choices(whys, [50, 40, 5, 5])
    base = segment.base_offset
    end = None if base is None or chance.random() < 0.7 else base + chance.randint(1, 20)
    return segment._replace(other_tier=why, end=end)


def columns_of(partitions: list[Partition]) -> tuple[SegmentColumns, LimitColumns]:
    """Return all partitions below each other."""
    lengths = [len(segments) for segments, _ in partitions]
    rows = [segment for segments, _ in partitions for segment in segments]
    names = sorted({row.directory for row in rows if row.directory})
    columns = SegmentColumns(
        np.cumsum([0, *lengths[:-1]])[: len(lengths)].astype(np.int64),
        int64_column([row.base_offset for row in rows]),
        np.array([row.size_bytes or 0 for row in rows], np.int64),
        int64_column([row.largest_timestamp for row in rows]),
        doubt_codes(row.status for row in rows),
        np.array([names.index(r.directory) if r.directory else -1 for r in rows], np.int64),
        reason_codes(row.other_tier for row in rows),
        int64_column([row.end for row in rows]),
    )
    of_rows = np.repeat(np.arange(len(lengths)), lengths)
    return columns, limit_columns([limits for _, limits in partitions], of_rows)


def test_all_partitions_at_once_are_judged_as_each_by_itself() -> None:
    partitions = [
        partition
        for active_segment in ("keep", "kafka")
        for boundary in ("local", "remote")
        for partition in partitions_of(350, SEED, active_segment=active_segment, boundary=boundary)
    ]

    decisions = judge_columns(*columns_of(partitions), now_ms=NOW_MS)

    expected = [
        decision
        for segments, limits in partitions
        for decision in judge_in_a_loop(segments, limits, now_ms=NOW_MS)
    ]
    assert decision_rows(decisions) == expected
    found = {decision.reason for decision in expected}
    assert found >= {*DELETABLE_REASONS, *KEPT_REASONS} - {"no_policy"}


def test_what_only_the_blocker_keeps_ends_at_the_next_that_stays() -> None:
    partitions = partitions_of(700, SEED)

    found = judge_columns(*columns_of(partitions), now_ms=NOW_MS).kept_only_by_blocker.tolist()

    expected: list[bool] = []
    for segments, limits in partitions:
        decisions = judge_in_a_loop(segments, limits, now_ms=NOW_MS)
        expected += kept_only_by_blocker(decisions)
    assert found == expected
    assert sum(found) > 20


def kept_only_by_blocker(decisions: list[Decision]) -> list[bool]:
    flags, staying = [], 0
    for decision in decisions:
        waits = decision.deletable or decision.reason == "blocked"
        staying += not waits and decision.reason != "unreferenced"
        flags.append(waits and staying == 1)
    return flags


def test_no_partition_has_no_decision() -> None:
    assert decision_rows(judge_columns(*columns_of([]), now_ms=NOW_MS)) == []


@each_case("length", [1, 2, 3, 63, 64, 65, 1_000])
def test_a_moment_is_carried_on_through_a_partition_of_any_length(length: int) -> None:
    chance = np.random.default_rng(length)
    times = chance.integers(0, NOW_MS, length)
    segments = [SegmentFigures(number, 1, int(time)) for number, time in enumerate(times)]
    short = [SegmentFigures(0, 1, 5), SegmentFigures(1, 1, NEVER_MS)]
    limits = Limits(1_000, active_segment="kafka")
    decisions = judge_columns(
        *columns_of([(short, limits), (segments, limits), (short, limits)]), now_ms=NOW_MS
    )
    expected = np.maximum.accumulate(times) + 1_001
    assert decisions.deletable_at_ms.values[2:-2].tolist() == expected.tolist()
