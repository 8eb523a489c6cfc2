"""Offsets for times as a table: of one catalog, or of the two of a cluster with tiered storage."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias, Unpack

import pyarrow as pa

from kip33.catalog.catalog import Catalog
from kip33.catalog.tiers import CatalogSnapshot, Tiers
from kip33.formats.times import Time, milliseconds_of
from kip33.options import takes
from kip33.rules.search import TARGETS, require_target
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

A time is ms since 1970, a `datetime` with a time zone, ISO 8601, `earliest`, `latest` or
`max-timestamp`.
"""


class TimesOptions(SearchQuestion, RangeOptions, total=False):
    """The options of `offsets_for_times`."""


class EmittedOptions(SearchQuestion, EmitOptions, total=False):
    """The options of `offsets_to_emit`."""


@dataclass(frozen=True)
class OpenedTiers:
    """The catalogs of a cluster's local and remote tier, as one object.

    `kip33.read_arrow`, `kip33.scan_polars` and `kip33.Schemas.from_archive` take it as a source. Of
    the methods of `OpenedCatalog` it has `offsets_for_times` and `offsets_to_emit`; the others read
    one catalog.
    """

    catalogs: tuple[Catalog, Catalog]  # in any order

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

    def __str__(self) -> str:
        """Return the URIs of both catalogs."""
        return " and ".join(one.location.uri for one in self.catalogs)

    def __getattr__(self, name: str) -> Any:
        """Raise AttributeError, one line, for a method that reads one catalog."""
        if name.startswith("_"):
            raise AttributeError(name)
        raise AttributeError(
            f"{name} reads one catalog, and two tiers were opened; they have offsets_for_times "
            "and offsets_to_emit, and read_arrow and scan_polars take them"
        )


def answered(
    source: CatalogSnapshot | Tiers, requests: Iterable[TimeRequest], options: TimesOptions
) -> pa.Table:
    """Return the answers as a table, in the order of the requests."""
    search, answers = _searched(source, requests, options)
    if options["until"] is not None:
        until = time_question("", None, options["until"])
        answers = search.ranges(answers, until.target_ms)
    return answer_table(answers, has_range=options["until"] is not None)


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
    questions = [time_question(*request) for request in requests]
    search = TimeSearch(source, {question.topic for question in questions}, options)
    return search, search.answers(questions)


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
