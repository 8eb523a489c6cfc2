"""Plans of builds, with settings and options as keywords."""

from typing import Any, Final

from kip33.builds import plan
from kip33.builds.build_options import BuildRequest
from kip33.builds.plan import BuildPlan
from kip33.rules.index_builder import IndexSettings

_SETTINGS: Final = set(IndexSettings._fields)


def plan_build(source: str, index_dir: str | None = None, *, now_ms: int, **how: Any) -> BuildPlan:
    """Return the plan of a build whose settings and options are `how`."""
    settings = IndexSettings(**{name: how.pop(name) for name in _SETTINGS & how.keys()})
    request = BuildRequest(source=source, index_dir=index_dir, settings=settings, **how)
    return plan.plan_build(request, now_ms=now_ms)
