"""Restore partitions of an archive into a broker's log directory, from a program or a command.

`RestoreOptions` are the options of `kip33 restore` and the arguments of `restore_archive`. Both
call `run_restore`.
"""

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Unpack

from kip33.archive.bins import Engine
from kip33.archive.common_options import WorkerRun
from kip33.builds.build_options import load_topic_settings
from kip33.catalog.catalog import Warn, catalog_at, catalog_unless_source, choose, warn_caller
from kip33.catalog.tiers import CatalogSnapshot, Tiers
from kip33.local.local_engine import LocalEngine
from kip33.options import Path, picked, takes
from kip33.restore.restore_apply import may_continue, planned_or_begun, restore
from kip33.restore.restore_complete import AbandonedRestore, abandon
from kip33.restore.restore_plan import ask_topic_ids, load_topic_ids
from kip33.restore.restore_request import (
    Moment,
    RestoreOptions,
    RestoreQuestion,
    RestoreRequest,
    RestoreSummary,
    journaled,
    require_valid,
)
from kip33.rules.index_builder import IndexSettings
from kip33.search.answers import load_group_offsets
from kip33.stores.filesystem_option import place_on
from kip33.stores.locations import Location
from kip33.stores.progress import OnProgress, tell_nobody


def run_restore(
    asked: RestoreQuestion, engine: Engine, *, warn: Warn, on_progress: OnProgress = tell_nobody
) -> RestoreSummary:
    """Restore on an engine, or continue that; a dry run only plans it.

    `warn` gets a line for each newer snapshot that is ignored. Errors are those of
    `restore_archive`.
    """
    require_valid(asked)
    request = _request(asked)
    if may_continue(request) is None:
        request = _with_source(request, asked, warn)
    if asked["dry_run"]:
        return RestoreSummary.of(planned_or_begun(request, engine, on_progress))
    return RestoreSummary.of(restore(request, engine, on_progress))


class LocalRestoreOptions(RestoreOptions, WorkerRun, total=False):
    """The options of `restore_archive`."""


@takes(LocalRestoreOptions)
def restore_archive(
    source: Path | Sequence[Path], to: Path, **options: Unpack[LocalRestoreOptions]
) -> RestoreSummary:
    """Restore partitions of an archive, or of a catalog's archive, into a broker's log directory.

    `to` (LOG_DIR below) is the log directory of a stopped broker on this machine. The result is
    what `kip33 restore` makes: a broker starts on it without recovery. With tiered storage,
    `source` is a list of two catalogs: of the log directories and of the remote tier, in any order.

    >>> from pathlib import Path
    >>> Path("data").mkdir()
    >>> planned = restore_archive("archive", "data", topics=["orders"], dry_run=True)
    >>> planned.applied, planned.segments, planned.log_bytes
    (False, 3, 503405)

    - `options`: see `RestoreOptions`

    Returns what was restored, or would be, with an object for each partition (`restore_summary` and
    `restored_partitions` in RESULTS.md). A partition that is refused has a `problem`, the others
    are restored. If the call is interrupted, the same call continues, and so does the command with
    the same options; `kip33.abandon_restore` gives up. Raises RestoreError, LocationError,
    CatalogError, PolicyError or ValueError if it cannot begin, LockedError while a broker or
    another run uses the log directory, PublishError for a failure after that.
    """
    given = [source] if isinstance(source, str | os.PathLike) else source
    access = (options["storage_options"], options["filesystem"])
    sources = [place_on(one, *access).uri for one in given]
    if len(sources) not in (1, 2):
        found = len(sources)
        raise ValueError(f"{found} sources found, expected one, or a catalog of each of two tiers")
    first, other, *_ = (*sources, None)
    places = {"source": first, "other_source": other, "log_dir": os.fspath(to)}
    asked = picked(RestoreQuestion, options, **places)
    on_progress = options["on_progress"]
    engine = LocalEngine(options["workers"], on_progress=on_progress, tell=warn_caller)
    return run_restore(asked, engine, warn=warn_caller, on_progress=on_progress)


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


def _request(asked: RestoreQuestion) -> RestoreRequest:
    """Return the request of some options, after reading their files."""
    from_, until, partitions = asked["from_"], asked["until"], asked["partitions"]
    return RestoreRequest(
        source=Location.of(asked["source"] or ""),
        log_dir=Location.of(asked["log_dir"]),
        options=journaled(asked),
        topics=tuple(asked["topics"]),
        partitions=None if partitions is None else frozenset(partitions),
        layout=asked["layout"],
        replica=asked["replica"],
        settings=load_topic_settings(IndexSettings.of(asked), asked["kafka_configs"]),
        from_ms=None if from_ is None else Moment.of(from_).ms,
        until_ms=None if until is None else Moment.of(until).ms,
        from_offsets=_offsets(asked["from_offsets"]),
        is_truncated=asked["truncate"],
        leader_epoch=asked["leader_epoch"],
        is_linked=asked["link"],
        allow_holes=asked["allow_holes"],
        allow_unsure=asked["allow_unsure"],
        allow_cut=asked["allow_cut"],
    )


def _with_source(request: RestoreRequest, asked: RestoreQuestion, warn: Warn) -> RestoreRequest:
    """Return a request with the archive of its catalog, if it has one, and the topic ids."""
    catalog: CatalogSnapshot | Tiers
    if asked["other_source"] is not None:
        other = catalog_at(Location.of(asked["other_source"]), warn=warn)
        catalog = Tiers.newest((catalog_at(request.source, warn=warn), other), warn)
        request = replace(request, catalog=catalog, layout=catalog.remote.snapshot.layout)
    elif found := catalog_unless_source(request.source, warn):
        catalog = CatalogSnapshot(found, choose(found, asked["snapshot"], warn).snapshot)
        request = replace(request, catalog=catalog, layout=catalog.snapshot.layout)
    elif asked["snapshot"] is not None:
        raise ValueError("--snapshot is for a catalog")
    if request.catalog is not None:
        request = replace(request, source=Location.of(request.catalog.local.snapshot.source))
    if asked["topic_ids"] is not None:
        return replace(request, topic_ids=load_topic_ids(asked["topic_ids"]))
    if asked["bootstrap_server"] is not None:
        return replace(request, topic_ids=ask_topic_ids(asked["bootstrap_server"]))
    return request


def _offsets(file: Path | None) -> dict[tuple[str, int], int]:
    """Return the offsets of a file; ValueError for two of one partition."""
    found: dict[tuple[str, int], int] = {}
    for one in load_group_offsets(file) if file is not None else ():
        if found.setdefault((one.topic, one.partition), one.offset) != one.offset:
            raise ValueError(
                f"--from-offsets: {one.topic}-{one.partition} has two offsets; give one group's"
            )
    return found
