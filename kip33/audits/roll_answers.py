"""The question of rolling, and its two answers: why segments ended, and what other settings give.

The options are those of `kip33 roll` and `kip33 roll what-if`, of the methods of `OpenedCatalog`
and of Spark. A catalog is judged without opening a log; of a SOURCE, the headers of all batches are
read.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Annotated, Any, Final, NamedTuple, TypedDict

import pyarrow as pa

from kip33.archive import common_options as common
from kip33.archive.bins import Engine
from kip33.archive.moments import time_ms
from kip33.audits.audited_logs import logs_below
from kip33.audits.roll_audit import RollAudit, audit_columns, columns_to_audit
from kip33.audits.roll_logs import logs_of, read_first_batches, read_source
from kip33.audits.roll_what_if import (
    REPLAYED,
    ReplayedPartition,
    replay_partitions,
    replay_sums,
    replayed_table,
)
from kip33.catalog.catalog import Catalog, Choice, Warn, catalog_unless_source, choose
from kip33.catalog.catalog_columns import CatalogColumns, rows_of
from kip33.catalog.topic_totals import topics_of
from kip33.formats.batch import LEGACY_MIN_SIZE, MAX_INT32
from kip33.formats.time_index import TIME_ENTRY_BYTES
from kip33.formats.times import Time
from kip33.options import Option
from kip33.rules.policies import (
    SIZE_EXPECTED,
    Policies,
    limit_ms,
    positive_ms,
    require_topics,
    setting_ms,
    size_bytes,
)
from kip33.rules.retention import NO_LIMIT
from kip33.rules.rolling import GivenSettings, RollReading, RollReadingName, TopicRollSettings
from kip33.stores.locations import Location
from kip33.stores.progress import OnProgress

_MOST_WARNINGS: Final = 20


def _bytes_from(least: int) -> Callable[[str | int], int]:
    """Return a function that gives a size that Kafka takes."""

    def parse(value: str | int) -> int:
        size = size_bytes(value)
        if not least <= size <= MAX_INT32:
            raise ValueError(f"{value!r} found, expected {SIZE_EXPECTED}, from {least} to 2^31 - 1")
        return size

    return parse


class RollSettingOptions(TypedDict, total=False):
    """Settings for all topics, over those of policies."""

    segment_ms: Annotated[
        int | str | None,
        Option(
            "segment.ms of all topics [default: the policy's, else Kafka's 7d].",
            metavar="7d",
            parse=partial(positive_ms, parse=setting_ms),
        ),
    ]
    segment_bytes: Annotated[
        int | str | None,
        Option(
            "segment.bytes [default: the policy's, else Kafka's 1GiB].",
            metavar="1GiB",
            parse=_bytes_from(LEGACY_MIN_SIZE),
        ),
    ]
    segment_jitter_ms: Annotated[
        int | str | None,
        Option(
            "segment.jitter.ms: a broker rolls each segment earlier by a random part of it.",
            metavar="0",
            parse=setting_ms,
        ),
    ]
    index_interval_bytes: Annotated[
        int | None,
        Option(
            "index.interval.bytes [default: the policy's, else Kafka's 4096].",
            metavar="4096",
            least=0,
            most=MAX_INT32,
        ),
    ]
    segment_index_bytes: Annotated[
        int | str | None,
        Option(
            "segment.index.bytes [default: the policy's, else Kafka's 10MiB].",
            metavar="10MiB",
            parse=_bytes_from(TIME_ENTRY_BYTES),
        ),
    ]


class RollOptions(RollSettingOptions, total=False):
    """By which settings and which reading segments are judged."""

    reading: Annotated[
        RollReadingName,
        Option(
            "The timestamp from which a segment's time counts. kafka: the largest of its first "
            "batch; kip33: that of its first message; kip33-largest: the largest so far. `roll "
            "what-if` shows all three.",
            default="kafka",
        ),
    ]


class SnapshotRollOptions(RollOptions, total=False):
    """How a snapshot is judged."""

    read_headers: Annotated[
        bool,
        Option(
            "With CATALOG: also read the header of each segment's first batch, for what the "
            "catalog does not have.",
            python="Also read the header of each segment's first batch, for what the catalog does "
            "not have.",
        ),
    ]
    snapshot: common.SnapshotName
    topics: common.TopicGlobList


class WhatIfOptions(RollSettingOptions, total=False):
    """Under which settings a snapshot is replayed."""

    retention_ms: Annotated[
        int | str | None,
        Option(
            "retention.ms for all topics: show when the segments become deletable [default: the "
            "policy's].",
            metavar="7d",
            parse=limit_ms,
        ),
    ]
    snapshot: common.SnapshotName
    topics: common.TopicGlobList


class RollRequest(SnapshotRollOptions):
    """What `kip33 roll` is asked."""

    source: str
    now: Annotated[
        Time | None,
        Option(
            "Count active segments that a batch of this time would end [default: the clock].",
            metavar="T",
            parse=time_ms,
        ),
    ]
    layout: common.LayoutName


class WhatIfRequest(WhatIfOptions):
    """What `kip33 roll what-if` is asked."""

    source: str
    layout: common.LayoutName


def roll_settings(asked: RollSettingOptions, policies: Policies | None) -> TopicRollSettings:
    """Return the settings of every topic; PolicyError for a policy that no broker can have."""
    given = GivenSettings(**{name: asked[name] for name in GivenSettings._fields})  # type: ignore[literal-required]  # the fields are keys
    settings = TopicRollSettings(policies or Policies(), given)
    settings.require_valid()
    return settings


class RolledArchive(NamedTuple):
    """What is audited: a snapshot's columns, or the logs below a SOURCE."""

    columns: CatalogColumns | None
    logs: pa.Table  # LOGS
    about: dict[str, Any]  # for the summary

    @classmethod
    def of_catalog(cls, catalog: Catalog, choice: Choice, topics: Sequence[str]) -> "RolledArchive":
        """Return a snapshot's segments; CatalogError if no topic matches."""
        snapshot, warnings, _ = choice
        columns = columns_to_audit(catalog, snapshot, topics)
        if not columns.size:
            require_topics(topics, topics_of(catalog, snapshot))
        about = {
            "catalog": catalog.location.uri,
            "snapshot": snapshot.name,
            "source": snapshot.source,
            "warnings": list(warnings),
        }
        return cls(columns, logs_of(columns), about)

    @classmethod
    def at(
        cls, asked: RollRequest | WhatIfRequest, warn: Warn, on_progress: OnProgress
    ) -> "RolledArchive":
        """Return the archive at a path or URI; ValueError for options that it excludes."""
        place = Location.of(asked["source"])
        catalog = catalog_unless_source(place, warn)
        if catalog is not None:
            choice = choose(catalog, asked["snapshot"], warn)
            return cls.of_catalog(catalog, choice, asked["topics"])
        for option in ("snapshot", "read_headers"):
            if asked.get(option):
                flag = option.replace("_", "-")
                raise ValueError(f"--{flag} requires a CATALOG; of a SOURCE, all headers are read")
        topics, layout = asked["topics"], asked["layout"]
        logs = logs_below(asked["source"], topics=topics, layout=layout, on_progress=on_progress)
        return cls(None, logs, {"source": place.uri})


