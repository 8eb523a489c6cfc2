"""What a program does to files, recorded by strace: each change and each flush, in order."""

import os
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.cli.console import PROJECT, subprocess_of

FLUSHES = ("fsync", "fdatasync", "syncfs")
CALLS = (
    *("openat", "open", "creat", "write", "pwrite64", "sendfile", "ftruncate"),
    *("rename", "renameat", "renameat2", "link", "linkat"),
    *("unlink", "unlinkat", "rmdir", "mkdir", "mkdirat"),
    *FLUSHES,
)


class Event(NamedTuple):
    """One step of a program."""

    what: str  # create | write | copy | rename | link | remove | mkdir | flush | flush all
    path: str
    new: str = ""  # where a rename or link leads; what a copy is of
    data: bytes = b""  # what a write appends


def record(program: str, *arguments: object, root: Path) -> list[Event]:
    """Run a Python program under strace; return its steps below `root`. Skips without strace."""
    options = ("-xx", "-s", "10000000", "-e", f"trace={','.join(CALLS)}")
    trace = traced(program, *arguments, options=options, file=root.parent / f"{root.name}.trace")
    below = f"{root}{os.sep}"
    return [
        event
        for call in calls_in_order(trace)
        for event in events_of(call)
        if event.path.startswith(below) or event.path == str(root) or event.what == "flush all"
    ]


def traced(program: str, *arguments: object, options: Sequence[str], file: Path) -> str:
    """Run a Python program under strace; return what it writes to `file`. Skips without strace."""
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("strace is not installed: nothing records the calls of a program")
    command = (strace, "-f", "-y", *options, "-o", file, sys.executable, "-c", program, *arguments)
    done = subprocess_of(*command, cwd=PROJECT)
    if done.exit_code and "ptrace" in done.stderr:
        pytest.skip(f"strace may not trace here: {done.stderr.splitlines()[0]}")
    assert done.exit_code == 0, done.stderr
    return file.read_text()


def calls_in_order(trace: str) -> list[str]:
    """Return the calls that succeeded: a flush where it returned, a change where it began."""
    calls: list[tuple[int, str]] = []
    unfinished: dict[str, tuple[int, str]] = {}
    for number, line in enumerate(trace.splitlines()):
        process, _, call = line.partition(" ")
        call = call.strip()
        began = number
        if call.endswith("<unfinished ...>"):
            unfinished[process] = (number, call.removesuffix("<unfinished ...>"))
            continue
        if resumed := re.match(r"<\.\.\. \w+ resumed>(.*)", call):
            if process not in unfinished:
                continue
            began, start = unfinished.pop(process)
            call = start + resumed[1]
        if re.search(r"= -1 E\w+ \(", call) or " = " not in call:
            continue
        calls.append((number if call.startswith(FLUSHES) else began, call))
    return [call for _, call in sorted(calls)]


def events_of(call: str) -> Iterator[Event]:
    """Yield what a call changes or flushes."""
    name = call.partition("(")[0]
    texts = [_bytes(text) for text in re.findall(r'"((?:\\x[0-9a-f]{2})*)"', call)]
    folders = re.findall(r"(?:AT_FDCWD|\d+)<((?:\\x[0-9a-f]{2})*)>", call)
    places = [_bytes(folder).decode(errors="replace") for folder in folders]
    paths = [_joined(places, place, text) for place, text in enumerate(texts)]
    if name in ("openat", "open", "creat"):
        if "O_CREAT" in call or "O_TRUNC" in call or name == "creat":
            yield Event("create", paths[0], "truncate" if "O_TRUNC" in call else "")
    elif name in ("write", "pwrite64") and places:
        yield Event("write", places[0], data=texts[0] if texts else b"")
    elif name == "sendfile":
        yield Event("copy", places[0], places[1])
    elif name == "ftruncate":
        yield Event("create", places[0], "truncate")
    elif name.startswith("rename"):
        yield Event("rename", *paths[:2])
    elif name.startswith("link"):
        yield Event("link", *paths[:2])
    elif name in ("unlink", "unlinkat", "rmdir"):
        yield Event("remove", paths[0])
    elif name.startswith("mkdir"):
        yield Event("mkdir", paths[0])
    elif name in FLUSHES and places:
        yield Event("flush all" if name == "syncfs" else "flush", places[0])


def _joined(folders: Sequence[str], place: int, text: bytes) -> str:
    path = text.decode(errors="replace")
    if path.startswith("/") or not folders:
        return path
    return f"{folders[min(place, len(folders) - 1)]}/{path}"


def _bytes(text: str) -> bytes:
    return bytes.fromhex(text.replace("\\x", ""))
