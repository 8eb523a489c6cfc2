"""`kip33 catalog LOCAL REMOTE`; `catalog segments` and `catalog holes` of one catalog or two."""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, Final

import click
import pyarrow as pa

from kip33.api.catalog_options import HoleOptions, SegmentOptions
from kip33.catalog.catalog_answers import TIER_COLUMNS, holes_in, segments_of
from kip33.catalog.catalog_columns import rows_of
from kip33.catalog.holes import hole_totals
from kip33.catalog.logs import UNTIL
from kip33.catalog.segment_order import PARTITION
from kip33.catalog.tier_findings import PARTITIONS, TIER_FINDINGS, TierComparison
from kip33.catalog.tiers import IS_COPY, IS_DIFFERENT, CatalogSnapshot, Tiers
from kip33.cli.catalog_places import CatalogPlaces, catalog_places
from kip33.cli.declared_options import ChoiceList, options_of
from kip33.cli.modes import Mode
from kip33.cli.output import (
    Column,
    Output,
    Row,
    RowList,
    Table,
    counted,
    counts_text,
    partition_name,
)
from kip33.cli.runs import CommandRun, runs
from kip33.retention.policy_files import load_policies
from kip33.rules.segment_notes import OF_REMARKS, with_remarks
from kip33.rules.segment_summary import SegmentStatus

_OF_CATALOG: Final = ("log_uri", "status", "error")
_OF_BOTH: Final = (
    *("log_uri", "status", "error"),
    *TIER_COLUMNS,
    *(*PARTITION, "base_offset", "last_offset"),
)


def tiers_output(tiers: Tiers, found: TierComparison) -> Output:
    """Return what is in which tier, and what is wrong between the tiers."""
    return Output(
        page=_page(tiers, *found),
        head={
            name: {"catalog": tier.catalog.location.uri, "snapshot": tier.snapshot.name}
            for name, tier in _named(tiers).items()
        },
        rows=[
            RowList("partitions", rows_of(found.partitions), "partition", False, PARTITIONS.names),
            RowList("findings", rows_of(found.findings), "finding", False, TIER_FINDINGS.names),
        ],
    )


def _named(source: CatalogSnapshot | Tiers) -> dict[str, CatalogSnapshot]:
    """Return the catalog, or both, by what a summary calls its snapshot."""
    if isinstance(source, Tiers):
        return dict(zip(("local", "remote"), source, strict=True))
    return {"snapshot": source}


def _names(source: CatalogSnapshot | Tiers) -> str:
    """Return the name of the snapshot, or of both."""
    return " and ".join(one.snapshot.name for one in _named(source).values())


def _page(tiers: Tiers, partitions: pa.Table, found: pa.Table) -> Iterator[Table | str]:
    yield Table(_PARTITION_COLUMNS, rows_of(partitions), f"tiers, {_names(tiers)}", "partitions")
    counts: Counter[Any] = Counter(found["finding"].to_pylist())
    if counts:
        yield Table(_FINDING_COLUMNS, rows_of(found), "findings", "findings")
    what = counts_text(counts) if counts else "nothing is wrong between the tiers"
    yield f"{counted(partitions.num_rows, 'partition')}: {what}"


def _range(tier: str) -> Any:
    def shown(row: Row) -> str | None:
        first, last = (row[f"{tier}_{end}_offset"] for end in ("first", "last"))
        if first is None:
            return None
        return f"{first:,} to {'?' if last is None else f'{last:,}'}"

    return shown


_PARTITION_COLUMNS: Final = (
    Column("partition", partition_name, is_name=True),
    Column("remote offsets", _range("remote"), rank=2),
    Column("local offsets", _range("local"), rank=2),
    Column("only remote", "only_remote", rank=0),
    Column("copies", "copies", rank=0),
    Column("only local", "only_local", rank=0),
)
_FINDING_COLUMNS: Final = (
    Column("finding", "finding", rank=0),
    Column("partition", partition_name, is_name=True),
    Column("from", "first_offset", rank=0),
    Column("to", "last_offset", rank=0, none="?"),
    Column("segments", lambda row: ", ".join(map(_file_name, row["segments"])), rank=3),
    Column("what to do", "advice", is_remark=True),
)


def _file_name(uri: str) -> str:
    return uri.rpartition("/")[2]


