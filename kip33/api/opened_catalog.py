"""A catalog as one object, without Spark: `kip33.open_catalog`.

Its methods call the same functions as the commands `catalog`, `search`, `lag`, `failover`,
`retention` and `roll`. `kip33/api/RESULTS.md` lists the columns and fields of all results.
"""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias, Unpack, overload

import pyarrow as pa

from kip33.api.catalog_options import HoleOptions, PolicyTables, SegmentOptions, policies_in
from kip33.api.failover_buffer import measured_buffer
from kip33.api.offsets_for_times import (
    EmittedOptions,
    OpenedTiers,
    TimeRequest,
    TimesOptions,
    answered,
    emitted,
)
from kip33.archive.common_options import LocalEngineRun
from kip33.archive.moments import current_ms, time_or_now
from kip33.audits.roll_answers import (
    RolledArchive,
    SnapshotRollOptions,
    WhatIfOptions,
    audit_archive,
    replay_archive,
)
from kip33.audits.roll_audit import roll_table
from kip33.catalog import difference, pruning, topic_totals
from kip33.catalog.catalog import Catalog, Choice, Snapshot, choose, existing_catalog, warn_caller
from kip33.catalog.catalog_answers import holes_in, segment_table, undamaged_snapshots
from kip33.catalog.schema import with_time_columns
from kip33.catalog.tiers import CatalogSnapshot
from kip33.catalog.topic_totals import TopicTotals
from kip33.errors import Kip33Error
from kip33.formats.batch import MAX_INT32
from kip33.formats.kafka_configs import GroupOffset
from kip33.formats.printed_fields import (
    MOST_ROWS_SHOWN,
    facts_text,
    object_html,
)
from kip33.local.local_engine import LocalEngine
from kip33.options import Path, number_of, parsed, takes
from kip33.retention import make_plan
from kip33.retention.answer import (
    RecordsToDelete,
    RetentionAnswer,
    judge_here,
    local_answer,
    records_to_delete,
    retention_table,
)
from kip33.retention.plan import RetentionPlan
from kip33.retention.question import RetentionQuestion, moments_of, what_if_of
from kip33.retention.retention_options import (
    JudgingOptions,
    PlanningOptions,
    RetentionOptions,
    RetentionSumsOptions,
)
from kip33.rules.policies import TopicGlobs, duration_ms
from kip33.search import failover, group_lag
from kip33.search.answers import load_group_offsets
from kip33.search.catalog_search import partitions_of
from kip33.search.emitted_offsets import EmittedOffsets
from kip33.search.failover import FailoverOptions, ResumePoint
from kip33.search.group_lag import GroupLag, LagOptions
from kip33.stores.filesystem_option import Filesystem, StorageOptions, place_on

_SHOWN_OF_TOPICS: Final = (
    *("topic", "partitions", "segments", "log_bytes", "record_count"),
    *("first_timestamp", "largest_timestamp", "not_ok"),
)
_MOST_SEGMENTS_SUMMED: Final = 200_000  # for a prompt

Offsets: TypeAlias = Path | Iterable[tuple[str, str, int, int]]
"""Committed offsets: tuples (group, topic, partition, offset), or a file.

The file is a CSV `[group,]topic,partition,offset`, or the output of
`kafka-consumer-groups.sh --describe`.
"""

SnapshotChoice: TypeAlias = Snapshot | str | int | None
"""A snapshot, or its name, number or id; None: the newest undamaged one."""


class LocalRollOptions(SnapshotRollOptions, LocalEngineRun, total=False):
    """The options of `OpenedCatalog.roll`."""


class LocalWhatIfOptions(WhatIfOptions, LocalEngineRun, total=False):
    """The options of `OpenedCatalog.roll_what_if`."""


@overload
def open_catalog(
    catalog: Path,
    *,
    storage_options: StorageOptions | None = None,
    filesystem: Filesystem | None = None,
) -> "OpenedCatalog": ...


@overload
def open_catalog(
    catalog: list[Path] | tuple[Path, Path],
    *,
    storage_options: StorageOptions | None = None,
    filesystem: Filesystem | None = None,
) -> OpenedTiers: ...


