"""The build job: list, pack, scan with `mapPartitions`, publish, commit one snapshot."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from kip33.errors import LocationError
from kip33.rules.entries import DEFAULT_INDEX_INTERVAL_BYTES, DEFAULT_SEGMENT_INDEX_BYTES
from kip33.rules.indexes import IndexSettings
from kip33.spark.tasks import Progress, run_on_bins
from kip33.storage.building import KEPT, NOT_OURS, WRITTEN, Build, build_segment
from kip33.storage.carrying import carry_over, unlistable_directories
from kip33.storage.catalog import Catalog, Draft, Part, Snapshot
from kip33.storage.files import require_directory, require_writable
from kip33.storage.listing import Segment, segments_of
from kip33.storage.locations import Location
from kip33.storage.parts import PartWriter
from kip33.storage.sources import require_no_file, require_outside_log_dirs, require_segments


class TaskResult(NamedTuple):
    """What a task returns: its part and what it took, never a row."""

    part: Part
    index_bytes: int
    bytes_read: int


@dataclass(frozen=True)
class BuildSummary:
    """What a snapshot holds and a build did, read from its parts."""

    snapshot: str
    catalog: str
    segments: int
    by_status: dict[str, int]
    entries: int
    log_bytes: int
    index_bytes: int  # of the segments that this build looked at
    written: int  # segments whose index files are ours, as they should be
    kept: int  # with index files that kip33 did not write
    kept_though_other: int  # of them: with other bytes than this build's
    failed: int
    carried: int  # rows of topics or directories that this build did not see
    passed_over: dict[str, int]


class BuildPlan(NamedTuple):
    """What a build will do: the listing is done, nothing is written yet."""

    build: Build
    catalog: Catalog
    files: pa.Table  # a LISTING with `ours`: whether we wrote the index files that are there
    topics: tuple[str, ...]  # globs; rows of other topics are carried over
    passed_over: dict[str, int]


def plan_build(
    source: str,
    index_dir: str | None = None,
    *,
    in_place: bool = False,
    catalog: str | None = None,
    dialect: str = "recover",
    index_interval_bytes: int = DEFAULT_INDEX_INTERVAL_BYTES,
    segment_index_bytes: int = DEFAULT_SEGMENT_INDEX_BYTES,
    topics: Sequence[str] = (),
    check_crc: bool = True,
    offset_index: bool = False,
    overwrite: bool = False,
    only_damaged: bool = False,
) -> BuildPlan:
    """Return the plan of a build: every segment below `source` and what is to be done with it.

    Index files go to the same path below `index_dir`, or beside the logs with `in_place`; the
    catalog is `index_dir/_catalog` unless given. Needs no Spark, so that a wrong argument
    (LocationError, CatalogError, ValueError) is told at once.
    """
    settings = IndexSettings(dialect, index_interval_bytes, segment_index_bytes, check_crc)
    settings.require_valid()
    source_location, index_location, catalog_location = require_places(
        source, index_dir, in_place=in_place, catalog=catalog
    )
    require_no_file(index_location, "the index directory")
    require_no_file(catalog_location, "the catalog")
    listing = require_segments(source_location, topics)
    if not in_place:
        require_outside_log_dirs(index_location, listing, "the index directory")
    require_outside_log_dirs(catalog_location, listing, "the catalog")
    build = Build(source_location, index_location, settings, offset_index, overwrite, only_damaged)
    target = Catalog(catalog_location)
    target.require_source(source_location)
    files = listing.table.append_column("ours", _ours(target, build, listing.table))
    return BuildPlan(build, target, files, tuple(topics), dict(listing.passed_over))


def run_build(
    spark: SparkSession,
    plan: BuildPlan,
    *,
    now_ms: int,
    parallelism: int | None = None,
    on_progress: Progress | None = None,
) -> BuildSummary:
    """Carry out a plan: index files, then one catalog snapshot, created at `now_ms`.

    Bad segments are rows, not exceptions. `on_progress` is called with tasks done and in all.
    """
    newest = plan.catalog.newest()
    draft = plan.catalog.begin(plan.build.source)
    require_writable(draft.folder, "the catalog's folder")
    results = run_on_bins(
        spark,
        plan.files,
        partial(build_bin, plan.build, draft),
        parallelism=parallelism,
        on_progress=on_progress,
    )
    parts = [result.part for result in results]
    unlistable = unlistable_directories(plan.build.source, plan.files)
    carried = list(
        carry_over(
            draft, newest, topics=plan.topics, unlistable=unlistable, first_number=len(parts)
        )
        if newest and (plan.topics or unlistable)
        else ()
    )
    snapshot = draft.commit(
        parts + carried,
        settings={"build": plan.build.build_settings, "index_dir": plan.build.index_dir.uri},
        now_ms=now_ms,
    )
    carried_rows = sum(part.rows for part in carried)
    return summarize_build(plan.catalog, snapshot, results, carried_rows, plan.passed_over)


def build_index(
    spark: SparkSession,
    source: str,
    index_dir: str | None = None,
    *,
    now_ms: int,
    parallelism: int | None = None,
    on_progress: Progress | None = None,
    **settings: Any,
) -> BuildSummary:
    """Build every segment's index below `source`, commit a catalog snapshot, return a summary.

    `plan_build` and `run_build` in one; `settings` are the former's: dialect, in_place, catalog,
    topics, offset_index, overwrite, ...
    """
    plan = plan_build(source, index_dir, **settings)
    return run_build(spark, plan, now_ms=now_ms, parallelism=parallelism, on_progress=on_progress)


def require_places(
    source: str, index_dir: str | None, *, in_place: bool, catalog: str | None
) -> tuple[Location, Location, Location]:
    """Return source, index directory and catalog; raise for what cannot be."""
    if in_place == bool(index_dir):
        raise ValueError("one of an index directory (--index-dir) and --in-place is needed")
    if in_place and not catalog:
        raise ValueError("--in-place needs a catalog (--catalog) outside every log directory")
    source_location = Location.of(source)
    require_directory(source_location, "SOURCE")
    index_location = Location.of(index_dir) if index_dir else source_location
    if index_dir and index_location.contains(source_location):
        raise LocationError(
            f"{index_location.uri}: the index directory is SOURCE or holds it; choose another "
            "place, or --in-place"
        )
    place = Location.of(catalog) if catalog else index_location.child("_catalog")
    return source_location, index_location, place


def _ours(catalog: Catalog, build: Build, files: pa.Table) -> "pa.Array[Any]":
    """Return for each file whether the newest snapshot wrote all index files this build would."""
    newest = catalog.newest()
    if newest is None:
        return pa.array([False] * files.num_rows, pa.bool_())
    written: set[str] = set()
    for part in catalog.read_parts(newest, ["index_uri", "index_file", "build_settings"]):
        ours = part.filter(pc.field("index_file") == WRITTEN)
        if build.offset_index:
            ours = ours.filter(pc.match_substring(ours["build_settings"], '"offset_index": true'))
        written.update(filter(None, ours["index_uri"].to_pylist()))
    uris = (build.index_location(segment).uri for segment in segments_of(files))
    return pa.array([uri in written for uri in uris], pa.bool_())


def build_bin(build: Build, draft: Draft, number: int, files: pa.Table) -> Iterator[TaskResult]:
    """Build the segments of one bin and publish their rows as one part: a task's whole work."""
    writer = PartWriter(draft.folder, number)
    index_bytes = bytes_read = 0
    for *fields, ours in zip(*(column.to_pylist() for column in files.columns), strict=True):
        built = build_segment(build, Segment(*fields), ours=ours)
        writer.append(built.row)
        index_bytes += built.index_bytes
        bytes_read += built.bytes_read
    yield TaskResult(writer.publish(), index_bytes, bytes_read)


