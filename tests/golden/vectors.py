"""The golden vectors of `recover.jsonl`, one JSON object a line; see README.md."""

import base64
import json
import os
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RECOVER = Path(__file__).parent / "recover.jsonl"


@dataclass(frozen=True)
class Vector:
    """One segment and what Kafka's recovery left of it; the indexes are None where it left none."""

    row: int
    meaning: str
    base_offset: int
    index_interval_bytes: int
    segment_index_bytes: int
    outcome: str
    exception: str | None
    valid_bytes: int | None
    time_index: bytes | None
    offset_index: bytes | None
    transaction_index: bytes | None
    log: bytes
    sparse_bytes: int | None
    existing_time_index: bytes | None
    existing_offset_index: bytes | None

    def __str__(self) -> str:
        return f"row {self.row:02d}: {self.meaning}"

    @property
    def size_bytes(self) -> int:
        return len(self.log) if self.sparse_bytes is None else self.sparse_bytes

    def lay_out(self, directory: Path) -> Path:
        """Write the segment as Kafka found it and return the path of its `.log`."""
        stem = directory / f"{self.base_offset:020d}"
        log = stem.with_suffix(".log")
        log.write_bytes(self.log)
        if self.sparse_bytes is not None:
            os.truncate(log, self.sparse_bytes)
        for suffix, content in (
            (".timeindex", self.existing_time_index),
            (".index", self.existing_offset_index),
        ):
            if content is not None:
                stem.with_suffix(suffix).write_bytes(content)
        return log


def read_vectors() -> list[Vector]:
    return [vector_of(json.loads(line)) for line in RECOVER.read_text().splitlines()]


def vector_of(fields: Mapping[str, Any]) -> Vector:

    def unhexed(name: str) -> bytes | None:
        return bytes.fromhex(fields[name]) if name in fields else None

    return Vector(
        row=fields["row"],
        meaning=fields["meaning"],
        base_offset=fields["base_offset"],
        index_interval_bytes=fields["index_interval_bytes"],
        segment_index_bytes=fields["segment_index_bytes"],
        outcome=fields["outcome"],
        exception=fields.get("exception"),
        valid_bytes=fields.get("valid_bytes"),
        time_index=unhexed("time_index"),
        offset_index=unhexed("offset_index"),
        transaction_index=unhexed("transaction_index"),
        log=zlib.decompress(base64.b64decode(fields["log"])) if "log" in fields else b"",
        sparse_bytes=fields.get("sparse_bytes"),
        existing_time_index=unhexed("existing_time_index"),
        existing_offset_index=unhexed("existing_offset_index"),
    )
