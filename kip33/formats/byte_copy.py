"""Copy bytes from one array to another: the plain definition.

`kip33.formats.native.copies` has the compiled form, which copies up to 32 bytes at once.
"""

from typing import Any


def copy_bytes(target: Any, at: int, data: Any, start: int, count: int) -> None:
    """Copy `data[start : start + count]` to `target[at : at + count]`."""
    target[at : at + count] = data[start : start + count]
