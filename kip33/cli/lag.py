"""`kip33 lag`: the lag of groups in records and in time."""

from typing import Any

import click

from kip33.cli.metrics_file import metrics_options
from kip33.cli.options import (
    format_option,
    max_batch_bytes_option,
    policy_options,
    store_options,
)
from kip33.cli.search_options import LagRequest
from kip33.cli.times import MOMENT


@click.command(
    epilog="Example: kip33 lag /archive/indexes/_catalog --offsets described.txt "
    "--policy conf/retention.toml"
)
@click.argument("catalog_dir", metavar="CATALOG")
@click.option(
    "--offsets",
    required=True,
    metavar="FILE",
    help="Committed offsets: CSV [group,]topic,partition,offset, or the saved output of "
    "`kafka-consumer-groups.sh --describe`.",
)
@click.option(
    "--now",
    type=MOMENT,
    metavar="T",
    help="Time at which retention is evaluated [default: the clock].",
)
@click.option("--snapshot", metavar="NAME", help="Use this snapshot instead of the newest.")
@policy_options
@max_batch_bytes_option
@metrics_options
@store_options
@format_option("table", "json", "jsonl", "csv")
def lag(**options: Any) -> None:
    """Show the lag of committed offsets against CATALOG, in records and in time.

    For each offset: the exact timestamp of the next record, read from the log; the partition's
    newest timestamp; the lag in records and in time. With a policy, also the time at which the
    unread records begin to expire.

    Each JSON row also has the `snapshot` that was used, and `warnings`, one for each newer
    snapshot that is damaged and was ignored.
    """
    from kip33.cli.lag_answer import show_lag

    show_lag(LagRequest(**options))
