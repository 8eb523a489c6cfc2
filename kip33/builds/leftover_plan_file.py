"""A plan to remove leftovers as a file of JSON objects, one per line.

{"kind": "leftover plan", "version": 1, "plan_id": "5c1e...", "created_ms": ..., ...}
{"kind": "leftover", "leftover": "index file of kip33 without a log", "uri": ..., "files": ...}
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from kip33.archive.leftover_files import INDEX_END, OWN_TEMPORARY, LeftoverKind
from kip33.archive.output_files import (
    PlanForm,
    is_leftover_plan,
    is_plain_path,
    plan_id_of,
    plan_line,
    read_plan_lines,
    require_plain_path,
    require_plan_place,
    write_plan_lines,
)
from kip33.builds.leftover_plan import (
    ALWAYS_PLANNED,
    PLANNED_ON_REQUEST,
    LeftoverPlan,
    PlannedLeftover,
    PlannedLeftoverFile,
)
from kip33.errors import Kip33Error, PlanError
from kip33.formats.names import parse_partition_dir
from kip33.stores.files import one_line
from kip33.stores.locations import Location

_FORM: Final = PlanForm(
    "leftover plan",
    1,
    "a plan of leftovers",
    "make another with `kip33 catalog CATALOG --orphans --plan FILE`",
)


def require_leftover_plan_place(place: Location) -> None:
    """Raise LocationError unless a plan of leftovers may be written there."""
    require_plan_place(place, is_leftover_plan)


def write_leftover_plan(plan: LeftoverPlan, place: Location) -> LeftoverPlan:
    """Publish a plan atomically; return it with its id.

    The only file that it may replace is another such plan. Raises LocationError if the name does
    not end in `.jsonl` or is another file's, PublishError if it cannot be written.
    """
    require_leftover_plan_place(place)
    plan = replace(plan, plan_id="")
    plan = replace(plan, plan_id=plan_id_of(map(plan_line, _records(plan))))
    write_plan_lines(_records(plan), place)
    return plan


def read_leftover_plan(place: Location) -> LeftoverPlan:
    """Return the plan in a file; PlanError, one line, if it is not exactly as it was written."""
    found = read_plan_lines(place, _FORM)
    header = found.header
    try:
        roots = [Location.of(header[name]) for name in ("source", "index_dir")]
        return LeftoverPlan(
            header["plan_id"],
            int(header["created_ms"]),
            str(header["catalog"]),
            str(header["snapshot"]),
            str(header["source"]),
            str(header["index_dir"]),
            tuple(_leftover(record, roots) for record in found.records()),
        )
    except (ValueError, TypeError, KeyError, AttributeError, Kip33Error) as error:
        raise PlanError(f"{place.uri}: not written by kip33: {one_line(error)}") from error


def _records(plan: LeftoverPlan) -> Iterator[dict[str, Any]]:
    yield {
        "kind": _FORM.kind,
        "version": _FORM.version,
        "plan_id": plan.plan_id,
        "created_ms": plan.created_ms,
        "catalog": plan.catalog,
        "snapshot": plan.snapshot,
        "source": plan.source,
        "index_dir": plan.index_dir,
        "leftovers": len(plan.leftovers),
        "files": plan.files,
        "bytes": plan.size_bytes,
    }
    for one in plan.leftovers:
        yield {
            "kind": "leftover",
            "leftover": one.kind.value,
            "uri": one.uri,
            "files": [file._asdict() for file in one.files],
        }


def _leftover(record: dict[str, Any], roots: list[Location]) -> PlannedLeftover:
    """Return a planned leftover; ValueError for a kind, a place or a file that no plan has."""
    kind = LeftoverKind(record["leftover"])
    if kind not in (*ALWAYS_PLANNED, *PLANNED_ON_REQUEST.values()):
        raise ValueError(f"{record['uri']}: {kind}, which kip33 never removes")
    files = tuple(
        PlannedLeftoverFile(
            str(file["uri"]), int(file["size_bytes"]), int(file["last_modified_ms"])
        )
        for file in record["files"]
    )
    one = PlannedLeftover(kind, str(record["uri"]), files)
    place = Location.of(one.uri)
    expected = place.parent if not one.is_directory else place
    for file in files:
        there = Location.of(file.uri)
        if there != expected.child(there.name) or there.name in ("", ".", ".."):
            raise ValueError(f"{file.uri}: not a file of {one.uri}")
    if not one.is_directory and [file.uri for file in files] != [one.uri]:
        raise ValueError(f"{one.uri}: expected this one file")
    # The catalog has the places of orphans, which an earlier build may have put elsewhere.
    if kind != LeftoverKind.ORPHAN or not is_plain_path(place):
        require_plain_path(place, roots)
    if not _has_name_of(kind, place.name):
        raise ValueError(f"{one.uri}: not the name of: {kind}")
    return one


def _has_name_of(kind: LeftoverKind, name: str) -> bool:
    if kind in (LeftoverKind.ORPHAN, LeftoverKind.INDEX):
        return re.search(INDEX_END, name) is not None
    if kind == LeftoverKind.TEMPORARY:
        return OWN_TEMPORARY.fullmatch(name) is not None
    if kind == LeftoverKind.DELETED:
        return name.endswith(".deleted")
    named = parse_partition_dir(name)
    return named is not None and kind == f"-{named.kind} directory"