class RollAnswer(NamedTuple):
    """The verdicts on an archive, and what was read for them."""

    audit: RollAudit
    about: dict[str, Any]
    bytes_read: int = 0
    errors: Sequence[str] = ()  # a line for each log that could not be read
    logs: int = 0  # that were read

    @property
    def findings(self) -> list[str]:
        """Return the names of the findings that there are, in order."""
        return sorted(one.name for one in self.audit.findings if one.rows.any())

    def summary(self, now_ms: int) -> dict[str, Any]:
        """Return the sums; `now_ms` is the time at which active segments are compared."""
        return {
            **self.about,
            "reading": str(self.audit.reading),
            "now_ms": now_ms,
            **self.audit.totals(),
            "active_past_limit_segments": self.audit.active_past_limit(now_ms),
            "bytes_read": self.bytes_read,
            "findings": self.findings,
        }


def audit_archive(
    archive: RolledArchive,
    asked: SnapshotRollOptions,
    policies: Policies | None,
    engine: Callable[[], Engine],
    warn: Warn,
) -> RollAnswer:
    """Return the verdicts; `engine` is called if logs are read. ValueError for a wrong reading."""
    settings, reading = roll_settings(asked, policies), RollReading(asked["reading"])
    columns, about = archive.columns, archive.about
    if columns is None:
        columns, facts, bytes_read, errors = read_source(archive.logs, settings.of, engine())
    elif asked["read_headers"]:
        facts, bytes_read, errors = read_first_batches(columns, engine())
        for error in errors[:_MOST_WARNINGS]:
            warn(f"{error}; what its header would tell is unknown")
    else:
        return RollAnswer(audit_columns(columns, settings.of, reading=reading), about)
    audit = audit_columns(columns, settings.of, reading=reading, facts=facts)
    return RollAnswer(audit, about, bytes_read, errors, archive.logs.num_rows)


