"""`kip33 search`: offsets for times, one or thousands."""

from dataclasses import dataclass
from typing import Any

import click

from kip33.cli.engine_option import EngineOptions
from kip33.cli.options import (
    engine_options,
    format_option,
    makes_request,
    max_batch_bytes_option,
    session_options,
    topic_option,
)
from kip33.cli.times import MOMENT, SIZE
from kip33.formats.batch import MAX_INT32
from kip33.rules.search import NEWEST_KAFKA, parse_kafka_version
from kip33.search.answers import SearchOptions


class AnswersAs(click.ParamType):  # type: ignore[type-arg]  # generic since 8.4; 8.1 serves
    """`kip33` (None), or `kafka` or `kafka:3.7`: the version of Kafka that a broker has."""

    name = "whom"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, int] | None:
        """Return a version; UsageError, one line, for any other text."""
        if value == "kip33" or not isinstance(value, str):
            return None if isinstance(value, str) else value
        if value == "kafka":
            return NEWEST_KAFKA
        name, _, version = value.partition(":")
        try:
            if name == "kafka":
                return parse_kafka_version(version)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        return self.fail(
            f"{value!r} found, expected kip33, kafka or a version such as kafka:3.7", param, ctx
        )


@dataclass(frozen=True, kw_only=True)
class SearchCommand:
    """The options of `kip33 search`; None if not given."""

    catalog_dir: str
    remote_dir: str | None  # the catalog of the other tier
    times: tuple[str, ...]
    until: str | None
    topics: tuple[str, ...]
    partition: int | None
    requests: str | None  # a file
    now: int | None  # ms
    snapshot: str | None
    broker_version: tuple[int, int] | None  # of Kafka, whose answers are given; None: kip33's own
    how: SearchOptions
    emit: str | None
    allow_unsafe: bool
    log_start_offsets: str | None  # a file
    engine: EngineOptions
    output_format: str


@click.command(
    epilog="Example: kip33 search /archive/indexes/_catalog --time 2024-05-01T12:00Z --topic orders"
    " (of two tiers: kip33 search local/_catalog remote/_catalog --time earliest-local)"
)
@click.argument("catalog_dir", metavar="CATALOG")
@click.argument("remote_dir", metavar="[REMOTE]", required=False)
@click.option(
    "--time",
    "times",
    multiple=True,
    metavar="T",
    help="Time to search: ISO 8601, milliseconds, -3h (before now), earliest, latest or "
    "max-timestamp; of two tiers also earliest-local and latest-tiered. May be repeated.",
)
@click.option(
    "--until",
    metavar="T",
    help="With --time: also show the number of records and bytes up to this time.",
)
@topic_option
@click.option(
    "--partition", type=click.IntRange(0, MAX_INT32), metavar="N", help="Only this partition."
)
@click.option(
    "--requests",
    metavar="FILE",
    help="File of searches, CSV with a header or Parquet: topic,partition,time[,log_dir]. "
    "An empty partition means all partitions.",
)
@click.option(
    "--now", type=MOMENT, metavar="T", help="Time to which -3h is relative [default: the clock]."
)
@click.option("--snapshot", metavar="NAME", help="Use this snapshot instead of the newest.")
@click.option(
    "--as",
    "broker_version",
    type=AnswersAs(),
    default="kip33",
    show_default=True,
    metavar="WHOM",
    help="kafka: answer as a broker of the newest Kafka would, and report what hides a "
    "record from it. kafka:3.7: as a broker of that version. Up to 3.7, max-timestamp "
    "gives the offset of the index entry, usually the last offset of its batch.",
)
@click.option(
    "--max-decompressed-message-bytes",
    type=SIZE,
    metavar="1MiB",
    help="With --as kafka, from 4.4 on: the topics' setting of this name. Where a broker meets a "
    "larger record in a compressed batch, it returns an error.",
)
@click.option(
    "--index-only",
    is_flag=True,
    help="Do not open logs. The answer is an offset before which no record is at or after T.",
)
@click.option(
    "--all-replicas",
    is_flag=True,
    help="Answer for each log directory, not only for the most complete one.",
)
@click.option(
    "--emit",
    type=click.Choice(["reset-offsets", "spark", "delete-records"]),
    help="Print only the input of kafka-consumer-groups.sh --from-file, Spark's "
    "startingOffsets or kafka-delete-records.sh.",
)
@max_batch_bytes_option
@click.option(
    "--allow-unsafe",
    is_flag=True,
    help="With --emit: also print partitions whose answer is unsafe. By default they are "
    "left out, and standard error names them.",
)
@click.option(
    "--log-start-offsets",
    metavar="FILE",
    help="With --as kafka: CSV topic,partition,offset[,log_dir]. Overrides the archive's "
    "log-start-offset-checkpoint.",
)
@engine_options
@session_options
@format_option
@makes_request(SearchCommand)
def search(command: SearchCommand) -> None:
    """Find the first record at or after a time in each partition of CATALOG, exact to the record.

    If there is no such record, the result says why: after_end, no_timestamps or
    no_such_partition. before_start means that the time is before the partition's first record. An
    answer is unsure if records that cannot be read could change it. On Spark, up to 500
    searches run without a session, unless --engine or --master asks for one.

    With tiered storage, give the catalog of the log directories and that of the remote tier, in
    any order: each partition is searched in both, and a record that both have is found once.
    """
    from kip33.cli.search_answer import search_catalog

    search_catalog(command)
