"""Build, verify and repair index files from a program, on this machine and without Spark.

Each function does what the command of its name does, with keywords for options. The commands call
the same functions below: `run_build`, `execute_verify` and `run_repair`.
"""

import os
from collections.abc import Sequence

import pyarrow as pa

from kip33.api.offsets_for_times import Path
from kip33.api.opened_catalog import current_ms, text_of
from kip33.builds.build_options import BuildRequest, ReadName, load_topic_settings
from kip33.builds.commit import BuildSummary, run_build
from kip33.builds.repair_plan import RepairRequest, RepairSummary, run_repair
from kip33.catalog.catalog import warn_caller
from kip33.drafts.designs import DesignName
from kip33.formats.times import Time, milliseconds_of
from kip33.indexing.verification import SEGMENT_VERDICTS, verdict_batches
from kip33.indexing.verify_tree import execute_verify, plan_verify
from kip33.local.local_engine import LocalEngine
from kip33.rules.index_builder import IndexSettings
from kip33.rules.index_entries import (
    DEFAULT_INDEX_INTERVAL_BYTES,
    DEFAULT_SEGMENT_INDEX_BYTES,
    DialectName,
)
from kip33.rules.packing import DailyShare
from kip33.rules.untimestamped import RuleName, rule_of
from kip33.stores.filesystem_option import (
    Filesystem,
    StorageOptions,
    places_on,
    require_writable_store,
)
from kip33.stores.progress import OnProgress, tell_nobody


# So many parameters: each is an option of `kip33 build`, with its name and default.
def build_index(  # parameters: a notebook user sees each option as a keyword
    source: Path,
    index_dir: Path | None = None,
    *,
    in_place: bool = False,
    index_files: bool = True,
    catalog: Path | None = None,
    dialect: DesignName = "recover",
    untimestamped: RuleName = "none",
    index_interval_bytes: int = DEFAULT_INDEX_INTERVAL_BYTES,
    segment_index_bytes: int = DEFAULT_SEGMENT_INDEX_BYTES,
    kafka_configs: Path | None = None,
    topics: Sequence[str] = (),
    layout: str = "kafka",
    check_crc: bool = True,
    offset_index: bool = False,
    overwrite: bool = False,
    only_damaged: bool = False,
    full: bool = False,
    allow_empty: bool = False,
    read: ReadName = "log",
    fsync: bool = True,
    workers: int | None = None,
    parallelism: int | None = None,
    on_progress: OnProgress = tell_nobody,
    storage_options: StorageOptions | None = None,
    filesystem: Filesystem | None = None,
) -> BuildSummary:
    """Build the indexes of new and changed segments below `source`, commit a catalog snapshot.

    Index files go to the same path below `index_dir`, or beside the logs with `in_place`. The
    catalog is `index_dir/_catalog` unless `catalog` names another place. Places are paths or URIs.
    With `index_files=False` every log is read, and only the catalog is written.

    >>> summary = build_index("archive", "indexes", topics=["orders", "clicks"])
    >>> summary.segments, summary.by_status
    (10, {'empty': 1, 'invalid': 1, 'ok': 6, 'truncated': 2})

    - `dialect`: `recover`, `live` or `kip33`; which offsets the entries have. Or a draft of KIP-33,
      with files of its own: `minute`, `minute-map`, `bucket` or `inline`
    - `untimestamped`: `none`, `next-base-offset` (or `entry`) or `first-offset`; the entry of a
      closed segment without timestamps (`kip33.rules.untimestamped`)
    - `index_interval_bytes`, `segment_index_bytes`: Kafka's settings, in bytes
    - `kafka_configs`: a file with the topics' own settings, as Kafka's tools print them
    - `topics`: globs, `!GLOB` leaves topics out; `layout`: a name or a pattern of paths
    - `check_crc`: check each batch; `offset_index`: write `.index` and `.txnindex` files too
    - `overwrite`: replace index files that kip33 did not write
    - `only_damaged`: verify first, write only what is damaged; `full`: read every segment again
    - `allow_empty`: if there is no segment any more, commit a snapshot without rows
    - `read`: `log`, or `tail` to use a trustworthy `.timeindex` instead of reading its log
    - `fsync`: flush files to disk before the snapshot is committed
    - `workers`: the most processes (None: one for each core, one for small work); `parallelism`:
      the number of shares of the work; `on_progress`: called with a `kip33.Progress`, the phase
      and how far it is
    - `storage_options`: keys and endpoint of stores (`kip33.stores.filesystem_option`)
    - `filesystem`: a pyarrow or fsspec filesystem instead; paths are its names

    Returns the content of the snapshot and the work of the build (`build_summary` in RESULTS.md).
    Damaged segments are rows of the catalog, not exceptions; what needs attention is a Python
    warning. Raises LocationError, CatalogError, PolicyError, LockedError or ValueError before
    anything is written, PublishError if the disk is full, WorkerLostError for a process that was
    killed twice. If no log can be read, NoReadableLogError is raised and nothing is committed. No
    error and no interrupt leaves a file half-written, and the next build continues.

    A large build starts worker processes. A script that uses a remote store, or that runs on macOS,
    calls it below `if __name__ == "__main__":`, as all programs that start processes there.
    """
    source_text, index_text, catalog_text = _texts_on(
        [source, index_dir, catalog], storage_options, filesystem, writes=True
    )
    settings = IndexSettings(
        dialect, index_interval_bytes, segment_index_bytes, check_crc, rule_of(untimestamped)
    )
    request = BuildRequest(
        source=source_text or "",
        index_dir=index_text,
        settings=settings,
        in_place=in_place,
        index_files=index_files,
        catalog=catalog_text,
        kafka_configs=text_of(kafka_configs),
        topics=topics,
        layout=layout,
        offset_index=offset_index,
        overwrite=overwrite,
        only_damaged=only_damaged,
        full=full,
        allow_empty=allow_empty,
        read=read,
        fsync=fsync,
    )
    engine = LocalEngine(workers, parallelism, on_progress, tell=warn_caller)
    return run_build(request, engine, now_ms=current_ms(), warn=warn_caller)


