"""One file that a truncation changes, and what it is before and after."""

import base64
import zlib
from enum import StrEnum
from typing import Any, NamedTuple, Self

from kip33.stores.locations import Location


class FileAction(StrEnum):
    """What happens to a file; each member is its own text."""

    DELETE = "delete"
    CUT = "cut"  # bytes are removed from its end
    WRITE = "write"  # it gets other bytes, or is new


class FileChange(NamedTuple):
    """A change of one file; None: the file is not there, or its content has no entries."""

    name: str
    action: FileAction
    bytes_before: int | None
    modified_ns: int | None
    bytes_after: int | None = None
    entries_before: int | None = None
    entries_after: int | None = None
    data: bytes | None = None  # of WRITE: the new bytes
    in_log_dir: bool = False  # beside the partition directory, not in it

    def place(self, directory: Location) -> Location:
        """Return where the file is, for the partition's directory."""
        return (directory.parent if self.in_log_dir else directory).child(self.name)

    def as_row(self) -> dict[str, Any]:
        """Return the fields that `kip33 truncate` prints."""
        return {
            "file": self.name,
            "in_log_dir": self.in_log_dir,
            "action": str(self.action),
            "bytes_before": self.bytes_before,
            "bytes_after": self.bytes_after,
            "entries_before": self.entries_before,
            "entries_after": self.entries_after,
        }

    def as_record(self) -> dict[str, Any]:
        """Return all fields for the journal, from which `of_record` makes the change again."""
        data = None if self.data is None else base64.b64encode(zlib.compress(self.data)).decode()
        return self.as_row() | {"modified_ns": self.modified_ns, "data": data}

    @classmethod
    def of_record(cls, record: dict[str, Any]) -> Self:
        """Return the change that the journal has; ValueError or KeyError for another object."""
        data = record["data"]
        return cls(
            record["file"],
            FileAction(record["action"]),
            record["bytes_before"],
            record["modified_ns"],
            record["bytes_after"],
            record["entries_before"],
            record["entries_after"],
            None if data is None else zlib.decompress(base64.b64decode(data)),
            record["in_log_dir"],
        )
