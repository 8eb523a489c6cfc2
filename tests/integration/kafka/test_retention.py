"""The retention rule against Kafka's own `UnifiedLog.deleteOldSegments` and `RemoteLogManager`.

`KIP33_SEED` chooses other logs, `KIP33_LOGS` how many the long form has; a difference names its
log.
"""

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kip33.retention.only_local import only_local
from kip33.rules.retention import DELETABLE_REASONS, RetentionMode
from kip33.rules.retention_rows import Decision, Limits, SegmentFigures, judge
from kip33.rules.segment_summary import largest_timestamp
from tests.builders.retention_model import is_breached
from tests.builders.segment_builder import Record, v2_batch
from tests.builders.snapshots import segment_row, snapshot_of
from tests.integration.kafka.kafka_jars import version_of
from tests.integration.kafka.oracle import Expired, Oracle
from tests.integration.kafka.random_logs import (
    DAY_MS,
    MAX_INT64,
    NOW,
    RandomLog,
    WrittenSegment,
    random_logs,
)
from tests.integration.kafka.test_differential import SEED
from tests.long_forms import short_and_long

pytestmark = pytest.mark.kafka

REMOTE_CASES = 2000
NO_OVERFLOW_MS = 2**62  # from 2**63 - n on, `now` minus a file time of -n overflows in Kafka
MODES = {
    "delete": RetentionMode.DELETE,
    "compact": RetentionMode.COMPACT,
    "compact,delete": RetentionMode.DELETE,
}


def judged(log: RandomLog, *, now_ms: int = NOW) -> list[Decision]:
    limits = Limits(
        retention_ms=log.retention_ms,
        retention_bytes=log.retention_bytes,
        mode=MODES[log.cleanup_policy],
        log_start_offset=log.log_start_offset,
        active_segment="kafka",
    )
    return judge([figures(written) for written in log.segments], limits, now_ms=now_ms)


def figures(written: WrittenSegment) -> SegmentFigures:
    return SegmentFigures(
        base_offset=written.base_offset,
        size_bytes=len(written.log),
        largest_timestamp=int(
            largest_timestamp(written.max_timestamp, written.last_modified_ms)[0]
        ),
        status="ok" if written.log else "empty",
    )


def ask_kafka(kafka: Oracle, log: RandomLog, directory: Path, *, now_ms: int = NOW) -> Expired:
    log.write_to(directory)
    return kafka.expire(
        directory,
        now_ms=now_ms,
        retention_ms=log.retention_ms,
        retention_bytes=log.retention_bytes,
        cleanup_policy=log.cleanup_policy,
        log_start_offset=log.log_start_offset,
    )


def deletable(log: RandomLog, decisions: list[Decision]) -> list[int]:
    pairs = zip(log.segments, decisions, strict=True)
    return [written.base_offset for written, decision in pairs if decision.deletable]


def cases_of(log: RandomLog, decisions: list[Decision]) -> Iterator[str]:
    """Yield what the log and each of its segments is an example of."""
    deleted_for = {decision.reason for decision in decisions if decision.deletable}
    yield from (f"{log.cleanup_policy}: {reason}" for reason in deleted_for)
    if len(deleted_for) > 1:
        yield "two checks delete in one log"
    remaining_bytes = sum(len(written.log) for written in log.segments)
    for written, decision in zip(log.segments, decisions, strict=True):
        remaining_bytes -= len(written.log)
        yield decision.reason
        if decision.deletable and written is log.segments[-1]:
            yield "active segment deleted"
        if decision.deletable and not written.log:
            yield "empty segment deleted"
        if (decision.blocked_by_timestamp or 0) > NOW:
            yield "blocked by a future timestamp"
        if log.retention_bytes >= 0 and decision.reason in ("retention_bytes", "not_expired"):
            over = remaining_bytes - log.retention_bytes
            yield f"{decision.reason}, {over:+d} bytes"
        if log.retention_ms >= 0 and decision.reason in ("retention_ms", "not_expired"):
            yield from cases_of_time(log, written, decision.reason)


def cases_of_time(log: RandomLog, written: WrittenSegment, reason: str) -> Iterator[str]:
    time, source = largest_timestamp(written.max_timestamp, written.last_modified_ms)
    yield f"{reason} by {source}"
    yield f"{reason}, {NOW - time - log.retention_ms:+d} ms"
    if time == 0:
        yield f"{reason}, timestamp 0"
    if time > NOW:
        yield f"{reason}, future timestamp"
    if time == MAX_INT64:
        yield f"{reason}, Long.MAX_VALUE"


