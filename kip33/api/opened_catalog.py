"""A catalog as one object, without Spark: `kip33.open_catalog`.

Its methods call the same functions as the commands `catalog`, `search`, `lag`, `failover`,
`retention` and `roll`. `kip33/api/RESULTS.md` lists the columns and fields of all results. The
clock is read here, for programs that call kip33.
"""

import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeAlias, Unpack, overload

import pyarrow as pa
import pyarrow.compute as pc

from kip33.api.catalog_options import HoleOptions, PolicyTables, SegmentOptions, policies_in
from kip33.api.failover_buffer import measured_buffer
from kip33.api.offsets_for_times import (
    EmittedOptions,
    OpenedTiers,
    TimeRequest,
    TimesOptions,
    answered,
    emitted,
    log_starts,
)
from kip33.archive.common_options import LocalEngineRun
from kip33.archive.log_start_offsets import LogStartOffsets
from kip33.audits.roll_answers import (
    RolledArchive,
    SnapshotRollOptions,
    WhatIfOptions,
    audit_archive,
    replay_archive,
)
from kip33.audits.roll_audit import roll_table
from kip33.catalog import difference, pruning, topic_totals
from kip33.catalog.catalog import Catalog, Snapshot, catalog_at, choose, warn_caller
from kip33.catalog.catalog_answers import holes_in, segment_table, undamaged_snapshots
from kip33.catalog.partitions import names_in
from kip33.catalog.tiers import CatalogSnapshot
from kip33.catalog.topic_totals import TopicTotals
from kip33.formats.kafka_configs import GroupOffset
from kip33.formats.times import Time, milliseconds_of
from kip33.local.local_engine import LocalEngine
from kip33.options import Path, takes
from kip33.retention import make_plan
from kip33.retention.evaluated_tables import answer_columns
from kip33.retention.evaluation import (
    JudgedRows,
    OtherTier,
    RetentionRequest,
    boundary_for,
    judged_tables,
    policies_for,
    tier_warnings,
)
from kip33.retention.only_local import only_local
from kip33.retention.plan import RetentionPlan
from kip33.retention.uploaded import uploaded_segments
from kip33.rules.policies import TopicGlobs
from kip33.rules.search import NEWEST_KAFKA, parse_kafka_version
from kip33.search import failover, group_lag
from kip33.search.answers import load_group_offsets
from kip33.search.catalog_search import partitions_of
from kip33.search.emitted_offsets import EmittedOffsets
from kip33.search.failover import FailoverOptions, ResumePoint
from kip33.search.group_lag import GroupLag, LagOptions
from kip33.stores.filesystem_option import Filesystem, StorageOptions, place_on

Offsets: TypeAlias = Path | Iterable[tuple[str, str, int, int]]
"""Committed offsets: tuples (group, topic, partition, offset), or a file.

The file is a CSV `[group,]topic,partition,offset`, or the output of
`kafka-consumer-groups.sh --describe`.
"""

