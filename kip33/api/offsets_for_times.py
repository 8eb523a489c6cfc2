"""Offsets for times as a table: of one catalog, or of the two of a cluster with tiered storage."""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, Unpack

import pyarrow as pa

from kip33.api.catalog_options import HoleOptions, SegmentOptions, policies_in
from kip33.archive.log_start_offsets import LogStartOffsets, log_start_offsets
from kip33.catalog.catalog import Catalog, Snapshot
from kip33.catalog.catalog_answers import holes_in, segment_table, tiers_compared
from kip33.catalog.tier_findings import TierComparison
from kip33.catalog.tiers import CatalogSnapshot, Tiers
from kip33.formats.records import DEFAULT_MAX_BATCH_BYTES
from kip33.formats.times import Time, milliseconds_of
from kip33.options import Path, takes
from kip33.rules.search import NEWEST_KAFKA, TARGETS, parse_kafka_version, require_target
from kip33.search.answers import SearchOptions
from kip33.search.catalog_search import rows_of, search_rows
from kip33.search.replica_search import TimeQuestion
from kip33.stores.locations import Location

TimeRequest: TypeAlias = tuple[str, int | None, Time] | tuple[str, int | None, Time, str | None]
"""Topic, partition (None: all), time, and optionally a log directory.

A time is ms since 1970, a `datetime` with a time zone, ISO 8601, `earliest`, `latest` or
`max-timestamp`.
"""

_FIELDS: list["pa.Field[Any]"] = [
    pa.field("log_dir", pa.string()),  # null: no such partition
    pa.field("topic", pa.string(), nullable=False),
    pa.field("partition", pa.int32()),  # null: no such topic
    pa.field("target_ms", pa.int64(), nullable=False),
    pa.field("offset", pa.int64()),
    pa.field("timestamp", pa.int64()),
    pa.field("result", pa.string(), nullable=False),
    pa.field("exactness", pa.string(), nullable=False),
    pa.field("bytes_read", pa.int64(), nullable=False),
    pa.field("note", pa.string()),
    pa.field("passed_over", pa.bool_(), nullable=False),
]
ANSWERS: Final = pa.schema(_FIELDS)


@dataclass(frozen=True)
class OpenedTiers:
    """The catalogs of a cluster's local and remote tier, as one object.

    `kip33.read_arrow`, `kip33.scan_polars` and `kip33.Schemas.from_archive` take it as a source. Of
    the methods of `OpenedCatalog` it has those below, and `compare`; the others read one catalog.
    The newest snapshot of each catalog is read.
    """

    catalogs: tuple[Catalog, Catalog]  # in any order

    def compare(self, *, topics: Sequence[str] = ()) -> TierComparison:
        """Return what is in which tier, and what is wrong between the tiers, as two tables.

        - `topics`: globs, as everywhere

        `partitions` has a row for each partition and log directory, `findings` for each hole,
        difference, damage, overlap, or record of an earlier leader, the worst first, with what to
        do (`tier_partitions` and `tier_findings` in RESULTS.md).
        """
        return tiers_compared(Tiers.newest(self.catalogs), topics)

    @takes(SegmentOptions)
    def segments(
        self, *, columns: Sequence[str] | None = None, **options: Unpack[SegmentOptions]
    ) -> pa.Table:
        """Return a row for each segment of both tiers.

        - `columns`: those of `OpenedCatalog.segments` that are wanted; None: all
        - `options`: see `SegmentOptions`

        Four more columns are last: `tier` string, `local` or `remote`; `is_copy` bool, whether the
        other tier has it, too; `is_different` bool, whether the records of the copies differ;
        `until_offset` int64, the offset from which on it is not of the log, else null.
        """
        source = Tiers.newest(self.catalogs)
        return segment_table(source, columns, options["topics"], options["statuses"])

    @takes(HoleOptions)
    def holes(self, **options: Unpack[HoleOptions]) -> pa.Table:
        """Return the holes of the logs that both tiers make up, as `OpenedCatalog.holes` does.

        - `options`: see `HoleOptions`
        """
        policies = options["policies"]
        held = None if policies is None else policies_in(policies)
        return holes_in(Tiers.newest(self.catalogs), options["topics"], held)

    def offsets_for_times(
        self,
        requests: Iterable[TimeRequest],
        *,
        as_kafka: bool | str = False,
        index_only: bool = False,
        all_replicas: bool = False,
        max_batch_bytes: int = DEFAULT_MAX_BATCH_BYTES,
        log_start_offsets: Path | None = None,
        max_decompressed_message_bytes: int | None = None,
    ) -> pa.Table:
        """Return for each request the first record at or after its time in both tiers.

        - `requests`: tuples (topic, partition, time), and optionally a log directory; a time may
          also be `earliest-local` or `latest-tiered`
        - `as_kafka`: look where a broker looks: first in remote segments before the local tier,
          then in the local one, and for `max-timestamp` in the local one only
        - `max_decompressed_message_bytes`: the topics' setting, with `as_kafka`

        The other arguments and the columns are those of `OpenedCatalog.offsets_for_times`, without
        `snapshot`: the newest one of each catalog is read. A record that both tiers have is found
        once, and read from the local one. Remote segments of another topic of the name, by its id,
        are left out, with a Python warning.
        """
        how = search_options(
            as_kafka, index_only, all_replicas, max_batch_bytes, max_decompressed_message_bytes
        )
        questions = [time_question(*request) for request in requests]
        return answer_table(Tiers.newest(self.catalogs), questions, how, log_start_offsets)

    def __str__(self) -> str:
        """Return the URIs of both catalogs."""
        return " and ".join(one.location.uri for one in self.catalogs)

    def __getattr__(self, name: str) -> Any:
        """Raise AttributeError, one line, for a method that reads one catalog."""
        if name.startswith("_"):
            raise AttributeError(name)
        raise AttributeError(
            f"{name} reads one catalog, and two tiers were opened; they have offsets_for_times, "
            "segments, holes and compare, and read_arrow and scan_polars take them"
        )


