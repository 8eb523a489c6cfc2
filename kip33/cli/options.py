"""Options shared by several commands."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from kip33.cli.conf_option import take_conf
from kip33.cli.config_file import load_config
from kip33.cli.times import Quantity
from kip33.formats.batch import MAX_INT32
from kip33.formats.records import DEFAULT_MAX_BATCH_BYTES
from kip33.formats.time_index import TIME_ENTRY_BYTES
from kip33.rules.index_entries import DEFAULT_INDEX_INTERVAL_BYTES, DEFAULT_SEGMENT_INDEX_BYTES
from kip33.rules.policies import DURATION_EXPECTED, duration_ms
from kip33.rules.retention import NO_LIMIT

MOST_TASKS: Final = 100_000

_Command = TypeVar("_Command", bound=Callable[..., Any])


def _limit_ms(text: str) -> int:
    """Return a limit in ms; -1: no limit."""
    if text.strip() == str(NO_LIMIT):
        return NO_LIMIT
    try:
        return duration_ms(text)
    except ValueError as error:
        raise ValueError(
            f"{text!r} found, expected {DURATION_EXPECTED}, from -1 to 2^63 - 1"
        ) from error


TOPICS_HELP: Final = "Only topics that match; !GLOB excludes topics that match. May be repeated."
_CONFIG: Final = click.option(
    "--config",
    type=click.Path(path_type=Path),
    is_eager=True,
    expose_value=False,
    callback=load_config,
    help="TOML file with defaults for these options, like conf/kip33.toml.",
)
_CONF: Final = click.option(
    "--conf",
    multiple=True,
    metavar="KEY=VALUE",
    callback=take_conf,
    help="Spark setting. Settings such as spark.hadoop.fs.s3a.* also configure access to stores.",
)
_SESSION: Final = (
    click.option(
        "--master",
        help="Spark master [default: spark-submit's, else that of --conf, SPARK_MASTER, "
        "SPARK_REMOTE or spark-defaults.conf, else local[*]].",
    ),
    _CONF,
    _CONFIG,
)
_STORES: Final = click.option(
    "--conf",
    multiple=True,
    metavar="KEY=VALUE",
    callback=take_conf,
    expose_value=False,
    help="Setting for access to stores, such as spark.hadoop.fs.s3a.endpoint=...",
)
_SPARK: Final = (
    click.option("--topics", multiple=True, metavar="GLOB", help=TOPICS_HELP),
    click.option(
        "--parallelism",
        type=click.IntRange(1, MOST_TASKS),
        help="Number of shares of the work, which on Spark are tasks [default: 3 per core, more "
        "if one would read over 16 GiB].",
    ),
    *_SESSION,
)
_POLICY: Final = (
    click.option(
        "--policy",
        metavar="FILE",
        help="Retention policies, with Kafka's names of settings, like conf/retention.toml.",
    ),
    click.option(
        "--kafka-configs",
        metavar="FILE",
        help="Saved output of `kafka-configs.sh --describe --entity-type topics --all`, or "
        "of `kafka-topics.sh --describe` (which lacks the broker's settings). A "
        "section of --policy with the topic's exact name overrides it; the defaults of "
        "--policy fill in what it lacks.",
    ),
    click.option(
        "--retention-ms",
        type=Quantity("limit", _limit_ms, "7d"),
        metavar="7d",
        help="retention.ms for all topics. Together with a policy: show what would change "
        "with this value.",
    ),
)
_INDEX: Final = (
    click.option(
        "--index-interval-bytes",
        type=click.IntRange(0, MAX_INT32),
        default=DEFAULT_INDEX_INTERVAL_BYTES,
        show_default=True,
        help="Kafka's index.interval.bytes at the time the segments were written.",
    ),
    click.option(
        "--segment-index-bytes",
        type=click.IntRange(TIME_ENTRY_BYTES, MAX_INT32),
        default=DEFAULT_SEGMENT_INDEX_BYTES,
        show_default=True,
        help="Kafka's segment.index.bytes: a log that needs a larger index fails to load.",
    ),
    click.option(
        "--kafka-configs",
        metavar="FILE",
        help="Saved output of `kafka-configs.sh --describe --entity-type topics --all`: the "
        "topics' index.interval.bytes and segment.index.bytes override the two options "
        "above.",
    ),
)
_NO_CHECK_CRC: Final = click.option(
    "--no-check-crc",
    is_flag=True,
    help="Read only batch headers. Damage inside of records is not detected.",
)


def _apply(options: Sequence[Callable[[Any], Any]], command: _Command) -> _Command:
    for option in reversed(options):
        command = option(command)
    return command


def spark_options(command: _Command) -> _Command:
    """Add --topics, --parallelism, --master, --conf and --config."""
    return _apply(_SPARK, command)


def session_options(command: _Command) -> _Command:
    """Add --master, --conf and --config."""
    return _apply(_SESSION, command)


def policy_options(command: _Command) -> _Command:
    """Add --policy, --kafka-configs and --retention-ms."""
    return _apply(_POLICY, command)


def index_options(command: _Command) -> _Command:
    """Add --index-interval-bytes, --segment-index-bytes, --kafka-configs and --no-check-crc."""
    return _apply((*_INDEX, _NO_CHECK_CRC), command)


def topic_setting_options(command: _Command) -> _Command:
    """Add --index-interval-bytes, --segment-index-bytes and --kafka-configs."""
    return _apply(_INDEX, command)


def store_options(command: _Command) -> _Command:
    """Add --conf and --config, for commands without Spark; stores use the values of --conf."""
    return _CONFIG(_STORES(command))


def format_option(*formats: str) -> Callable[[_Command], _Command]:
    """Return the option --format with these choices, the first one the default."""
    return click.option(
        "--format",
        "output_format",
        type=click.Choice(formats),
        default=formats[0],
        show_default=True,
        help="Output format. With json and jsonl, standard output has only data.",
    )


def max_batch_bytes_option(command: _Command) -> _Command:
    """Add --max-batch-bytes, for commands that decompress records."""
    return click.option(
        "--max-batch-bytes",
        type=click.IntRange(min=1),
        default=DEFAULT_MAX_BATCH_BYTES,
        show_default=True,
        metavar="N",
        help="Do not read a batch that decompresses to more bytes; the answer says so.",
    )(command)
