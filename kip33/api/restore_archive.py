"""Restore partitions of an archive into a broker's log directory, from a program or a command.

`RestoreOptions` are the options of `kip33 restore` and the arguments of `restore_archive`. Both
call `run_restore`.
"""

import os
from collections.abc import Collection, Sequence
from dataclasses import replace

from kip33.api.opened_catalog import text_of
from kip33.archive.bins import Engine
from kip33.builds.build_options import load_topic_settings
from kip33.catalog.catalog import Warn, catalog_at, catalog_unless_source, choose, warn_caller
from kip33.catalog.tiers import CatalogSnapshot, Tiers
from kip33.formats.times import Time
from kip33.local.local_engine import LocalEngine
from kip33.options import Path
from kip33.restore.restore_apply import may_continue, planned_or_begun, restore
from kip33.restore.restore_complete import AbandonedRestore, abandon
from kip33.restore.restore_plan import ask_topic_ids, load_topic_ids
from kip33.restore.restore_request import (
    Moment,
    RestoreOptions,
    RestoreRequest,
    RestoreSummary,
)
from kip33.rules.index_builder import IndexSettings
from kip33.rules.index_entries import DEFAULT_INDEX_INTERVAL_BYTES, DEFAULT_SEGMENT_INDEX_BYTES
from kip33.search.answers import load_group_offsets
from kip33.stores.filesystem_option import Filesystem, StorageOptions, place_on
from kip33.stores.locations import Location
from kip33.stores.progress import OnProgress, tell_nobody


def run_restore(
    options: RestoreOptions,
    engine: Engine | None,
    *,
    warn: Warn,
    on_progress: OnProgress = tell_nobody,
) -> RestoreSummary:
    """Restore on an engine, or continue that; without an engine only plan it.

    `warn` gets a line for each newer snapshot that is ignored. Errors are those of
    `restore_archive`.
    """
    options.require_valid()
    request = _request(options)
    if may_continue(request) is None:
        request = _with_source(request, options, warn)
    if engine is None:
        return RestoreSummary.of(planned_or_begun(request, on_progress))
    return RestoreSummary.of(restore(request, engine, on_progress))


# So many parameters: each is an option of `kip33 restore`, with its name and default.
def restore_archive(  # parameters: a notebook user sees each option as a keyword
    source: Path | Sequence[Path],
    to: Path,
    *,
    topics: Sequence[str] = (),
    partitions: Collection[int] | None = None,
    replica: str | None = None,
    snapshot: str | None = None,
    from_: Time | None = None,
    until: Time | None = None,
    truncate: bool = False,
    from_offsets: Path | None = None,
    topic_ids: Path | None = None,
    bootstrap_server: str | None = None,
    leader_epoch: int | None = None,
    link: bool = False,
    allow_holes: bool = False,
    allow_cut: bool = False,
    dry_run: bool = False,
    layout: str = "kafka",
    index_interval_bytes: int = DEFAULT_INDEX_INTERVAL_BYTES,
    segment_index_bytes: int = DEFAULT_SEGMENT_INDEX_BYTES,
    kafka_configs: Path | None = None,
    workers: int | None = None,
    on_progress: OnProgress = tell_nobody,
    storage_options: StorageOptions | None = None,
    filesystem: Filesystem | None = None,
) -> RestoreSummary:
    """Restore partitions of an archive, or of a catalog's archive, into a broker's log directory.

    `to` is the log directory of a stopped broker on this machine. The result is what `kip33
    restore` makes: a broker starts on it without recovery. With tiered storage, `source` is a list
    of two catalogs: of the log directories and of the remote tier, in any order.

    >>> from pathlib import Path
    >>> Path("data").mkdir()
    >>> planned = restore_archive("archive", "data", topics=["orders"], dry_run=True)
    >>> planned.applied, planned.segments, planned.log_bytes
    (False, 3, 605275)

    - `topics`: globs, `!GLOB` leaves topics out; `partitions`: their numbers (None: all)
    - `replica`: read this log directory of the source (None: for each partition the largest)
    - `snapshot`: of a catalog, a snapshot by name, number or id (None: the newest)
    - `from_`, `until`: from the segment with the first record at or after a time, and before the
      segments that begin at or after one; `truncate`: with `until`, cut the last segment there, too
    - `from_offsets`: a CSV topic,partition,offset, or the output of `kafka-consumer-groups.sh`
    - `topic_ids`: a file, the output of `kafka-topics.sh --describe` or a JSON object;
      `bootstrap_server`: ask a running cluster for them (extra `kafka`)
    - `leader_epoch`: the latest one that batches have in the result; 0 for a new cluster
    - `link`: make hard links of logs, except each partition's last; `allow_holes`: restore
      partitions with missing offsets, too; `allow_cut`: cut damaged ends of last logs that are more
      than a tenth of the log, too
    - `dry_run`: only plan; `on_progress`: called with the progress, some times a second
    - the other arguments are those of `kip33.build_index`

    Returns what was restored, or would be, with an object for each partition (`restore_summary` and
    `restored_partitions` in RESULTS.md). A partition that is refused has a `problem`, the others
    are restored. If the call is interrupted, the same call continues, and so does the command with
    the same options; `kip33.abandon_restore` gives up. Raises RestoreError, LocationError,
    CatalogError, PolicyError or ValueError if it cannot begin, LockedError while a broker or
    another run uses the log directory, PublishError for a failure after that.
    """
    given = [source] if isinstance(source, str | os.PathLike) else source
    sources = [place_on(one, storage_options, filesystem).uri for one in given]
    if len(sources) not in (1, 2):
        found = len(sources)
        raise ValueError(f"{found} sources found, expected one, or a catalog of each of two tiers")
    options = RestoreOptions(
        source=sources[0],
        other_source=sources[1] if len(sources) == 2 else None,
        log_dir=os.fspath(to),
        topics=tuple(topics),
        partitions=None if partitions is None else frozenset(partitions),
        replica=replica,
        snapshot=snapshot,
        begin=None if from_ is None else Moment.of(from_),
        end=None if until is None else Moment.of(until),
        is_truncated=truncate,
        from_offsets=text_of(from_offsets),
        topic_ids=text_of(topic_ids),
        bootstrap_server=bootstrap_server,
        leader_epoch=leader_epoch,
        is_linked=link,
        allow_holes=allow_holes,
        allow_cut=allow_cut,
        layout=layout,
        settings=IndexSettings(
            index_interval_bytes=index_interval_bytes, segment_index_bytes=segment_index_bytes
        ),
        kafka_configs=text_of(kafka_configs),
    )
    engine = LocalEngine(workers, on_progress=on_progress, tell=warn_caller)
    return run_restore(
        options,
        None if dry_run else engine,
        warn=warn_caller,
        on_progress=on_progress,
    )


