"""Plans and journals: what is to be changed, and how far a change came.

A plan is a file of JSON objects, one per line; the last line has the plan's id and its totals. So
lines are written as they come, to any store, and a plan of any length takes no memory. `plan_id` is
the start of a SHA-256 over every byte of the file, with an empty id in the last line. So a plan
that was edited, truncated or damaged is refused. The id does not prove who made the plan, so each
use checks the names and places in it, and each file again right before it is changed. Plans of
version 1 had id and totals in the first line; they are still read.

A journal is a file of one JSON object in the directory that is changed, there from the first change
to the last. It has the id of its content and the directory's inode, because a copy of the directory
may bring it along.
"""

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, TypeVar

from kip33.archive.output_files import require_replaceable
from kip33.archive.segment_paths import NS_PER, PlannedFile, TimeUnit
from kip33.errors import Kip33Error, LocationError, PlanError, proves_nothing
from kip33.stores.files import one_line, read_whole
from kip33.stores.locations import Location
from kip33.stores.own_files import publish_or_raise, streamed_file

CONTENT_ID: Final = "content_id"  # a key
PLAN_ID: Final = "plan_id"
_ID_FIRST: Final = 1  # the version whose first line has the id
_END: Final = "end"  # the kind of a plan's last line
_ID_DIGITS: Final = 32  # hexadecimal, of the SHA-256's 64
_MOST_PLAN_BYTES: Final = 1 << 32
_MOST_JOURNAL_BYTES: Final = 2**31
_HEAD_BYTES: Final = 256  # enough to recognize a plan
_WRONG: Final = (ValueError, KeyError, TypeError, AttributeError)  # in the content of a file
_Made = TypeVar("_Made")
Record = Mapping[str, Any]


class PlanForm(NamedTuple):
    """A kind of plan files."""

    kind: str  # in the first line
    version: int
    name: str  # in messages: `a retention plan`
    make_another: str  # how the user gets a new one

    def begins(self, head: bytes) -> bool:
        """Return whether a file that begins like this is such a plan, of any version."""
        start = rf'\{{"kind": "{self.kind}", "version": [0-9]+, "(plan_id": "[0-9a-f]+|created_ms)"'
        return re.match(start.encode(), head) is not None


RETENTION_PLAN: Final = PlanForm(
    "plan", 2, "a retention plan", "make another with `kip33 retention`"
)
LEFTOVER_PLAN: Final = PlanForm(
    "leftover plan",
    2,
    "a plan of leftovers",
    "make another with `kip33 catalog orphans`",
)


def require_plan_place(place: Location, form: PlanForm = RETENTION_PLAN) -> None:
    """Raise LocationError unless a plan may be written there: its name ends in `.jsonl`.

    The only file that it may replace is another plan of this form.
    """
    if not place.name.endswith(".jsonl"):
        raise LocationError(f"{place.uri}: --plan expects a name that ends in .jsonl")
    require_replaceable(place, "--plan", form.begins, _HEAD_BYTES)


def plan_line(record: Record) -> bytes:
    """Return one line of a plan."""
    return (json.dumps(record) + "\n").encode()


class PlanLines:
    """Writes the lines of a plan, and makes its id of them."""

    def __init__(self, write: Callable[[bytes], object], form: PlanForm, header: Record) -> None:
        """Write the first line; `header` has what is known before the plan's content."""
        self._write, self._digest = write, hashlib.sha256()
        self.add({"kind": form.kind, "version": form.version, **header})

    def add(self, record: Record) -> None:
        """Write a line."""
        line = plan_line(record)
        self._digest.update(line)
        self._write(line)

    def end(self, totals: Record) -> str:
        """Write the last line; return the plan's id."""
        self._digest.update(plan_line({"kind": _END, PLAN_ID: "", **totals}))
        plan_id = _id_of(self._digest)
        self._write(plan_line({"kind": _END, PLAN_ID: plan_id, **totals}))
        return plan_id


def _id_of(digest: "hashlib._Hash") -> str:
    return digest.hexdigest()[:_ID_DIGITS]


@contextmanager
def plan_file(place: Location, form: PlanForm, header: Record) -> Iterator[PlanLines]:
    """Yield the lines of a plan to write; it is published if the block ends without an error.

    Raises LocationError if `require_plan_place` does, PublishError if it cannot be written.
    """
    require_plan_place(place, form)
    with streamed_file(place, "the plan does not exist") as file:
        yield PlanLines(file.write, form, header)


