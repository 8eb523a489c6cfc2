"""`kip33 roll`: why segments ended, and what other settings would have given."""

import sys
from collections.abc import Callable
from typing import Final

import click

from kip33.cli.options import (
    engine_options,
    format_option,
    layout_option,
    makes_request,
    policy_options,
    spark_options,
    summary_option,
    together,
    topic_option,
)
from kip33.cli.roll_answer import RollCommand
from kip33.cli.times import DURATION, MOMENT, Quantity
from kip33.errors import ExitCode
from kip33.formats.batch import LEGACY_MIN_SIZE, MAX_INT32
from kip33.formats.time_index import TIME_ENTRY_BYTES
from kip33.rules.policies import SIZE_EXPECTED, positive_ms, size_bytes
from kip33.rules.rolling import RollReading

ROLL_FINDINGS: Final = ("overdue", "early", "unexplained", "unknown", "doubtful")


def _bytes_from(least: int) -> Callable[[str], int]:
    """Return a function from a text to a size that Kafka takes."""

    def parse(text: str) -> int:
        size = size_bytes(text)
        if not least <= size <= MAX_INT32:
            raise ValueError(f"{text!r} found, expected {SIZE_EXPECTED}, from {least} to 2^31 - 1")
        return size

    return parse


_setting_options: Final = together(
    click.option(
        "--segment-ms",
        type=Quantity("duration", positive_ms, "7d"),
        metavar="7d",
        help="segment.ms of all topics [default: the policy's, else Kafka's 7d].",
    ),
    click.option(
        "--segment-bytes",
        type=Quantity("size", _bytes_from(LEGACY_MIN_SIZE), "1GiB"),
        metavar="1GiB",
        help="segment.bytes [default: the policy's, else Kafka's 1GiB].",
    ),
    click.option(
        "--segment-jitter-ms",
        type=DURATION,
        metavar="0",
        help="segment.jitter.ms: a broker rolls each segment earlier by a random part of it.",
    ),
    click.option(
        "--index-interval-bytes",
        type=click.IntRange(0, MAX_INT32),
        metavar="4096",
        help="index.interval.bytes [default: the policy's, else Kafka's 4096].",
    ),
    click.option(
        "--segment-index-bytes",
        type=Quantity("size", _bytes_from(TIME_ENTRY_BYTES), "10MiB"),
        metavar="10MiB",
        help="segment.index.bytes [default: the policy's, else Kafka's 10MiB].",
    ),
)


@click.command(epilog="Example: kip33 roll /archive/indexes/_catalog --segment-ms 7d")
@click.argument("source", metavar="CATALOG|SOURCE")
@_setting_options
@policy_options
@click.option(
    "--reading",
    type=click.Choice([str(one) for one in RollReading]),
    default=str(RollReading.KAFKA),
    show_default=True,
    help="The timestamp from which a segment's time counts. kafka: the largest of its first "
    "batch; kip33: that of its first message; kip33-largest: the largest so far. --what-if "
    "shows all three.",
)
@click.option(
    "--read-headers",
    is_flag=True,
    help="With CATALOG: also read the header of each segment's first batch, for what the catalog "
    "does not have.",
)
@click.option(
    "--what-if",
    is_flag=True,
    help="Replay all batches under these settings and show the segments that would come out. "
    "Reads the headers of all batches.",
)
@click.option(
    "--now",
    type=MOMENT,
    metavar="T",
    help="Count active segments that a batch of this time would end [default: the clock].",
)
@click.option("--snapshot", metavar="NAME", help="Use this snapshot instead of the newest.")
@layout_option
@click.option(
    "--fail-on",
    multiple=True,
    type=click.Choice(ROLL_FINDINGS),
    help="Exit 3 if there is any such segment. May be repeated.",
)
@summary_option
@engine_options
@topic_option
@spark_options
@format_option
@makes_request(RollCommand)
def roll(request: RollCommand) -> None:
    """Show why each segment of CATALOG ended where it did, and when it should have.

    A broker begins a new segment before a batch that would make the old one larger than
    segment.bytes, or whose timestamp is more than segment.ms after the old one's first. So each
    segment is compared with the first batch of the next one. Settings are those of the options,
    else of --policy or --kafka-configs, else Kafka's defaults.

    \b
    ended by   size, time, index_full, offset_range
               jitter: by time, if the random jitter was large enough
               several_batches: only if several batches came at once,
               as on a follower
               unexplained: none of these, under the settings given
               unknown: the row's `doubt` or `not_seen` says why
               active: it has not ended
    overdue    it has batches that belong in a new segment
    early      by time, because a timestamp jumped: future_timestamp,
               old_start, ahead_of_later

    A catalog is judged without opening a log. Of a SOURCE, the headers of all batches are read; no
    CRC is checked. A segment that begins without a timestamp ends by the time since the broker
    created it, which no file has: `waited_ms` is then the time between two files' last changes.

    --what-if replays each batch as one append. With --retention-ms or a policy it also shows when
    the segments become deletable.
    """
    from kip33.cli.roll_answer import answer_roll

    found = answer_roll(request)
    if any(finding in found for finding in request.fail_on):
        sys.exit(ExitCode.FINDINGS)