def abandon_restore(to: Path) -> AbandonedRestore:
    """Remove what an interrupted restore has staged or placed in a log directory.

    >>> from kip33 import RestoreError
    >>> try:
    ...     abandon_restore("archive/broker-1")
    ... except RestoreError:
    ...     print("no restore was begun there")
    no restore was begun there

    Partitions in their places are removed, and the empty ones of new topics return there; if a
    broker may have started since, partitions in their places stay. Returns the number of partitions
    that were removed, and the names of those that stay. Raises RestoreError if no restore was begun
    there, LockedError while a broker or another run uses the directory, PublishError if a step
    fails: the same call continues.
    """
    return abandon(Location.of(to))


def _request(options: RestoreOptions) -> RestoreRequest:
    """Return the request of some options, after reading their files."""
    return RestoreRequest(
        source=Location.of(options.source or ""),
        log_dir=Location.of(options.log_dir),
        options=options.asked(),
        topics=options.topics,
        partitions=options.partitions,
        layout=options.layout,
        replica=options.replica,
        settings=load_topic_settings(options.settings, options.kafka_configs),
        from_ms=options.begin.ms if options.begin else None,
        until_ms=options.end.ms if options.end else None,
        from_offsets=_offsets(options.from_offsets),
        is_truncated=options.is_truncated,
        leader_epoch=options.leader_epoch,
        is_linked=options.is_linked,
        allow_holes=options.allow_holes,
        allow_cut=options.allow_cut,
    )


def _with_source(request: RestoreRequest, options: RestoreOptions, warn: Warn) -> RestoreRequest:
    """Return a request with the archive of its catalog, if it has one, and the topic ids."""
    catalog: CatalogSnapshot | Tiers
    if options.other_source is not None:
        other = catalog_at(Location.of(options.other_source), warn=warn)
        catalog = Tiers.newest((catalog_at(request.source, warn=warn), other), warn)
        request = replace(request, catalog=catalog, layout=catalog.remote.snapshot.layout)
    elif found := catalog_unless_source(request.source, warn):
        catalog = CatalogSnapshot(found, choose(found, options.snapshot, warn).snapshot)
        request = replace(request, catalog=catalog, layout=catalog.snapshot.layout)
    elif options.snapshot is not None:
        raise ValueError("--snapshot is for a catalog")
    if request.catalog is not None:
        request = replace(request, source=Location.of(request.catalog.local.snapshot.source))
    if options.topic_ids is not None:
        return replace(request, topic_ids=load_topic_ids(options.topic_ids))
    if options.bootstrap_server is not None:
        return replace(request, topic_ids=ask_topic_ids(options.bootstrap_server))
    return request


def _offsets(file: str | None) -> dict[tuple[str, int], int]:
    """Return the offsets of a file; ValueError for two of one partition."""
    found: dict[tuple[str, int], int] = {}
    for one in load_group_offsets(file) if file is not None else ():
        if found.setdefault((one.topic, one.partition), one.offset) != one.offset:
            raise ValueError(
                f"--from-offsets: {one.topic}-{one.partition} has two offsets; give one group's"
            )
    return found
