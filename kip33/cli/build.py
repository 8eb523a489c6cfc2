"""`kip33 build`: write index files and a catalog snapshot."""

import shlex
from dataclasses import asdict
from functools import cache, partial
from typing import TYPE_CHECKING, Final

import click

from kip33.builds.build_options import BuildOptions, BuildRequest
from kip33.catalog.segment_findings import NEW, UNWRITTEN, read_segment_findings
from kip33.cli.declared_options import options_of
from kip33.cli.metrics_file import GaugeSamples, MetricsRequest, build_gauges
from kip33.cli.option_groups import GroupedCommand
from kip33.cli.output import (
    Output,
    OutputFinding,
    Row,
    Table,
    counted,
    counts_text,
    facts,
    human_bytes,
    skipped_facts,
    some,
    warn,
)
from kip33.cli.runs import CommandRun, Findings, runs
from kip33.rules.offset_holes import HoleTotals, missing_holes
from kip33.rules.retention import KEPT_STATUSES
from kip33.rules.segment_summary import DAMAGED_STATUSES, SegmentStatus
from kip33.stores.locations import Location

if TYPE_CHECKING:
    from kip33.catalog.catalog import Catalog, Snapshot

DAMAGED, MISSING_OFFSETS = "damaged", "holes"  # findings of --fail-on beside the statuses


_FINDINGS: Final = Findings(
    [*(status.value for status in SegmentStatus), DAMAGED, UNWRITTEN, MISSING_OFFSETS],
    f"Exit 3 if any segment has this status: {', '.join(SegmentStatus)}. damaged: truncated, "
    "invalid or unreadable. unwritten: if an index "
    "file could not be written (without this option: exit 1). holes: if offsets are missing "
    "between segments.",
    "STATUS,...",
)


@click.command(
    cls=GroupedCommand,
    epilog="Example: kip33 build /archive/kafka-logs --index-dir /archive/indexes --offset-index",
)
@click.argument("source")
@click.option(
    "--index-dir",
    metavar="DIR",
    help="Write index files below this directory, at the same relative paths.",
)
@options_of(BuildOptions)
@runs(metrics=True, findings=_FINDINGS)
def build(request: BuildRequest, run: CommandRun) -> Output:
    """Build .timeindex files and a catalog snapshot from the segments below SOURCE.

    SOURCE is a local path or a URI: a log directory, a tree of log directories, or an archive of
    another --layout. Every segment gets a row in the catalog. A damaged segment is indexed up to
    the point where a broker would cut it, and its row says so.

    Later builds read only new and changed segments; they copy the other rows from the catalog's
    newest snapshot. If a build is interrupted, that snapshot stays valid, and the next build
    continues from it.
    """
    from kip33.builds.commit import run_build

    done = run_build(request, run.open_engine(), now_ms=run.started_ms, warn=warn)
    record = asdict(done)
    return Output(
        page=lambda summary: [_facts(summary)],
        summary=record,
        findings=_findings(record),
        incomplete=[UNWRITTEN],
        gauges=_gauges,
        labels={"catalog": record["catalog"]},
    )


def _findings(record: Row) -> dict[str, OutputFinding]:
    """Return the findings; the catalog is read only if their examples are shown."""
    counts: dict[str, int] = {**record["by_status"], UNWRITTEN: record["failed"]}

    @cache
    def chosen() -> tuple["Catalog", "Snapshot"]:
        from kip33.catalog.catalog import Catalog

        catalog = Catalog.at(record["catalog"])
        return catalog, catalog.named(record["snapshot"])

    @cache
    def segments() -> dict[str, list[str]]:
        catalog, snapshot = chosen()
        found = read_segment_findings(catalog, snapshot, catalog.before(snapshot))
        return {
            name: [one.text(snapshot.source) for one in of_name.first]
            for name, of_name in found.items()
        }

    def examples(*names: str) -> list[str]:
        every = [line for name in names for line in segments().get(name, [])]
        return sorted(every, key=lambda line: not line.startswith(NEW))

    def holes() -> list[str]:
        from kip33.catalog.holes import new_holes_first

        catalog, snapshot = chosen()
        return new_holes_first(catalog, snapshot, catalog.before(snapshot))

    word = shlex.quote(Location.of(record["catalog"]).word)
    rows = f"kip33 catalog segments {word}"
    damaged = sum(counts.get(one, 0) for one in DAMAGED_STATUSES)
    return {
        **{
            name: OutputFinding(
                *(count, "segment", partial(examples, name)),
                command=rows if name == UNWRITTEN else f"{rows} --status {name}",
                is_wrong=name in (*KEPT_STATUSES, UNWRITTEN),
            )
            for name, count in counts.items()
        },
        DAMAGED: OutputFinding(
            *(damaged, "segment", partial(examples, *DAMAGED_STATUSES), rows), is_wrong=False
        ),
        MISSING_OFFSETS: OutputFinding(
            *(missing_holes(record["by_hole"]), "hole", holes, f"kip33 catalog holes {word}")
        ),
    }


def _gauges(record: Row, metrics: MetricsRequest) -> list[GaugeSamples]:
    from kip33.catalog.catalog import Catalog
    from kip33.catalog.topic_totals import topic_totals

    catalog = Catalog.at(record["catalog"])
    by_topic = metrics.metrics_by is not None
    topics = topic_totals(catalog, catalog.named(record["snapshot"])) if by_topic else []
    return build_gauges(record, topics, metrics)


def _facts(record: Row) -> Table:
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
        (
            "healed",
            some(
                record["healed"],
                "{:,} whose index files had been changed or were missing, and were written again",
            ),
        ),
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