@click.command(
    "segments",
    cls=Mode,
    epilog="Example: kip33 catalog segments indexes/_catalog --status unreadable",
)
@catalog_places
@options_of(SegmentOptions, statuses=ChoiceList([status.value for status in SegmentStatus]))
@runs(work="here", summary=False)
def catalog_segments(places: CatalogPlaces, which: SegmentOptions, run: CommandRun) -> Output:
    """Show path, status and error of each segment.

    --status unreadable shows those whose logs could not be read. With tiered storage, give the
    catalog of the log directories and that of the remote tier, in any order: then it also shows
    in which tier a segment is, and whether it is a copy.
    """
    source, _ = places.chosen()
    counts: Counter[str] = Counter()
    rows: Iterable[Row] = _counted(source, which, counts)
    if run.options.output_format == "json":  # which has the counts before the rows
        rows = list(rows)
    names: Row = {name: of.snapshot.name for name, of in _named(source).items()}
    fields = _OF_BOTH if isinstance(source, Tiers) else _OF_CATALOG
    return Output(
        page=[Table([*_columns(source)], rows, f"segments, {_names(source)}", "segments")],
        rows=[RowList("segments", rows, "segment", columns=fields)],
        summary={**names, "by_status": counts},
        is_streamed=True,
    )


def _counted(
    source: CatalogSnapshot | Tiers, which: SegmentOptions, counts: Counter[str]
) -> Iterator[Row]:
    """Yield the segments, and count them by status."""
    fields = _OF_BOTH if isinstance(source, Tiers) else _OF_CATALOG
    needed = [*dict.fromkeys(name for name in (*fields, *OF_REMARKS) if name not in TIER_COLUMNS)]
    for table in segments_of(source, needed, which["topics"], which["statuses"]):
        for row in rows_of(table):
            counts[row["status"]] += 1
            yield with_remarks(row, fields)


def _columns(source: CatalogSnapshot | Tiers) -> Iterator[Column]:
    """Yield the columns; some are of two tiers only."""
    of_both = isinstance(source, Tiers)
    below = {name: f"{of.snapshot.source.rstrip('/')}/" for name, of in _named(source).items()}
    yield Column(
        "path",
        lambda row: row["log_uri"].removeprefix(below[row.get("tier", "snapshot")]),
        is_name=True,
    )
    if of_both:
        yield Column("tier", "tier", rank=0)
        yield Column("copy", _copy_text, rank=0)
        yield Column("until", UNTIL, none="", rank=0)
    yield Column("status", "status", rank=0)
    if of_both:
        yield Column("replica", "log_dir", none="", rank=3)
    yield Column("error", "error", none="", is_remark=True)


def _copy_text(row: Row) -> str:
    return "differs" if row[IS_DIFFERENT] else "copy" if row[IS_COPY] else ""


@click.command(
    "holes",
    cls=Mode,
    epilog="Example: kip33 catalog holes indexes/_catalog --policy conf/retention.toml",
)
@catalog_places
@options_of(HoleOptions)
@runs(work="here", summary=False)
def catalog_holes(places: CatalogPlaces, which: HoleOptions, run: CommandRun) -> Output:
    """Show the offsets that are missing between two segments of a partition.

    A hole is a place where the next segment does not begin at the end of the one before. certain:
    records are missing. possible: the topic is compacted, by --policy or because it has fewer
    records than offsets. after damage: the segment before is damaged. filled: another replica has
    these offsets. Offsets missing before the first segment are normal.

    With tiered storage, give the catalog of the log directories and that of the remote tier, in
    any order: the holes are those of both together.
    """
    source, _ = places.chosen()
    file: Any = which["policies"]
    policies = load_policies(file) if file else None
    holes, name = holes_in(source, which["topics"], policies), _names(source)
    totals = hole_totals(holes)
    page: list[Table | str] = [
        Table(_HOLE_COLUMNS, rows_of(holes), f"missing offsets, {name}", "holes"),
        f"holes: {totals.as_text()}",
    ]
    if not holes.num_rows:
        page = [f"{name}: no offsets are missing after segments whose end is known."]
    return Output(
        page=page,
        rows=[RowList("holes", rows_of(holes), "hole", columns=holes.schema.names)],
        summary={"snapshot": name, **totals._asdict()},
    )


_HOLE_COLUMNS: Final = (
    Column("partition", partition_name, is_name=True),
    Column("missing", "missing_offsets"),
    Column("from", "first_offset", rank=0),
    Column("to", "last_offset", rank=0),
    Column("hole", "hole", rank=0),
    Column("after", lambda row: _file_name(row["after"]), rank=2),
)
