"""A retention plan applied a minute after it was made."""

from pathlib import Path
from typing import Any

from kip33.retention.apply import Applied, apply_plan
from kip33.retention.plan import read_plan
from kip33.stores.locations import Location

MINUTE_MS = 60_000


def apply_here(plan_file: str | Path, trash: str | Path | None = None, **how: Any) -> Applied:
    """Apply the plan in a file."""
    plan = read_plan(Location.of(plan_file))
    at_ms = plan.basis.created_ms + MINUTE_MS
    place = Location.of(trash) if trash else None
    return apply_plan(plan, clock=lambda: at_ms, trash=place, **how)