def summarize_build(
    catalog: Catalog,
    snapshot: Snapshot,
    results: list[TaskResult],
    carried: int,
    passed_over: dict[str, int],
) -> BuildSummary:
    """Return the summary of a committed snapshot; counts come from its parts, one at a time."""
    by_status: dict[str, int] = {}
    totals = dict.fromkeys(("entries", "log_bytes", WRITTEN, KEPT, "other", "failed"), 0)
    columns = ["status", "time_index_entries", "size_bytes", "index_file", "error"]
    for part in catalog.read_parts(snapshot, columns):
        for status, count in _counts(part["status"]).items():
            by_status[status] = by_status.get(status, 0) + count
        totals["entries"] += pc.sum(part["time_index_entries"]).as_py() or 0
        totals["log_bytes"] += pc.sum(part["size_bytes"]).as_py() or 0
        states = _counts(part["index_file"])
        totals[WRITTEN] += states.get(WRITTEN, 0)
        totals[KEPT] += states.get(KEPT, 0)
        totals["other"] += part.filter(pc.match_substring(part["error"], NOT_OURS)).num_rows
        expected = part.filter(pc.is_valid(part["time_index_entries"]))
        totals["failed"] += expected["index_file"].null_count
    return BuildSummary(
        snapshot.name,
        catalog.location.uri,
        snapshot.rows,
        dict(sorted(by_status.items())),
        totals["entries"],
        totals["log_bytes"],
        sum(result.index_bytes for result in results),
        totals[WRITTEN],
        totals[KEPT],
        totals["other"],
        totals["failed"],
        carried,
        passed_over,
    )


def _counts(column: Any) -> dict[str, int]:
    pairs = pc.value_counts(column.drop_null()).to_pylist()
    return {pair["values"]: pair["counts"] for pair in pairs}