_RETENTION_FIELDS: list["pa.Field[Any]"] = [
    pa.field("log_dir", pa.string(), nullable=False),
    pa.field("topic", pa.string(), nullable=False),
    pa.field("partition", pa.int32(), nullable=False),
    pa.field("base_offset", pa.int64()),
    pa.field("log_uri", pa.string(), nullable=False),
    pa.field("size_bytes", pa.int64()),
    pa.field("last_modified_ms", pa.int64()),
    pa.field("largest_timestamp", pa.int64()),
    pa.field("largest_timestamp_source", pa.string()),
    pa.field("status", pa.string(), nullable=False),
    pa.field("policy", pa.string(), nullable=False),
    pa.field("mode", pa.string(), nullable=False),
    pa.field("retention_ms", pa.int64(), nullable=False),
    pa.field("retention_bytes", pa.int64(), nullable=False),
    pa.field("log_start_offset", pa.int64()),
    pa.field("retention_ms_breached", pa.bool_(), nullable=False),
    pa.field("deletable", pa.bool_(), nullable=False),
    pa.field("reason", pa.string(), nullable=False),
    pa.field("expires_at_ms", pa.int64()),
    pa.field("deletable_at_ms", pa.int64()),
    pa.field("blocked_by_base_offset", pa.int64()),
    pa.field("blocked_by_timestamp", pa.int64()),
    pa.field("upload_before_ms", pa.int64()),
]
RETENTION: Final = pa.schema(_RETENTION_FIELDS)


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

    Raises LocationError if there is no such directory, ValueError unless one or two are given,
    TypeError for what is neither a path nor a list or tuple of them.
    """
    if isinstance(catalog, str | os.PathLike):
        return OpenedCatalog(catalog_at(place_on(catalog, storage_options, filesystem)))
    if not isinstance(catalog, list | tuple):
        raise TypeError(
            f"catalog: {type(catalog).__name__} found, expected a path, or a list of two"
        )
    catalogs = [catalog_at(place_on(one, storage_options, filesystem)) for one in catalog]
    if len(catalogs) != 2:
        found = len(catalogs)
        raise ValueError(f"{found} catalogs found, expected one, or one of each of two tiers")
    return OpenedTiers((catalogs[0], catalogs[1]))


@dataclass(frozen=True)
class OpenedCatalog:
    """A catalog; its methods read the files at each call.

    `snapshot` is a name, a number or an id; None is the newest undamaged one, with a warning for
    each newer damaged one. CatalogError if there is no such snapshot or it is damaged.
    """

    catalog: Catalog

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
        snapshot: str | None = None,
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
        source = CatalogSnapshot(self.catalog, self._chosen(snapshot))
        return segment_table(source, columns, options["topics"], options["statuses"])

    @takes(HoleOptions)
    def holes(self, snapshot: str | None = None, **options: Unpack[HoleOptions]) -> pa.Table:
        """Return a row for each place where a partition's next segment begins too late.

        >>> open_catalog("indexes/_catalog").holes().num_rows
        0

        - `options`: see `HoleOptions`

        Rows are by log directory, topic, partition and offset (`holes` in RESULTS.md). `hole` says
        whether records are missing: `certain`; `possible`, the topic is compacted; `after damage`
        of the segment before; `filled` by another replica.
        """
        policies = options["policies"]
        return holes_in(
            CatalogSnapshot(self.catalog, self._chosen(snapshot)),
            options["topics"],
            None if policies is None else policies_in(policies),
        )

    def orphans(self, snapshot: str | None = None) -> pa.Table:
        """Return a row for each file that belongs to no segment, or directory of such files.

        >>> open_catalog("indexes/_catalog").orphans().column_names
        ['leftover', 'uri', 'files', 'size_bytes', 'last_modified_ms', 'is_ours']

        The source and the index directory of the snapshot are listed now; a warning names each
        directory that cannot be. Rows are by kind and URI (`orphans` in RESULTS.md).
        """
        from kip33.builds.leftovers import find_leftovers

        found = find_leftovers(self.catalog, self._chosen(snapshot))
        for line in found.warnings:
            warn_caller(line)
        return found.table()

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

    def topics(self, snapshot: str | None = None) -> list[TopicTotals]:
        """Return the totals of each topic, by name (`topics` in RESULTS.md).

        >>> topics = open_catalog("indexes/_catalog").topics()
        >>> [(totals.topic, totals.segments, totals.record_count) for totals in topics[1:3]]
        [('clicks', 4, 3490), ('metrics', 1, 1)]
        """
        return topic_totals.topic_totals(self.catalog, self._chosen(snapshot))

    def difference(self, a: str, b: str | None = None) -> pa.Table:
        """Return a row for each segment that changed from snapshot `a` to snapshot `b`.

        >>> open_catalog("indexes/_catalog").difference("1", "1").num_rows
        0

        - `a`: the earlier snapshot, by name, number or id
        - `b`: the later one; None: the newest undamaged one

        Columns: `log_uri` string; `changes` list of `added`, `gone`, `grown`, `shrunk`,
        `status changed`, `modified`; `size_bytes_before`, `size_bytes_after` int64, bytes;
        `status_before`, `status_after` string.
        """
        return difference.difference(self.catalog, self._chosen(a), self._chosen(b))

    @takes(TimesOptions)
    def offsets_for_times(
        self,
        requests: Iterable[TimeRequest],
        *,
        snapshot: str | None = None,
        **options: Unpack[TimesOptions],
    ) -> pa.Table:
        """Return for each request the first record at or after its time.

        >>> catalog = open_catalog("indexes/_catalog")
        >>> answers = catalog.offsets_for_times([("orders", 0, 1_700_050_000_000)])
        >>> answers.select(["offset", "timestamp", "result"]).to_pylist()
        [{'offset': 4000, 'timestamp': 1700086400104, 'result': 'found'}]

        - `requests`: tuples (topic, partition, time), and optionally a log directory. Partition
          None: all. A time may also be `earliest`, `latest` or `max-timestamp`
        - `options`: see `SearchQuestion` and `RangeOptions`

        Rows are in the order of the requests, then by partition and log directory (`answers` in
        RESULTS.md): `offset` and `timestamp` (ms) of the record, null if `result` says that no
        record was found; `exactness`; `bytes_read`; `note`; `passed_over`. With `until` also
        `until_ms`, `until_offset`, `records` and `size_bytes`. ValueError for a wrong argument.
        """
        return answered(CatalogSnapshot(self.catalog, self._chosen(snapshot)), requests, options)

    @takes(EmittedOptions, emit="reset-offsets")
    def offsets_to_emit(
        self,
        requests: Iterable[TimeRequest],
        *,
        snapshot: str | None = None,
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
        that could skip or delete wrong records is left out, and a line of `warnings` names it.
        ValueError for a wrong argument, or several answers of one partition.
        """
        return emitted(CatalogSnapshot(self.catalog, self._chosen(snapshot)), requests, options)

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
        source = CatalogSnapshot(self.catalog, self._chosen(options["snapshot"]))
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
        buffer_ms: int | Literal["auto"],
        **options: Unpack[FailoverOptions],
    ) -> list[ResumePoint]:
        """Return the offsets at which groups of this catalog's cluster continue on another cluster.

        >>> catalog = open_catalog("indexes/_catalog")
        >>> committed = [("billing", "orders", 0, 8000)]
        >>> [point] = catalog.resume_points("indexes/_catalog", committed, buffer_ms=60_000)
        >>> point.resume_offset, point.read_twice_at_most
        (7389, 611)

        - `other`: the catalog of the other cluster, or its path or URI
        - `buffer_ms`: the largest latency and clock difference between the two clusters; `auto`:
          measured from this cluster's LogAppendTime batches
        - `options`: see `FailoverOptions`

        Rows are by group, topic and partition of the other cluster; times are ms since 1970
        (`resume_points` in RESULTS.md). ValueError for a negative buffer, or one that cannot be
        measured.
        """
        committed = _committed_offsets(offsets, options["topics"])
        topics = {one.topic for one in committed}
        second = _opened(other, "other")
        here, there = (CatalogSnapshot(one.catalog, one._chosen(None)) for one in (self, second))
        if buffer_ms == "auto":
            measured = measured_buffer(here, there, topics, current_ms(), warn_caller)
            buffer_ms = measured.buffer_ms
        return failover.resume_points(
            partitions_of(here, topics),
            partitions_of(there, topics),
            committed,
            buffer_ms=buffer_ms,
            max_batch_bytes=options["max_batch_bytes"],
        )

    @takes(FailoverOptions)
    def offsets_to_resume(
        self,
        other: "OpenedCatalog | Path",
        offsets: Offsets,
        *,
        buffer_ms: int | Literal["auto"],
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

    def retention(  # parameters: each is an option of `kip33 retention`
        self,
        policies: PolicyTables,
        *,
        now: Time | None = None,
        snapshot: str | None = None,
        active_segment: str = "keep",
        broker_version: str | None = None,
        log_start_offsets: Path | None = None,
        topics: Sequence[str] = (),
        remote: "OpenedCatalog | Path | None" = None,
        local: "OpenedCatalog | Path | None" = None,
    ) -> pa.Table:
        """Return a row for each segment with retention's decision at `now`.

        >>> catalog = open_catalog("indexes/_catalog")
        >>> week = {"defaults": {"retention.ms": "7d"}}
        >>> judged = catalog.retention(week, now=1_702_000_000_000)
        >>> judged["deletable"].to_pylist().count(True)
        4

        Rows are by log directory, topic, partition and base offset (`retention` in RESULTS.md):
        `deletable`, `reason`, `expires_at_ms`, ... A directory that could not be listed has no row.
        `now` is a time, None: the current time. `active_segment` "kafka" judges the last segment as
        a broker does, "keep" keeps it. `broker_version` is the version of Kafka by which the remote
        tier is judged, such as "4.2"; None: the newest. `log_start_offsets` is a CSV
        topic,partition,offset[,log_dir] that overrides the archive's checkpoints; `topics` are
        globs. With `remote`, topics with `remote.storage.enable` in a broker's log directories are
        judged by `local.retention.*`, and what is not complete in the remote tier is
        `not_uploaded`. With `local`, the segments of a remote tier are judged as brokers do:
        `retention.bytes` counts what only the local tier has, its log start offsets are used, and
        no segment is the active one. A warning names a topic that has another id in the other tier.
        ValueError for a wrong argument, CatalogError
        if the two are not the tiers of a cluster.
        """
        chosen, version = self._chosen(snapshot), version_of(broker_version)
        other_tier = self._other_tier(chosen, policies, remote, local, log_start_offsets, version)
        request = RetentionRequest(
            policies_in(policies),
            time_or_now(now),
            self._log_starts(chosen, log_start_offsets),
            topics,
            active_segment,
            boundary_for(chosen, version),
            other_tier=other_tier,
        )
        request.require_valid()
        self._warn_of_tiers(chosen, request)
        request = replace(request, policies=policies_for(chosen, request.policies))
        tables = judged_tables(self.catalog, chosen, request)
        return pa.concat_tables(_retention_table(judged) for judged in tables)

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
        return roll_table(audit_archive(archive, options, held, lambda: engine, warn_caller).audit)

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
        return found.table()

    def _rolled(self, snapshot: str | None, topics: Sequence[str]) -> RolledArchive:
        return RolledArchive.of_catalog(self.catalog, choose(self.catalog, snapshot), topics)

    def plan_retention(  # parameters: each is an option of `kip33 retention --plan`
        self,
        policies: PolicyTables,
        *,
        now: Time | None = None,
        snapshot: str | None = None,
        active_segment: str = "keep",
        log_start_offsets: Path | None = None,
        topics: Sequence[str] = (),
        trust_last_modified: bool = False,
        remote: "OpenedCatalog | Path | None" = None,
    ) -> RetentionPlan:
        """Return the plan of segments to delete at `now`; nothing is written or deleted.

        >>> catalog = open_catalog("indexes/_catalog")
        >>> week = {"defaults": {"retention.ms": "7d", "cleanup.policy": "delete"}}
        >>> catalog.plan_retention(week, now=1_702_000_000_000).segments
        4

        The arguments are those of `retention`, and:

        - `trust_last_modified`: include segments for which the file's time is used as timestamp

        `kip33.write_plan` writes the plan
        to a file, `kip33.apply_plan` tests it or carries it out. PlanError if `now` is in the
        future, a topic has no cleanup.policy, or the policies keep everything.
        """
        chosen, clock_ms = self._chosen(snapshot), current_ms()
        request = RetentionRequest(
            policies_in(policies),
            clock_ms if now is None else time_or_now(now),
            self._log_starts(chosen, log_start_offsets),
            topics,
            active_segment,
            trust_last_modified=trust_last_modified,
            other_tier=self._other_tier(chosen, policies, remote),
        )
        self._warn_of_tiers(chosen, request)
        return make_plan.plan_retention(self.catalog, chosen, request, clock_ms)

    def _chosen(self, snapshot: str | None) -> Snapshot:
        return choose(self.catalog, snapshot).snapshot

    def _log_starts(self, snapshot: Snapshot, file: Path | None) -> LogStartOffsets:
        return log_starts(snapshot, self._texts(snapshot, "log_dir"), file)

    def _texts(self, snapshot: Snapshot, column: str) -> list[str]:
        texts: list[Any] = names_in(self.catalog, snapshot)[column].unique().drop_null().to_pylist()
        return sorted(texts)

    def _other_tier(
        self,
        snapshot: Snapshot,
        policies: PolicyTables,
        remote: "OpenedCatalog | Path | None",
        local: "OpenedCatalog | Path | None" = None,
        log_start_offsets: Path | None = None,
        version: tuple[int, int] = NEWEST_KAFKA,
    ) -> OtherTier | None:
        if remote is not None and local is not None:
            raise ValueError("remote and local found, expected one: this catalog is the other tier")
        given = local if remote is None else remote
        if given is None:
            return None
        other = _opened(given, "local" if remote is None else "remote")
        tier = CatalogSnapshot(other.catalog, other._chosen(None))
        judged = CatalogSnapshot(self.catalog, snapshot)
        if remote is not None:
            return uploaded_segments(judged, tier, policies_in(policies))
        return only_local(judged, tier, text_of(log_start_offsets), version)

    def _warn_of_tiers(self, snapshot: Snapshot, request: RetentionRequest) -> None:
        judged = filter(TopicGlobs.of(request.topics).matches, self._texts(snapshot, "topic"))
        for line in tier_warnings(snapshot, request.policies, judged, request.other_tier):
            warn_caller(line)


def _opened(catalog: OpenedCatalog | Path, argument: str) -> OpenedCatalog:
    """Return one opened catalog; TypeError for two, or what is no path."""
    if isinstance(catalog, OpenedCatalog):
        return catalog
    if isinstance(catalog, str | os.PathLike):
        return open_catalog(catalog)
    raise TypeError(f"{argument}: {type(catalog).__name__} found, expected a path or OpenedCatalog")


def _committed_offsets(offsets: Offsets, topics: Sequence[str]) -> list[GroupOffset]:
    if isinstance(offsets, str | os.PathLike):
        return load_group_offsets(offsets, topics)
    globs = TopicGlobs.of(topics)
    return [GroupOffset(*one) for one in offsets if globs.matches(one[1])]


def version_of(broker_version: str | None) -> tuple[int, int]:
    """Return a version of Kafka, the newest one for None; ValueError for another text."""
    return NEWEST_KAFKA if broker_version is None else parse_kafka_version(broker_version)


def text_of(path: Path | None) -> str | None:
    """Return a path as a text, None for None."""
    return None if path is None else os.fspath(path)


def current_ms() -> int:
    """Return the current time in ms since 1970."""
    return time.time_ns() // 1_000_000


def time_or_now(moment: Time | None) -> int:
    """Return a time in ms since 1970, the current time for None; ValueError before 1970."""
    now_ms = current_ms() if moment is None else milliseconds_of(moment)
    if now_ms < 0:
        raise ValueError(f"now {now_ms} found, expected a time from 1970 on")
    return now_ms


def _retention_table(judged: JudgedRows) -> pa.Table:
    """Return the judged segments as a table of RETENTION, in their order.

    A directory that could not be listed is no segment, whatever partition its name suggests.
    """
    answers = answer_columns(judged, 0, judged.rows.num_rows)
    found = {
        name: answers[name] if name in answers else judged.rows[name] for name in RETENTION.names
    }
    is_segment = pc.and_(pc.is_valid(judged.rows["base_offset"]), pc.is_valid(judged.rows["topic"]))
    return pa.table(found).filter(is_segment).cast(RETENTION)
