"""The retention rule: Kafka's three checks, oldest first, each up to the first kept segment."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kip33.rules.retention import DELETABLE_REASONS, KEPT_REASONS, NEVER_MS, RetentionMode
from kip33.rules.retention_rows import Decision, Limits, SegmentFigures, judge
from tests.cases import each_case

NOW = 1_000_000


def of(*timestamps: int | None, size: int = 10) -> list[SegmentFigures]:
    """Segments of ten offsets and `size` bytes each, with these largest timestamps."""
    return [SegmentFigures(10 * i, size, t) for i, t in enumerate(timestamps)]


def statuses(segments: list[SegmentFigures], **by_number: str) -> list[SegmentFigures]:
    """The segments with other statuses: `_1="truncated"`."""
    return [s._replace(status=by_number.get(f"_{i}", s.status)) for i, s in enumerate(segments)]


def uploaded(segments: list[SegmentFigures], *numbers: int) -> list[SegmentFigures]:
    """The segments; these are whole in the remote tier."""
    return [s._replace(other_tier=None) if i in numbers else s for i, s in enumerate(segments)]


def limits(**given: Any) -> Limits:
    return Limits(**{"retention_ms": 100} | given)


OLD, FRESH, FUTURE = NOW - 101, NOW - 100, NOW + 5_000
BY_TIME = "retention_ms"

CASES: list[tuple[str, list[SegmentFigures], Limits, list[str]]] = [
    (
        "an expired segment goes, the last one is kept as the active one",
        of(OLD, OLD),
        limits(),
        [BY_TIME, "active_segment"],
    ),
    (
        "exactly as old as retention.ms is not expired: the comparison is strict",
        of(FRESH, FRESH),
        limits(),
        ["not_expired", "active_segment"],
    ),
    (
        "tiered storage until KAFKA-20091 compared inclusively",
        of(FRESH, FRESH + 1, OLD),
        limits(boundary="remote"),
        [BY_TIME, "not_expired", "active_segment"],
    ),
    (
        "tiered storage deletes nothing while now is less than retention.ms",
        of(0, 0),
        limits(retention_ms=NOW + 1, boundary="remote"),
        ["not_expired", "active_segment"],
    ),
    (
        "a broker deletes the active segment, too, when all before it go",
        of(OLD, OLD),
        limits(active_segment="kafka"),
        [BY_TIME, BY_TIME],
    ),
    (
        "a broker never takes an empty last segment",
        [*of(OLD), SegmentFigures(10, 0, OLD)],
        limits(active_segment="kafka"),
        [BY_TIME, "empty_active_segment"],
    ),
    (
        "one future timestamp blocks all that follows",
        of(OLD, FUTURE, OLD, OLD, OLD),
        limits(),
        [BY_TIME, "not_expired", "blocked", "blocked", "active_segment"],
    ),
    (
        "what has not expired behind the block is not called blocked",
        of(FUTURE, OLD, FRESH, OLD, OLD),
        limits(),
        ["not_expired", "blocked", "not_expired", "blocked", "active_segment"],
    ),
    (
        "retention.ms = -1 keeps for ever",
        of(0, 0, 0),
        limits(retention_ms=-1),
        ["no_limit", "no_limit", "active_segment"],
    ),
    (
        "at least retention.bytes remain",
        of(FRESH, FRESH, FRESH, FRESH),
        limits(retention_bytes=20),
        ["retention_bytes", "retention_bytes", "not_expired", "active_segment"],
    ),
    (
        "retention.bytes = 0 takes even the last segment, if a broker judges",
        of(FRESH, FRESH),
        limits(retention_bytes=0, active_segment="kafka"),
        ["retention_bytes", "retention_bytes"],
    ),
    (
        "size frees what a future timestamp blocks",
        of(FUTURE, OLD, OLD, OLD),
        limits(retention_bytes=30),
        ["retention_bytes", BY_TIME, BY_TIME, "active_segment"],
    ),
    (
        "segments before the log start offset go, whatever their time",
        of(FUTURE, FUTURE, FUTURE),
        limits(log_start_offset=10, retention_ms=-1),
        ["log_start_offset", "no_limit", "active_segment"],
    ),
    (
        "a log start offset inside a segment keeps it",
        of(FUTURE, FUTURE, FUTURE),
        limits(log_start_offset=19),
        ["log_start_offset", "not_expired", "active_segment"],
    ),
    (
        "the reasons come in Kafka's order: offset, size, time",
        of(OLD, OLD, OLD, OLD),
        limits(log_start_offset=10, retention_bytes=20),
        ["log_start_offset", "retention_bytes", BY_TIME, "active_segment"],
    ),
    (
        "the log start offset never takes the last segment: none follows",
        of(OLD, FUTURE),
        limits(log_start_offset=1_000, active_segment="kafka"),
        ["log_start_offset", "not_expired"],
    ),
    (
        "a compacted topic obeys the log start offset only",
        of(OLD, OLD, OLD),
        limits(mode=RetentionMode.COMPACT, log_start_offset=10, retention_bytes=0),
        ["log_start_offset", "compacted", "active_segment"],
    ),
    (
        "__cluster_metadata is not judged",
        of(OLD, OLD),
        limits(mode=RetentionMode.UNJUDGED, log_start_offset=10),
        ["unjudged", "unjudged"],
    ),
    (
        "a topic nobody has a policy for is kept",
        of(OLD, OLD),
        limits(mode=RetentionMode.NO_POLICY, log_start_offset=10),
        ["no_policy", "no_policy"],
    ),
    (
        "a broker's log of a topic in tiered storage is not judged",
        of(OLD, OLD),
        limits(mode=RetentionMode.TIERED, log_start_offset=10, retention_bytes=0),
        ["tiered", "tiered"],
    ),
    (
        "a broker's disk keeps what was not uploaded, and all that follows",
        uploaded(of(OLD, OLD, OLD, OLD), 0, 2),
        limits(mode=RetentionMode.LOCAL_TIER),
        [BY_TIME, "not_uploaded", "blocked", "active_segment"],
    ),
    (
        "what a leader does not upload yet is not missing; a hole between uploads is",
        uploaded(of(OLD, OLD, FRESH, FRESH, FRESH), 1),
        limits(mode=RetentionMode.LOCAL_TIER, copy_lag_ms=NOW - FRESH + 1),
        ["not_uploaded", "blocked", "copy_lag", "copy_lag", "active_segment"],
    ),
    (
        "before the log start offset nothing needs an upload",
        uploaded(of(OLD, OLD, OLD, OLD), 3),
        limits(mode=RetentionMode.LOCAL_TIER, log_start_offset=20),
        ["log_start_offset", "log_start_offset", "not_uploaded", "active_segment"],
    ),
    (
        "of a segment of which the remote tier has other records it is the only copy",
        [s._replace(other_tier="other_records") for s in of(OLD, OLD)],
        limits(mode=RetentionMode.LOCAL_TIER),
        ["other_records", "active_segment"],
    ),
    (
        "in the remote tier, what only the brokers have counts, to the byte",
        of(FRESH, FRESH, FRESH),
        limits(retention_bytes=20, bytes_after=19, active_segment="kafka"),
        ["retention_bytes", "retention_bytes", "not_expired"],
    ),
    (
        "what is not of the log has no size there, and blocks nothing",
        [s._replace(other_tier=why) for s, why in zip(
            of(FRESH, OLD, FRESH, FRESH), [None, "unreferenced", None, None], strict=True
        )],
        limits(retention_bytes=20, active_segment="kafka"),
        ["retention_bytes", "unreferenced", "not_expired", "not_expired"],
    ),
    (
        "an overlapping segment of a new leader ends where it does: nothing beyond the log start",
        [s._replace(end=end) for s, end in zip(of(FRESH, FRESH), [10, 31], strict=True)]
        + [SegmentFigures(20, 10, FRESH, end=40)],
        limits(log_start_offset=30, active_segment="kafka"),
        ["log_start_offset", "not_expired", "not_expired"],
    ),
    (
        "the last remote segment, too, may be below the log start offset",
        [s._replace(end=s.base_offset + 10) for s in of(FRESH, FRESH)],
        limits(log_start_offset=20, active_segment="kafka"),
        ["log_start_offset", "log_start_offset"],
    ),
    (
        "a new leader's upload begins where a shorter one does: both are of the log",
        [SegmentFigures(0, 10, OLD, end=5), SegmentFigures(0, 20, OLD, end=10)],
        limits(active_segment="kafka"),
        [BY_TIME, BY_TIME],
    ),
    *(
        (
            f"a segment that is {status} stays and blocks what follows",
            statuses(of(OLD, OLD, OLD, OLD), _1=status),
            limits(retention_bytes=0, log_start_offset=20),
            ["log_start_offset", status, "blocked", "active_segment"],
        )
        for status in ("truncated", "invalid", "unreadable", "archived")
    ),
    (
        "a segment without any timestamp stays and blocks what follows",
        of(OLD, None, OLD, OLD),
        limits(),
        [BY_TIME, "no_timestamp", "blocked", "active_segment"],
    ),
    (
        "what was not verified is judged by what its index says",
        statuses(of(OLD, OLD), _0="unverified"),
        limits(),
        [BY_TIME, "active_segment"],
    ),
    (
        "two files of one base offset are doubtful, both",
        [*of(OLD), SegmentFigures(10, 10, OLD), SegmentFigures(10, 9, OLD), *of(OLD, OLD, OLD)[2:]],
        limits(active_segment="kafka"),
        [BY_TIME, "same_base_offset", "same_base_offset", "blocked"],
    ),
    (
        "two directories of one partition are doubtful, whatever lies in them",
        [
            segment._replace(directory=name)
            for segment, name in zip(
                of(OLD, OLD, OLD), ("orders-0", "orders-00", "orders-0"), strict=True
            )
        ],
        limits(active_segment="kafka"),
        ["two_directories"] * 3,
    ),
    ("a timestamp of Long.MAX neither wraps nor raises", of(NEVER_MS, OLD, OLD), limits(),
     ["not_expired", "blocked", "active_segment"]),
]  # fmt: skip


@each_case(("segments", "limits", "reasons"), {case[0]: case[1:] for case in CASES})
def test_each_decision_has_its_reason(
    segments: list[SegmentFigures], limits: Limits, reasons: list[str]
) -> None:
    decisions = judge(segments, limits, now_ms=NOW)

    assert [decision.reason for decision in decisions] == reasons
    assert all(d.deletable == (d.reason in DELETABLE_REASONS) for d in decisions)


def test_every_reason_is_in_a_case() -> None:
    assert {r for case in CASES for r in case[3]} == {*DELETABLE_REASONS, *KEPT_REASONS}


def test_a_blocked_segment_names_what_blocks_it_and_when_that_ends() -> None:
    old, blocker, blocked, last = judge(of(OLD, FUTURE, OLD, OLD), limits(), now_ms=NOW)

    assert old == Decision(True, True, BY_TIME, NOW, NOW)
    assert blocker == Decision(False, False, "not_expired", FUTURE + 101, FUTURE + 101)
    assert blocked == Decision(True, False, "blocked", NOW, FUTURE + 101, 10, FUTURE)
    assert last == Decision(True, False, "active_segment", NOW, None)


def test_a_block_by_damage_does_not_end_by_itself() -> None:
    _, blocked, _ = judge(statuses(of(OLD, OLD, OLD), _0="truncated"), limits(), now_ms=NOW)

    assert (blocked.blocked_by_base_offset, blocked.blocked_by_timestamp) == (0, OLD)
    assert blocked.deletable_at_ms is None


def test_what_was_not_uploaded_says_when_retention_takes_it() -> None:
    tier = limits(mode=RetentionMode.LOCAL_TIER, upload_within_ms=1_000)
    old, missing, active = judge(uploaded(of(OLD, OLD, OLD), 0), tier, now_ms=NOW)

    assert (old.upload_before_ms, active.upload_before_ms) == (None, None)
    assert missing == Decision(True, False, "not_uploaded", NOW, None, upload_before_ms=OLD + 1_001)


@each_case(
    ("largest", "retention_ms", "boundary", "expires"),
    {
        "a millisecond after retention.ms has passed": (5, 100, "local", 106),
        "at the moment it has passed, remotely": (5, 100, "remote", 105),
        "never without a limit": (5, -1, "local", None),
        "saturated for Long.MAX": (NEVER_MS, 0, "local", NEVER_MS),
        "the last moment that there is": (NEVER_MS - 1, 0, "local", NEVER_MS),
        "saturated for a limit of Long.MAX": (5, NEVER_MS, "remote", NEVER_MS),
        "not before now reaches retention.ms, remotely": (-7, 100, "remote", 100),
        "a file from before 1970": (-7, NEVER_MS, "local", NEVER_MS - 6),
    },
)
def test_expires_at(largest: int, retention_ms: int, boundary: str, expires: int | None) -> None:
    limits = Limits(retention_ms, boundary=boundary)
    [decision] = judge([SegmentFigures(0, 1, largest)], limits, now_ms=NOW)
    assert decision.expires_at_ms == expires


TIMES = st.one_of(st.integers(NOW - 300, NOW + 300), st.sampled_from([0, -5, NEVER_MS]))
LIMITS = st.builds(
    Limits,
    retention_ms=st.sampled_from([-1, 0, 100, 250, NOW + 5, NEVER_MS]),
    retention_bytes=st.sampled_from([-1, 0, 5, 20, 10_000]),
    mode=st.sampled_from(["delete", "delete", "compact", "local_tier"]),
    log_start_offset=st.none() | st.integers(0, 80),
    active_segment=st.sampled_from(["keep", "kafka"]),
    boundary=st.sampled_from(["local", "remote"]),
    upload_within_ms=st.sampled_from([-1, 0, 500, NEVER_MS]),
    bytes_after=st.sampled_from([0, 0, 7, 10_000]),
    copy_lag_ms=st.sampled_from([0, -1, 100, NEVER_MS]),
    copy_lag_bytes=st.sampled_from([-1, -1, 0, 12, 30]),
)


@st.composite
def partitions(draw: st.DrawFn) -> list[SegmentFigures]:
    """A partition of up to eight segments, most of them sound."""
    return [
        SegmentFigures(
            10 * number,
            draw(st.integers(0, 12)),
            draw(TIMES),
            draw(st.sampled_from(["ok"] * 12 + ["truncated", "unverified"])),
            other_tier=draw(st.sampled_from([None] * 6 + ["not_uploaded", "other_records"])),
        )
        for number in range(draw(st.integers(0, 8)))
    ]


@given(partitions(), LIMITS)
def test_a_brokers_disk_loses_nothing_that_is_nowhere_else(
    segments: list[SegmentFigures], limits: Limits
) -> None:
    tier = limits._replace(mode=RetentionMode.LOCAL_TIER)
    start = limits.log_start_offset or 0

    for segment, decision in zip(segments, judge(segments, tier, now_ms=NOW), strict=True):
        is_below = (segment.base_offset or 0) + 10 <= start
        assert not decision.deletable or segment.other_tier is None or is_below


@given(partitions(), LIMITS)
def test_the_three_checks_compose(segments: list[SegmentFigures], limits: Limits) -> None:
    """One walk gives what Kafka's three passes give, each over what the one before it left."""
    deleted = 0
    for only in (
        {"retention_ms": -1, "retention_bytes": -1},
        {"retention_ms": -1, "log_start_offset": None},
        {"retention_bytes": -1, "log_start_offset": None},
    ):
        left = judge(segments[deleted:], limits._replace(**only), now_ms=NOW)
        deleted += sum(decision.deletable for decision in left)

    assert sum(d.deletable for d in judge(segments, limits, now_ms=NOW)) == deleted


@given(partitions(), LIMITS, st.integers(0, 3 * NOW))
def test_deletable_at_gives_the_answer_at_every_time(
    segments: list[SegmentFigures], limits: Limits, now_ms: int
) -> None:
    foretold = [d.deletable_at_ms for d in judge(segments, limits, now_ms=NOW)]
    then = [d.deletable for d in judge(segments, limits, now_ms=now_ms)]

    assert [at is not None and at <= now_ms for at in foretold] == then