# So many parameters: each is an option of `kip33 verify`, with its name and default.
def verify_index(  # parameters: a notebook user sees each option as a keyword
    source: Path,
    index_dir: Path | None = None,
    *,
    share: str | None = None,
    as_of: Time | None = None,
    dialect: DialectName = "recover",
    untimestamped: RuleName = "none",
    index_interval_bytes: int = DEFAULT_INDEX_INTERVAL_BYTES,
    segment_index_bytes: int = DEFAULT_SEGMENT_INDEX_BYTES,
    kafka_configs: Path | None = None,
    topics: Sequence[str] = (),
    layout: str = "kafka",
    check_crc: bool = True,
    workers: int | None = None,
    parallelism: int | None = None,
    on_progress: OnProgress = tell_nobody,
    storage_options: StorageOptions | None = None,
    filesystem: Filesystem | None = None,
) -> pa.Table:
    """Verify every index file of a tree against its log; return a row for each segment, by path.

    The index files are in `index_dir`, or beside the logs.

    >>> verdicts = verify_index("archive/broker-1", topics=["orders"])
    >>> verdicts["verdict"].to_pylist()
    ['missing', 'padded', 'missing']

    `share` such as "1/7" verifies another seventh of the segments each day, that of `as_of` (None:
    today). The other arguments are those of `build_index`.

    Columns (`verdicts` in RESULTS.md): `log_uri`, `index_uri`, `verdict`, `dialect`,
    `offset_index_verdict`, `transaction_index_verdict`, `log_status`, `log_error`: string;
    `problems`: list of strings; `entries`: int64, a number;
    `largest_gap_bytes`, `offset_index_largest_gap_bytes`: int64, bytes of the log. A log that
    cannot be read is a row. `kip33.verify_segment` verifies one segment. Raises LocationError for a
    missing directory or one without segments, PolicyError for a wrong `kafka_configs`, ValueError
    for a wrong argument.
    """
    daily = None if share is None else DailyShare.of(share)
    if as_of is not None and not daily:
        raise ValueError("as_of requires share")
    source_text, index_text = _texts_on([source, index_dir], storage_options, filesystem)
    default = IndexSettings(
        dialect, index_interval_bytes, segment_index_bytes, check_crc, rule_of(untimestamped)
    )
    plan = plan_verify(
        source_text or "",
        index_text,
        settings=load_topic_settings(default, text_of(kafka_configs)),
        topics=topics,
        layout=layout,
        share=daily,
        now_ms=current_ms() if as_of is None else milliseconds_of(as_of),
        on_progress=on_progress,
    )
    engine = LocalEngine(workers, parallelism, on_progress, tell=warn_caller)
    verdicts = execute_verify(plan, engine)
    return pa.Table.from_batches(verdict_batches(verdicts), SEGMENT_VERDICTS)


def repair(
    log_dir: Path,
    *,
    apply: bool = False,
    topics: Sequence[str] = (),
    index_interval_bytes: int = DEFAULT_INDEX_INTERVAL_BYTES,
    segment_index_bytes: int = DEFAULT_SEGMENT_INDEX_BYTES,
    kafka_configs: Path | None = None,
    on_progress: OnProgress = tell_nobody,
) -> RepairSummary:
    """Plan the repair of the index files in a stopped broker's log directory, or carry it out.

    Every log is read. Without `apply` nothing is changed.

    >>> planned = repair("archive/broker-2", topics=["clicks"])
    >>> planned.applied, planned.segments, planned.by_action["offset_index"]
    (False, 4, {'broker': 3, 'by hand': 1})
    >>> planned.table()["why"][3].as_py()
    'a starting broker writes both, because the .index is missing'

    The log directory is a path of this machine. The other arguments are those of `build_index`.

    Returns numbers of segments and files by action, and the segments that need a repair
    (`repair_summary` in RESULTS.md); its `table()` has a row for each of these segments
    (`repairs`). A repair that failed is an `outcome`. Raises LocationError for a directory that is
    remote, missing or without segments, LockedError while a broker or another run uses it,
    PolicyError for a wrong `kafka_configs`, ValueError for a wrong argument. No interrupt leaves a
    file half-written.
    """
    default = IndexSettings(
        index_interval_bytes=index_interval_bytes, segment_index_bytes=segment_index_bytes
    )
    request = RepairRequest(
        log_dir=os.fspath(log_dir),
        is_applied=apply,
        topics=tuple(topics),
        settings=default,
        kafka_configs=text_of(kafka_configs),
    )
    return run_repair(request, now_ms=current_ms(), on_progress=on_progress)


def _texts_on(
    named: Sequence[Path | None],
    storage_options: StorageOptions | None,
    filesystem: Filesystem | None,
    *,
    writes: bool = False,
) -> list[str | None]:
    """Return the URIs of a source and other places, None for those that are not given.

    With `writes`, ValueError for a filesystem that may not replace a file where a call writes.
    """
    places = places_on([one for one in named if one is not None], storage_options, filesystem)
    if writes:
        require_writable_store(places[1:] or places)
    uris = iter(place.uri for place in places)
    return [None if one is None else next(uris) for one in named]
