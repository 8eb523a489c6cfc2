"""HTTP/1.1 messages as bytes: read from a connection, passed on as they came."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

BLOCK_BYTES = 65536


class ConnectionEndedError(Exception):
    """The other side closed the connection, between messages or within one."""


@dataclass(frozen=True)
class Head:
    """The first lines of a request or an answer; `wire` is what to pass on, byte by byte."""

    wire: bytes
    first_line: str
    headers: dict[str, str]  # names in lower case

    @property
    def closes(self) -> bool:
        """Return whether no further message follows on this connection."""
        return self.headers.get("connection", "").lower() == "close"


def read_head(stream: BinaryIO) -> Head:
    """Return the next message's head, read up to its empty line."""
    lines = []
    while not lines or lines[-1] not in (b"\r\n", b"\n"):
        line = stream.readline()
        if not line.endswith(b"\n"):
            raise ConnectionEndedError
        lines.append(line)
    first, *rest = (line.decode("latin-1").rstrip("\r\n") for line in lines[:-1])
    pairs = (line.partition(":") for line in rest)
    headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
    return Head(b"".join(lines), first, headers)


def read_body(stream: BinaryIO, head: Head, *, is_answer: bool) -> Iterator[bytes]:
    """Yield the message's body as it is on the wire, chunk sizes and all."""
    if "chunked" in head.headers.get("transfer-encoding", "").lower():
        yield from _chunks(stream)
    elif "content-length" in head.headers:
        yield from _exactly(stream, int(head.headers["content-length"]))
    elif is_answer:  # it ends with the connection
        while block := stream.read1(BLOCK_BYTES):  # type: ignore[attr-defined]
            yield block


def _chunks(stream: BinaryIO) -> Iterator[bytes]:
    while True:
        line = stream.readline()
        if not line.endswith(b"\n"):
            raise ConnectionEndedError
        yield line
        size = int(line.split(b";")[0], 16)
        if size == 0:
            break
        yield from _exactly(stream, size + 2)
    while True:  # trailers, such as a checksum, and the empty line
        line = stream.readline()
        if not line.endswith(b"\n"):
            raise ConnectionEndedError
        yield line
        if line in (b"\r\n", b"\n"):
            return


def _exactly(stream: BinaryIO, size: int) -> Iterator[bytes]:
    while size:
        block = stream.read1(min(size, BLOCK_BYTES))  # type: ignore[attr-defined]
        if not block:
            raise ConnectionEndedError
        size -= len(block)
        yield block