INTERESTING = (
    *DELETABLE_REASONS,
    *("blocked", "compacted", "no_limit", "not_expired", "empty_active_segment"),
    *("delete: retention_ms", "compact,delete: retention_ms", "compact: log_start_offset"),
    *("active segment deleted", "empty segment deleted", "two checks delete in one log"),
    *("retention_ms by log", "retention_ms by last_modified"),
    *("not_expired by log", "not_expired by last_modified"),
    *("retention_ms, +1 ms", "not_expired, +0 ms", "not_expired, -1 ms"),
    *("retention_bytes, +1 bytes", "retention_bytes, +0 bytes", "not_expired, -1 bytes"),
    *("retention_ms, timestamp 0", "not_expired, future timestamp", "not_expired, Long.MAX_VALUE"),
    "blocked by a future timestamp",
)
IMPOSSIBLE = (
    *("retention_ms, +0 ms", "retention_ms, -1 ms", "not_expired, +1 ms"),
    *("retention_bytes, -1 bytes", "not_expired, +0 bytes", "not_expired, +1 bytes"),
    *("retention_ms, future timestamp", "compact: retention_ms", "compact: retention_bytes"),
)


@pytest.mark.parametrize("count", short_and_long(100, 600, "KIP33_LOGS"))
def test_the_rule_deletes_what_a_broker_deletes(
    count: int, oracle: Oracle, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cases: Counter[str] = Counter()
    for log in random_logs(seed=SEED, count=count):
        kafkas = ask_kafka(oracle, log, tmp_path / "oracle-0")
        decisions = judged(log)
        assert kafkas.largest_timestamps == {
            written.base_offset: figures(written).largest_timestamp for written in log.segments
        }, str(log)
        assert deletable(log, decisions) == kafkas.deleted, f"{log}\n{decisions}"
        cases.update(cases_of(log, decisions))

    with capsys.disabled():
        found = {name: cases[name] for name in INTERESTING}
        print(f"\n{count} logs of KIP33_SEED={SEED}: {found}", end=" ")
    if count >= 300:  # the logs must be worth comparing
        assert [name for name in INTERESTING if cases[name] < 3] == []
    assert [name for name in IMPOSSIBLE if cases[name]] == []


@pytest.mark.parametrize("count", short_and_long(40, 200, "KIP33_LOGS"))
def test_the_reason_is_the_first_check_that_deletes(
    count: int, oracle: Oracle, tmp_path: Path
) -> None:
    """Kafka gives its reason to its own log file only: without a check, what it deletes stays."""
    told = 0
    for log in random_logs(seed=SEED, count=count):
        decisions = judged(log)
        if not any(decision.deletable for decision in decisions):
            continue
        without_time = replace(log, retention_ms=-1)
        without_size = replace(without_time, retention_bytes=-1)
        by_offset, by_size, by_any = (
            set(ask_kafka(oracle, fewer, tmp_path / "oracle-0").deleted)
            for fewer in (without_size, without_time, log)
        )
        reasons = dict.fromkeys(by_offset, "log_start_offset")
        reasons |= dict.fromkeys(by_size - by_offset, "retention_bytes")
        reasons |= dict.fromkeys(by_any - by_size, "retention_ms")
        pairs = zip(log.segments, decisions, strict=True)
        assert reasons == {w.base_offset: d.reason for w, d in pairs if d.deletable}, str(log)
        told += len(reasons)
    assert told > count


@pytest.mark.parametrize("count", short_and_long(40, 200, "KIP33_LOGS"))
def test_a_broker_deletes_from_the_foretold_moment_on(
    count: int, oracle: Oracle, tmp_path: Path
) -> None:
    foretold = 0
    for log in random_logs(seed=SEED, count=count):
        moments = {
            written.base_offset: decision.deletable_at_ms
            for written, decision in zip(log.segments, judged(log), strict=True)
            if decision.deletable_at_ms is not None
        }
        timed = [moment for moment in moments.values() if 0 < moment < NO_OVERFLOW_MS]
        for moment in {timed[0], timed[-1]} if timed else ():
            foretold += 1
            for now in (moment - 1, moment):
                kafkas = ask_kafka(oracle, log, tmp_path / "oracle-0", now_ms=now)
                due = [base for base, at in moments.items() if at <= now]
                assert kafkas.deleted == due, f"{log}\nat {now}: {moments}"
    assert foretold > count // 8


COPY_LAGS_MS = (0, -1, -1, 1000, DAY_MS, 7 * DAY_MS, MAX_INT64)


@pytest.mark.parametrize("count", short_and_long(60, 600, "KIP33_LOGS"))
def test_what_waits_for_its_upload_is_what_a_leader_does_not_upload_yet(
    count: int, oracle: Oracle, tmp_path: Path
) -> None:
    """Up to 4.3 a leader uploads at once."""
    if not oracle.is_at_least(4, 4):
        pytest.skip("remote.copy.lag.* is of 4.4")
    rng = random.Random(SEED)
    cases: Counter[str] = Counter()
    for log in random_logs(seed=SEED, count=count):
        log.write_to(tmp_path / "oracle-0")
        bases, sizes = zip(*((one.base_offset, len(one.log)) for one in log.segments), strict=True)
        uploaded = rng.randrange(len(bases))
        some_bytes = sum(sizes[rng.randrange(len(sizes)) :])
        lags = rng.choice(COPY_LAGS_MS), rng.choice((-1, 0, some_bytes, some_bytes + 1, some_bytes))
        settings = {"remote.copy.lag.ms": str(lags[0]), "remote.copy.lag.bytes": str(lags[1])}
        settings |= {"local.retention.ms": "-1", "local.retention.bytes": "-1"}
        next_copied, _ = oracle.copies_next(
            tmp_path / "oracle-0", now_ms=NOW, uploaded=bases[uploaded] - 1, settings=settings
        )
        limits = Limits(
            *(-1, -1, RetentionMode.LOCAL_TIER), copy_lag_ms=lags[0], copy_lag_bytes=lags[1]
        )
        segments = [
            figures(one)._replace(other_tier=None if at < uploaded else "not_uploaded")
            for at, one in enumerate(log.segments)
        ]
        reasons = [one.reason for one in judge(segments, limits, now_ms=NOW)]
        pairs = list(zip(bases, reasons, strict=True))
        assert next_copied == [base for base, why in pairs if why == "not_uploaded"], (
            f"{log}\n{lags} {pairs[uploaded:]}"
        )
        cases.update(set(reasons))
    assert min(cases[why] for why in ("not_uploaded", "copy_lag", "no_limit")) > count // 8


@pytest.mark.parametrize("uploaded", [29, 30, -1])
def test_a_leader_counts_what_only_it_has(
    uploaded: int, oracle_of_4: Oracle, tmp_path: Path
) -> None:
    """Up to 4.3 a segment that begins at the last uploaded offset counts, too."""
    batches = [v2_batch(offset, [Record(NOW, value=bytes(40))]) for offset in (10, 20, 30)]
    for base, log in zip((10, 20, 30), batches, strict=True):
        (tmp_path / "oracle-0").mkdir(exist_ok=True)
        (tmp_path / f"oracle-0/{base:020d}.log").write_bytes(log)
    _, found = oracle_of_4.copies_next(
        tmp_path / "oracle-0", now_ms=NOW, uploaded=uploaded, settings={}
    )
    local = [segment_row(base, base, len(batches[0])) for base in (10, 20, 30)]
    remote = [segment_row(0, max(uploaded, 0))]
    ours = only_local(
        snapshot_of(tmp_path / "remote", remote, "aiven"),
        snapshot_of(tmp_path / "local", local, "kafka"),
        kafka_version=version_of(oracle_of_4.version),
    )
    assert ours.logs["orders", 0].bytes_after == found


def remote_cases(rng: random.Random) -> Iterator[tuple[int, int, int]]:
    """Yield now, retention.ms and a largest timestamp, most of them at an edge."""
    for _ in range(REMOTE_CASES):
        now = rng.choice((0, 1000, NOW))
        retention_ms = rng.choice((-1, 0, 1, now - 1, now, now + 1, 7 * DAY_MS, MAX_INT64))
        edge = now - max(retention_ms, 0)
        near = max(edge + rng.choice((-1, 0, 1)), -1)  # -1 is the least that a segment has
        yield now, max(retention_ms, -1), rng.choice((-1, 0, near, near, near, now, MAX_INT64))


def test_tiered_storage_wants_what_the_boundary_of_its_version_says(
    oracle_of_4: Oracle, tmp_path: Path
) -> None:
    """Up to 4.2 it compares inclusively, from 4.3 on as a local log does (KAFKA-20091)."""
    of_version = "local" if oracle_of_4.is_at_least(4, 3) else "remote"
    cases = list(remote_cases(random.Random(SEED)))
    both: Counter[tuple[bool, bool]] = Counter()
    for case, breached in zip(cases, oracle_of_4.breached_remotely(cases, tmp_path), strict=True):
        now, retention_ms, time = case
        wanted = {
            boundary: is_breached(time, retention_ms=retention_ms, now_ms=now, boundary=boundary)
            for boundary in ("remote", "local")
        }
        where = f"now {now}, retention.ms {retention_ms}, timestamp {time}"
        assert wanted[of_version] == breached, where
        both[wanted["remote"], wanted["local"]] += 1
    assert min(both[case] for case in ((True, True), (True, False), (False, False))) > 50
