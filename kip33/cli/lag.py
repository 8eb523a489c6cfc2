"""`kip33 lag`: the lag of groups in records and in time."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import click

from kip33.catalog.tiers import CatalogSnapshot
from kip33.cli.metrics_file import MetricsRequest, metrics_options, publish_metrics
from kip33.cli.options import (
    PolicyOptions,
    format_option,
    makes_request,
    max_batch_bytes_option,
    policy_options,
    store_options,
    topic_option,
)
from kip33.cli.output import (
    Column,
    Output,
    Row,
    RowList,
    Table,
    choose_and_warn,
    counted,
    human_bytes,
    human_duration,
    iso_time,
    open_catalog_dir,
    partition_name,
    show,
)
from kip33.cli.progress import progress_line
from kip33.cli.times import MOMENT, current_ms
from kip33.rules.policies import TopicGlobs
from kip33.search.answers import load_group_offsets
from kip33.search.catalog_search import by_partition, rows_of
from kip33.search.group_lag import GroupLag, group_lags
from kip33.stores.progress import Phase, Progress


@dataclass(frozen=True, kw_only=True)
class LagCommand:
    """The options of `kip33 lag`; None if not given."""

    catalog_dir: str
    offsets: str  # a file
    now: int | None  # ms
    snapshot: str | None
    policy: PolicyOptions
    max_batch_bytes: int
    output_format: str
    metrics: MetricsRequest
    topics: tuple[str, ...]


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
    "`kafka-consumer-groups.sh --describe` or `kafka-share-groups.sh --describe`.",
)
@click.option(
    "--now",
    type=MOMENT,
    metavar="T",
    help="Time at which retention is evaluated [default: the clock].",
)
@topic_option
@click.option("--snapshot", metavar="NAME", help="Use this snapshot instead of the newest.")
@policy_options
@max_batch_bytes_option
@metrics_options
@store_options
@format_option
@makes_request(LagCommand)
def lag(options: LagCommand) -> None:
    """Show the lag of committed offsets against CATALOG, in records and in time.

    For each offset: the exact timestamp of the next record, read from the log; the partition's
    newest timestamp; the lag in records and in time. With a policy, also the time at which the
    unread records begin to expire.

    Each JSON row also has the `snapshot` that was used, and `warnings`, one for each newer
    snapshot that is damaged and was ignored.
    """
    started = time.monotonic()
    catalog = open_catalog_dir(options.catalog_dir)
    choice = choose_and_warn(catalog, options.snapshot)
    snapshot = choice.snapshot
    globs = TopicGlobs.of(options.topics)
    offsets = [one for one in load_group_offsets(options.offsets) if globs.matches(one.topic)]
    with progress_line("lag") as on_progress:
        on_progress(Progress(Phase.READING_CATALOG))
        rows = rows_of(CatalogSnapshot(catalog, snapshot), {one.topic for one in offsets})
        lags = group_lags(
            by_partition(rows),
            offsets,
            policies=options.policy.load(),
            retention_ms=options.policy.retention_ms,
            now_ms=current_ms() if options.now is None else options.now,
            max_batch_bytes=options.max_batch_bytes,
            on_progress=on_progress,
        )
    if options.metrics.metrics_file:
        from kip33.cli.metrics_file import lag_gauges

        labels = {"catalog": catalog.location.uri}
        publish_metrics(options.metrics, "lag", labels, lag_gauges(lags, options.metrics))
    found = [one._asdict() for one in lags]
    context = {"snapshot": snapshot.name, "warnings": choice.warnings}
    answer = Output(
        page=_page(found, snapshot.source, started),
        rows=[RowList("", ({**row, **context} for row in found), columns=GroupLag._fields)],
        summary={
            "offsets": len(found),
            "bytes_read": sum(one.bytes_read for one in lags),
            "seconds": round(time.monotonic() - started, 3),
            **context,
        },
    )
    show(answer, options.output_format)


def _page(lags: Sequence[Row], source: str, started: float) -> Iterator[Table | str]:
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
    bytes_read = human_bytes(sum(lag["bytes_read"] for lag in lags))
    yield f"{counted(len(lags), 'offset')}; {bytes_read} read in {time.monotonic() - started:.1f} s"
