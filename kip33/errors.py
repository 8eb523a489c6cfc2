"""The errors of kip33. Every message says where, what was found and what was expected.

    Kip33Error
      CorruptSegmentError       a batch or record that cannot be read; carries `valid_bytes`
      CorruptIndexError         an index file that breaks its invariants
      CorruptSnapshotError      a producer .snapshot that Kafka would not load
      IndexOffsetOverflowError  an offset that does not fit a relative int32
      UnsupportedFormatError    an unknown magic, codec or file name
        BatchTooLargeError      a batch that decompresses to more bytes than are allowed
      CatalogError              a missing, foreign or incompatible catalog
        UnreadableCatalogError  a file of a catalog that cannot be read now
      PlanError                 a retention plan that cannot be made, read or carried out
        LockedError             a log directory that a broker, or another run of kip33, uses now
      LocationError             a path or URI that cannot be used
        UnreadableLogError      a log that was deleted, or cannot be read now
      PolicyError               a retention policy that cannot be read, or is unknown to Kafka
      TruncationError           a partition that cannot be truncated; nothing was changed
      RestoreError              a restore that cannot begin; nothing was changed
      NoReadableLogError        none of the logs can be read: nothing is committed
      PublishError              a part or commit file that cannot be written: nothing is committed
      WorkerLostError           a worker process that was killed, twice: nothing is committed
      WorkerStartError          a worker process that cannot be started: nothing is committed
      NotSeenError              a machine of a cluster lacks what the driver sees

`exit_code` is the exit code of a command that the error ends. A wrong argument is a plain
`ValueError`.

A file that cannot be read is a `FileReadError`, an OSError and no `Kip33Error`. Any other OSError,
and a MemoryError, is a failure of kip33 or of its machine: it proves nothing about a file.
"""

import errno
import re
from enum import IntEnum
from types import TracebackType
from typing import Final


class ExitCode(IntEnum):
    """The exit codes of all commands; `kip33/docs/reference/commands.md` has the same table."""

    DONE = 0
    INCOMPLETE = 1  # something that was asked did not happen, because of an error
    USAGE = 2  # wrong usage or input; nothing was changed
    FINDINGS = 3  # only those that `--fail-on` asks for
    REFUSED = 4  # a check refused a part, which was left untouched; everything else is done
    INTERRUPTED = 130  # Ctrl-C; this and the next two as shells have them: 128 + the signal
    CLOSED_PIPE = 141  # the reader of standard output has ended, as `head` does
    TERMINATED = 143  # SIGTERM


def counted(count: int, what: str) -> str:
    """Return a number with its noun, whose last word has its plural: `1 segment`, `2,000 segments`.

    >>> counted(1, "index entry"), counted(0, "index entry"), counted(2_000, "batch")
    ('1 index entry', '0 index entries', '2,000 batches')
    """
    if count == 1:
        return f"1 {what}"
    if what.endswith(("ry", "ty")):
        return f"{count:,} {what[:-1]}ies"
    return f"{count:,} {what}{'es' if what.endswith(('ch', 's', 'x')) else 's'}"


def unreadable_logs_text(count: int, first: str, of: int | None = None) -> str:
    """Return how many logs could not be read, of how many if that is known, and the first's line.

    >>> unreadable_logs_text(1, "file:///0.log: Permission denied", of=2)
    '1 of 2 logs could not be read, the first is file:///0.log: Permission denied'
    """
    what = counted(count, "log") if of is None else f"{count:,} of {counted(of, 'log')}"
    return f"{what} could not be read, the first is {first}"


_SECRETS: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*:/{1,3})[^\s/@]*:[^\s@]*@")


def without_secrets(text: str) -> str:
    """Return a text with user and password removed from its URIs: `s3a://***@bucket`.

    >>> without_secrets("s3a://KEY:SECRET@bucket/x: no such bucket")
    's3a://***@bucket/x: no such bucket'
    """
    return _SECRETS.sub(r"\1***@", text)


OF_THE_MACHINE: Final = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOMEM))


def is_of_the_machine(error: BaseException) -> bool:
    """Return whether this process ran out of memory or of open files: no fault of a file."""
    return isinstance(error, MemoryError) or getattr(error, "errno", None) in OF_THE_MACHINE


def proves_nothing(error: BaseException) -> bool:
    """Whether a file could not be read by a fault of the machine or of its disk: no wrong file."""
    return is_of_the_machine(error) or getattr(error, "errno", None) == errno.EIO


