"""A retention plan applied a minute after it was made, and undone."""

from pathlib import Path
from typing import Any

from kip33.retention.apply import Applied, apply_plan
from kip33.retention.plan import read_plan
from kip33.retention.undo import Undone, undo_plan
from kip33.stores.locations import Location

MINUTE_MS = 60_000


def apply_here(plan_file: str | Path, trash: str | Path | None = None, **how: Any) -> Applied:
    """Apply the plan in a file."""
    plan = read_plan(Location.of(plan_file))
    at_ms = plan.basis.created_ms + MINUTE_MS
    place = Location.of(trash) if trash else None
    return apply_plan(plan, clock=lambda: at_ms, trash=place, **how)


def undo_here(plan_file: str | Path, trash: str | Path, **how: Any) -> Undone:
    """Put back what was applied of the plan in a file, a week later."""
    plan = read_plan(Location.of(plan_file))
    at_ms = plan.basis.created_ms + 7 * 24 * 60 * MINUTE_MS
    return undo_plan(plan, Location.of(trash), clock=lambda: at_ms, **how)
