"""Plan a build: list the segments, reuse rows of the newest snapshot, read the other segments."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kip33.archive.layouts import layout_of
from kip33.archive.listing import Listed, Listing, Unfinished
from kip33.archive.sources import (
    partition_directories,
    require_no_file,
    require_outside_log_dirs,
    require_segments,
)
from kip33.archive.uri_columns import Column, index_uris, log_uris
from kip33.builds.build_spec import BuildSpec
from kip33.builds.carry_over import CarryOver, plan_carry_over
from kip33.builds.orphans import (
    TRANSACTION,
    OrphanPlan,
    find_orphans,
    ours_by_orphans,
    returned_orphans,
    still_orphaned,
)
from kip33.builds.reuse import Mask, ReusableRows, match_listing, read_reusable
from kip33.builds.snapshot_merge import Looked
from kip33.builds.topic_settings import load_topic_settings
from kip33.builds.transaction_reuse import transactions_may_differ
from kip33.catalog.catalog import Catalog
from kip33.catalog.draft import claimed_index_uris
from kip33.catalog.orphan_list import read_orphans
from kip33.catalog.snapshot import Snapshot
from kip33.errors import CatalogError, LocationError, UnreadableCatalogError
from kip33.retention.broker_locks import locked
from kip33.rules.index_builder import IndexSettings
from kip33.rules.index_entries import DIALECTS
from kip33.stores.directory_checks import require_directory
from kip33.stores.locations import Location

FIX_IT: Final = (
    "without it this build cannot tell which index files it owns: fix it and run the command again"
)


class BuildPlan(NamedTuple):
    """The plan of a build: the listing is done, no file is written yet."""

    build: BuildSpec
    catalog: Catalog
    files: pa.Table  # to read: a LISTING with more columns for `builds.task`
    claims: Column  # URIs of index files that the build may write
    takeover: CarryOver | None
    now_ms: int  # when the listing began
    passed_over: dict[str, int]
    unfinished: tuple[Unfinished, ...]
    warnings: tuple[str, ...]  # one line for each snapshot that is ignored
    looked: Looked
    orphans: OrphanPlan
    beside_logs: tuple[Location, ...] = ()  # in place: the partitions' directories

    def locks(self) -> AbstractContextManager[None]:
        """Hold the locks of all log directories into which index files are written.

        Raises LockedError if a broker or another run of kip33 holds one. Only builds in place take
        locks.
        """
        return locked(self.beside_logs)


@dataclass(frozen=True, kw_only=True)
class BuildOptions:
    """The options of a build, except source, index directory and index settings."""

    in_place: bool = False  # index files go beside the logs
    catalog: str | None = None  # its path or URI; default `index_dir/_catalog`
    kafka_configs: str | None = None  # a file with the topics' own index settings
    topics: Sequence[str] = ()  # globs
    layout: str = "kafka"  # a name of `kip33.archive.layouts`, or a pattern
    offset_index: bool = False  # write `.index` and `.txnindex` files too
    overwrite: bool = False  # replace index files that kip33 did not write
    only_damaged: bool = False
    full: bool = False  # read every segment again
    read: str = "log"  # or "tail": use a trustworthy `.timeindex` instead of its log
    fsync: bool = True  # without it a power failure may lose files that were reported as written

    def require_valid(self) -> None:
        """Raise ValueError for options that cannot be combined."""
        if self.read not in ("log", "tail"):
            raise ValueError(f"read {self.read!r}: expected log or tail")
        if self.read == "tail" and self.only_damaged:
            raise ValueError(
                "--only damaged verifies index files against their logs: it cannot be combined "
                "with --read tail"
            )


def plan_build(
    source: str,
    index_dir: str | None = None,
    *,
    now_ms: int,
    settings: IndexSettings | None = None,
    options: BuildOptions | None = None,
    on_listed: Listed | None = None,
) -> BuildPlan:
    """Return the plan of a build: which segments below `source` to read, which rows to reuse.

    Index files go to the same path below `index_dir`, or beside the logs. A catalog has one layout
    in all its builds. Rows of the newest snapshot that can be reused are carried over, none with
    `full` or `only_damaged`. `now_ms` is when the build begins, before the listing.
    This needs no Spark, so a wrong argument is reported immediately: LocationError, CatalogError or
    ValueError, and LockedError in place if a broker uses the log directory.
    """
    settings, options = settings or IndexSettings(), options or BuildOptions()
    options.require_valid()
    topic_settings = load_topic_settings(settings, options.kafka_configs)
    if options.in_place:
        require_written_by_brokers(settings.dialect)
    layout = layout_of(options.layout)
    if options.in_place and not layout.in_place:
        raise ValueError(
            f"--in-place: the layout {options.layout!r} has no index files beside logs; "
            "give --index-dir"
        )
    source_location, index_location, catalog_location = require_places(
        source, index_dir, in_place=options.in_place, catalog=options.catalog
    )
    require_no_file(index_location, "the index directory")
    require_no_file(catalog_location, "the catalog")
    target = Catalog(catalog_location)
    target.require_source(source_location)
    require_layout(target.newest(), layout.name, catalog_location.uri)
    listing = require_segments(
        source_location,
        options.topics,
        index_dir=index_location,
        layout=layout,
        on_listed=on_listed,
    )
    beside_logs = partition_directories(listing) if options.in_place else ()
    with locked(beside_logs, make=False):  # later the locks are held during the build
        pass
    if not options.in_place:
        require_outside_log_dirs(index_location, listing, "the index directory")
    require_outside_log_dirs(catalog_location, listing, "the catalog")
    build = BuildSpec(
        source_location,
        index_location,
        topic_settings.default,
        options.offset_index,
        options.overwrite,
        options.only_damaged,
        options.read == "tail",
        layout.name,
        topic_settings.by_topic,
        options.fsync,
    )
    reuse = not (options.full or options.only_damaged)
    plan = _plan(build, target, listing, now_ms, options.topics, reuse=reuse)
    return plan._replace(beside_logs=beside_logs)


def require_layout(newest: Snapshot | None, layout: str, catalog_uri: str) -> None:
    """Raise CatalogError if a catalog's newest snapshot was built with another layout."""
    if newest and newest.layout != layout:
        raise CatalogError(
            f"{catalog_uri}: built with --layout {newest.layout!r}, not {layout!r}; a "
            "catalog has one layout: give another --catalog"
        )


