"""Plans of builds, with settings and options as keywords."""

from typing import Any

from kip33.builds import plan
from kip33.builds.build_options import BuildOptions, BuildRequest
from kip33.builds.plan import BuildPlan
from kip33.options import picked, with_defaults


def plan_build(source: str, index_dir: str | None = None, *, now_ms: int, **how: Any) -> BuildPlan:
    """Return the plan of a build whose options are `how`."""
    options = with_defaults(BuildOptions, how)
    request = picked(BuildRequest, options, source=source, index_dir=index_dir)
    return plan.plan_build(request, now_ms=now_ms)
