"""What bytes look like where a log should have a batch: compressed files, text, zeros.

A log that was compressed under its own name, or a file of another program, has no batch at all. A
broker that preallocates its logs, or a machine that lost its power, leaves zeros after the last
batch.
"""

from typing import Final

from kip33.formats.batch import HEADER_SIZE_UP_TO_MAGIC
from kip33.formats.byte_sources import PIECE_BYTES, ReadInto, read_fully

_HEAD_BYTES: Final = 512
_LEAST_TEXT_BYTES: Final = 16
_TEXT_CONTROLS: Final = frozenset("\t\n\r\f\x1b")
_ZEROS: Final = "only zeros follow, as in a preallocated file or after a power failure"
_BEGINNINGS: Final = {
    b"\x1f\x8b": "gzip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\x04\x22\x4d\x18": "lz4",
    b"\xff\x06\x00\x00sNaPpY": "snappy",
    b"\x82SNAPPY\x00": "snappy",
    b"\xfd7zXZ\x00": "xz",
    b"BZh": "bzip2",
    b"PK\x03\x04": "zip",
    b"PAR1": "Parquet",
    b"Salted__": "OpenSSL's encryption",
    b"-----BEGIN ": "PEM or PGP",
}
"""The first bytes of files, and their formats."""


def format_of(head: bytes) -> str | None:
    """Return a text for what bytes look like that begin no batch; None for all others.

    >>> format_of(bytes.fromhex("1f8b0800000000000003"))
    'these look like gzip (1f8b)'
    >>> format_of(b"offset,timestamp,key\\n0,17,a\\n")
    'these look like text'
    >>> format_of(bytes(7) + b"\\x05" + bytes(20)) is None
    True
    """
    for beginning, name in _BEGINNINGS.items():
        if head.startswith(beginning):
            return f"these look like {name} ({beginning[:4].hex()})"
    try:
        text = head.decode()
    except UnicodeDecodeError as error:
        if error.start < len(head) - 3:  # not only a character that is cut off
            return None
        text = head[: error.start].decode()
    is_text = all(letter.isprintable() or letter in _TEXT_CONTROLS for letter in text)
    return "these look like text" if is_text and len(text) >= _LEAST_TEXT_BYTES else None


class Rest:
    """The bytes of a log after its last valid batch."""

    def __init__(self, read_into: ReadInto, position: int, size_bytes: int) -> None:
        """Look at the first of them, and at all of them if they may be zeros alone."""
        most_bytes = min(_HEAD_BYTES, size_bytes - position)
        head = read_fully(read_into, position, most_bytes) if most_bytes > 0 else b""
        self.begins_with_zeros = bool(head) and not any(head[:HEADER_SIZE_UP_TO_MAGIC])
        self.is_zeros = self.begins_with_zeros and not any(head)
        self._format = format_of(head)
        at = position + len(head)
        while self.is_zeros and at < size_bytes:
            piece = read_fully(read_into, at, min(PIECE_BYTES, size_bytes - at))
            self.is_zeros = bool(piece) and piece == bytes(len(piece))  # memcmp
            at += len(piece)
        self.bytes_read = at - position

    def note(self, reason: str) -> str:
        """Return why no batch begins there, and what the bytes look like."""
        if self.is_zeros:
            return f"{reason}: {_ZEROS}"
        if self.begins_with_zeros:
            return f"{reason}: zeros are there, and other bytes after them"
        return f"{reason}; {self._format}" if self._format else reason