def open_catalog(
    catalog: Path | list[Path] | tuple[Path, Path],
    *,
    storage_options: StorageOptions | None = None,
    filesystem: Filesystem | None = None,
) -> "OpenedCatalog | OpenedTiers":
    """Return the catalog at a path or URI, or the two of a cluster with tiered storage.

    >>> catalog = open_catalog("indexes/_catalog")
    >>> catalog.segments().num_rows
    13

    - `catalog`: the directory of its snapshots, `_catalog` in the directory of index files; that
      directory is taken, too, with a Python warning. With tiered storage, a list of two: of the
      log directories and of the remote tier, in any order (`OpenedTiers`)
    - `storage_options`: keys and endpoint for its store and its archive's, by Hadoop's names or as
      `endpoint`, `region`, `access_key`, `secret_key`, `token` (`kip33.stores.filesystem_option`)
    - `filesystem`: a pyarrow or fsspec filesystem instead, whose name for the catalog is the path
      (`kip33.stores.filesystem_option`)

    Raises LocationError if there is no such directory, CatalogError if it has no snapshot,
    ValueError unless one or two are given, TypeError for what is neither a path nor a list or tuple
    of them.
    """
    if isinstance(catalog, str | os.PathLike):
        return OpenedCatalog(existing_catalog(place_on(catalog, storage_options, filesystem)))
    if not isinstance(catalog, list | tuple):
        raise TypeError(
            f"catalog: {type(catalog).__name__} found, expected a path, or a list of two"
        )
    catalogs = [existing_catalog(place_on(one, storage_options, filesystem)) for one in catalog]
    if len(catalogs) != 2:
        found = len(catalogs)
        raise ValueError(f"{found} catalogs found, expected one, or one of each of two tiers")
    return OpenedTiers((catalogs[0], catalogs[1]))


