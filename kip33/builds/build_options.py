"""The options and places of a build, checked before anything is listed."""

from collections.abc import Sequence
from dataclasses import dataclass

from kip33.catalog.catalog import Snapshot
from kip33.errors import CatalogError, LocationError
from kip33.rules.draft_entries import DRAFTS, index_file_of
from kip33.rules.index_builder import IndexSettings
from kip33.rules.index_entries import DIALECTS
from kip33.rules.untimestamped import Untimestamped
from kip33.stores.directory_checks import require_directory
from kip33.stores.locations import Location


@dataclass(frozen=True, kw_only=True)
class BuildOptions:
    """The options of a build, except source, index directory and index settings."""

    in_place: bool = False  # index files go beside the logs
    catalog: str | None = None  # its path or URI; default `index_dir/_catalog`
    kafka_configs: str | None = None  # a file with the topics' own index settings
    topics: Sequence[str] = ()  # globs
    layout: str = "kafka"  # a name of `kip33.archive.layouts`, or a pattern
    offset_index: bool = False  # write `.index` and `.txnindex` files too
    producer_snapshots: bool = False  # write `.snapshot` files, too
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
        if self.producer_snapshots and not self.offset_index:
            raise ValueError(
                "--producer-snapshots requires --offset-index: a broker that finds a .snapshot "
                "needs the .index and .txnindex of the segment, too"
            )
        if self.producer_snapshots and self.in_place:
            raise ValueError(
                "--producer-snapshots requires --index-dir: a broker writes its own .snapshot "
                "files beside its logs"
            )
        if self.producer_snapshots and self.read == "tail":
            raise ValueError(
                "--producer-snapshots needs the batches of each log: it cannot be combined with "
                "--read tail"
            )


def require_dialect(
    newest: Snapshot | None, settings: IndexSettings, options: BuildOptions, catalog_uri: str
) -> None:
    """Raise for a dialect that these options, or this catalog, do not allow.

    ValueError: the files of a draft of KIP-33 are neither put beside logs nor verified.
    CatalogError: a catalog has index files of one name in all its builds.
    """
    name, file = settings.dialect, index_file_of(settings.dialect)
    if options.in_place and name in DRAFTS:
        raise ValueError(
            f"--in-place: the dialect {name!r} is a draft of KIP-33, whose files no broker reads; "
            "give --index-dir"
        )
    given = {"--only damaged": options.only_damaged, "--read tail": options.read == "tail"}
    for option, is_given in given.items():
        if is_given and name in DRAFTS:
            raise ValueError(
                f"{option} is for .timeindex files, and the dialect {name!r} is a draft of KIP-33 "
                "with other files: leave the option out"
            )
    built = newest.dialect if newest else None
    if built is not None and index_file_of(built) != file:
        raise CatalogError(
            f"{catalog_uri}: built with --dialect {built}, whose files end in "
            f".{index_file_of(built)}, not .{file}; a catalog has one kind of index files: give "
            "another --catalog"
        )


def require_layout(newest: Snapshot | None, layout: str, catalog_uri: str) -> None:
    """Raise CatalogError if a catalog's newest snapshot was built with another layout."""
    if newest and newest.layout != layout:
        raise CatalogError(
            f"{catalog_uri}: built with --layout {newest.layout!r}, not {layout!r}; a "
            "catalog has one layout: give another --catalog"
        )


def require_written_by_brokers(dialect: str, untimestamped: str = Untimestamped.NONE) -> None:
    """Raise ValueError for index files that must not be beside a broker's logs."""
    if untimestamped != Untimestamped.NONE:
        raise ValueError(
            "--in-place: no broker writes entries for logs without timestamps; leave out "
            "--untimestamped, or give --index-dir"
        )
    if not DIALECTS[dialect].written_by_brokers:
        names = " or ".join(name for name, one in DIALECTS.items() if one.written_by_brokers)
        raise ValueError(
            f"--in-place: brokers do not write the dialect {dialect!r} and would "
            f"misread such files; choose --dialect {names}, or give --index-dir"
        )


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
