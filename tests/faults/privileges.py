"""Programs that file permissions hold for, whoever runs the tests."""

import ctypes
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

# root without what lets it pass over permissions: its own files are shut to it as to any owner
_AS_ANY_OWNER: Final = ("setpriv", "--bounding-set", "-dac_override,-dac_read_search", "--")
AS_ANY_OWNER: Final = _AS_ANY_OWNER if os.geteuid() == 0 else ()


def why_not(folder: Path) -> str | None:
    """Return why permissions cannot be tried here, None where they hold."""
    shut_one = folder / "shut"
    shut_one.mkdir()
    with shut(shut_one):
        try:
            tried = subprocess.run([*AS_ANY_OWNER, "ls", shut_one], capture_output=True, text=True)
        except FileNotFoundError as error:
            return f"root may do everything, and there is no {error.filename}"
    shut_one.rmdir()
    if tried.returncode and "Permission denied" in tried.stderr:
        return None
    return tried.stderr.strip() or "a directory of mode 0 can be listed"


@contextmanager
def shut(place: Path, mode: int = 0, *, all_below: bool = False) -> Iterator[None]:
    """Let a file or directory have this mode for a while, and all directories in it if asked."""
    below = [path for path in sorted(place.rglob("*")) if all_below and path.is_dir()]
    modes = {path: path.stat().st_mode for path in (place, *below)}
    for path in reversed(modes):
        path.chmod(mode)
    try:
        yield
    finally:
        for path, before in modes.items():
            path.chmod(before)


_HEADER: Final = (ctypes.c_uint32 * 2)(0x20080522, 0)  # version 3 of capabilities, this thread
_PASS_OVER_MODES: Final = 0b110  # dac_override, dac_read_search


@contextmanager
def as_any_owner() -> Iterator[None]:
    """Let permissions hold for this thread for a while, and for the threads that it starts."""
    if os.geteuid():
        yield
        return
    libc = ctypes.CDLL(None, use_errno=True)
    before = (ctypes.c_uint32 * 6)()
    _require_done(libc.capget(_HEADER, before))
    now = (ctypes.c_uint32 * 6)(*before)
    now[0] &= ~_PASS_OVER_MODES  # effective; they stay permitted
    _require_done(libc.capset(_HEADER, now))
    try:
        yield
    finally:
        _require_done(libc.capset(_HEADER, before))


def _require_done(result: int) -> None:
    if result:
        raise OSError(ctypes.get_errno(), "capabilities cannot be changed")
