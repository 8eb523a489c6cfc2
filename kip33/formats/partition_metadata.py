r"""The `partition.metadata` of a partition's directory: the id of its topic.

    version: 0
    topic_id: bn9RMmT4REWVDFQzf3IUaQ          no line break follows

Since Kafka 2.8. A topic that is deleted and created again has the same name and another id. A
broker whose controller knows another id moves the directory aside as `-stray`.
Source: `PartitionMetadata.encode`, `PartitionMetadataReadBuffer.read`, `Uuid` (3.1 to 4.3).
"""

import base64
import re
import uuid
from dataclasses import dataclass
from typing import Final, Self

PARTITION_METADATA: Final = "partition.metadata"
MAX_PARTITION_METADATA_BYTES: Final = 4096  # Kafka writes 44
_LINE: Final = re.compile(r"(version|topic_id):\s+(\S.*)")
_VERSION: Final = re.compile(r"\+?[0-9]{1,10}")
_BASE64: Final = re.compile(r"([A-Za-z0-9_-]{22})(?:==)?")
_DASHED: Final = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_ZERO: Final = bytes(16)


@dataclass(frozen=True)
class PartitionMetadata:
    """The id of the topic that a partition belongs to: 22 characters, as Kafka prints it."""

    topic_id: str

    def to_bytes(self) -> bytes:
        r"""Return the file as Kafka writes it.

        >>> PartitionMetadata("bn9RMmT4REWVDFQzf3IUaQ").to_bytes()
        b'version: 0\ntopic_id: bn9RMmT4REWVDFQzf3IUaQ'
        """
        return f"version: 0\ntopic_id: {self.topic_id}".encode("ascii")

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        r"""Return what the file says; what follows its second line is ignored, as in Kafka.

        Raises ValueError, one line, for bytes that Kafka does not read or never writes.

        >>> PartitionMetadata.from_bytes(b"version: 0\ntopic_id: bn9RMmT4REWVDFQzf3IUaQ\n")
        PartitionMetadata(topic_id='bn9RMmT4REWVDFQzf3IUaQ')
        """
        lines = re.split("\r\n|\r|\n", data.decode("utf-8", errors="replace"))
        version = _value(lines, 1, "version")
        if not _VERSION.fullmatch(version):
            raise ValueError(f"line 1: version {version[:40]!r} found, expected 0")
        text = _value(lines, 2, "topic_id")
        topic_id = parse_topic_id(text)
        if topic_id is None or "==" in text or len(text) != len(topic_id):
            raise ValueError(
                f"line 2: topic id {text[:40]!r} found, expected 22 characters of URL-safe base64"
            )
        return cls(topic_id)


def parse_topic_id(text: str) -> str | None:
    """Return a topic id in Kafka's form, 22 characters; None for another text.

    It may be written with dashes, as Java prints a UUID. The id of zeros means no id.

    >>> parse_topic_id("6e7f5132-64f8-4445-950c-54337f721469")
    'bn9RMmT4REWVDFQzf3IUaQ'
    >>> parse_topic_id("bn9RMmT4REWVDFQzf3IUaQ")
    'bn9RMmT4REWVDFQzf3IUaQ'
    >>> parse_topic_id("AAAAAAAAAAAAAAAAAAAAAA") is None
    True
    """
    if _DASHED.fullmatch(text):
        data = uuid.UUID(text).bytes
    elif match := _BASE64.fullmatch(text):
        data = base64.urlsafe_b64decode(f"{match[1]}==")
    else:
        return None
    return None if data == _ZERO else base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")


def _value(lines: list[str], number: int, key: str) -> str:
    """Return the value of line `number`, whose key must be `key`."""
    line = lines[number - 1] if len(lines) >= number else ""
    match = _LINE.fullmatch(line)
    if match is None or match[1] != key:
        raise ValueError(f"line {number}: {line[:80]!r} found, expected '{key}: VALUE'")
    return match[2]
