"""Search by time against a broker's own: `UnifiedLog.fetchOffsetByTimestamp`.

`KIP33_SEED` chooses other logs, `KIP33_SEARCHED_LOGS` how many the long form has; a difference
names its log.
"""

import shutil
from collections import Counter
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest

from kip33.formats.batch import CODEC_MASK, CODEC_NAMES, CONTROL
from kip33.rules.search import (
    EARLIEST,
    LATEST,
    LIMITS_RECORDS,
    MAX_TIMESTAMP,
    READS_THE_MAX,
    TRAPS,
    Exactness,
    Trap,
)
from kip33.search.answers import Answer, SearchOptions
from kip33.search.partition_search import search_partition
from kip33.search.searched_segment import SearchedSegment
from tests.builders.searched_segments import brute
from tests.integration.kafka.kafka_jars import version_of
from tests.integration.kafka.oracle import REFUSED, Oracle
from tests.integration.kafka.searched_logs import SearchedLog, searched_logs
from tests.integration.kafka.test_differential import SEED
from tests.long_forms import short_and_long

pytestmark = pytest.mark.kafka

SPECIAL = (EARLIEST, LATEST, MAX_TIMESTAMP)
LARGEST = (14, 30, 100)  # bytes of a record
WAYS = (("recover", True), ("recover", True), ("live", True), ("recover", False))  # with indexes?


def fresh(directory: Path) -> Path:
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    return directory


def as_kafka_says(answer: Answer) -> tuple[int, int] | None:
    if "a broker returns an error there" in (answer.note or ""):
        return REFUSED
    if answer.offset is None:
        return None
    return answer.offset, -1 if answer.timestamp is None else answer.timestamp


@pytest.mark.parametrize("count", short_and_long(80, 400, "KIP33_SEARCHED_LOGS"))
def test_as_kafka_answers_what_a_broker_answers(
    count: int, oracle: Oracle, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cases: Counter[str] = Counter()
    for log in searched_logs(oracle, seed=SEED, count=count):
        dialect, indexes = WAYS[log.number % len(WAYS)]
        directory = fresh(tmp_path / "oracle-0")
        rows = log.write_to(directory, dialect=dialect, indexes=indexes)
        targets = (*log.targets, *SPECIAL)
        start = log.log_start_offset
        how = SearchOptions(as_kafka=True, kafka_version=version_of(oracle.version))
        ask = partial(search_partition, rows, targets, how, log_start_offset=start)
        mine = ask()
        exact = search_partition(rows, targets, log_start_offset=start)
        kafkas = oracle.search(directory, targets, log_start_offset=start)
        assert kafkas.largest_timestamps == {r.base_offset: r.largest_timestamp for r in rows}
        assert [as_kafka_says(a) for a in mine] == kafkas.found, f"{log}\n{targets}"
        # The broker has left the active segment's indexes at their full, padded size.
        padded = ask()
        # Up to 3.7 the largest timestamp comes from a `live` file, no longer known as that.
        asked = len(targets) - (not oracle.is_at_least(*READS_THE_MAX))
        assert [a[:5] for a in padded[:asked]] == [a[:5] for a in mine[:asked]], str(log)
        for answer in exact[: len(log.targets)]:
            expected = brute(log.records, answer.target_ms, start)
            assert answer[1:3] == expected[:2], f"{log}\n{answer}"
        cases.update(cases_of(log, rows, mine, exact))
        # How many batches before the log start offset a broker reads depends on its index.
        if oracle.is_at_least(*LIMITS_RECORDS) and start <= rows[0].base_offset:
            log.write_to(fresh(directory), dialect=dialect, indexes=indexes)
            most = LARGEST[log.number % len(LARGEST)]
            where = {"log_start_offset": start, "max_decompressed_message_bytes": most}
            refusing = oracle.search(directory, targets, **where).found
            limited = how._replace(max_decompressed_message_bytes=most)
            mine = search_partition(rows, targets, limited, log_start_offset=start)
            assert [as_kafka_says(a) for a in mine] == refusing, f"{log}\n{most} {targets}"
            cases["a record is refused"] += refusing.count(REFUSED)
        cases["with padded indexes"] += indexes

    with capsys.disabled():
        print(f"\n{count} logs of KIP33_SEED={SEED}: {dict(sorted(cases.items()))}", end=" ")
    if count >= 300:  # the logs must be worth comparing
        assert [name for name in INTERESTING if cases[name] < 10] == []


def cases_of(
    log: SearchedLog, rows: list[SearchedSegment], mine: list[Answer], exact: list[Answer]
) -> Iterator[str]:
    """Yield what the log and each answer is an example of."""
    holding = dict(codecs_by_offset(log))
    for answer, truth in zip(mine, exact, strict=True):
        kind = {LATEST: "latest", EARLIEST: "earliest", MAX_TIMESTAMP: "max"}
        name = kind.get(answer.target_ms, answer.result)
        yield f"{name}, {'nothing' if answer.offset is None else 'a record'}"
        assert answer.exactness == Exactness.RECORD, answer
        for trap in TRAPS:
            if (answer.note or "").startswith(trap):
                yield f"{trap}, {'a later segment has it' if truth.offset is not None else 'none'}"
        if answer.timestamp is not None and answer.target_ms >= 0:
            yield f"found in {holding[answer.offset or 0]}"
            yield "found at the time" if answer.timestamp == answer.target_ms else "found later"
    times = [time for _, time in log.records]
    if any(low > high >= 0 for low, high in pairwise(times)):
        yield "out of order"
    yield f"{len(rows)} segments"
    yield from (f"{row.status} segment" for row in rows)
    if log.log_start_offset > rows[0].base_offset:
        yield "log start offset inside"


def codecs_by_offset(log: SearchedLog) -> Iterator[tuple[int, str]]:
    """Yield for each record in what kind of batch it lies."""
    for header, records in (entry for segment in log.segments for entry in segment.entries):
        codec = CODEC_NAMES[header.attributes & CODEC_MASK]
        control = ", control" if header.magic == 2 and header.attributes & CONTROL else ""
        stamped = ", LogAppendTime" if header.timestamp_type == "LogAppendTime" else ""
        for offset, _ in records:
            yield offset, f"v{header.magic} {codec}{stamped}{control}"


INTERESTING = (
    *("found, a record", "before_start, a record", "after_end, nothing", "no_timestamps, nothing"),
    *("latest, a record", "earliest, a record", "max, a record", "max, nothing"),
    *(f"{Trap.FILE_TIME}, a later segment has it", f"{Trap.FILE_TIME}, none"),
    *(f"{Trap.EMPTIED}, a later segment has it", f"{Trap.EMPTIED}, none"),
    f"{Trap.BELOW_LOG_START}, a later segment has it",
    *(
        "a record is refused",
        "found at the time",
        "found later",
        "out of order",
        "log start offset inside",
    ),
    *("empty segment", "ok segment", "5 segments"),
    *(f"found in v2 {codec}" for codec in CODEC_NAMES[:5]),
    *(f"found in v1 {codec}" for codec in CODEC_NAMES[:4]),
    *("found in v2 none, LogAppendTime", "found in v2 zstd, LogAppendTime"),
    *("found in v1 none, LogAppendTime", "found in v1 gzip, LogAppendTime"),
    *("found in v2 none, control", "with padded indexes"),
)
