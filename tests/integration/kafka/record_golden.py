"""Ask Kafka again about each segment of `tests/golden/recover.jsonl`, and record its answers there.

    python -m tests.integration.kafka.record_golden

A new case is a new line with the fields `row`, `meaning`, `base_offset`, `index_interval_bytes`,
`segment_index_bytes` and `log`. The same segments give the same file, byte for byte.
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.golden.vectors import RECOVER, Vector, vector_of
from tests.integration.kafka.kafka_jars import KAFKA_VERSION
from tests.integration.kafka.oracle import Oracle, Recovered

ASKED = ("row", "meaning", "base_offset", "index_interval_bytes", "segment_index_bytes")
BESIDE = ("existing_time_index", "existing_offset_index", "sparse_bytes", "log")


def recovered_by(kafka: Oracle, vector: Vector, directory: Path) -> Recovered:
    """Return what Kafka leaves of a segment."""
    return kafka.recover(
        vector.log,
        directory,
        base_offset=vector.base_offset,
        index_interval_bytes=vector.index_interval_bytes,
        segment_index_bytes=vector.segment_index_bytes,
        existing_time_index=vector.existing_time_index,
        existing_offset_index=vector.existing_offset_index,
        sparse_bytes=vector.sparse_bytes,
    )


def answered(kafka: Oracle, fields: dict[str, Any], directory: Path) -> dict[str, Any]:
    """Return a line of the golden file with what Kafka does with its segment."""
    recovered = recovered_by(kafka, vector_of(fields | {"outcome": ""}), directory)
    line: dict[str, Any] = {name: fields[name] for name in ASKED}
    line["outcome"] = recovered.outcome
    if recovered.time_index is not None and recovered.offset_index is not None:
        line["valid_bytes"] = recovered.valid_bytes
        line["time_index"] = recovered.time_index.hex()
        line["offset_index"] = recovered.offset_index.hex()
        if recovered.transaction_index is not None:
            line["transaction_index"] = recovered.transaction_index.hex()
    else:
        line["exception"] = recovered.exception
    return line | {name: fields[name] for name in BESIDE if name in fields}


def main() -> None:
    asked = [json.loads(line) for line in RECOVER.read_text().splitlines()]
    with Oracle() as kafka, tempfile.TemporaryDirectory() as scratch:
        lines = [json.dumps(answered(kafka, one, Path(scratch))) for one in asked]
    RECOVER.write_text("\n".join(lines) + "\n")
    print(f"{len(lines)} vectors of Kafka {KAFKA_VERSION}", file=sys.stderr)


if __name__ == "__main__":
    main()
