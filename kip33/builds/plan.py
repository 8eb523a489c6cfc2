"""Plan a build: list the segments, reuse rows of the newest snapshot, read the other segments."""

from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from kip33.archive.broker_locks import locked
from kip33.archive.layouts import layout_of
from kip33.archive.listing import Column, Listing, Unfinished
from kip33.archive.sources import (
    partition_directories,
    require_no_file,
    require_outside_log_dirs,
    require_segments,
)
from kip33.builds.build_options import (
    BuildRequest,
    BuildSpec,
    load_topic_settings,
    require_dialect,
    require_layout,
    require_places,
    require_rows_only,
    require_valid,
    require_written_by_brokers,
)
from kip33.builds.carry_over import CarryOver, ListingScope
from kip33.builds.earlier_builds import claims_of, read_earlier_builds, still_claimed
from kip33.builds.known_segments import ListedSegments, known_segments
from kip33.builds.orphans import OrphanPlan
from kip33.catalog.catalog import Catalog
from kip33.drafts.designs import design_of
from kip33.formats.index_kinds import IndexKind
from kip33.rules.index_builder import IndexSettings
from kip33.stores.locations import Location
from kip33.stores.progress import OnProgress, tell_nobody


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildPlan:
    """The plan of a build: the listing is done, no file is written yet."""

    build: BuildSpec
    catalog: Catalog
    files: pa.Table  # to read: a LISTING with more columns for `builds.task`
    claims: Column  # URIs of index files that the build may write
    still_claimed: Column  # by earlier builds that are lost, below what this one did not list
    carry_over: CarryOver | None
    spoiled: Column  # URIs of unchanged logs whose index files are not as a build left them
    now_ms: int  # when the listing began
    passed_over: dict[str, int]
    unfinished: tuple[Unfinished, ...]
    warnings: tuple[str, ...]  # one line for each ignored snapshot and followed link
    scope: ListingScope
    orphans: OrphanPlan
    beside_logs: tuple[Location, ...]  # in place: the partitions' directories, to be locked


def plan_build(
    request: BuildRequest, *, now_ms: int, on_progress: OnProgress = tell_nobody
) -> BuildPlan:
    """Return the plan of a build: which segments below SOURCE to read, which rows to reuse.

    Index files go to the same path below the index directory, or beside the logs. A catalog has one
    layout in all its builds. Rows of the newest snapshot that can be reused are carried over, none
    with `full` or `only_damaged`. `now_ms` is when the build begins, before the listing. A wrong
    argument is reported before an engine starts: LocationError, CatalogError or ValueError, and
    LockedError in place if a broker uses the log directory.
    """
    require_valid(request)
    settings = IndexSettings.of(request)
    topic_settings = load_topic_settings(settings, request["kafka_configs"])
    if request["in_place"] and not design_of(settings.dialect).is_draft:
        require_written_by_brokers(settings.dialect, settings.untimestamped)
    layout = layout_of(request["layout"])
    if request["in_place"] and not layout.in_place:
        raise ValueError(
            f"--in-place: the layout {request['layout']!r} has no index files beside logs; "
            "give --index-dir"
        )
    source_location, index_location, catalog_location = require_places(request)
    require_no_file(index_location, "the index directory")
    require_no_file(catalog_location, "the catalog")
    target = Catalog(catalog_location)
    target.require_source(source_location)
    newest = target.newest()
    require_layout(newest, layout.name, catalog_location.uri)
    require_dialect(newest, request, catalog_location.uri)
    require_rows_only(newest, request, catalog_location.uri)
    listing = require_segments(
        source_location,
        request["topics"],
        index_dir=index_location if request["index_files"] else None,
        layout=layout,
        time_index=design_of(settings.dialect).file,
        allow_empty=request["allow_empty"],
        if_empty=_ALLOW_EMPTY if newest and newest.rows else "",
        on_progress=on_progress,
    )
    beside_logs = partition_directories(listing) if request["in_place"] else ()
    with locked(beside_logs, make=False):  # later the locks are held during the build
        pass
    if request["index_dir"]:
        require_outside_log_dirs(index_location, listing, "the index directory")
    require_outside_log_dirs(catalog_location, listing, "the catalog")
    build = BuildSpec(
        source=source_location,
        index_dir=index_location,
        settings=topic_settings.default,
        kinds=_kinds(request),
        overwrite=request["overwrite"],
        only_damaged=request["only_damaged"],
        read_tail=request["read"] == "tail",
        layout=layout.name,
        by_topic=topic_settings.by_topic,
        fsync=request["fsync"],
    )
    return _plan(request, build, target, listing, beside_logs, now_ms)


_ALLOW_EMPTY: Final = (
    "; the catalog has segments: make SOURCE complete, or give --allow-empty if all were deleted "
    "on purpose"
)


def _kinds(request: BuildRequest) -> frozenset[IndexKind]:
    """Return the kinds of index files that a build writes."""
    if not request["index_files"]:
        return frozenset()
    return frozenset(IndexKind if request["offset_index"] else {IndexKind.TIME})


def _plan(
    request: BuildRequest,
    build: BuildSpec,
    catalog: Catalog,
    listing: Listing,
    beside_logs: tuple[Location, ...],
    now_ms: int,
) -> BuildPlan:
    past = read_earlier_builds(catalog, build)
    listed = ListedSegments.of(build, listing.table, past)
    unlistable = _unlistable(build.source, listed.files)
    scope = ListingScope(past.newest, tuple(request["topics"]), unlistable, now_ms)
    reuse = not (request["full"] or request["only_damaged"])
    known = known_segments(build, catalog, listed, past, scope, reuse=reuse)
    to_read = known.to_read(listed.files)
    build = build._replace(lists_puts=_lists_puts(build, to_read, listed.files))
    wanted = listed.wanted.filter(pa.array(~known.reusable))
    return BuildPlan(
        build=build,
        catalog=catalog,
        files=to_read,
        claims=claims_of(build, wanted, to_read),
        still_claimed=(
            still_claimed(past.claimed, listed.wanted) if scope.is_partial else past.claimed[:0]
        ),
        carry_over=known.carry_over,
        spoiled=listed.uris.filter(pa.array(known.is_spoiled)),
        now_ms=now_ms,
        passed_over=dict(listing.passed_over),
        unfinished=listing.unfinished,
        warnings=(*known.warnings, *listing.links),
        scope=scope,
        orphans=known.orphans,
        beside_logs=beside_logs,
    )


def _lists_puts(build: BuildSpec, to_read: pa.Table, files: pa.Table) -> bool:
    """Return whether a listing of an index folder has mostly files that this build puts there."""
    return build.index_dir.is_object_store and 2 * to_read.num_rows > files.num_rows


def _unlistable(source: Location, files: pa.Table) -> tuple[str, ...]:
    """Return the URIs, a slash at the end, of the directories that the listing could not enter."""
    paths = files.filter(pc.is_null(files["last_modified_ms"]))["path"]
    return tuple(source.child(path or "").uri + "/" for path in paths.to_pylist())
