"""The options, settings and places of a build, checked before anything is listed.

A topic may have its own index settings, from the saved output of Kafka's tools: `--kafka-configs`.
"""

from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NamedTuple, Self, TypedDict

import pyarrow as pa
import pyarrow.compute as pc

from kip33.archive import common_options as common
from kip33.archive.directory import Segment
from kip33.archive.listing import Column, index_uris
from kip33.archive.segment_paths import index_path
from kip33.catalog.catalog import CATALOG_FOLDER, Snapshot
from kip33.catalog.schema import BUILD_SETTINGS, SEGMENTS
from kip33.drafts.designs import DESIGNS, DesignName, design_of
from kip33.errors import CatalogError, LocationError, PolicyError
from kip33.formats.index_kinds import IndexKind
from kip33.options import Option, Path
from kip33.retention.policy_files import load_kafka_configs
from kip33.rules.index_builder import BYTES_VERSION, IndexSettings, TopicSettings
from kip33.rules.index_entries import DIALECTS
from kip33.rules.publication import Owner
from kip33.rules.untimestamped import Untimestamped
from kip33.stores.directory_checks import require_directory
from kip33.stores.locations import Location

if TYPE_CHECKING:
    from kip33.indexing.published_files import IndexPublisher

_OF_TOPICS: Final = {
    "index_interval_bytes": "index.interval.bytes",
    "segment_index_bytes": "segment.index.bytes",
}
_MOST: Final = 2**31 - 1  # both are int32 in Kafka
_IF_NOT_FLUSHED: Final = (
    "the snapshot is not committed: fix it and run the command again, or build with --no-fsync"
)


class BuildOptions(TypedDict, total=False):
    """How logs are indexed, and where the catalog is."""

    in_place: Annotated[bool, "Write each index beside its log."]
    index_files: Annotated[
        bool,
        Option(
            "Read every log and write the catalog only. Audits, totals, reports and searches need "
            "no index files.",
            default=True,
        ),
    ]
    layout: common.LayoutName
    topics: common.TopicGlobList
    catalog: Annotated[
        Path | None, Option("Folder of the catalog [default: <index-dir>/_catalog].", metavar="DIR")
    ]
    dialect: Annotated[
        DesignName,
        Option(
            "Which entries to write. recover: as a broker's recovery does; live: as a leader "
            "of Kafka 0.11 to 3.6 does; kip33: as the text of KIP-33 says. The others are drafts "
            "of KIP-33, with files of their own names (see kip33 dialects).",
            default="recover",
        ),
    ]
    untimestamped: common.UntimestampedRule
    index_interval_bytes: common.IndexIntervalBytes
    segment_index_bytes: common.SegmentIndexBytes
    kafka_configs: common.TopicConfigsFile
    check_crc: common.ChecksCrc
    offset_index: Annotated[bool, "Also write the .index and .txnindex files."]
    overwrite: Annotated[bool, "Also replace index files that kip33 did not write."]
    only_damaged: Annotated[
        bool,
        Option(
            "damaged: write only index files that verify does not call identical or "
            "consistent. With --overwrite, also replace damaged files that kip33 did not write.",
            flag="--only damaged",
        ),
    ]
    fsync: Annotated[
        bool,
        Option(
            "Do not wait until files are on the disk. For temporary results only: a power "
            "failure may lose index files of a finished build.",
            default=True,
        ),
    ]
    full: Annotated[bool, "Read every segment, not only new and changed ones."]
    allow_empty: Annotated[
        bool,
        "Commit a snapshot without segments if SOURCE has none: all were deleted on purpose.",
    ]
    read: Annotated[
        Literal["log", "tail"],
        Option(
            "tail: trust the end of a plausible .timeindex instead of reading its log.",
            default="log",
        ),
    ]


class BuildRequest(BuildOptions):
    """What a build is asked."""

    source: str  # a path or URI, like the next
    index_dir: str | None


def require_valid(request: BuildRequest) -> None:
    """Raise ValueError for options that cannot be combined."""
    if not request["index_files"]:
        _require_rows_only(request)
    if request["read"] == "tail" and request["only_damaged"]:
        raise ValueError(
            "--only damaged verifies index files against their logs: it cannot be combined "
            "with --read tail"
        )