class FileReadError(OSError):
    """A store did not give the bytes, the status or the entries of a file; has its `errno`."""

    @staticmethod
    def of(error: OSError | ValueError) -> "FileReadError":
        """Return a store's error as one of these classes."""
        made = next((of for kind, of in _KINDS.items() if isinstance(error, kind)), FileReadError)
        if isinstance(error, OSError) and error.errno is not None:
            return made(error.errno, error.strerror, error.filename)
        return made(*error.args)


class FileMissingError(FileReadError, FileNotFoundError):
    """A file that does not exist."""


class FileIsDirectoryError(FileReadError, IsADirectoryError):
    """A directory where a file is expected."""


class FileIsNoDirectoryError(FileReadError, NotADirectoryError):
    """A file where a directory is expected."""


_KINDS: Final[dict[type[OSError], type[FileReadError]]] = {
    FileNotFoundError: FileMissingError,
    IsADirectoryError: FileIsDirectoryError,
    NotADirectoryError: FileIsNoDirectoryError,
}


class _ReadFaults:
    """Makes what a store raises a FileReadError; failures of this machine stay as they are.

    One object without a state serves all `with` blocks: a generator would take longer than a read.
    """

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not isinstance(error, OSError | ValueError):  # pyarrow's ArrowInvalid is a ValueError
            return
        if not isinstance(error, FileReadError) and not is_of_the_machine(error):
            raise FileReadError.of(error) from error


READ_FAULTS: Final = _ReadFaults()


class Kip33Error(Exception):
    """Base of every error that kip33 raises on purpose."""

    exit_code: int = ExitCode.USAGE


class CorruptSegmentError(Kip33Error):
    """Bytes of a segment that cannot be read; `valid_bytes` is the length of the valid prefix."""

    def __init__(self, message: str, valid_bytes: int = 0) -> None:
        """Store `valid_bytes`, the position up to which the segment is valid."""
        super().__init__(message)
        self.valid_bytes = valid_bytes


class CorruptIndexError(Kip33Error):
    """A `.timeindex`, `.index` or `.txnindex` that breaks its invariants."""


class CorruptSnapshotError(Kip33Error):
    """A producer `.snapshot` that Kafka would not load."""


class IndexOffsetOverflowError(Kip33Error):
    """An offset outside `[base, base + 2^31 - 1]`: it has no relative int32 form."""


class UnsupportedFormatError(Kip33Error):
    """A magic, codec or name that no Kafka version writes."""


class BatchTooLargeError(UnsupportedFormatError):
    """A batch that decompresses to more bytes than are allowed; the rest is not read."""


class CatalogError(Kip33Error):
    """A catalog that is missing, belongs to another source, or has a newer schema."""


class UnreadableCatalogError(CatalogError):
    """A file of a catalog that exists but cannot be read now; this does not prove damage."""

    exit_code = ExitCode.INCOMPLETE


class LocationError(Kip33Error):
    """A path or URI that does not exist, cannot be read, or has an unknown scheme."""


class UnreadableLogError(LocationError):
    """A log that was deleted, or cannot be read now; this proves no damage."""

    exit_code = ExitCode.INCOMPLETE


class PolicyError(Kip33Error):
    """A policy file, or a broker's description of its topics, that is wrong."""


class TruncationError(Kip33Error):
    """A partition that cannot be truncated as asked; nothing was changed."""


class RestoreError(Kip33Error):
    """A restore that cannot begin or go on as asked; the log directory was not changed."""


class NoReadableLogError(Kip33Error):
    """None of an archive's logs could be read: probably its place, not the logs, is at fault."""

    exit_code = 1


class PublishError(Kip33Error):
    """A file that a build needs to write and cannot: a full disk, a missing permission."""

    exit_code = ExitCode.INCOMPLETE


class WorkerLostError(Kip33Error):
    """A worker process of this machine that was killed at both attempts at a bin."""

    exit_code = ExitCode.INCOMPLETE


class WorkerStartError(Kip33Error):
    """A worker process of the local engine that cannot be started; nothing is committed."""

    exit_code = ExitCode.INCOMPLETE


class NotSeenError(Kip33Error):
    """A machine of a cluster that does not see what the driver sees; nothing is committed."""

    exit_code = ExitCode.INCOMPLETE


class PlanError(Kip33Error):
    """A retention plan that cannot be made, read or carried out; nothing was changed."""


class LockedError(PlanError):
    """A log directory that a broker, or another run of kip33, uses now; nothing was changed."""
