"""Output files that a user names: which existing files may be replaced.

A free name, an empty file, and a file that kip33 wrote for the same option may be written. Every
other file stays, so that a typing error on the command line destroys nothing.
"""

import json
import os
import re
import stat
from collections.abc import Callable
from typing import Any, Final

from pyarrow import fs

from kip33.archive.sources import require_outside_brokers
from kip33.errors import LocationError, proves_nothing
from kip33.formats.byte_sources import read_fully
from kip33.stores.files import one_line, opened
from kip33.stores.locations import Location

_HEAD_BYTES: Final = 256  # enough to recognize a report
MOST_SUMMARY_BYTES: Final = 1 << 24
_REPORT: Final = re.compile(  # a page of `kip33 report`, or its facts
    rb"<!doctype html>\n<!-- kip33 report, version [0-9]+ -->\n"
    rb'|\{\s*"kind": "report",\s*"version": [0-9]+,'
)
_OF_RETENTION: Final = {"catalog", "snapshot", "source", "now_ms", "findings"}


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


def require_summary_place(place: Location) -> None:
    """Raise LocationError unless a summary may be written there; its name was checked before."""
    require_replaceable(place, "--summary", _is_summary, MOST_SUMMARY_BYTES)


def require_report_places(page: Location, facts: Location) -> None:
    """Raise LocationError unless a report and its JSON file may be written there."""
    for place in (page, facts):
        require_replaceable(place, "--output", lambda head: bool(_REPORT.match(head)), _HEAD_BYTES)


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
        if proves_nothing(error):
            raise
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


def _is_summary(data: bytes) -> bool:
    """Whether a file is the summary of a command: it says what the run was, or is retention's."""
    run = _object_in(data).get("run")
    is_of_a_run = isinstance(run, dict) and run.keys() >= {"kip33_version", "command"}
    return is_of_a_run or is_retention_summary(data)


def is_retention_summary(data: bytes) -> bool:
    """Return whether a file is the summary of an evaluation by `kip33 retention`."""
    return _object_in(data).keys() >= _OF_RETENTION


def _object_in(data: bytes) -> dict[str, Any]:
    """The JSON object in a file, an empty one for anything else."""
    try:
        record: Any = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return record if isinstance(record, dict) else {}