def require_written_by_brokers(dialect: str) -> None:
    """Raise ValueError for a dialect whose index files must not be beside a broker's logs."""
    if not DIALECTS[dialect].written_by_brokers:
        names = " or ".join(name for name, one in DIALECTS.items() if one.written_by_brokers)
        raise ValueError(
            f"--in-place: brokers do not write the dialect {dialect!r} and would "
            f"misread such files; choose --dialect {names}, or give --index-dir"
        )


def _plan(
    build: BuildSpec,
    catalog: Catalog,
    listing: Listing,
    now_ms: int,
    topics: Sequence[str],
    *,
    reuse: bool,
) -> BuildPlan:
    files = listing.table
    uris = log_uris(build.source, files["path"], files["inside"])
    wanted = index_uris(uris, build.source, build.index_dir)
    past = _look_back(catalog, build)
    newest, known, warnings = past.newest, past.known, past.warnings
    claimed = _is_in(wanted, past.claimed)
    ours, transaction_index_ours = _ours_by_claims(build, files, wanted, past.claimed)
    reusable = np.zeros(files.num_rows, bool)
    takeover = None
    unlistable = _unlistable(build.source, files)
    looked = Looked(newest, tuple(topics), unlistable, now_ms)
    orphans = OrphanPlan.empty()
    log_is_new = np.zeros(files.num_rows, bool)
    if newest and known:
        found = match_listing(
            known,
            files,
            uris,
            listed_ms=now_ms,
            known_listed_ms=newest.created_ms,
            offset_index=build.offset_index,
        )
        reusable = found.reusable & ~_is_in(wanted, past.suspect) if reuse else reusable
        if build.offset_index:
            reusable &= ~transactions_may_differ(files, known, found, reusable)
        ours = ours | found.ours
        transaction_index_ours = transaction_index_ours | found.transaction_index_ours
        earlier, problem = read_orphans(catalog, newest)
        warnings = (*warnings, problem) if problem else warnings
        returned = returned_orphans(earlier, files, wanted)
        by_orphans = ours_by_orphans(
            returned,
            files,
            time_index_ours=claimed | found.time_index_ours,
            ours=ours,
            offset_index=build.offset_index,
        )
        ours = ours | by_orphans
        transaction_index_ours = transaction_index_ours | returned.files[TRANSACTION]
        reusable &= ~by_orphans
        if not build.in_place:
            log_is_new = found.at < 0
        suspect = _is_in(index_uris(known.log_uri, build.source, build.index_dir), past.suspect)
        takeover = plan_carry_over(
            newest,
            known,
            found._replace(reusable=reusable),
            pc.fill_null(files["active_segment"], False).to_numpy(),
            suspect=suspect,
            topics=topics,
            unlistable=unlistable,
        )
        stay = still_orphaned(
            returned,
            ours=ours,
            transaction_index_ours=transaction_index_ours,
            offset_index=build.offset_index,
        )
        table = find_orphans(
            build, known, takeover.gone, suspect, earlier.filter(pa.array(stay)), looked
        )
        orphans = OrphanPlan(table, earlier)
    ours_column = pa.array(ours, pa.bool_())
    transactions_column = pa.array(transaction_index_ours, pa.bool_())
    to_read = (
        files.append_column("ours", ours_column)
        .append_column("transaction_index_ours", transactions_column)
        .append_column("log_is_new", pa.array(log_is_new, pa.bool_()))
        .filter(pa.array(~reusable))
    )
    claims = wanted.filter(pa.array(~reusable)).filter(_may_write(build, to_read))
    if build.offset_index:
        claims = pa.chunked_array([*claims.chunks, *_offset_index_uris(claims).chunks], pa.string())
    return BuildPlan(
        build,
        catalog,
        to_read,
        claims,
        takeover,
        now_ms,
        dict(listing.passed_over),
        listing.unfinished,
        warnings,
        looked,
        orphans,
    )


