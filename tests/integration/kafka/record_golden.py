"""Record Kafka's answers to `golden_cases.py` into `tests/golden/recover.jsonl`.

    python -m tests.integration.kafka.record_golden

The same cases give the same file, byte for byte.
"""

import base64
import json
import sys
import tempfile
import zlib
from pathlib import Path
from typing import Any

from tests.integration.kafka.golden_cases import Case, golden_cases
from tests.integration.kafka.kafka_jars import KAFKA_VERSION, LEGACY_CLIENT_VERSION
from tests.integration.kafka.oracle import Oracle

VECTORS = Path(__file__).parents[2] / "golden" / "recover.jsonl"


def vector(kafka: Oracle, case: Case, directory: Path) -> dict[str, Any]:
    """Return what Kafka did with `case`, as one line of the golden file."""
    recovered = kafka.recover(
        case.log,
        directory,
        base_offset=case.base_offset,
        index_interval_bytes=case.index_interval_bytes,
        segment_index_bytes=case.segment_index_bytes,
        existing_time_index=case.existing_time_index,
        existing_offset_index=case.existing_offset_index,
        sparse_bytes=case.sparse_bytes,
    )
    line: dict[str, Any] = {
        "row": case.row,
        "meaning": case.meaning,
        "base_offset": case.base_offset,
        "index_interval_bytes": case.index_interval_bytes,
        "segment_index_bytes": case.segment_index_bytes,
        "outcome": recovered.outcome,
    }
    if recovered.time_index is not None and recovered.offset_index is not None:
        line["valid_bytes"] = recovered.valid_bytes
        line["time_index"] = recovered.time_index.hex()
        line["offset_index"] = recovered.offset_index.hex()
        if recovered.transaction_index is not None:
            line["transaction_index"] = recovered.transaction_index.hex()
    else:
        line["exception"] = recovered.exception
    if case.existing_time_index is not None:
        line["existing_time_index"] = case.existing_time_index.hex()
    if case.existing_offset_index is not None:
        line["existing_offset_index"] = case.existing_offset_index.hex()
    if case.sparse_bytes is not None:
        line["sparse_bytes"] = case.sparse_bytes
    else:
        line["log"] = base64.b64encode(zlib.compress(case.log, 9)).decode()
    return line


def main() -> None:
    with Oracle() as kafka, tempfile.TemporaryDirectory() as scratch:
        cases = sorted(golden_cases(kafka), key=lambda case: case.row)
        lines = [json.dumps(vector(kafka, case, Path(scratch))) for case in cases]
    VECTORS.write_text("\n".join(lines) + "\n")
    print(
        f"{len(lines)} vectors of Kafka {KAFKA_VERSION} (v0, v1: client {LEGACY_CLIENT_VERSION}),"
        f" {VECTORS.stat().st_size} bytes",
        file=sys.stderr,
    )


if __name__ == "__main__":
    main()
