"""`kip33 timestamps`: types, order, distance from clocks, and latency of an archive's batches."""

from typing import Final

import click

from kip33.audits.timestamp_plan import AuditClock
from kip33.cli.options import (
    engine_options,
    format_option,
    layout_option,
    makes_request,
    spark_options,
    summary_option,
    topic_option,
)
from kip33.cli.times import DURATION, MOMENT
from kip33.cli.timestamps_answer import TIMESTAMP_FINDINGS, TimestampsCommand

_BY: Final = ("partition", "topic")


@click.command(
    epilog="Example: kip33 timestamps /archive/kafka-logs --kafka-configs described.txt "
    "--fail-on suspicious"
)
@click.argument("source", metavar="SOURCE|CATALOG")
@click.option(
    "--by",
    type=click.Choice(_BY),
    default=_BY[0],
    show_default=True,
    help="One row for each partition of each log directory, or one for each topic.",
)
@click.option(
    "--message-timestamp-before-max-ms",
    "before_max_ms",
    type=DURATION,
    metavar="7d",
    help="Count batches that are older than the clock by more [default: the policy's, else no "
    "limit].",
)
@click.option(
    "--message-timestamp-after-max-ms",
    "after_max_ms",
    type=DURATION,
    metavar="1h",
    help="Count batches that are later than the clock by more [default: the policy's, else 1h, as "
    "in Kafka 4].",
)
@click.option(
    "--message-timestamp-difference-max-ms",
    "difference_max_ms",
    type=DURATION,
    metavar="1d",
    help="Both limits in one, as before Kafka 3.6 (KIP-32).",
)
@click.option(
    "--policy",
    metavar="FILE",
    help="Settings of topics, with Kafka's names, like conf/retention.toml.",
)
@click.option(
    "--kafka-configs",
    metavar="FILE",
    help="Saved output of `kafka-configs.sh --describe --entity-type topics --all`; sections of "
    "--policy override it.",
)
@click.option(
    "--clock",
    type=click.Choice([clock.value for clock in AuditClock]),
    default=AuditClock.FILE_TIME.value,
    show_default=True,
    help="What CreateTime batches are compared with, in place of the broker's clock.",
)
@click.option(
    "--now",
    type=MOMENT,
    metavar="T",
    help="The current time, for --clock now and for suspicious timestamps [default: the clock].",
)
@click.option(
    "--catalog-only", is_flag=True, help="Of a CATALOG: open no log; show what its rows tell."
)
@click.option("--snapshot", metavar="NAME", help="Use this snapshot instead of the newest.")
@click.option(
    "--fail-on",
    multiple=True,
    type=click.Choice(TIMESTAMP_FINDINGS),
    help="Exit 3 if there is such a batch, partition or log. May be repeated.",
)
@layout_option
@summary_option
@engine_options
@topic_option
@spark_options
@format_option
@makes_request(TimestampsCommand)
def timestamps(request: TimestampsCommand) -> None:
    """Show how the timestamps of an archive were made, from the headers of its batches.

    Type: CreateTime, LogAppendTime, none or mixed. Out of order: batches behind the largest
    timestamp before them in the partition, and how far the furthest one is behind.

    Rejected: batches that message.timestamp.before.max.ms or after.max.ms refuses. A broker
    compares with its clock at the append, which an archive does not have. LogAppendTime batches of
    format v2 are compared with their own append time. CreateTime batches are compared with the time
    of their file. The append may have been earlier: a batch that is 8 days older than its file may
    have been 6 days old then. So `rejected_before` is an upper limit, and `rejected_after` a lower
    one. A copied archive keeps this only if it keeps the files' times. With --clock now they are
    compared with --now, as if the archive were produced again. A header has the largest and the
    first timestamp of a batch; other records are not looked at.

    Suspicious: seconds, microseconds or nanoseconds in place of milliseconds, before 1990, or
    later than --now by more than the limit.

    Latency, of LogAppendTime batches of format v2: the append time minus the first timestamp of
    the producer. The median and the 99th percentile are exact below 256 ms; from there on they
    are at most 0.8 % too large. Minimum and maximum are exact.

    The rows are described in kip33/api/RESULTS.md.
    """
    from kip33.cli.timestamps_answer import show_timestamps

    show_timestamps(request)