class _Past(NamedTuple):
    """The index files of earlier builds."""

    newest: Snapshot | None
    known: ReusableRows | None
    warnings: tuple[str, ...]
    claimed: Column  # our index files that may be in no snapshot
    suspect: Column  # of these: perhaps rewritten since the newest snapshot


def _look_back(catalog: Catalog, build: BuildSpec) -> _Past:
    while True:
        committed = set(catalog.commit_names())
        newest, known, warnings = newest_known(catalog, build)
        sequence = newest.sequence if newest else 0
        claimed = claimed_index_uris(catalog, since=sequence)
        suspect = claimed_index_uris(catalog, since=sequence + 1)
        # A build that commits in between removes its claims; then its snapshot has the files.
        if set(catalog.commit_names()) <= committed:
            return _Past(newest, known, warnings, claimed, suspect)


def _is_in(uris: Column, others: Column) -> Mask:
    mask: Mask = pc.is_in(uris, value_set=others).to_numpy().astype(bool)
    return mask


def newest_known(
    catalog: Catalog, build: BuildSpec
) -> tuple[Snapshot | None, ReusableRows | None, tuple[str, ...]]:
    """Return the newest undamaged snapshot, its reusable rows, and warnings about damaged ones.

    Raises UnreadableCatalogError for a file that cannot be read now, which does not prove damage.
    """
    warnings: list[str] = []
    for candidate in catalog.candidates():
        problem = candidate.problem
        if candidate.snapshot and not problem:
            try:
                known = read_reusable(catalog, candidate.snapshot, build)
            except UnreadableCatalogError as error:
                raise UnreadableCatalogError(f"{error}; {FIX_IT}") from error
            except CatalogError as error:
                problem = str(error)
            else:
                return candidate.snapshot, known, tuple(warnings)
        if candidate.is_unreadable:
            raise UnreadableCatalogError(f"{problem}; {FIX_IT}")
        warnings.append(f"{problem}; snapshot {candidate.name} is ignored")
    return None, None, tuple(warnings)


def _ours_by_claims(
    build: BuildSpec, files: pa.Table, wanted: Column, claimed: Column
) -> tuple[Mask, Mask]:
    """Return the segments whose index files, and whose `.txnindex`, killed builds may have written.

    A build without `--offset-index` claims no `.index`, so its claim does not make one ours.
    """
    all_kinds = _is_in(_offset_index_uris(wanted), claimed)
    time_index = _is_in(wanted, claimed)
    if build.offset_index:
        time_index &= pc.is_null(files["target_offset_index_bytes"]).to_numpy()
    return all_kinds | time_index, all_kinds


def _offset_index_uris(time_index_uris: Column) -> Column:
    stems = pc.utf8_slice_codeunits(time_index_uris, start=0, stop=-len(".timeindex"))
    return pc.binary_join_element_wise(stems, ".index", "")


def _may_write(build: BuildSpec, files: pa.Table) -> Column:
    """Return for each file whether its index files are claimed by us or missing."""
    nothing_there = pc.is_null(files["target_time_index_bytes"])
    if build.offset_index:
        nothing_there = pc.and_(nothing_there, pc.is_null(files["target_offset_index_bytes"]))
    no_transaction_index = pc.is_null(files["target_transaction_index_bytes"])
    transactions = pc.or_(files["transaction_index_ours"], no_transaction_index)
    may_write = pc.or_(files["ours"], nothing_there)
    if build.offset_index:  # a claim covers all index files of a segment
        may_write = pc.and_(may_write, transactions)
    return pc.and_(pc.is_valid(files["base_offset"]), may_write)


def _unlistable(source: Location, files: pa.Table) -> tuple[str, ...]:
    """Return the URIs, a slash at the end, of the directories that the listing could not enter."""
    paths = files.filter(pc.is_null(files["last_modified_ms"]))["path"]
    return tuple(source.child(path or "").uri + "/" for path in paths.to_pylist())


def require_places(
    source: str, index_dir: str | None, *, in_place: bool, catalog: str | None
) -> tuple[Location, Location, Location]:
    """Return source, index directory and catalog; raises LocationError or ValueError."""
    if in_place == bool(index_dir):
        raise ValueError("give an index directory (--index-dir) or --in-place, one of the two")
    if in_place and not catalog:
        raise ValueError("--in-place requires a catalog (--catalog) outside of all log directories")
    source_location = Location.of(source)
    require_directory(source_location, "SOURCE")
    index_location = Location.of(index_dir) if index_dir else source_location
    if index_dir and index_location.contains(source_location):
        raise LocationError(
            f"{index_location.uri}: the index directory contains SOURCE; choose another "
            "place, or --in-place"
        )
    place = Location.of(catalog) if catalog else index_location.child("_catalog")
    return source_location, index_location, place
