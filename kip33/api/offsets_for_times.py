"""Offsets for times as a table: of one catalog, or of the two of a cluster with tiered storage."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, Unpack

import pyarrow as pa

from kip33.api.catalog_options import HoleOptions, SegmentOptions, policies_in
from kip33.archive.moments import target_ms
from kip33.catalog.catalog import Catalog
from kip33.catalog.catalog_answers import holes_in, segment_table, tiers_compared
from kip33.catalog.schema import with_time_columns
from kip33.catalog.tier_findings import TierComparison
from kip33.catalog.tiers import CatalogSnapshot, Tiers
from kip33.formats.batch import MAX_INT32
from kip33.formats.times import Time
from kip33.options import number_of, parsed, takes
from kip33.search.emitted_offsets import EmitOptions, EmittedOffsets, emitted_offsets
from kip33.search.replica_search import TimeQuestion
from kip33.search.time_search import (
    AnswerRow,
    RangeOptions,
    SearchQuestion,
    TimeSearch,
    answer_table,
)

TimeRequest: TypeAlias = tuple[str, int | None, Time] | tuple[str, int | None, Time, str | None]
"""Topic, partition (None: all), time, and optionally a log directory.

A time is ISO 8601, `now-3h`, a `datetime` with a time zone, a time of pandas, NumPy or pyarrow, ms
since 1970, `earliest`, `latest` or `max-timestamp`.
"""


class TimesOptions(SearchQuestion, RangeOptions, total=False):
    """The options of `offsets_for_times`."""


class EmittedOptions(SearchQuestion, EmitOptions, total=False):
    """The options of `offsets_to_emit`."""


@dataclass(frozen=True, repr=False)
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

    @takes(TimesOptions)
    def offsets_for_times(
        self, requests: Iterable[TimeRequest], **options: Unpack[TimesOptions]
    ) -> pa.Table:
        """Return for each request the first record at or after its time in both tiers.

        - `requests`: tuples (topic, partition, time), and optionally a log directory; a time may
          also be `earliest-local` or `latest-tiered`
        - `options`: see `SearchQuestion` and `RangeOptions`

        The columns are those of `OpenedCatalog.offsets_for_times`. The newest snapshot of each
        catalog is read. A record that both tiers have is found once, and read from the local one.
        Remote segments of another topic of the name, by its id, are left out, with a Python
        warning.
        """
        return answered(Tiers.newest(self.catalogs), requests, options)

    @takes(EmittedOptions, emit="reset-offsets")
    def offsets_to_emit(
        self, requests: Iterable[TimeRequest], **options: Unpack[EmittedOptions]
    ) -> EmittedOffsets:
        """Return the answers to requests as the input of another program: see `OpenedCatalog`.

        - `requests`: as of `offsets_for_times`
        - `options`: see `SearchQuestion` and `EmitOptions`
        """
        return emitted(Tiers.newest(self.catalogs), requests, options)

    def __repr__(self) -> str:
        """Return the URIs of both catalogs, each on a line."""
        return "\n  ".join(["OpenedTiers", *(one.location.uri for one in self.catalogs)])

    def __str__(self) -> str:
        """Return the URIs of both catalogs."""
        return " and ".join(one.location.uri for one in self.catalogs)

    def __getattr__(self, name: str) -> Any:
        """Raise AttributeError, one line, for a method that reads one catalog."""
        if name.startswith("_"):
            raise AttributeError(name)
        raise AttributeError(
            f"{name} reads one catalog, and two tiers were opened; they have offsets_for_times, "
            "offsets_to_emit, segments, holes and compare, and read_arrow and scan_polars take them"
        )


def answered(
    source: CatalogSnapshot | Tiers, requests: Iterable[TimeRequest], options: TimesOptions
) -> pa.Table:
    """Return the answers as a table, in the order of the requests."""
    search, answers = _searched(source, requests, options)
    if options["until"] is not None:
        answers = search.ranges(answers, parsed("until", target_ms, options["until"]))
    return with_time_columns(answer_table(answers, has_range=options["until"] is not None))


def emitted(
    source: CatalogSnapshot | Tiers, requests: Iterable[TimeRequest], options: EmittedOptions
) -> EmittedOffsets:
    """Return the answers as the input of another program."""
    search, answers = _searched(source, requests, options)
    return emitted_offsets(search, answers, options)


def _searched(
    source: CatalogSnapshot | Tiers,
    requests: Iterable[TimeRequest],
    options: SearchQuestion,
) -> tuple[TimeSearch, list[AnswerRow]]:
    questions = [_question_of(request) for request in requests]
    search = TimeSearch(source, {question.topic for question in questions}, options)
    return search, search.answers(questions)


def _question_of(request: Any) -> TimeQuestion:
    """Return a request as a question; ValueError for anything but a tuple of one."""
    if not isinstance(request, list | tuple) or not 3 <= len(request) <= 4:
        raise ValueError(
            f"request {request!r}: expected (topic, partition, time), or with a log directory, in "
            "a list of such tuples"
        )
    topic, partition, *others = request
    if not isinstance(topic, str):
        raise ValueError(f"request {request!r}: expected a topic's name")
    number = None if partition is None else number_of("partition", partition, most=MAX_INT32)
    return time_question(topic, number, *others)


def time_question(
    topic: str, partition: int | None, time: Time, log_dir: str | None = None
) -> TimeQuestion:
    """Return a request as a question; ValueError for what is not a time."""
    return TimeQuestion(topic, partition, target_ms(time), log_dir)