@dataclass(frozen=True, repr=False)
class OpenedCatalog:
    """A catalog; its methods read the files at each call.

    `snapshot` is a name, a number, an id or one of `snapshots()`; None is the newest undamaged one,
    with a warning for each newer damaged one. CatalogError if there is no such snapshot or it is
    damaged.
    """

    catalog: Catalog

    def __repr__(self) -> str:
        """Return its URI, its newest snapshot and the topics, a line for each fact."""
        facts, totals = self._shown()
        return facts_text("OpenedCatalog", facts | {"topics": [one.topic for one in totals]})

    def _repr_html_(self) -> str:
        facts, totals = self._shown()
        largest = sorted(totals, key=lambda one: -one.log_bytes)[:MOST_ROWS_SHOWN]
        rows = [{name: getattr(one, name) for name in _SHOWN_OF_TOPICS} for one in largest]
        return object_html("OpenedCatalog", facts | {"topics": len(totals) or None}, rows)

    def _shown(self) -> tuple[dict[str, Any], list[TopicTotals]]:
        """Return facts, and the topics unless they take long; an error is a fact, too."""
        try:
            snapshot = choose(self.catalog, None, lambda _: None).snapshot
            facts: dict[str, Any] = {
                "uri": self.uri,
                "snapshot": snapshot.name,
                "created_ms": snapshot.created_ms,
            }
            facts |= {"source": snapshot.source, "segments": snapshot.rows}
            is_small = snapshot.rows <= _MOST_SEGMENTS_SUMMED
            return facts, self.topics(snapshot) if is_small else []
        except (Kip33Error, OSError) as error:
            return {"uri": self.uri, "problem": str(error)}, []

    @property
    def uri(self) -> str:
        """Return the absolute URI of the catalog."""
        return self.catalog.location.uri

    def snapshots(self) -> list[Snapshot]:
        """Return the snapshots that are not damaged, newest first; a warning for each that is.

        >>> [snapshot.rows for snapshot in open_catalog("indexes/_catalog").snapshots()]
        [13]

        `name`; `created_ms` (ms since 1970); `source`, the archive's URI; `rows`, the number of
        segments; `parts`, its Parquet files.
        """
        return undamaged_snapshots(self.catalog)

    @takes(SegmentOptions)
    def segments(
        self,
        snapshot: SnapshotChoice = None,
        *,
        columns: Sequence[str] | None = None,
        **options: Unpack[SegmentOptions],
    ) -> pa.Table:
        """Return a row for each segment file, or directory that could not be listed.

        The checksum of every file is verified.

        >>> rows = open_catalog("indexes/_catalog").segments(columns=["topic", "status"])
        >>> rows.slice(0, 2).to_pylist()
        [{'topic': 'audit.v1', 'status': 'ok'}, {'topic': 'orders', 'status': 'ok'}]

        - `columns`: those of the snapshot's Parquet files (`segments` in RESULTS.md) that are
          wanted; None: all
        - `options`: see `SegmentOptions`
        """
        return segment_table(self._at(snapshot), columns, options["topics"], options["statuses"])

    @takes(HoleOptions)
    def holes(self, snapshot: SnapshotChoice = None, **options: Unpack[HoleOptions]) -> pa.Table:
        """Return a row for each place where a partition's next segment begins too late.

        >>> open_catalog("indexes/_catalog").holes().num_rows
        0

        - `options`: see `HoleOptions`

        Rows are by log directory, topic, partition and offset (`holes` in RESULTS.md). `hole` says
        whether records are missing: `certain`; `possible`, the topic is compacted; `after damage`
        of the segment before; `filled` by another replica.
        """
        policies = options["policies"]
        held = None if policies is None else policies_in(policies)
        return holes_in(self._at(snapshot), options["topics"], held)

    def orphans(self, snapshot: SnapshotChoice = None) -> pa.Table:
        """Return a row for each file that belongs to no segment, or directory of such files.

        >>> open_catalog("indexes/_catalog").orphans().column_names[:4]
        ['leftover', 'uri', 'files', 'size_bytes']

        The source and the index directory of the snapshot are listed now; a warning names each
        directory that cannot be. Rows are by kind and URI (`orphans` in RESULTS.md).
        """
        from kip33.builds.leftovers import find_leftovers

        found = find_leftovers(*self._at(snapshot))
        for line in found.warnings:
            warn_caller(line)
        return with_time_columns(found.table())

    def prune(self, *, keep: int) -> pa.Table:
        """Remove old snapshots, and files of builds that stopped; return a row for each removal.

        >>> open_catalog("indexes/_catalog").prune(keep=3).num_rows
        0

        - `keep`: the newest complete snapshots that stay, 1 or more. What was the newest within
          the last hour stays, too, and what running builds use

        Columns: `what` string, `old snapshot`, `damaged snapshot` or `dead build`; `name` string;
        `size_bytes` int64, bytes. A warning names each file that could not be removed, each folder
        with files of other programs, which stays, and each damaged snapshot that is ignored.
        """
        pruned = pruning.prune(self.catalog, keep=keep, now_ms=current_ms())
        for line in (*pruned.warnings, *pruned.failures):
            warn_caller(line)
        return pruned.table()

    def topics(self, snapshot: SnapshotChoice = None) -> list[TopicTotals]:
        """Return the totals of each topic, by name (`topics` in RESULTS.md).

        >>> topics = open_catalog("indexes/_catalog").topics()
        >>> [(totals.topic, totals.segments, totals.record_count) for totals in topics[1:3]]
        [('clicks', 4, 3490), ('metrics', 1, 1)]
        """
        return topic_totals.topic_totals(*self._at(snapshot))

    def difference(self, a: SnapshotChoice, b: SnapshotChoice = None) -> pa.Table:
        """Return a row for each segment that changed from snapshot `a` to snapshot `b`.

        >>> open_catalog("indexes/_catalog").difference("1", "1").num_rows
        0

        - `a`: the earlier snapshot, by name, number or id
        - `b`: the later one; None: the newest undamaged one

        Columns: `log_uri` string; `changes` list of `added`, `gone`, `grown`, `shrunk`,
        `status changed`, `modified`; `size_bytes_before`, `size_bytes_after` int64, bytes;
        `status_before`, `status_after` string.
        """
        return difference.difference(*self._at(a), self._at(b).snapshot)

    @takes(TimesOptions)
    def offsets_for_times(
        self,
        requests: Iterable[TimeRequest],
        *,
        snapshot: SnapshotChoice = None,
        **options: Unpack[TimesOptions],
    ) -> pa.Table:
        """Return for each request the first record at or after its time.

        >>> catalog = open_catalog("indexes/_catalog")
        >>> answers = catalog.offsets_for_times([("orders", 0, 1_700_050_000_000)])
        >>> answers.select(["offset", "timestamp", "result"]).to_pylist()
        [{'offset': 4000, 'timestamp': 1700086400104, 'result': 'found'}]

        - `requests`: tuples (topic, partition, time), and optionally a log directory. Partition
          None: all. A time is ISO 8601, `now-3h`, a `datetime` with a time zone, a time of pandas,
          NumPy or pyarrow, ms since 1970, `earliest`, `latest` or `max-timestamp`
        - `options`: see `SearchQuestion` and `RangeOptions`

        Rows are in the order of the requests, then by partition and log directory (`answers` in
        RESULTS.md): `offset` and `timestamp` (ms) of the record, null if `result` says that no
        record was found; `exactness`; `bytes_read`; `note`; `passed_over`. With `until` also
        `until_ms`, `until_offset`, `records` and `size_bytes`. ValueError for a wrong argument.
        """
        return answered(self._at(snapshot), requests, options)

    @takes(EmittedOptions, emit="reset-offsets")
    def offsets_to_emit(
        self,
        requests: Iterable[TimeRequest],
        *,
        snapshot: SnapshotChoice = None,
        **options: Unpack[EmittedOptions],
    ) -> EmittedOffsets:
        """Return the answers to requests as the input of another program.

        >>> catalog = open_catalog("indexes/_catalog")
        >>> found = catalog.offsets_to_emit([("orders", 0, 1_700_050_000_000)])
        >>> found.text, found.warnings
        ('orders,0,4000\\n', [])

        - `requests`: as of `offsets_for_times`, with one answer for each partition
        - `options`: see `SearchQuestion` and `EmitOptions`

        A partition without a record has the end of its log, as Kafka's own tool does. An answer
        that could skip or delete wrong records is left out, and a line of `warnings` names it; for
        Spark, which needs every partition of a topic, it is a Kip33Error. ValueError for a wrong
        argument, or several answers of one partition.
        """
        return emitted(self._at(snapshot), requests, options)

    @takes(LagOptions)
    def group_lags(
        self,
        offsets: Offsets,
        *,
        policies: PolicyTables | None = None,
        **options: Unpack[LagOptions],
    ) -> list[GroupLag]:
        """Return the lag of each group, in the order of `offsets`.

        >>> catalog = open_catalog("indexes/_catalog")
        >>> [lag] = catalog.group_lags([("billing", "orders", 0, 8000)])
        >>> lag.lag_records, lag.lag_ms
        (500, 49577)

        - `policies`: with them, `unread_expires_at_ms` is the time at which retention may begin to
          delete unread records
        - `options`: see `LagOptions`

        Times are ms since 1970, `lag_ms` is milliseconds, `lag_records` a number of offsets
        (`group_lags` in RESULTS.md).
        """
        committed = _committed_offsets(offsets, options["topics"])
        source = self._at(options["snapshot"])
        return group_lag.group_lags(
            partitions_of(source, {one.topic for one in committed}),
            committed,
            policies=None if policies is None else policies_in(policies),
            now_ms=time_or_now(options["now"]),
            max_batch_bytes=options["max_batch_bytes"],
        )

    @takes(FailoverOptions)
    def resume_points(
        self,
        other: "OpenedCatalog | Path",
        offsets: Offsets,
        *,
        buffer_ms: int | str,
        **options: Unpack[FailoverOptions],
    ) -> list[ResumePoint]:
        """Return the offsets at which groups of this catalog's cluster continue on another cluster.

        >>> catalog = open_catalog("indexes/_catalog")
        >>> committed = [("billing", "orders", 0, 8000)]
        >>> [point] = catalog.resume_points("indexes/_catalog", committed, buffer_ms=60_000)
        >>> point.resume_offset, point.read_twice_at_most
        (7389, 611)

        - `other`: the catalog of the other cluster, or its path or URI
        - `buffer_ms`: the largest latency and clock difference between the two clusters, in ms or
          such as `15m`; `auto`: measured from this cluster's LogAppendTime batches
        - `options`: see `FailoverOptions`

        Rows are by group, topic and partition of the other cluster; times are ms since 1970
        (`resume_points` in RESULTS.md). ValueError for a negative buffer, or one that cannot be
        measured.
        """
        committed = _committed_offsets(offsets, options["topics"])
        topics = {one.topic for one in committed}
        second = _opened(other, "other")
        here, there = self._at(None), second._at(None)
        if buffer_ms == "auto":
            measured = measured_buffer(here, there, topics, current_ms(), warn_caller)
            buffer = measured.buffer_ms
        else:
            buffer = parsed("buffer_ms", duration_ms, buffer_ms)
        return failover.resume_points(
            partitions_of(here, topics),
            partitions_of(there, topics),
            committed,
            buffer_ms=buffer,
            max_batch_bytes=options["max_batch_bytes"],
        )

    @takes(FailoverOptions)
    def offsets_to_resume(
        self,
        other: "OpenedCatalog | Path",
        offsets: Offsets,
        *,
        buffer_ms: int | str,
        **options: Unpack[FailoverOptions],
    ) -> EmittedOffsets:
        """Return `resume_points` as the input of `kafka-consumer-groups.sh --from-file`.

        >>> catalog = open_catalog("indexes/_catalog")
        >>> committed = [("billing", "orders", 0, 8000)]
        >>> catalog.offsets_to_resume("indexes/_catalog", committed, buffer_ms=60_000).text
        'orders,0,7389\\n'

        - `other`: the catalog of the other cluster, or its path or URI
        - `buffer_ms`: as of `resume_points`
        - `options`: see `FailoverOptions`

        Lines have groups if there are several. `warnings` name the partitions that are left out,
        and those without a guarantee. ValueError as of `resume_points`.
        """
        points = self.resume_points(other, offsets, buffer_ms=buffer_ms, **options)
        return failover.reset_offsets(points)

    @takes(RetentionOptions)
    def retention(
        self,
        policies: PolicyTables,
        *,
        other: "OpenedCatalog | Path | None" = None,
        **options: Unpack[RetentionOptions],
    ) -> pa.Table:
        """Return a row for each segment with retention's decision.

        >>> catalog = open_catalog("indexes/_catalog")
        >>> week = {"defaults": {"retention.ms": "7d"}}
        >>> judged = catalog.retention(week, now=1_702_000_000_000)
        >>> judged["deletable"].to_pylist().count(True)
        4

        - `policies`: `Policies`, or their tables
        - `other`: with tiered storage, the catalog of the other tier, or its path or URI. What is
          not complete in the remote tier is `not_uploaded` in the local one, whose limits are
          `local.retention.*`. In the remote tier `retention.bytes` counts what only the local one
          has, its log start offsets are used, and no segment is the active one
        - `options`: see `RetentionOptions`

        Rows are by log directory, topic, partition and base offset (`retention` in RESULTS.md):
        `deletable`, `reason`, `expires_at_ms`, ... `retention_ms` and `ignore_future` add
        `what_if_deletable` and `what_if_reason`, `show_broker_view` what a broker reads and does. A
        directory that could not be listed has no row. A warning names a topic that has another id
        in the other tier. ValueError for a wrong argument, CatalogError if the two are not the
        tiers of a cluster.
        """
        question = self._question(policies, other, options).asking(**_views(options))
        return with_time_columns(retention_table(question))

    @takes(RetentionSumsOptions)
    def retention_sums(
        self,
        policies: PolicyTables,
        *,
        other: "OpenedCatalog | Path | None" = None,
        **options: Unpack[RetentionSumsOptions],
    ) -> RetentionAnswer:
        """Return what retention frees of each partition, and at each time.

        >>> catalog = open_catalog("indexes/_catalog")
        >>> week = {"defaults": {"retention.ms": "7d"}}
        >>> sums = catalog.retention_sums(week, now=1_700_000_000_000, forecast="30d")
        >>> sums.totals["deletable_segments"], sums.freed.num_rows
        (0, 2)

        - `policies`, `other`: those of `retention`
        - `options`: see `RetentionSumsOptions`

        Errors are those of `retention`; also ValueError for `at` beside `forecast`.
        """
        question = self._question(policies, other, options)
        moments_ms = moments_of(options, question.request.now_ms)
        question = question.asking(moments_ms=moments_ms, **_views(options))
        answer = local_answer(question, judge_here(question))
        freed = None if answer.freed is None else with_time_columns(answer.freed)
        return replace(answer, partitions=with_time_columns(answer.partitions), freed=freed)

    @takes(PlanningOptions)
    def plan_retention(
        self,
        policies: PolicyTables,
        *,
        other: "OpenedCatalog | Path | None" = None,
        **options: Unpack[PlanningOptions],
    ) -> RetentionPlan:
        """Return the plan of segments to delete; nothing is written or deleted.

        >>> catalog = open_catalog("indexes/_catalog")
        >>> week = {"defaults": {"retention.ms": "7d", "cleanup.policy": "delete"}}
        >>> catalog.plan_retention(week, now=1_702_000_000_000).segments
        4

        - `policies`, `other`: those of `retention`
        - `options`: see `PlanningOptions`

        `kip33.write_plan` writes the plan to a file, `kip33.apply_plan` tests it or carries it out.
        PlanError if `now` is in the future, a topic has no cleanup.policy, or the policies keep
        everything.
        """
        question = self._planning(policies, other, options)
        place = (question.catalog, question.snapshot)
        return make_plan.plan_retention(*place, question.request, question.clock_ms)

    @takes(PlanningOptions)
    def records_to_delete(
        self,
        policies: PolicyTables,
        *,
        other: "OpenedCatalog | Path | None" = None,
        **options: Unpack[PlanningOptions],
    ) -> RecordsToDelete:
        """Return the input of `kafka-delete-records.sh`: the first kept offset of each partition.

        >>> catalog = open_catalog("indexes/_catalog")
        >>> week = {"defaults": {"retention.ms": "7d", "cleanup.policy": "delete"}}
        >>> found = catalog.records_to_delete(week, now=1_702_000_000_000)
        >>> found.offsets["partitions"]
        [{'topic': 'orders', 'partition': 0, 'offset': 8000}]

        - `policies`, `other`: those of `retention`
        - `options`: see `PlanningOptions`

        A partition of which a plan would leave out a segment is left out, and a line of `warnings`
        names it. Errors are those of `plan_retention`.
        """
        question = self._planning(policies, other, options)
        question.require_now()
        judged = judge_here(question, emits=True)
        assert judged.doubts is not None
        return records_to_delete(judged.sums.partitions, judged.doubts)

    @takes(LocalRollOptions)
    def roll(
        self, policies: PolicyTables | None = None, **options: Unpack[LocalRollOptions]
    ) -> pa.Table:
        """Return a row for each segment that says why it ended, and when it should have.

        >>> catalog = open_catalog("indexes/_catalog")
        >>> ends = catalog.roll(segment_ms="1h")["ended_by"].to_pylist()
        >>> ends.count("time"), ends.count("active")
        (4, 6)

        - `policies`: settings of topics; without one of them and an option, Kafka's default
        - `options`: see `SnapshotRollOptions` and `LocalEngineRun`

        Rows are by log directory, topic, partition and base offset (`roll` in RESULTS.md):
        `ended_by`, `rolls_at_ms`, `overdue_ms`, `early`, ... Without `read_headers` no log is
        opened; with it, a log that cannot be read is a Python warning. ValueError for a wrong
        argument, PolicyError for a wrong policy.
        """
        archive = self._rolled(options["snapshot"], options["topics"])
        held = None if policies is None else policies_in(policies)
        engine = LocalEngine.of(options, warn_caller)
        found = audit_archive(archive, options, held, lambda: engine, warn_caller)
        return with_time_columns(roll_table(found.audit))

    @takes(LocalWhatIfOptions)
    def roll_what_if(
        self, policies: PolicyTables | None = None, **options: Unpack[LocalWhatIfOptions]
    ) -> pa.Table:
        """Return the segments that other settings would have given, by replaying all batches.

        >>> catalog = open_catalog("indexes/_catalog")
        >>> replayed = catalog.roll_what_if(segment_ms="1h", topics=["orders"])
        >>> replayed["reading"].to_pylist().count("kafka")
        6

        - `policies`: as of `roll`
        - `options`: see `WhatIfOptions` and `LocalEngineRun`

        Rows are by partition, reading and base offset (`roll_what_if` in RESULTS.md). The headers
        of all batches are read. What is missing or cannot be read is a Python warning. ValueError
        for a wrong argument, PolicyError for a wrong policy.
        """
        archive = self._rolled(options["snapshot"], options["topics"])
        held = None if policies is None else policies_in(policies)
        found = replay_archive(archive, options, held, LocalEngine.of(options, warn_caller))
        for line in found.doubts:
            warn_caller(line)
        return with_time_columns(found.table())

    def _rolled(self, snapshot: SnapshotChoice, topics: Sequence[str]) -> RolledArchive:
        return RolledArchive.of_catalog(self.catalog, self._choice(snapshot), topics)

    def _at(self, snapshot: SnapshotChoice) -> CatalogSnapshot:
        return CatalogSnapshot(self.catalog, self._choice(snapshot).snapshot)

    def _choice(self, snapshot: SnapshotChoice) -> Choice:
        name = snapshot.name if isinstance(snapshot, Snapshot) else snapshot
        return choose(self.catalog, None if name is None else str(name))

    def _question(
        self,
        policies: PolicyTables,
        other: "OpenedCatalog | Path | None",
        asked: JudgingOptions,
    ) -> RetentionQuestion:
        """Return the question of retention, after telling its warnings."""
        tier = None if other is None else _opened(other, "other")._at(None)
        question = RetentionQuestion.of(
            self._at(asked["snapshot"]),
            policies_in(policies),
            asked,
            current_ms(),
            other=tier,
        )
        for line in question.warnings:
            warn_caller(line)
        return question

    def _planning(
        self,
        policies: PolicyTables,
        other: "OpenedCatalog | Path | None",
        asked: PlanningOptions,
    ) -> RetentionQuestion:
        question = self._question(policies, other, asked)
        return question.asking(trust_last_modified=asked["trust_last_modified"])