def _require_rows_only(request: BuildRequest) -> None:
    """Raise ValueError for options of index files, in a build that writes none."""
    given = {
        "--index-dir": request["index_dir"],
        "--in-place": request["in_place"],
        "--offset-index": request["offset_index"],
        "--overwrite": request["overwrite"],
        "--only damaged": request["only_damaged"],
        "--read tail": request["read"] == "tail",
    }
    for option, is_given in given.items():
        if is_given:
            raise ValueError(
                f"--no-index-files reads every log and writes no index file: leave out {option}"
            )
    if not request["catalog"]:
        raise ValueError("--no-index-files requires a catalog (--catalog)")


def require_rows_only(newest: Snapshot | None, request: BuildRequest, catalog_uri: str) -> None:
    """Raise CatalogError if a build without index files would forget those of earlier builds."""
    index_dir = newest.settings.get("index_dir", "an index directory") if newest else None
    if index_dir and not request["index_files"]:
        raise CatalogError(
            f"{catalog_uri}: the last build wrote index files into {index_dir}: give --index-dir "
            "or --in-place as it did, or another --catalog for --no-index-files"
        )


def require_dialect(newest: Snapshot | None, options: BuildRequest, catalog_uri: str) -> None:
    """Raise for a dialect that these options, or this catalog, do not allow.

    ValueError: the files of a draft of KIP-33 are neither put beside logs nor verified.
    CatalogError: a catalog has index files of one name in all its builds.
    """
    name = options["dialect"]
    design = design_of(name)
    if options["in_place"] and design.is_draft:
        raise ValueError(
            f"--in-place: the dialect {name!r} is a draft of KIP-33, whose files no broker reads; "
            "give --index-dir"
        )
    given = {"--only damaged": options["only_damaged"], "--read tail": options["read"] == "tail"}
    for option, is_given in given.items():
        if is_given and design.is_draft:
            raise ValueError(
                f"{option} is for .timeindex files, and the dialect {name!r} is a draft of KIP-33 "
                "with other files: leave the option out"
            )
    built = newest.dialect if newest else None
    if built is not None and design_of(built).file != design.file:
        raise CatalogError(
            f"{catalog_uri}: built with --dialect {built}, whose files end in "
            f".{design_of(built).file}, not .{design.file}; a catalog has one kind of index files: "
            "give another --catalog"
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


def require_places(request: BuildRequest) -> tuple[Location, Location, Location]:
    """Return source, index directory and catalog; raises LocationError or ValueError.

    Without index files the catalog is the index directory, too: no index file is ever there.
    """
    in_place, catalog = request["in_place"], request["catalog"]
    index_dir: Path | None = request["index_dir"]
    if not request["index_files"]:
        index_dir = catalog
    elif in_place == bool(index_dir):
        raise ValueError(
            "give an index directory (--index-dir), --in-place or --no-index-files, one of the "
            "three"
        )
    if in_place and not catalog:
        raise ValueError("--in-place requires a catalog (--catalog) outside of all log directories")
    source_location = Location.of(request["source"])
    require_directory(source_location, "SOURCE")
    index_location = Location.of(index_dir) if index_dir else source_location
    if request["index_dir"] and index_location.contains(source_location):
        raise LocationError(
            f"{index_location.uri}: the index directory contains SOURCE; choose another "
            "place, or --in-place"
        )
    place = Location.of(catalog) if catalog else index_location.child(CATALOG_FOLDER)
    return source_location, index_location, place


class BuildSpec(NamedTuple):
    """The settings of one build; small and picklable, because it is sent to every task."""

    source: Location
    index_dir: Location  # the source itself if built in place; the catalog if there are no files
    settings: IndexSettings
    kinds: frozenset[IndexKind] = frozenset({IndexKind.TIME})  # of index files that it writes: none
    overwrite: bool = False
    only_damaged: bool = False
    read_tail: bool = False
    layout: str = "kafka"
    by_topic: tuple[tuple[str, IndexSettings], ...] = ()  # topics with other settings
    fsync: bool = True  # flush written files to the disk before the next step
    lists_puts: bool = False  # list folders instead of asking for each new file

    @property
    def in_place(self) -> bool:
        """Return whether index files go beside the logs."""
        return self.index_dir == self.source

    def of_topic(self, topic: str | None) -> Self:
        """Return the build with the settings of one topic."""
        if not self.by_topic:
            return self
        return self._replace(settings=TopicSettings(self.settings, self.by_topic).of(topic))

    @property
    def settings_of_row(self) -> dict[str, Any]:
        """Return the settings with which a row is built, by its columns."""
        return _settings_of_row(self.settings, self.kinds)

    def settings_of_topics(self, topics: Column) -> dict[str, Column]:
        """Return the settings with which rows of these topics are built, by their columns."""
        present = pc.unique(topics)
        each = [self.of_topic(topic).settings_of_row for topic in present.to_pylist()]
        at = pc.index_in(topics, value_set=present)
        return {
            name: pa.array([one[name] for one in each], SEGMENTS.field(name).type).take(at)
            for name in BUILD_SETTINGS
        }

    @property
    def time_index(self) -> str:
        """Return the suffix of the time indexes: `timeindex`, or that of the design."""
        return design_of(self.settings.dialect).file

    def publisher(self) -> "IndexPublisher":
        """Return who publishes its index files."""
        from kip33.indexing.published_files import IndexPublisher

        return IndexPublisher(
            self.index_dir,
            in_place=self.in_place,
            others=Owner.REPLACED if self.overwrite else Owner.ANOTHERS,
            lists_puts=self.lists_puts,
            if_not_flushed=_IF_NOT_FLUSHED,
        )

    def index_location(self, segment: Segment) -> Location:
        """Return the place of the segment's time index: the same path as below SOURCE."""
        return self.index_dir.child(index_path(segment.path, self.time_index))

    def index_uris(self, log_uris: Column) -> Column:
        """Return the URIs of the time indexes of logs."""
        return index_uris(log_uris, self.source, self.index_dir, self.time_index)

    def uris_of(self, time_index_uris: Column, kind: IndexKind) -> Column:
        """Return the URIs of the index files of a kind, given those of the time indexes."""
        if kind is IndexKind.TIME:
            return time_index_uris
        stems = pc.utf8_slice_codeunits(time_index_uris, start=0, stop=-len(f".{self.time_index}"))
        return pc.binary_join_element_wise(stems, kind.suffix, "")


@cache
def _settings_of_row(settings: IndexSettings, kinds: frozenset[IndexKind]) -> dict[str, Any]:
    return {
        **settings._asdict(),
        "offset_index": IndexKind.OFFSET in kinds,
        "bytes_version": BYTES_VERSION,
    }


def load_topic_settings(default: IndexSettings, kafka_configs: Path | None) -> TopicSettings:
    """Return the settings of every topic: those in the file, otherwise those of `default`.

    `kafka_configs` is a local path or URI with the saved output of `kafka-configs.sh --describe
    --entity-type topics --all` or of `kafka-topics.sh --describe`; None: every topic has the
    default. Raises PolicyError, one line, for a file that cannot be read or a value that Kafka
    refuses; ValueError for a default that Kafka refuses.
    """
    default.require_valid(DESIGNS)
    if kafka_configs is None:
        return TopicSettings(default)
    by_topic = {}
    for topic, configs in load_kafka_configs(kafka_configs).items():
        given: dict[str, Any] = {
            name: _number(f"{kafka_configs}: topic {topic}: {key}", configs[key])
            for name, key in _OF_TOPICS.items()
            if key in configs
        }
        by_topic[topic] = default._replace(**given)
        try:
            by_topic[topic].require_valid(DESIGNS)
        except ValueError as error:
            raise PolicyError(f"{kafka_configs}: topic {topic}: {error}") from error
    return TopicSettings.of_topics(default, by_topic)


def _number(what: str, text: str) -> int:
    """Return the value of a topic's setting; PolicyError, which names `what` it is, for another."""
    is_number = text.isascii() and text.isdecimal() and len(text) <= len(str(_MOST))
    if not is_number or int(text) > _MOST:
        raise PolicyError(
            f"{what}={text} found, expected a number from 0 to {_MOST}; save the tool's output "
            "again, unchanged"
        )
    return int(text)
