"""`kip33 lag`: the lag of groups in records and in time."""

from collections.abc import Iterator, Sequence
from functools import partial

import click

from kip33.archive.common_options import RetentionPolicies
from kip33.archive.moments import time_or_now
from kip33.cli.catalog_places import chosen_snapshot
from kip33.cli.declared_options import options_of
from kip33.cli.metrics_file import lag_gauges
from kip33.cli.option_groups import GroupedCommand
from kip33.cli.output import (
    Column,
    Output,
    Row,
    RowList,
    Table,
    counted,
    human_bytes,
    human_duration,
    iso_time,
    partition_name,
    warn,
)
from kip33.cli.runs import CommandRun, runs
from kip33.retention.policy_files import policies_of
from kip33.search.answers import load_group_offsets
from kip33.search.catalog_search import partitions_of
from kip33.search.group_lag import GroupLag, LagOptions, group_lags
from kip33.stores.progress import Phase, Progress


@click.command(
    cls=GroupedCommand,
    epilog="Example: kip33 lag /archive/indexes/_catalog --offsets described.txt "
    "--policy conf/retention.toml",
)
@click.argument("catalog_dir", metavar="CATALOG")
@click.option(
    "--offsets",
    required=True,
    metavar="FILE",
    help="Committed offsets: CSV [group,]topic,partition,offset, or the saved output of "
    "`kafka-consumer-groups.sh --describe` or `kafka-share-groups.sh --describe`.",
)
@options_of(LagOptions)
@options_of(RetentionPolicies)
@runs(work="here", summary=False, metrics=True)
def lag(
    catalog_dir: str, offsets: str, asked: LagOptions, policies: RetentionPolicies, run: CommandRun
) -> Output:
    """Show the lag of committed offsets against CATALOG, in records and in time.

    For each offset: the exact timestamp of the next record, read from the log; the partition's
    newest timestamp; the lag in records and in time. With a policy, also the time at which the
    unread records begin to expire.

    Each JSON row also has the `snapshot` that was used, and `warnings`, one for each newer
    snapshot that is damaged and was ignored.
    """
    source, warnings = chosen_snapshot(catalog_dir, asked["snapshot"])
    committed = load_group_offsets(offsets, asked["topics"], warn)
    run.on_progress(Progress(Phase.READING_CATALOG))
    limit = policies["retention_ms"]
    lags = group_lags(
        partitions_of(source, {one.topic for one in committed}),
        committed,
        policies=policies_of(**policies),
        retention_ms=limit if isinstance(limit, int) else None,  # of a command line it is ms
        now_ms=time_or_now(asked["now"]),
        max_batch_bytes=asked["max_batch_bytes"],
        on_progress=run.on_progress,
    )
    found = [one._asdict() for one in lags]
    context = {"snapshot": source.snapshot.name, "warnings": warnings}
    return Output(
        page=partial(_page, found, source.snapshot.source),
        rows=[RowList("", ({**row, **context} for row in found), columns=GroupLag._fields)],
        summary={
            "offsets": len(found),
            "bytes_read": sum(one.bytes_read for one in lags),
            **context,
        },
        gauges=lambda _, metrics: lag_gauges(lags, metrics),
        labels={"catalog": source.catalog.location.uri},
    )


def _page(lags: Sequence[Row], source: str, summary: Row) -> Iterator[Table | str]:
    columns = (
        Column("group", lambda lag: lag["group"] or "-", is_name=True),
        Column("partition", partition_name, is_name=True),
        Column("offset", "offset", rank=3),
        Column("lag in records", "lag_records", rank=0),
        Column("lag in time", "lag_ms", human_duration, rank=0),
        Column("next record", "timestamp", iso_time, rank=3),
        Column("newest", "newest_timestamp", iso_time, rank=4),
        Column("unread expires at", "unread_expires_at_ms", iso_time, rank=2),
        Column("result", "result"),
        Column("note", lambda lag: (lag["note"] or "").replace(f"{source}/", ""), is_remark=True),
    )
    yield Table(columns, lags)
    bytes_read = human_bytes(summary["bytes_read"])
    yield f"{counted(len(lags), 'offset')}; {bytes_read} read in {summary['seconds']:.1f} s"
