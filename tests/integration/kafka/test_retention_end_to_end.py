"""One broker's log directory under `kip33 retention`: what it calls deletable Kafka can do without.

Each fixture goes a step further with the same directory, the tests look at what a step left:
produced, judged, records deleted by the broker, a plan refused, applied, the broker started again.
"""

import hashlib
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kip33.archive.broker_locks import locked
from kip33.formats.partition_metadata import LOG_START_OFFSET_CHECKPOINT, parse_offset_checkpoint
from kip33.stores.locations import Location
from tests.cli.console import KIP33, Finished, subprocess_of
from tests.integration.kafka.broker import (
    CONFIG_COMMAND,
    DELETE_RECORDS_COMMAND,
)
from tests.integration.kafka.cluster_answers import Answers
from tests.integration.kafka.command_here import kip33_here
from tests.integration.kafka.kafka_jars import OracleError, kafka_or_skip
from tests.integration.kafka.lost_cluster import asked
from tests.integration.kafka.nodes import Nodes, wait_until
from tests.integration.kafka.restored_start import Start, start_of

pytestmark = pytest.mark.kafka

DAY_MS = 86_400_000
BROKER = {
    "log.retention.check.interval.ms": str(DAY_MS),  # but for once, while there are no topics
    "log.cleaner.enable": "false",  # its thread expires compact,delete
}
ONE_DAY = {"retention.ms": str(DAY_MS)}
TOPICS = {
    "orders": ONE_DAY,
    "sessions": ONE_DAY | {"cleanup.policy": "compact,delete"},
    "clicks": ONE_DAY | {"retention.bytes": "2000000"},
    "profiles": ONE_DAY | {"cleanup.policy": "compact"},
    "ledger": {},
    "alerts": ONE_DAY,
}
RECORDS, RECORD_BYTES = 4, 120_000  # of a batch: two fill a segment
AGES = {  # of each segment in days; the last one is active
    "orders-0": (5, 4, 3, 0),
    "orders-1": (5, 0, 4, 0),
    "sessions-0": (5, 4, 0),
    "clicks-0": (5, 4, 0, 0),
    "profiles-0": (5, 4, 0),
    "ledger-0": (5, 4, 0),
    "alerts-0": (5,),
}
BASE_OFFSETS = (0, 8, 16, 24)
JUDGED = {
    "orders-0": ["retention_ms", "retention_ms", "retention_ms", "active_segment"],
    "orders-1": ["retention_ms", "not_expired", "blocked", "active_segment"],
    "sessions-0": ["retention_ms", "retention_ms", "active_segment"],
    "clicks-0": ["retention_bytes", "retention_ms", "not_expired", "active_segment"],
    "profiles-0": ["compacted", "compacted", "active_segment"],
    "ledger-0": ["no_limit", "no_limit", "active_segment"],
    "alerts-0": ["active_segment"],
}
PLANNED = {  # base offsets
    "orders-0": (0, 8, 16),
    "orders-1": (0,),
    "sessions-0": (0, 8),
    "clicks-0": (0, 8),
    "ledger-0": (0,),
}
LOG_STARTS = {  # after records were deleted
    "orders-0": 24,
    "orders-1": 8,
    "sessions-0": 16,
    "alerts-0": 8,  # the log's end: for once the active segment was judged as a broker does
    "ledger-0": 12,  # inside a segment
}

Kip33 = Callable[..., Finished]
Files = dict[str, tuple[str, int]]  # checksum and modification time by path


