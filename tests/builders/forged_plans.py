"""A plan made by hand, with the id that kip33 would give it."""

import hashlib
import json
from typing import Any


def plan_bytes(records: list[dict[str, Any]]) -> bytes:
    """Return the file of these records; the last one gets the id."""
    records[-1]["plan_id"] = ""
    content = "".join(json.dumps(record) + "\n" for record in records)
    records[-1]["plan_id"] = hashlib.sha256(content.encode()).hexdigest()[:32]
    return "".join(json.dumps(record) + "\n" for record in records).encode()