def read_plan_file(
    place: Location,
    form: PlanForm,
    plan_of: Callable[[dict[str, Any], list[dict[str, Any]]], _Made],
) -> _Made:
    """Return what `plan_of` makes of the first object and the others; it may raise ValueError.

    Raises PlanError, one line, if they are not exactly as kip33 wrote them.
    """
    try:
        lines = read_whole(place, most_bytes=_MOST_PLAN_BYTES).splitlines(keepends=True)
    except OSError as error:
        if proves_nothing(error):
            raise
        raise PlanError(f"{place.uri}: the plan cannot be read: {one_line(error)}") from error
    try:
        header = json.loads(lines[0]) if lines else {}
        is_plan = isinstance(header, dict) and header.get("kind") == form.kind
    except ValueError:
        is_plan = False
    if not is_plan:
        raise PlanError(f"{place.uri}: not {form.name}; {form.make_another}")
    if header.get("version") not in (_ID_FIRST, form.version):
        raise PlanError(
            f"{place.uri}: version {header.get('version')} of the plan found, expected "
            f"{form.version}"
        )
    try:
        header, lines = _checked(header, lines)
    except _WRONG as error:
        raise PlanError(
            f"{place.uri}: the checksum is wrong: the plan was edited, truncated or "
            f"damaged; {form.make_another}"
        ) from error
    try:
        return plan_of(header, [json.loads(line) for line in lines])
    except (*_WRONG, Kip33Error) as error:
        raise PlanError(f"{place.uri}: not written by kip33: {one_line(error)}") from error


def _checked(header: dict[str, Any], lines: list[bytes]) -> tuple[dict[str, Any], list[bytes]]:
    """Return what the first and the last line say as one object, and the lines between them.

    Raises ValueError unless the id is that of the content.
    """
    at = 0 if header["version"] == _ID_FIRST else len(lines) - 1
    has_id = json.loads(lines[at])
    without_id = plan_line(has_id | {PLAN_ID: ""})
    digest = hashlib.sha256(b"".join([*lines[:at], without_id, *lines[at + 1 :]]))
    if has_id[PLAN_ID] != _id_of(digest) or plan_line(has_id) != lines[at]:
        raise ValueError("the id is that of another content")
    return header | has_id, lines[1 : at or None]


def file_record(file: PlannedFile, unit: TimeUnit = "ns") -> dict[str, Any]:
    """Return the record of a file in a plan or a journal."""
    modified = file.last_modified_ns // NS_PER[unit]
    return {"uri": file.place.uri, "size_bytes": file.size_bytes, f"last_modified_{unit}": modified}


def planned_file(
    record: Record, folders: Iterable[Location], unit: TimeUnit = "ns"
) -> PlannedFile | None:
    """Return the file of a record, None if it is not in one of the folders itself."""
    uri, size_bytes = str(record["uri"]), int(record["size_bytes"])
    modified_ns, name = int(record[f"last_modified_{unit}"]) * NS_PER[unit], Location.of(uri).name
    for folder in folders:
        if folder.child(name).uri == uri and name not in ("", ".", ".."):
            return PlannedFile(name, size_bytes, modified_ns, folder)
    return None


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


def require_plain_name(name: object) -> str:
    """Return the name of a file in a known directory; ValueError for one that leads elsewhere."""
    if not isinstance(name, str) or name in ("", ".", "..") or "/" in name or "\0" in name:
        raise ValueError(f"{name!r} found, expected the name of a file without a directory")
    return name


class JournalForm(NamedTuple):
    """A kind of journals."""

    version: int
    name: str  # in messages: `the journal of a truncation of this directory`
    remedy: str
    failure: type[Kip33Error]

    def read(self, place: Location, journal_of: Callable[[dict[str, Any]], _Made]) -> _Made | None:
        """Return what `journal_of` makes of a journal, None if it is missing.

        `journal_of` raises ValueError unless it is of its directory and has names that it may have.
        Raises the form's failure for a file that is not such a journal.
        """
        try:
            if os.path.islink(place.path):  # noqa: PTH114
                raise ValueError("a link found, expected a file")
            record = json.loads(read_whole(place, most_bytes=_MOST_JOURNAL_BYTES))
            if record["format"] != self.version:
                raise ValueError(f"format {record['format']!r} found, expected {self.version}")
            if record.get(CONTENT_ID) != _content_id_of(record):
                raise ValueError("the checksum is wrong: the file was edited, truncated or damaged")
            return journal_of(record)
        except FileNotFoundError:
            return None
        except OSError as error:
            if proves_nothing(error):
                raise
            why = one_line(error)
        except _WRONG as error:
            why = f"is not {self.name}: {one_line(error)}"
        raise self.failure(f"{place.uri}: {why}; {self.remedy}")

    def publish(self, place: Location, content: Record, consequence: str) -> None:
        """Publish a journal of its directory; PublishError, which names the `consequence`."""
        publish_or_raise(place, plan_line(self.record_of(place.parent, content)), consequence)

    def record_of(self, directory: Location, content: Record) -> dict[str, Any]:
        """Return the object of a journal for a directory, with its id."""
        first = {"format": self.version, "inode": inode_of(directory)}
        return with_content_id({**first, **content})


def inode_of(directory: Location) -> int:
    """Return the inode; the device is left out, because a restart may give it another number."""
    return os.stat(directory.path).st_ino  # noqa: PTH116 - a path, as the filesystem has it


def with_content_id(record: dict[str, Any]) -> dict[str, Any]:
    """Return an object with the id of its content."""
    return record | {CONTENT_ID: _content_id_of(record)}


def _content_id_of(record: Record) -> str:
    content = {key: value for key, value in record.items() if key != CONTENT_ID}
    return _id_of(hashlib.sha256(json.dumps(content, sort_keys=True).encode()))
