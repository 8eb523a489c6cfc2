"""A plan applied in a process of its own: PLAN [TRASH], as a program.

Says `ready` when its imports are done, waits for a line on standard input, applies the plan as of
a minute after it was made, and prints what came of it.
"""

import json
import sys
from pathlib import Path
from typing import Any

from kip33.errors import Kip33Error
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


def main() -> None:
    print("ready", flush=True)
    sys.stdin.readline()
    try:
        applied = apply_here(*sys.argv[1:3])
    except Kip33Error as error:
        print(json.dumps({"refused": str(error)}))
    else:
        print(json.dumps({"partitions": [one._asdict() for one in applied.partitions]}))


if __name__ == "__main__":
    main()
