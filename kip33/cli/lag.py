"""`kip33 lag`: how far groups are behind, in records and in time."""

from typing import Any

import click

from kip33.cli.options import (
    format_option,
    max_batch_bytes_option,
    policy_options,
    store_options,
)
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
    help="CSV [group,]topic,partition,offset, or the saved text of "
    "`kafka-consumer-groups.sh --describe`.",
)
@click.option("--now", type=MOMENT, metavar="T", help="For retention [default: the clock].")
@click.option("--snapshot", metavar="NAME", help="This snapshot instead of the newest.")
@policy_options
@max_batch_bytes_option
@store_options
@format_option("table", "json", "jsonl", "csv")
def lag(**options: Any) -> None:
    """Hold committed offsets against CATALOG: the next record's timestamp, exact, from the log.

    For each offset the partition's newest timestamp, the lag in records and in time, and with a
    policy when what is unread begins to expire.

    Each JSON row also has the `snapshot` that it comes from and `warnings`: one for each newer
    snapshot that is damaged and was not used.
    """
    from kip33.cli.lag_answer import show_lag

    show_lag(options)
