"""`kip33 count`: records per period."""

import click

from kip33.cli.options import (
    format_option,
    makes_request,
    store_options,
    summary_option,
    workers_option,
)
from kip33.cli.records_options import CountCommand, choice_options, on_error_option
from kip33.cli.times import Quantity
from kip33.rules.policies import positive_ms


@click.command(
    epilog="Example: kip33 count /archive/indexes/_catalog --topic orders --per 1m "
    "--from 2024-05-01T09:00Z --until 2024-05-01T10:00Z"
)
@choice_options
@click.option(
    "--per",
    "per_ms",
    type=Quantity("period", positive_ms, "1h"),
    required=True,
    metavar="1h",
    help="Length of a period, such as 1m, 1h or 1d. Periods begin at multiples of it since 1970, "
    "UTC.",
)
@on_error_option("skip", "fail")
@workers_option
@store_options
@summary_option
@format_option
@makes_request(CountCommand)
def count(command: CountCommand) -> None:
    """Count the records of SOURCE or CATALOG per topic and period, by their timestamps.

    A row has the topic, the period's start (in milliseconds, and as a time) and the number of
    records. A period without records has no row. Records without a timestamp are counted in a row
    without a start, unless --from or --until is given. Control records are not counted. Of a
    partition that several brokers have, one replica is counted.

    A batch with one record, or with LogAppendTime, is counted from its header and not
    decompressed. Of the others the timestamps are read.

    With tiered storage, give the catalog of the log directories and that of the remote tier, in
    any order: each record of the two tiers is counted once.
    """
    from kip33.cli.count_answer import show_counts

    show_counts(command)