class Cluster(Nodes):
    """A broker, and what kip33 wrote beside its log directory."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, settings=BROKER)
        self.folder = self.log_dir().parent
        self.catalog = self.folder / "indexes" / "_catalog"
        self.rolled: dict[str, list[int]] = {}

    def answers(self) -> Answers:
        """Return all that it answers about its topics."""
        return asked(self, "answers", self.root / "times", " ".join(TOPICS))

    def files(self) -> Files:
        """Return the partitions' files, the indexes and the catalog, not the broker's own files."""
        places = [*(self.log_dir() / partition for partition in AGES), self.folder / "indexes"]
        return {
            str(file.relative_to(self.folder)): (
                hashlib.sha256(file.read_bytes()).hexdigest(),
                file.stat().st_mtime_ns,
            )
            for place in places
            for file in sorted(place.rglob("*"))
            if file.is_file()
        }

    def delete_records(self, request: dict[str, Any]) -> str:
        file = self.root / "delete-records.json"
        file.write_text(json.dumps(request))
        return self.run(DELETE_RECORDS_COMMAND, "--offset-json-file", str(file), *self.server)


@pytest.fixture(scope="module")
def kip33(spark: Any) -> Kip33:
    """Return the command, in this process and on the tests' Spark session."""

    def run(*arguments: Any) -> Finished:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr("kip33.spark.session.create_session", lambda **_: spark)
            return kip33_here(*arguments)

    return run


@pytest.fixture(scope="module")
def produced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A running broker with the segments of AGES."""
    with kafka_or_skip():
        cluster = Cluster(tmp_path_factory.mktemp("cluster"))
    try:
        cluster.start()
        created = []
        for topic, settings in TOPICS.items():
            count = sum(name.startswith(f"{topic}-") for name in AGES)
            options = [f"{key}={value}" for key, value in settings.items()]
            created.append(" ".join((f"create {topic} {count} 1", *options)))
        now_ms = time.time_ns() // 1_000_000
        sent = [
            f"send p none {name.replace('-', ' ')} {now_ms - days * DAY_MS + minute * 60_000}"
            f" 0 {RECORDS} {RECORD_BYTES} 10"
            for name, ages in AGES.items()
            for days in ages
            for minute in (-1, 0)
        ]
        cluster.run_steps([*created, *sent])
        cluster.rolled = logs_of(cluster.files())  # later steps delete some
        yield cluster
    finally:
        cluster.stop()


class Judged(NamedTuple):
    """What kip33 said of each partition's segments, oldest first."""

    cluster: Cluster
    reasons: dict[str, list[str]]


def judge(cluster: Cluster, kip33: Kip33, *options: Any) -> Judged:
    configs = cluster.root / "configs.txt"
    what = ("retention", cluster.catalog, "--kafka-configs", configs, "--format", "jsonl")
    done = kip33(*what, *options)
    assert done.exit_code == 0, done
    reasons: dict[str, list[str]] = {}
    for row in done.lines:
        name = f"{row.get('topic')}-{row.get('partition')}"
        if row["kind"] == "segment" and name in AGES:
            reasons.setdefault(name, []).append(row["reason"])
    return Judged(cluster, reasons)


@pytest.fixture(scope="module")
def judged(produced: Cluster, kip33: Kip33) -> Judged:
    """The log directory indexed and judged by what kafka-configs.sh says, while it is in use."""
    what = ("--describe", "--entity-type", "topics", "--all", *produced.server)
    described = produced.run(CONFIG_COMMAND, *what)
    (produced.root / "configs.txt").write_text(described)
    built = kip33("build", produced.log_dir(), "--index-dir", produced.catalog.parent)
    assert built.exit_code == 0, built
    return judge(produced, kip33)


class RecordsDeleted(NamedTuple):
    """What the broker made of our request."""

    cluster: Cluster
    request: dict[str, Any]
    answer: str
    answers: Answers


@pytest.fixture(scope="module")
def records_deleted(judged: Judged, kip33: Kip33) -> RecordsDeleted:
    """Records deleted as kip33 has it, and by hand up to the middle of a segment."""
    cluster = judged.cluster
    judge_as = ("--kafka-configs", cluster.root / "configs.txt", "--active-segment", "kafka")
    topics = ("--topic", "orders", "--topic", "sessions", "--topic", "alerts")
    emit = ("--emit", "delete-records")
    request = json.loads(kip33("retention", cluster.catalog, *judge_as, *topics, *emit).stdout)
    answer = cluster.delete_records(request)
    by_hand = {"topic": "ledger", "partition": 0, "offset": LOG_STARTS["ledger-0"]}
    cluster.delete_records({"partitions": [by_hand], "version": 1})
    return RecordsDeleted(cluster, request, answer, cluster.answers())


