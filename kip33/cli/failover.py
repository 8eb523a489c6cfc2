"""`kip33 failover`: translate consumer-group offsets to another cluster, by timestamp."""

from typing import Any

import click

from kip33.cli.options import format_option, max_batch_bytes_option, store_options
from kip33.cli.search_options import FailoverRequest
from kip33.cli.times import DURATION


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
    type=DURATION,
    required=True,
    metavar="15m",
    help="Upper limit of the replication latency between the clusters plus the difference "
    "of their clocks.",
)
@click.option(
    "--emit",
    type=click.Choice(["reset-offsets"]),
    help="Print only the CSV that kafka-consumer-groups.sh --from-file takes.",
)
@max_batch_bytes_option
@store_options
@format_option("table", "json", "jsonl", "csv")
def failover(**options: Any) -> None:
    """Translate consumer-group offsets from cluster A to cluster B, by timestamp.

    The command takes the timestamp of the last record that a group read on cluster A, subtracts
    the buffer, and finds that time on cluster B: no record at or after that time has a lower
    offset there. It reports how many records may be read twice. If a topic has another number of
    partitions on cluster B, its smallest time is used for all of its partitions.

    Each JSON row also has `from_snapshot` and `to_snapshot`, the snapshots that were used, and
    `warnings`, one for each newer snapshot that is damaged and was ignored.
    """
    from kip33.cli.failover_answer import show_failover

    show_failover(FailoverRequest(**options))
