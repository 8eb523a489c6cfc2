"""`kip33 build`: write index files and a catalog snapshot."""

import sys
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

import click

from kip33.builds.build_options import BuildOptions, BuildRequest
from kip33.cli.declared_options import options_of
from kip33.cli.engine_option import EngineOptions, open_engine
from kip33.cli.metrics_file import MetricsRequest, metrics_options, publish_metrics
from kip33.cli.options import (
    engine_options,
    format_option,
    makes_request,
    publish_summary,
    spark_options,
    summary_option,
)
from kip33.cli.output import (
    Output,
    Table,
    counted,
    counts_text,
    facts,
    human_bytes,
    show,
    skipped_facts,
    some,
    warn,
)
from kip33.cli.progress import progress_line
from kip33.errors import exit_code_of
from kip33.rules.offset_holes import HoleTotals, missing_holes
from kip33.rules.segment_summary import SegmentStatus

if TYPE_CHECKING:
    from kip33.stores.locations import Location

UNWRITTEN: Final = "unwritten"  # a finding of --fail-on beside the statuses
MISSING_OFFSETS: Final = "holes"  # another one


@dataclass(frozen=True, kw_only=True)
class BuildCommand:
    """The options of `kip33 build`."""

    build: BuildRequest
    engine: EngineOptions
    fail_on: tuple[str, ...]
    summary_file: "Location | None"
    metrics: MetricsRequest
    output_format: str


@click.command(
    epilog="Example: kip33 build /archive/kafka-logs --index-dir /archive/indexes --offset-index"
)
@click.argument("source")
@click.option(
    "--index-dir",
    metavar="DIR",
    help="Write index files below this directory, at the same relative paths.",
)
@options_of(BuildOptions)
@click.option(
    "--fail-on",
    multiple=True,
    type=click.Choice([*(status.value for status in SegmentStatus), UNWRITTEN, MISSING_OFFSETS]),
    metavar="STATUS",
    help=f"Exit 3 if any segment has this status: {', '.join(SegmentStatus)}. unwritten: if an "
    "index file could not be written (without this option: exit 1). holes: if offsets are missing "
    "between segments. May be repeated.",
)
@summary_option
@metrics_options
@engine_options
@spark_options
@format_option
@makes_request(BuildCommand)
def build(request: BuildCommand) -> None:
    """Build .timeindex files and a catalog snapshot from the segments below SOURCE.

    SOURCE is a local path or a URI: a log directory, a tree of log directories, or an archive of
    another --layout. Every segment gets a row in the catalog. A damaged segment is indexed up to
    the point where a broker would cut it, and its row says so.

    Later builds read only new and changed segments; they copy the other rows from the catalog's
    newest snapshot. If a build is interrupted, that snapshot stays valid, and the next build
    continues from it.
    """
    from kip33.builds.commit import run_build

    started = time.time()
    with progress_line("build") as on_progress:
        engine = open_engine(request.engine, on_progress)
        summary = run_build(
            request.build,
            engine,
            now_ms=int(started * 1000),
            warn=warn,
        )
    record = asdict(summary) | {
        "engine": engine.name,
        "workers": engine.workers,
        "seconds": round(time.time() - started, 3),
    }
    publish_summary(request.summary_file, record)
    _publish_metrics(request.metrics, record)
    show(Output(page=[_facts(record)], summary=record), request.output_format)
    findings = record["by_status"] | {
        UNWRITTEN: record["failed"],
        MISSING_OFFSETS: missing_holes(record["by_hole"]),
    }
    sys.exit(
        exit_code_of(
            findings=any(findings.get(finding) for finding in request.fail_on),
            incomplete=bool(record["failed"]),
        )
    )


def _publish_metrics(metrics: MetricsRequest, record: dict[str, Any]) -> None:
    if metrics.metrics_file is None:
        return
    from kip33.catalog.catalog import Catalog
    from kip33.catalog.topic_totals import topic_totals
    from kip33.cli.metrics_file import build_gauges

    catalog = Catalog.at(record["catalog"])
    asked = metrics.asks_for_topics
    topics = topic_totals(catalog, catalog.named(record["snapshot"])) if asked else []
    gauges = build_gauges(record, topics, metrics)
    publish_metrics(metrics, "build", {"catalog": record["catalog"]}, gauges)


def _facts(record: dict[str, Any]) -> Table:
    hidden, aborts = record["hidden_from_recovery"], record["aborts_hidden"]
    statuses = counts_text(record["by_status"])
    files_written = record["files_written"]
    unchanged = max(0, record["index_files"] - files_written)
    stops, doubled = record["may_not_start"], len(record["two_directories"])
    without = record["without_index_files"]
    orphaned, carried, dropped = record["orphaned"], record["carried"], record["dropped"]
    orphaned_size = human_bytes(record["orphaned_bytes"])
    holes = HoleTotals(record["by_hole"], record["missing_offsets"])
    other = "{:,} kept, with other content; --overwrite replaces them"
    return facts(
        "build",
        ("snapshot", record["snapshot"]),
        ("catalog", record["catalog"]),
        ("segments", f"{record['segments']:,}{statuses and f': {statuses}'}"),
        ("indexed", f"{record['indexed']:,}; {human_bytes(record['bytes_read'])} read from logs"),
        ("reused", f"{record['reused']:,} unchanged"),
        ("log bytes", human_bytes(record["log_bytes"])),
        ("index entries", f"{record['entries']:,} in {human_bytes(record['index_bytes'])}"),
        ("index files", f"{files_written:,} written, {unchanged:,} unchanged"),
        ("without index files", some(without, "{:,}, because of --no-index-files")),
        ("kept", some(record["kept"], "{:,} that kip33 did not write")),
        ("different", some(record["kept_though_other"], other)),
        ("not written", some(record["failed"], "{:,}; see column `error` of the catalog")),
        (
            "hidden from recovery",
            some(hidden, f"{counted(hidden, 'damaged log')}, because of the .index"),
        ),
        (
            "aborts hidden",
            some(aborts, f"{counted(aborts, 'log')} without .txnindex, because of the .index"),
        ),
        ("a broker may not start", some(stops, f"because of {counted(stops, 'log')}")),
        ("in two directories", some(doubled, counted(doubled, "partition"))),
        ("dropped", some(dropped, f"{counted(dropped, 'segment')}, no longer there")),
        (
            "orphaned",
            some(orphaned, f"{counted(orphaned, 'index file')} without a log; {orphaned_size}"),
        ),
        ("holes", holes.as_text() if record["by_hole"] else None),
        (
            "carried over",
            some(carried, f"{counted(carried, 'segment')} that this build did not list"),
        ),
        *skipped_facts(record["passed_over"]),
        ("engine", f"{record['engine']}, {counted(record['workers'], 'worker')}"),
        ("seconds", f"{record['seconds']:.1f}"),
    )