def _views(asked: RetentionOptions) -> dict[str, Any]:
    """Return the fields of a request that are judged beside the policies."""
    return {
        "what_if": what_if_of(asked["retention_ms"], asked["ignore_future"]),
        "broker_view": asked["show_broker_view"],
    }


def _opened(catalog: OpenedCatalog | Path, argument: str) -> OpenedCatalog:
    """Return one opened catalog; TypeError for two, or what is no path."""
    if isinstance(catalog, OpenedCatalog):
        return catalog
    if isinstance(catalog, str | os.PathLike):
        return open_catalog(catalog)
    raise TypeError(f"{argument}: {type(catalog).__name__} found, expected a path or OpenedCatalog")


def _committed_offsets(offsets: Offsets, topics: Sequence[str]) -> list[GroupOffset]:
    if isinstance(offsets, str | os.PathLike):
        return load_group_offsets(offsets, topics, warn_caller)
    globs = TopicGlobs.of(topics)
    return [one for one in map(_group_offset, offsets) if globs.matches(one.topic)]


def _group_offset(given: Any) -> GroupOffset:
    """A program's tuple; ValueError for another value."""
    try:
        group, topic, partition, offset = given
        if not isinstance(group, str) or not isinstance(topic, str):
            raise TypeError
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"offsets {given!r}: expected a list of tuples (group, topic, partition, offset)"
        ) from error
    number = number_of("partition", partition, most=MAX_INT32)
    return GroupOffset(group, topic, number, number_of("offset", offset))
