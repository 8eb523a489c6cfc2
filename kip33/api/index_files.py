"""Build, verify and repair index files from a program, on this machine and without Spark.

Each function does what the command of its name does, with keywords for options. The commands call
the same functions below: `run_build`, `execute_verify` and `run_repair`.
"""

import os
from typing import Final, Unpack

import pyarrow as pa

from kip33.archive.common_options import LocalRun, ProgressFunction
from kip33.archive.moments import current_ms
from kip33.builds.build_options import BuildOptions, BuildRequest
from kip33.builds.commit import BuildSummary, run_build
from kip33.builds.repair_plan import RepairOptions, RepairRequest, RepairSummary, run_repair
from kip33.builds.verify_options import VerifyOptions, VerifyRequest, plan_request
from kip33.catalog.catalog import warn_caller
from kip33.indexing import quick_verification
from kip33.indexing.quick_verification import QuickOptions, QuickRequest
from kip33.indexing.verification import SEGMENT_VERDICTS, verdict_batches
from kip33.indexing.verify_tree import execute_verify
from kip33.local.local_engine import LocalEngine
from kip33.options import Path, picked, takes
from kip33.stores.filesystem_option import require_writable_store, texts_on

_PLACES: Final = ("source", "index_dir", "catalog")


class LocalBuildOptions(BuildOptions, LocalRun, total=False):
    """The options of `build_index`."""


class LocalVerifyOptions(VerifyOptions, LocalRun, total=False):
    """The options of `verify_index`."""


class LocalQuickOptions(QuickOptions, LocalRun, total=False):
    """The options of `verify_quick`."""


class LocalRepairOptions(RepairOptions, total=False):
    """The options of `repair`."""

    on_progress: ProgressFunction


@takes(LocalBuildOptions)
def build_index(
    source: Path, index_dir: Path | None = None, **options: Unpack[LocalBuildOptions]
) -> BuildSummary:
    """Build the indexes of new and changed segments below `source`, commit a catalog snapshot.

    Index files go to the same path below `index_dir`, or beside the logs with `in_place`. The
    catalog is `index_dir/_catalog` unless `catalog` names another place. Places are paths or URIs.
    With `index_files=False` every log is read, and only the catalog is written.

    >>> summary = build_index("archive", "indexes", topics=["orders", "clicks"])
    >>> summary.segments, summary.by_status
    (10, {'empty': 1, 'invalid': 1, 'ok': 6, 'truncated': 2})

    - `options`: see `BuildOptions` and `LocalRun`

    Returns the content of the snapshot and the work of the build (`build_summary` in RESULTS.md).
    Damaged segments are rows of the catalog, not exceptions; what needs attention is a Python
    warning. Raises LocationError, CatalogError, PolicyError, LockedError or ValueError before
    anything is written, PublishError if the disk is full, WorkerLostError for a process that was
    killed twice. If no log can be read, NoReadableLogError is raised and nothing is committed. No
    error and no interrupt leaves a file half-written, and the next build continues.

    A large build starts worker processes. A script that uses a remote store, or that runs on macOS,
    calls it below `if __name__ == "__main__":`, as all programs that start processes there.
    """
    texts, places = texts_on([source, index_dir, options["catalog"]], options)
    require_writable_store(places[1:] or places)
    request = picked(BuildRequest, options, **dict(zip(_PLACES, texts, strict=True)))
    engine = LocalEngine.of(options, warn_caller)
    return run_build(request, engine, now_ms=current_ms(), warn=warn_caller)


@takes(LocalVerifyOptions)
def verify_index(
    source: Path, index_dir: Path | None = None, **options: Unpack[LocalVerifyOptions]
) -> pa.Table:
    """Verify every index file of a tree against its log; return a row for each segment, by path.

    The index files are in `index_dir`, or beside the logs.

    >>> verdicts = verify_index("archive/broker-1", topics=["orders"])
    >>> verdicts["verdict"].to_pylist()
    ['missing', 'padded', 'missing']

    - `options`: see `VerifyOptions` and `LocalRun`

    Columns (`verdicts` in RESULTS.md): `log_uri`, `index_uri`, `verdict`, `dialect`,
    `offset_index_verdict`, `transaction_index_verdict`, `log_status`, `log_error`: string;
    `problems`: list of strings; `entries`: int64, a number;
    `largest_gap_bytes`, `offset_index_largest_gap_bytes`: int64, bytes of the log. A log that
    cannot be read is a row. `kip33.verify_segment` verifies one segment. Raises LocationError for a
    missing directory or one without segments, PolicyError for a wrong `kafka_configs`, ValueError
    for a wrong argument.
    """
    (source_text, index_text), _ = texts_on([source, index_dir], options)
    request = picked(VerifyRequest, options, source=source_text, index_dir=index_text)
    plan = plan_request(request, now_ms=current_ms(), on_progress=options["on_progress"])
    verdicts = execute_verify(plan, LocalEngine.of(options, warn_caller))
    return pa.Table.from_batches(verdict_batches(verdicts), SEGMENT_VERDICTS)


@takes(LocalQuickOptions)
def verify_quick(
    source: Path, index_dir: Path | None = None, **options: Unpack[LocalQuickOptions]
) -> pa.Table:
    """Compare the index files of a source with their sizes and CRCs in the catalog; read no log.

    Returns a row for each index file that is not as the build wrote it, by URI.

    >>> verify_quick("archive", "indexes")["uri"].to_pylist()
    []

    - `options`: see `QuickOptions` and `LocalRun`

    Columns (`not_identical` in RESULTS.md): `uri`, `verdict` (`changed`, `missing`, `unknown` or
    `unreadable`), `problem`: string; `expected_bytes`, `expected_crc32c`, `found_bytes`,
    `found_crc32c`: int64. Raises ValueError without `index_dir` and `catalog`, CatalogError for a
    catalog that is missing, damaged or of another source.
    """
    texts, _ = texts_on([source, index_dir, options["catalog"]], options)
    request = picked(QuickRequest, options, **dict(zip(_PLACES, texts, strict=True)))
    engine = LocalEngine.of(options, warn_caller)
    return quick_verification.verify_quick(request, engine, warn_caller).table()


@takes(LocalRepairOptions)
def repair(log_dir: Path, **options: Unpack[LocalRepairOptions]) -> RepairSummary:
    """Plan the repair of the index files in a stopped broker's log directory, or carry it out.

    Every log is read. Without `apply` nothing is changed.

    >>> planned = repair("archive/broker-2", topics=["clicks"])
    >>> planned.applied, planned.segments, planned.by_action["offset_index"]
    (False, 4, {'broker': 3, 'by hand': 1})
    >>> planned.table()["why"][3].as_py()
    'a starting broker writes both, because the .index is missing'

    The log directory is a path of this machine.

    - `options`: see `RepairOptions`

    Returns numbers of segments and files by action, and the segments that need a repair
    (`repair_summary` in RESULTS.md); its `table()` has a row for each of these segments
    (`repairs`). A repair that failed is an `outcome`. Raises LocationError for a directory that is
    remote, missing or without segments, LockedError while a broker or another run uses it,
    PolicyError for a wrong `kafka_configs`, ValueError for a wrong argument. No interrupt leaves a
    file half-written.
    """
    request = picked(RepairRequest, options, log_dir=os.fspath(log_dir))
    return run_repair(request, now_ms=current_ms(), on_progress=options["on_progress"])
