"""Offsets for times as a table: of one catalog, or of the two of a cluster with tiered storage."""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import pyarrow as pa

from kip33.archive.log_start_offsets import LogStartOffsets, log_start_offsets
from kip33.catalog.catalog import Catalog, Snapshot
from kip33.catalog.tiers import CatalogSnapshot, Tiers
from kip33.formats.records import DEFAULT_MAX_BATCH_BYTES
from kip33.formats.times import Time, milliseconds_of
from kip33.options import Path
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
    the methods of `OpenedCatalog` it has `offsets_for_times`; the others read one catalog.
    """

    catalogs: tuple[Catalog, Catalog]  # in any order

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
            "and read_arrow and scan_polars take them"
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
