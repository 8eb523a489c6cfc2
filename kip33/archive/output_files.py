"""Output files that a user names: which existing files may be replaced, and plans as JSON lines.

A free name, an empty file, and a file that kip33 wrote for the same option may be written. Every
other file stays, so that a typing error on the command line destroys nothing.

A plan is a file of JSON objects, one per line; the first line has the plan's id. `plan_id` is the
start of a SHA-256 over every byte of the file, with an empty id in the first line. So a plan that
was edited, truncated or damaged is refused. The id does not prove who made the plan.
"""

import hashlib
import json
import os
import re
import stat
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

from pyarrow import fs

from kip33.archive.sources import require_outside_brokers
from kip33.errors import LocationError, PlanError
from kip33.formats.byte_sources import read_fully
from kip33.stores.files import one_line, opened, read_whole
from kip33.stores.locations import Location
from kip33.stores.own_files import publish_or_raise

CONTENT_ID: Final = "content_id"  # a key
_ID_DIGITS: Final = 32  # hexadecimal, of the SHA-256's 64
_MOST_PLAN_BYTES: Final = 1 << 32
_HEAD_BYTES: Final = 256  # enough to recognize a plan
MOST_SUMMARY_BYTES: Final = 1 << 24
_PLAN: Final = re.compile(rb'\{"kind": "plan", "version": [0-9]+, "plan_id": "[0-9a-f]+", ')
_LEFTOVER_PLAN: Final = re.compile(
    rb'\{"kind": "leftover plan", "version": [0-9]+, "plan_id": "[0-9a-f]+", '
)
_PAGE: Final = re.compile(rb"<!doctype html>\n<!-- kip33 report, version [0-9]+ -->\n")
_FACTS: Final = re.compile(rb'\{\s*"kind": "report",\s*"version": [0-9]+,')
_OF_RETENTION: Final = {"catalog", "snapshot", "source", "now_ms", "findings"}
_SUMMARIES: Final = (  # keys of the summaries: build, verify, retention, --apply, repair, restore
    {"snapshot", "catalog", "by_status"},
    {"segments", "by_verdict"},
    _OF_RETENTION,
    {"plan_id", "run_id", "dry_run", "journal"},
    {"log_dir", "applied", "by_action"},
    {"log_dir", "applied", "partitions_restored"},
)


def require_replaceable(
    place: Location, option: str, is_ours: Callable[[bytes], bool], most_bytes: int
) -> None:
    """Raise LocationError unless `place` is free, empty, or has a file that `is_ours` accepts.

    `is_ours` gets at most `most_bytes` from the file's start. A file may be in a broker's log
    directory, because brokers ignore files there; a new folder for it may not.
    """
    not_ours = f"a file that {option} did not write"
    _require(place, option, not_ours, is_ours, most_bytes)


def require_free(place: Location, option: str) -> None:
    """Raise LocationError unless nothing, or an empty file, is at `place`."""
    _require(place, option, "a file", lambda _: False, 1)


def require_plan_place(place: Location, is_ours: Callable[[bytes], bool] | None = None) -> None:
    """Raise LocationError unless a plan may be written there: its name ends in `.jsonl`.

    `is_ours` recognizes the plans that it may replace [default: those of `kip33 retention`].
    """
    if not place.name.endswith(".jsonl"):
        raise LocationError(f"{place.uri}: --plan expects a name that ends in .jsonl")
    require_replaceable(place, "--plan", is_ours or _is_plan, _HEAD_BYTES)


def require_summary_place(place: Location) -> None:
    """Raise LocationError unless a summary may be written there; its name was checked before."""
    require_replaceable(place, "--summary", _is_summary, MOST_SUMMARY_BYTES)


def require_report_places(page: Location, facts: Location) -> None:
    """Raise LocationError unless a report and its JSON file may be written there."""
    require_replaceable(page, "--output", _is_report, _HEAD_BYTES)
    require_replaceable(facts, "--output", _is_report, _HEAD_BYTES)