class WhatIfAnswer(NamedTuple):
    """The segments that other settings would have given, by partition and reading."""

    found: Sequence[ReplayedPartition]
    retention: Mapping[str | None, int]  # by topic, in ms
    archive: RolledArchive

    def sums(self) -> list[dict[str, Any]]:
        """Return a row for each partition and reading."""
        return [
            replay_sums(one, replay, self.retention[one.topic])
            for one in self.found
            for replay in one.replays
        ]

    def tables(self) -> Iterator[pa.Table]:
        """Yield the segments of each partition and reading as REPLAYED."""
        for one in self.found:
            for replay in one.replays:
                yield replayed_table(one, replay, self.retention[one.topic])

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield the segments as rows of REPLAYED."""
        return chain.from_iterable(map(rows_of, self.tables()))

    def table(self) -> pa.Table:
        """Return the segments."""
        return pa.concat_tables([REPLAYED.empty_table(), *self.tables()])

    @property
    def doubts(self) -> list[str]:
        """Return what was seen of the logs, a line each."""
        return [line for one in self.found for line in one.doubts]

    @property
    def unreadable(self) -> list[str]:
        """Return those of the doubts that are logs that could not be read."""
        return [line for one in self.found for line in one.unreadable]

    def summary(self, sums: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return the totals."""
        found = self.found
        return {
            **self.archive.about,
            "partitions": len(found),
            "archived_segments": sum(one.archived_segments for one in found),
            "archived_bytes": sum(one.archived_bytes for one in found),
            "batches": sum(one.batches for one in found),
            "readings": {reading.value: _totals(sums, reading) for reading in RollReading},
            "doubts": len(self.doubts),
            "bytes_read": sum(one.bytes_read for one in found),
        }


def replay_archive(
    archive: RolledArchive,
    asked: WhatIfOptions,
    policies: Policies | None,
    engine: Engine,
) -> WhatIfAnswer:
    """Return the replays of all batches; the header of each is read."""
    settings = roll_settings(asked, policies)
    found = replay_partitions(archive.logs, settings.of, engine)
    retention: dict[str | None, int] = {}
    for topic in {one.topic for one in found}:
        given: Any = asked["retention_ms"]
        of_policy = settings.policies.of(topic).retention_ms if topic else NO_LIMIT
        retention[topic] = of_policy if given is None else given
    return WhatIfAnswer(found, retention, archive)


def _totals(sums: Sequence[Mapping[str, Any]], reading: RollReading) -> dict[str, int]:
    some = [one for one in sums if one["reading"] == reading]
    names = ("segments", "offset_index_bytes", "time_index_bytes")
    return {name: sum(one[name] for one in some) for name in names}
