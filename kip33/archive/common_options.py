"""The options that several capabilities have: which logs, which settings, and how the work runs."""

from collections.abc import Sequence
from typing import Annotated, Final, TypeAlias, TypedDict

from kip33.formats.batch import MAX_INT32
from kip33.formats.records import DEFAULT_MAX_BATCH_BYTES
from kip33.formats.time_index import TIME_ENTRY_BYTES
from kip33.options import Option, Path
from kip33.rules.index_entries import (
    DEFAULT_INDEX_INTERVAL_BYTES,
    DEFAULT_SEGMENT_INDEX_BYTES,
    DialectName,
)
from kip33.rules.policies import limit_ms
from kip33.rules.search import NEWEST_KAFKA, parse_kafka_version
from kip33.rules.untimestamped import RuleName, rule_of
from kip33.stores.filesystem_option import Filesystem, StorageOptions
from kip33.stores.progress import OnProgress, tell_nobody


def _layout_name(text: str) -> str:
    from kip33.archive.layouts import layout_of

    return layout_of(text).name


GUARD_FORMULAS: Final = (
    "In csv, put an apostrophe before each text that a spreadsheet would take for a formula: one "
    "that begins with =, +, -, @, a tab or a carriage return, and is no number. Without this, csv "
    "has each text as it is."
)
TOPIC_GLOBS: Final = Option(
    "Only topics that match; !GLOB excludes topics that match. May be repeated.",
    default=(),
    flag="--topic",
    metavar="GLOB",
    python="Globs: only topics that match; `!GLOB` excludes topics that match.",
)
TopicGlobList: TypeAlias = Annotated[Sequence[str], TOPIC_GLOBS]
LayoutName: TypeAlias = Annotated[
    str,
    Option(
        "How files are arranged below SOURCE: kafka, pinterest, aiven, local-tiered, "
        "hdfs-rsm, or a pattern of the paths such as "
        "'{log_dir}/{topic}-{partition}/{base_offset}.log'.",
        default="kafka",
        metavar="NAME|PATTERN",
        parse=_layout_name,
    ),
]
SnapshotName: TypeAlias = Annotated[
    str | None,
    Option(
        "Use this snapshot instead of the newest: its name, number or id.",
        metavar="NAME",
        python="A name, a number or an id; None: the newest undamaged one.",
    ),
]
ReadDialect: TypeAlias = Annotated[
    DialectName,
    Option(
        "How to read .timeindex entries. kip33: for files that were built with that "
        "dialect. recover or live: for Kafka's files; both accept the files of either.",
        default="recover",
    ),
]
UntimestampedRule: TypeAlias = Annotated[
    RuleName,
    Option(
        "The index of a closed segment whose records have no timestamps. none: empty, as Kafka "
        "writes it. Else one entry with the log file's modification time, as KIP-33 planned: "
        "next-base-offset (or entry) with the next segment's base offset, the accepted text; "
        "first-offset with the segment's own, an earlier text.",
        default="none",
        parse=lambda text: rule_of(text).value,
    ),
]
IndexIntervalBytes: TypeAlias = Annotated[
    int,
    Option(
        "Kafka's index.interval.bytes at the time the segments were written.",
        default=DEFAULT_INDEX_INTERVAL_BYTES,
        least=0,
        most=MAX_INT32,
    ),
]
SegmentIndexBytes: TypeAlias = Annotated[
    int,
    Option(
        "Kafka's segment.index.bytes: a log that needs a larger index fails to load.",
        default=DEFAULT_SEGMENT_INDEX_BYTES,
        least=TIME_ENTRY_BYTES,
        most=MAX_INT32,
    ),
]
TopicConfigsFile: TypeAlias = Annotated[
    Path | None,
    Option(
        "Saved output of `kafka-configs.sh --describe --entity-type topics --all`: the topics' "
        "index.interval.bytes and segment.index.bytes override the two options above.",
        metavar="FILE",
    ),
]
ChecksCrc: TypeAlias = Annotated[
    bool,
    Option("Read only batch headers. Damage inside of records is not detected.", default=True),
]
MaxBatchBytes: TypeAlias = Annotated[
    int,
    Option(
        "Do not read a batch that decompresses to more bytes; the answer says so.",
        default=DEFAULT_MAX_BATCH_BYTES,
        metavar="N",
        least=1,
    ),
]
MostWorkers: TypeAlias = Annotated[
    int | None,
    Option(
        "Most processes of the local engine [default: one per core, one for small work].",
        metavar="N",
        least=1,
        most=1_000,
    ),
]
Parallelism: TypeAlias = Annotated[
    int | None,
    Option(
        "Number of even shares of the work, which on Spark are tasks [default: at least one for "
        "each core; large ones first, small ones at the end].",
        least=1,
        most=100_000,
    ),
]
KafkaConfigsFile: TypeAlias = Annotated[
    Path | None,
    Option(
        "Saved output of `kafka-configs.sh --describe --entity-type topics --all`, or of "
        "`kafka-topics.sh --describe` (which lacks the broker's settings). A section of --policy "
        "with the topic's exact name overrides it; the defaults of --policy fill in what it lacks.",
        metavar="FILE",
    ),
]
RetentionLimit: TypeAlias = Annotated[
    int | str | None,
    Option(
        "retention.ms for all topics. Together with a policy: show what would change with this "
        "value.",
        metavar="7d",
        parse=limit_ms,
        python="retention.ms for all topics, in ms or such as `7d`. Together with a policy: what "
        "would change with this value.",
    ),
]
BrokerVersion: TypeAlias = Annotated[
    str | None,
    Option(
        "Evaluate the remote tier as brokers of this version do: up to 4.2 a segment at the very "
        "limit of retention.ms goes, up to 4.3 a local segment counts twice that begins at the "
        f"last uploaded offset. [default: {'.'.join(map(str, NEWEST_KAFKA))}]",
        metavar="4.2",
        parse=parse_kafka_version,
    ),
]
# Of Python only: a command has its display of progress, and --conf.
ProgressFunction: TypeAlias = Annotated[
    OnProgress,
    Option(
        "Called with a `kip33.Progress`, the phase and how far it is, perhaps from another thread.",
        default=tell_nobody,
    ),
]
StoreSettings: TypeAlias = Annotated[
    StorageOptions | None,
    "Keys and endpoint of stores, by Hadoop's names or as `endpoint`, `region`, `access_key`, "
    "`secret_key`, `token`. With Spark Connect give all keys: from PySpark 4.3 on a session does "
    "not return them.",
]
GivenFilesystem: TypeAlias = Annotated[
    Filesystem | None,
    "A pyarrow or fsspec filesystem instead. Paths are its names, URIs of other schemes are "
    "places elsewhere (`kip33.stores.filesystem_option`).",
]


class PolicyFiles(TypedDict, total=False):
    """Where a command finds the settings of topics; a program gives `Policies`."""

    policy: Annotated[
        Path | None,
        Option("Settings of topics, with Kafka's names, like conf/retention.toml.", metavar="FILE"),
    ]
    kafka_configs: KafkaConfigsFile


class RetentionPolicies(PolicyFiles, total=False):
    """Where a command finds retention policies, and one limit for all topics."""

    retention_ms: RetentionLimit


class EngineRun(TypedDict, total=False):
    """How work runs."""

    parallelism: Parallelism
    on_progress: ProgressFunction


class LocalEngineRun(EngineRun, total=False):
    """How work runs in processes of this machine."""

    workers: MostWorkers


class SparkRun(EngineRun, total=False):
    """How work runs on Spark, and where its files are."""

    storage_options: StoreSettings
    filesystem: GivenFilesystem


class LocalRun(SparkRun, total=False):
    """How work runs in processes of this machine, and where its files are."""

    workers: MostWorkers


class WorkerRun(TypedDict, total=False):
    """How work without bins runs in processes of this machine, and where its files are."""

    workers: MostWorkers
    on_progress: ProgressFunction
    storage_options: StoreSettings
    filesystem: GivenFilesystem
