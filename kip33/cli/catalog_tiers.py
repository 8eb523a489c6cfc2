"""`kip33 catalog LOCAL REMOTE`: what is in which tier, and what is wrong between the tiers.

Also the page of holes, which one catalog has, too.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from kip33.catalog.holes import hole_totals, in_order
from kip33.catalog.segment_order import PARTITION, joined
from kip33.catalog.tier_findings import (
    OF_FINDINGS,
    PARTITIONS,
    TIER_FINDINGS,
    compare_tiers,
    holes_of_log,
)
from kip33.catalog.tiers import IS_COPY, IS_DIFFERENT, IS_REMOTE, UNTIL, Tiers
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
from kip33.retention.policy_files import load_policies
from kip33.rules.policies import TopicGlobs, require_topics
from kip33.rules.segment_notes import OF_REMARKS, with_remarks

_ROWS_AT_ONCE: Final = 10_000
_ORDER: Final = (*PARTITION, "base_offset", IS_REMOTE, "log_uri")
_OF_CATALOG: Final = (*PARTITION, "base_offset", "last_offset", "log_uri", "status")
_OF_SEGMENTS: Final = (
    *("log_uri", "status", "error", "tier", IS_COPY, IS_DIFFERENT, UNTIL),
    *(*PARTITION, "base_offset", "last_offset"),
)


def tiers_answer(
    tiers: Tiers,
    topics: Sequence[str],
    statuses: Sequence[str],
    policy: str | None,
    *,
    holes: bool,
    segments: bool,
) -> Output:
    """Return the answer about both tiers; `topics` are globs, `statuses` of listed segments."""
    policies = load_policies(policy) if policy else None
    chosen = _chosen_topics(tiers, topics)
    if segments:
        return _segments(tiers, tiers.tables([*_OF_CATALOG, *OF_REMARKS], chosen), statuses)
    if holes:
        found = (holes_of_log(rows, policies) for rows in tiers.tables(OF_FINDINGS, chosen))
        return holes_answer(in_order(found), _names(tiers))
    partitions, findings = compare_tiers(tiers, policies, chosen)
    return Output(
        page=_page(tiers, partitions, findings),
        head={
            name: {"catalog": tier.catalog.location.uri, "snapshot": tier.snapshot.name}
            for name, tier in zip(("local", "remote"), tiers, strict=True)
        },
        rows=[
            RowList("partitions", rows_of(partitions), "partition", False, PARTITIONS.names),
            RowList("findings", rows_of(findings), "finding", False, TIER_FINDINGS.names),
        ],
    )


def _chosen_topics(tiers: Tiers, globs: Sequence[str]) -> list[str] | None:
    """Return the topics that match, None for all of them; PolicyError if one is not there."""
    if not globs:
        return None
    names, patterns = tiers.topics(), TopicGlobs.of(globs)
    require_topics(globs, names)
    return [name for name in names if patterns.matches(name)]


def _names(tiers: Tiers) -> str:
    return " and ".join(tier.snapshot.name for tier in tiers)


def rows_of(table: pa.Table) -> Iterator[dict[str, Any]]:
    """Yield the rows of a table, of which there may be a million."""
    for batch in table.to_batches(max_chunksize=_ROWS_AT_ONCE):
        yield from batch.to_pylist()


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


def _segments(tiers: Tiers, tables: Iterable[pa.Table], statuses: Sequence[str]) -> Output:
    """Return the segments of both tiers; `statuses`: only of these, () all."""
    if statuses:
        wanted = pc.is_in(pc.field("status"), value_set=pa.array(statuses))
        tables = (rows.filter(wanted) for rows in tables)
    rows = joined(tables, _ORDER)
    tier = pc.if_else(rows[IS_REMOTE], "remote", "local")
    by_status = Counter(rows["status"].to_pylist())
    rows = rows.append_column("tier", tier)
    sources = {
        name: f"{of_tier.snapshot.source.rstrip('/')}/"
        for name, of_tier in zip(("local", "remote"), tiers, strict=True)
    }
    columns = (
        Column("path", lambda row: row["log_uri"].removeprefix(sources[row["tier"]]), is_name=True),
        Column("tier", "tier", rank=0),
        Column("copy", _copy_text, rank=0),
        Column("until", UNTIL, none="", rank=0),
        Column("status", "status", rank=0),
        Column("replica", "log_dir", none="", rank=3),
        Column("error", "error", none="", is_remark=True),
    )
    return Output(
        page=[Table(columns, _remarked(rows), f"segments, {_names(tiers)}", "segments")],
        rows=[RowList("segments", _remarked(rows), "segment", False, _OF_SEGMENTS)],
        summary={
            **{name: of.snapshot.name for name, of in zip(sources, tiers, strict=True)},
            "by_status": by_status,
        },
    )


def _remarked(rows: pa.Table) -> Iterator[Row]:
    return (with_remarks(row, _OF_SEGMENTS) for row in rows_of(rows))


def _copy_text(row: Row) -> str:
    return "differs" if row[IS_DIFFERENT] else "copy" if row[IS_COPY] else ""


def holes_answer(holes: pa.Table, name: str) -> Output:
    """Return holes, and their sums; `name`: of the snapshot, or of both."""
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