@pytest.fixture(scope="module")
def planned(records_deleted: RecordsDeleted, kip33: Kip33) -> Judged:
    """The log directory judged again, once the broker wrote down where its logs start."""
    cluster = records_deleted.cluster
    wait_until(lambda: checkpoint_of(cluster) == LOG_STARTS, f"log starts: {LOG_STARTS}")
    return judge(cluster, kip33, "--plan", cluster.root / "plan.jsonl")


def checkpoint_of(cluster: Cluster) -> dict[str, int]:
    text = (cluster.log_dir() / LOG_START_OFFSET_CHECKPOINT).read_text()
    found = parse_offset_checkpoint(text)
    return {f"{topic}-{partition}": offset for (topic, partition), offset in found.items()}


class Tried(NamedTuple):
    """What an apply said, and the files before and after it."""

    cluster: Cluster
    finished: Finished
    before: Files
    after: Files


def apply(cluster: Cluster, *options: str) -> Tried:
    before = cluster.files()
    command = (KIP33, "retention", "apply", cluster.root / "plan.jsonl", "--delete", *options)
    return Tried(cluster, subprocess_of(*command, cwd=cluster.root), before, cluster.files())


@pytest.fixture(scope="module")
def refused(planned: Judged) -> Tried:
    """An apply under the running broker."""
    return apply(planned.cluster)


@pytest.fixture(scope="module")
def applied(refused: Tried) -> Tried:
    """The same plan's apply after the broker was stopped."""
    refused.cluster.stop()
    return apply(refused.cluster, "--format", "json")


class StartedAgain(NamedTuple):
    """What the broker has after it was started on what kip33 left, and ran retention itself."""

    cluster: Cluster
    start: Start
    errors: list[str]
    answers: Answers
    files: Files


@pytest.fixture(scope="module")
def started_again(applied: Tried) -> StartedAgain:
    cluster = applied.cluster
    cluster.start(log_retention_check_interval_ms="200")
    expired = cluster.log_dir() / "alerts-0" / f"{0:020d}.log"
    wait_until(lambda: not expired.exists(), "the broker's own retention")
    time.sleep(1)  # some passes more
    answers, files = cluster.answers(), cluster.files()
    cluster.stop()
    logged = cluster.logged()
    errors = [line for line in logged if "ERROR" in line]
    return StartedAgain(cluster, start_of(logged), errors, answers, files)


def earliest(answers: Answers) -> dict[str, int]:
    return {f"{topic}-{partition}": at for (topic, partition), at in answers.earliest.items()}


def logs_of(files: Files) -> dict[str, list[int]]:
    """Return the base offsets of each partition's logs."""
    found: dict[str, list[int]] = {name: [] for name in AGES}
    for path in sorted(files):
        if path.startswith("logs/") and path.endswith(".log"):
            found[Path(path).parent.name].append(int(Path(path).stem))
    return found


def of_segments(files: Files, name: str, base_offsets: tuple[int, ...]) -> Files:
    """Return a partition's logs and indexes, beside the logs and in the index directory."""
    stems = {f"{base_offset:020d}" for base_offset in base_offsets}
    kinds = (".log", ".index", ".timeindex")
    return {
        path: said
        for path, said in files.items()
        if Path(path).parent.name == name and Path(path).stem in stems and path.endswith(kinds)
    }


def test_the_broker_rolled_where_it_was_meant_to(produced: Cluster) -> None:
    assert produced.rolled == {name: list(BASE_OFFSETS[: len(ages)]) for name, ages in AGES.items()}


def test_segments_are_judged_by_each_topics_own_settings(judged: Judged) -> None:
    assert judged.reasons == JUDGED


