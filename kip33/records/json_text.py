"""Values as JSON text: one mapping for everything that Avro and JSON have."""

import base64
import json
import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any


def to_json(value: Any) -> str:
    """Return a value as JSON text.

    Bytes are base64, decimals are text, times are ISO 8601, NaN and infinities are text; a record
    of a union with several records is an object with its name.

    >>> to_json({"price": Decimal("1.50"), "raw": b"ab"})
    '{"price":"1.50","raw":"YWI="}'
    """
    return json.dumps(_plain(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _finite(text: str) -> float:
    """Return a number's value; ValueError above the largest double, which would be infinity."""
    if math.isfinite(number := float(text)):
        return number
    raise ValueError(f"{text[:40]} found, expected a number that a double can have")


def parse_json(data: bytes | str, parse_float: Callable[[str], Any] = _finite) -> Any:
    """Return a JSON text's value; ValueError for malformed JSON, NaN and bytes after it.

    Also for a number that no double can have, such as 1e400, unless `parse_float` takes it.
    """
    try:
        return json.loads(data, parse_constant=_refuse, parse_float=parse_float)
    except json.JSONDecodeError as error:
        raise ValueError(f"malformed JSON: {error}") from None


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} found, JSON has no such number")


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, dict):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, float):
        return value if math.isfinite(value) else _named(value)
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, tuple):
        name, record = value
        return {name: _plain(record)}
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _named(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"
