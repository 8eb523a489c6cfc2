"""A plan as a file of JSON objects, one per line; the first line has the plan's id.

`plan_id` is the start of a SHA-256 over every byte of the file, with an empty id in the first line.
So a plan that was edited, truncated or damaged is refused. The id does not prove who made the plan.
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from kip33.errors import PlanError
from kip33.stores.files import one_line, read_whole
from kip33.stores.locations import Location
from kip33.stores.own_files import publish_or_raise

ID_DIGITS: Final = 32  # hexadecimal, of the SHA-256's 64
MOST_PLAN_BYTES: Final = 1 << 32
CONTENT_ID: Final = "content_id"  # a key


class PlanForm(NamedTuple):
    """What kind of plan a file is expected to have."""

    kind: str  # in the first line
    version: int
    name: str  # in messages: `a retention plan`
    make_another: str  # how the user gets a new one


class PlanLines(NamedTuple):
    """The lines of a plan whose id is right."""

    header: dict[str, Any]
    lines: Sequence[bytes]  # after the header

    def records(self) -> list[dict[str, Any]]:
        """Return the objects after the header; ValueError if a line is not JSON."""
        return [json.loads(line) for line in self.lines]


def plan_line(record: dict[str, Any]) -> bytes:
    """Return one line of a plan."""
    return (json.dumps(record) + "\n").encode()


def plan_id_of(lines: Iterable[bytes]) -> str:
    """Return the id of a plan's lines; the first of them has an empty id."""
    digest = hashlib.sha256()
    for line in lines:
        digest.update(line)
    return digest.hexdigest()[:ID_DIGITS]


def require_plain_path(place: Location, roots: Iterable[Location]) -> None:
    """Raise ValueError unless a place is below one of the roots by plain names.

    So no `..` and no empty name leads elsewhere. Links are looked at when the plan is applied.
    """
    for root in roots:
        above = root.path.rstrip("/") + "/"
        is_below = place.root == root.root and place.path.startswith(above)
        if is_below and not place.inside and _is_plain(place.path.removeprefix(above)):
            return
    raise ValueError(f"{place.uri}: not a path of plain names below the directories of the plan")


def is_plain_path(place: Location) -> bool:
    """Return whether a place has no `..` and no empty name, wherever it is."""
    return not place.inside and _is_plain(place.path.strip("/"))


def _is_plain(path: str) -> bool:
    return not {"", ".", ".."} & set(path.split("/"))


def write_plan_lines(records: Iterable[dict[str, Any]], place: Location) -> None:
    """Publish the records of a plan atomically; PublishError if that fails."""
    publish_or_raise(place, b"".join(map(plan_line, records)), "the plan does not exist")


def read_plan_lines(place: Location, form: PlanForm) -> PlanLines:
    """Return the lines of a plan; PlanError, one line, if they are not exactly as written."""
    try:
        lines = read_whole(place, most_bytes=MOST_PLAN_BYTES).splitlines(keepends=True)
    except OSError as error:
        raise PlanError(f"{place.uri}: the plan cannot be read: {one_line(error)}") from error
    try:
        header = json.loads(lines[0]) if lines else {}
        is_plan = isinstance(header, dict) and header.get("kind") == form.kind
    except ValueError:
        is_plan = False
    if not is_plan:
        raise PlanError(f"{place.uri}: not {form.name}; {form.make_another}")
    if header.get("version") != form.version:
        raise PlanError(
            f"{place.uri}: version {header.get('version')} of the plan found, expected "
            f"{form.version}"
        )
    if plan_id_of([plan_line(header | {"plan_id": ""}), *lines[1:]]) != header.get("plan_id"):
        raise PlanError(
            f"{place.uri}: the checksum is wrong: the plan was edited, truncated or "
            f"damaged; {form.make_another}"
        )
    return PlanLines(header, lines[1:])


def with_content_id(record: dict[str, Any]) -> dict[str, Any]:
    """Return an object, such as a journal, with the id of its content."""
    return record | {CONTENT_ID: _content_id_of(record)}


def require_content_id(record: dict[str, Any]) -> None:
    """Raise ValueError unless an object is exactly as it was written."""
    if record.get(CONTENT_ID) != _content_id_of(record):
        raise ValueError("the checksum is wrong: the file was edited, truncated or damaged")


def _content_id_of(record: dict[str, Any]) -> str:
    content = {key: value for key, value in record.items() if key != CONTENT_ID}
    return plan_id_of([json.dumps(content, sort_keys=True).encode()])


def require_plain_name(name: object) -> str:
    """Return the name of a file in a known directory; ValueError for one that leads elsewhere."""
    if not isinstance(name, str) or name in ("", ".", "..") or "/" in name or "\0" in name:
        raise ValueError(f"{name!r} found, expected the name of a file without a directory")
    return name