def test_the_broker_deletes_records_up_to_the_first_kept(records_deleted: RecordsDeleted) -> None:
    first_kept = {name: offset for name, offset in LOG_STARTS.items() if name != "ledger-0"}
    requested = {
        f"{one['topic']}-{one['partition']}": one["offset"]
        for one in records_deleted.request["partitions"]
    }

    assert requested == first_kept
    for name, offset in first_kept.items():
        assert f"partition: {name}\tlow_watermark: {offset}\n" in records_deleted.answer
    assert earliest(records_deleted.answers) == LOG_STARTS | {"clicks-0": 0, "profiles-0": 0}


def test_what_lies_below_a_log_start_offset_is_deletable_for_it(planned: Judged) -> None:
    assert planned.reasons == JUDGED | {
        "orders-0": 3 * ["log_start_offset"] + ["active_segment"],
        "orders-1": ["log_start_offset", "not_expired", "blocked", "active_segment"],
        "sessions-0": 2 * ["log_start_offset"] + ["active_segment"],
        "ledger-0": ["log_start_offset", "no_limit", "active_segment"],
    }


def test_nothing_is_deleted_under_a_running_broker(refused: Tried) -> None:
    lock = (refused.cluster.log_dir() / ".lock").as_uri()
    assert refused.finished.exit_code == 2
    assert refused.finished.stderr.startswith(
        f"Error: {lock}: a broker or another run of kip33 holds"
    )
    assert refused.finished.stderr.count("\n") == 1
    assert not refused.finished.stdout
    assert refused.after == refused.before


def test_the_plan_still_holds_after_a_clean_stop(applied: Tried) -> None:
    assert (applied.cluster.log_dir() / ".kafka_cleanshutdown").exists()
    assert applied.finished.exit_code == 0, applied.finished
    summary = json.loads(applied.finished.stdout)["summary"]
    assert (summary["segments_deleted"], summary["stopped_partitions"]) == (9, 0)


def test_only_planned_files_were_deleted(applied: Tried) -> None:
    gone = [of_segments(applied.before, name, bases) for name, bases in PLANNED.items()]
    # A log, two indexes beside it, one in the index directory.
    assert [len(files) for files in gone] == [4 * len(bases) for bases in PLANNED.values()]
    # A broker writes the producers' snapshot when it rolls a segment, so offset 0 has none.
    gone.append(
        {
            f"logs/{name}/{base:020d}.snapshot": applied.before[f"logs/{name}/{base:020d}.snapshot"]
            for name, bases in PLANNED.items()
            for base in bases
            if base
        }
    )
    own = {
        path
        for path in applied.after
        if path.startswith("indexes/_catalog/retention/") or path.endswith(".changed")
    }
    assert {path: applied.after[path] for path in applied.after.keys() - own} == {
        path: said
        for path, said in applied.before.items()
        if not any(path in files for files in gone)
    }


def test_the_broker_starts_with_what_is_left(started_again: StartedAgain) -> None:
    assert started_again.errors == []
    assert started_again.start.is_clean
    assert started_again.start.recoveries == []
    assert earliest(started_again.answers) == LOG_STARTS | {"clicks-0": 16, "profiles-0": 0}


def test_all_records_from_the_first_kept_on_are_consumed(started_again: StartedAgain) -> None:
    assert started_again.answers.offsets("orders", 1) == list(range(8, 32))
    assert started_again.answers.offsets("clicks", 0) == list(range(16, 32))


def test_the_broker_recovered_no_segment(applied: Tried, started_again: StartedAgain) -> None:
    for name, ages in AGES.items():
        rolled = BASE_OFFSETS[: len(ages) - 1]
        now = of_segments(started_again.files, name, rolled)
        assert now == of_segments(applied.after, name, rolled), name


def test_the_brokers_own_retention_deletes_only_an_active_segment_more(
    applied: Tried, started_again: StartedAgain
) -> None:
    assert logs_of(started_again.files) == logs_of(applied.after) | {"alerts-0": [8]}


def test_no_broker_starts_while_segments_are_deleted(started_again: StartedAgain) -> None:
    cluster = started_again.cluster
    with locked([Location.of(cluster.log_dir()).child("any-0")]):
        with pytest.raises(OracleError, match=r"Failed to acquire lock on file \.lock"):
            cluster.start()
        cluster.stop()