def _require(
    place: Location, option: str, other: str, is_ours: Callable[[bytes], bool], most_bytes: int
) -> None:
    try:
        what = _what_is_there(place)
        if what is None:
            with opened(place) as (read_into, size_bytes):
                head = bytes(read_fully(read_into, 0, min(size_bytes, most_bytes)))
            if not head or is_ours(head):
                return
            what = other
    except (FileNotFoundError, NotADirectoryError):
        if place.is_local and not os.path.exists(place.parent.path):  # noqa: PTH110
            require_outside_brokers(place.parent, f"the new folder of {option}")
        return  # nothing to replace; a failing write is reported later
    except OSError as error:
        raise LocationError(
            f"{place.uri}: {option} cannot check what is there: {one_line(error)}; give "
            "another name"
        ) from error
    raise LocationError(
        f"{place.uri}: {what} is there, which {option} does not replace; give another name"
    )


def _what_is_there(place: Location) -> str | None:
    """Return what is there, None for a file; FileNotFoundError if nothing is there."""
    if place.is_local:
        mode = os.lstat(place.path).st_mode
        if stat.S_ISREG(mode):
            return None
        if stat.S_ISLNK(mode):
            return "a link"
        return "a directory" if stat.S_ISDIR(mode) else "a device, a pipe or a socket"
    found = place.filesystem().get_file_info(place.path).type
    if found == fs.FileType.NotFound:
        raise FileNotFoundError
    return None if found == fs.FileType.File else "a directory"


def _is_report(head: bytes) -> bool:
    """Return whether a file that begins like this is a page of `kip33 report`, or its facts."""
    return any(form.match(head) for form in (_PAGE, _FACTS))


def _is_plan(head: bytes) -> bool:
    """Return whether a file that begins like this is a plan of `kip33 retention`."""
    return _PLAN.match(head) is not None


def is_leftover_plan(head: bytes) -> bool:
    """Return whether a file that begins like this is a plan of `kip33 catalog --orphans`."""
    return _LEFTOVER_PLAN.match(head) is not None


def _is_summary(data: bytes) -> bool:
    """Return whether a file is a summary of a command: `--summary`, or `summary.json`."""
    keys = _keys_of(data)
    return any(own <= keys for own in _SUMMARIES)


def is_retention_summary(data: bytes) -> bool:
    """Return whether a file is the summary of an evaluation by `kip33 retention`."""
    return _keys_of(data) >= _OF_RETENTION


def _keys_of(data: bytes) -> set[str]:
    """Return the keys of a JSON object, no keys of anything else."""
    try:
        record: Any = json.loads(data)
    except (ValueError, RecursionError):
        return set()
    return set(record) if isinstance(record, dict) else set()


class PlanForm(NamedTuple):
    """What kind of plan a file is expected to have."""

    kind: str  # in the first line
    version: int
    name: str  # in messages: `a retention plan`
    make_another: str  # how the user gets a new one


class _PlanLines(NamedTuple):
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
    return digest.hexdigest()[:_ID_DIGITS]


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


def require_plain_name(name: object) -> str:
    """Return the name of a file in a known directory; ValueError for one that leads elsewhere."""
    if not isinstance(name, str) or name in ("", ".", "..") or "/" in name or "\0" in name:
        raise ValueError(f"{name!r} found, expected the name of a file without a directory")
    return name


def _is_plain(path: str) -> bool:
    return not {"", ".", ".."} & set(path.split("/"))


def write_plan_lines(records: Iterable[dict[str, Any]], place: Location) -> None:
    """Publish the records of a plan atomically; PublishError if that fails."""
    publish_or_raise(place, b"".join(map(plan_line, records)), "the plan does not exist")


def read_plan_lines(place: Location, form: PlanForm) -> _PlanLines:
    """Return the lines of a plan; PlanError, one line, if they are not exactly as written."""
    try:
        lines = read_whole(place, most_bytes=_MOST_PLAN_BYTES).splitlines(keepends=True)
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
    return _PlanLines(header, lines[1:])


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
