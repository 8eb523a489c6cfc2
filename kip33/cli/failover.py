"""`kip33 failover`: where groups go on on another cluster."""

from typing import Any

import click

from kip33.cli.options import format_option, max_batch_bytes_option, store_options
from kip33.cli.times import DURATION


@click.command(
    epilog="Example: kip33 failover --from /dr/a/_catalog --offsets described.txt "
    "--to /dr/b/_catalog --buffer 15m --emit reset-offsets"
)
@click.option("--from", "first", required=True, metavar="CATALOG", help="Where groups read.")
@click.option(
    "--offsets",
    required=True,
    metavar="FILE",
    help="What they committed there: CSV [group,]topic,partition,offset, or the saved text of "
    "`kafka-consumer-groups.sh --describe`.",
)
@click.option("--to", "second", required=True, metavar="CATALOG", help="Where they go on.")
@click.option(
    "--buffer",
    type=DURATION,
    required=True,
    metavar="15m",
    help="Latency between the clusters and difference of clocks, at most.",
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
    """Find where each group goes on: what it read last on one cluster, found on another by time.

    The timestamp of the last record read, minus the buffer, is searched in the other catalog: no
    record at or after it lies before the answer. What may be read twice is counted. Where a
    topic's partitions differ, the topic's smallest time holds for all of them.

    Each JSON row also has `from_snapshot` and `to_snapshot`, the snapshots that were used, and
    `warnings`: one for each newer snapshot that is damaged and was not used.
    """
    from kip33.cli.failover_answer import show_failover

    show_failover(options)
