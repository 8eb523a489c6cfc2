"""Plans of builds, with settings and options as keywords, and segments as a task gets them."""

from typing import Any

import pyarrow as pa

from kip33.archive.listing import CHECKPOINTS
from kip33.builds import plan
from kip33.builds.build_options import BuildOptions, BuildRequest
from kip33.builds.largest_before import LARGEST_BEFORE
from kip33.builds.plan import BuildPlan
from kip33.builds.reuse import ours_column
from kip33.catalog.schema import SEGMENTS
from kip33.formats.batch import NO_TIMESTAMP
from kip33.formats.index_kinds import IndexKind
from kip33.options import picked, with_defaults


def plan_build(source: str, index_dir: str | None = None, *, now_ms: int, **how: Any) -> BuildPlan:
    """Return the plan of a build whose options are `how`."""
    options = with_defaults(BuildOptions, how)
    request = picked(BuildRequest, options, source=source, index_dir=index_dir)
    return plan.plan_build(request, now_ms=now_ms)


def files_to_read(listed: pa.Table, *, ours: bool = False) -> pa.Table:
    """Return listed segments as a build reads them, with index files that are ours or are not."""
    columns = {ours_column(kind): ours for kind in IndexKind} | {"log_is_new": False}
    for name, value in (columns | {LARGEST_BEFORE: NO_TIMESTAMP}).items():
        listed = listed.append_column(name, pa.repeat(value, listed.num_rows))
    for name in CHECKPOINTS:
        listed = listed.append_column(name, pa.nulls(listed.num_rows, SEGMENTS.field(name).type))
    return listed
