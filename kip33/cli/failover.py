"""`kip33 failover`: translate consumer-group offsets to another cluster, by timestamp."""

from dataclasses import dataclass

import click

from kip33.cli.options import (
    format_option,
    makes_request,
    max_batch_bytes_option,
    store_options,
    topic_option,
)
from kip33.cli.times import BUFFER


@dataclass(frozen=True, kw_only=True)
class FailoverCommand:
    """The options of `kip33 failover`; None if not given."""

    first: str  # a catalog: --from
    second: str  # a catalog: --to
    offsets: str  # a file
    buffer: int  # ms, or AUTO_BUFFER
    emit: str | None
    topics: tuple[str, ...]
    max_batch_bytes: int
    output_format: str


@click.command(
    epilog="Example: kip33 failover --from /dr/a/_catalog --offsets described.txt "
    "--to /dr/b/_catalog --buffer 15m --emit reset-offsets"
)
@click.option(
    "--from",
    "first",
    required=True,
    metavar="CATALOG",
    help="Catalog of cluster A, on which the groups committed.",
)
@click.option(
    "--offsets",
    required=True,
    metavar="FILE",
    help="Offsets that the groups committed on cluster A: CSV "
    "[group,]topic,partition,offset, or the saved output of `kafka-consumer-groups.sh "
    "--describe`.",
)
@click.option(
    "--to",
    "second",
    required=True,
    metavar="CATALOG",
    help="Catalog of cluster B, on which the groups resume.",
)
@click.option(
    "--buffer",
    type=BUFFER,
    required=True,
    metavar="15m|auto",
    help="Upper limit of the replication latency between the clusters plus the difference "
    "of their clocks. auto: the largest latency of the topics on cluster A, measured from the "
    "headers of its LogAppendTime batches.",
)
@click.option(
    "--emit",
    type=click.Choice(["reset-offsets"]),
    help="Print only the CSV that kafka-consumer-groups.sh --from-file takes.",
)
@topic_option
@max_batch_bytes_option
@store_options
@format_option
@makes_request(FailoverCommand)
def failover(request: FailoverCommand) -> None:
    """Translate consumer-group offsets from cluster A to cluster B, by timestamp.

    The command takes the timestamp of the last record that a group read on cluster A, subtracts
    the buffer, and finds that time on cluster B: no record at or after that time has a lower
    offset there. It reports how many records may be read twice. If a topic has another number of
    partitions on cluster B, its smallest time is used for all of its partitions.

    --buffer auto measures the difference between the append time and the producer's timestamp of
    each batch (kip33 timestamps). It needs topics with only LogAppendTime batches of message
    format v2 on cluster A. If cluster B also has LogAppendTime, and its producers' clocks were
    ahead of it, that is added.

    Each JSON row also has `from_snapshot` and `to_snapshot`, the snapshots that were used, and
    `warnings`, one for each newer snapshot that is damaged and was ignored. With
    --buffer auto it also has `buffer_ms`, and a line on standard error says where that is from.
    """
    from kip33.cli.failover_answer import show_failover

    show_failover(request)