def search_options(
    as_kafka: bool | str,
    index_only: bool,
    all_replicas: bool,
    max_batch_bytes: int,
    max_decompressed_message_bytes: int | None,
) -> SearchOptions:
    """Return the arguments of `offsets_for_times`; ValueError for a wrong one."""
    version = parse_kafka_version(as_kafka) if isinstance(as_kafka, str) else NEWEST_KAFKA
    how = SearchOptions(
        *(bool(as_kafka), index_only, all_replicas, max_batch_bytes, version),
        max_decompressed_message_bytes,
    )
    how.require_valid()
    return how


def answer_table(
    source: CatalogSnapshot | Tiers,
    questions: Sequence[TimeQuestion],
    how: SearchOptions,
    log_start_offsets: Path | None,
) -> pa.Table:
    """Return the answers as a table of ANSWERS, in the order of the questions."""
    if log_start_offsets is not None and not how.as_kafka:
        raise ValueError("log_start_offsets requires as_kafka=True")
    rows = rows_of(source, {question.topic for question in questions})
    log_dirs: list[Any] = rows["log_dir"].unique().drop_null().to_pylist() if how.as_kafka else []
    here = source.local.snapshot
    starts = log_starts(here, log_dirs, log_start_offsets) if how.as_kafka else None
    answers = search_rows(rows, questions, how, starts)
    found = [
        (one.located.log_dir, one.topic, one.partition, *one.located.answer) for one in answers
    ]
    names = ANSWERS.names
    return pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in found], ANSWERS)


def time_question(
    topic: str, partition: int | None, time: Time, log_dir: str | None = None
) -> TimeQuestion:
    """Return a request as a question; ValueError for what is not a time."""
    if isinstance(time, str) and time in TARGETS:
        return TimeQuestion(topic, partition, TARGETS[time], log_dir)
    try:
        target_ms = milliseconds_of(time)
    except ValueError as error:
        raise ValueError(f"{error}, or one of {', '.join(TARGETS)}") from error
    require_target(target_ms)
    return TimeQuestion(topic, partition, target_ms, log_dir)


def log_starts(snapshot: Snapshot, log_dirs: Iterable[str], file: Path | None) -> LogStartOffsets:
    """Return the log start offsets of the archive's checkpoints, those of `file` override them."""
    source = Location.of(snapshot.source)
    return log_start_offsets(source, log_dirs, None if file is None else os.fspath(file))
