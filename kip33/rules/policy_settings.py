"""The settings of one section of retention policies, checked as Kafka checks them."""

import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any, Final

from kip33.errors import PolicyError
from kip33.formats.kafka_configs import TOPIC_KEYS
from kip33.rules.quantities import (
    DURATION_EXPECTED,
    MAX_INT64,
    SIZE_EXPECTED,
    duration_ms,
    size_bytes,
)
from kip33.rules.retention import NO_LIMIT

SettingValue = str | int
SectionSettings = tuple[tuple[str, SettingValue], ...]  # of one section, by key
DEFAULTS_SECTION: Final = "defaults"
CLEANUP_POLICIES: Final = ("delete", "compact")
POLICY_TIMESTAMP_TYPES: Final = ("CreateTime", "LogAppendTime")

# What is kept of a section: what a `Policy` has, and the older name of two limits.
_READ_KEYS: Final = (
    "cleanup.policy",
    "index.interval.bytes",
    "max.compaction.lag.ms",
    "message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms",
    "message.timestamp.difference.max.ms",
    "message.timestamp.type",
    "remote.storage.enable",
    "retention.bytes",
    "retention.ms",
    "segment.bytes",
    "segment.index.bytes",
    "segment.jitter.ms",
    "segment.ms",
)

# The least that Kafka takes, where it is not 0; of segment.bytes before 4.0. Kafka has no least
# retention.bytes: any negative number is no limit. `LogConfig.CONFIG` of 3.9 and 4.3.
_LEAST: Final = {
    "flush.messages": 1,
    "internal.segment.bytes": -(2**31),
    "local.retention.bytes": -2,
    "local.retention.ms": -2,
    "max.compaction.lag.ms": 1,
    "min.insync.replicas": 1,
    "retention.bytes": -(2**63),
    "retention.ms": NO_LIMIT,
    "segment.bytes": 14,
    "segment.index.bytes": 4,
    "segment.ms": 1,
}
_INT32_KEYS: Final = (
    *("index.interval.bytes", "internal.segment.bytes", "max.message.bytes"),
    *("min.insync.replicas", "segment.bytes", "segment.index.bytes"),
)
_COUNT_KEYS: Final = ("flush.messages", "min.insync.replicas")
_RATIO_KEY: Final = "min.cleanable.dirty.ratio"
_BOOLEAN_KEYS: Final = (
    *("message.downconversion.enable", "preallocate", "remote.log.copy.disable"),
    *("remote.log.delete.on.disable", "remote.storage.enable", "unclean.leader.election.enable"),
)
_NEGATIVE = re.compile(r"\s*-[0-9]{1,19}\s*")


def checked_settings(section: str, settings: Mapping[str, Any]) -> SectionSettings:
    """Return what a `Policy` reads of a section's settings, after all of them were checked."""
    for key in settings:
        if key not in TOPIC_KEYS:
            raise PolicyError(f"{section} {key}: not a topic setting of Kafka{_hint(section, key)}")
    values = {key: _value(section, key, value) for key, value in sorted(settings.items())}
    return tuple((key, value) for key, value in values.items() if key in _READ_KEYS)


def _hint(section: str, key: str) -> str:
    """Return what may have been meant by an unknown key, to be put after a message."""
    for known in sorted(TOPIC_KEYS, key=len, reverse=True):
        if key == f"log.{known}":  # a broker's setting
            break
        if key.endswith(f".{known}") and section != f"[{DEFAULTS_SECTION}]":
            return f'; for {known}, quote a name with dots: [topics."orders.eu"]'
    near = get_close_matches(key.removeprefix("log."), sorted(TOPIC_KEYS), n=1)
    return f"; did you mean {near[0]}?" if near else ""


def _value(section: str, key: str, value: Any) -> SettingValue:
    """Return a setting's value as Kafka has it: a number for ms and bytes, else text."""
    try:
        if key.endswith((".ms", ".bytes")):
            number = _number(key, value)
            return max(number, NO_LIMIT) if key == "retention.bytes" else number
        if key in _COUNT_KEYS:
            return _number(key, value)
        _require_form(key, value)
        if key in _BOOLEAN_KEYS:
            return str(value).strip().lower()
        if key in _READ_KEYS and not isinstance(value, str):
            raise ValueError(f"{value!r} found, expected text")
    except ValueError as error:
        raise PolicyError(f"{section} {key}: {error}") from error
    if key == "cleanup.policy":
        parts = [part.strip() for part in value.split(",") if value.strip()]
        if unknown := [part for part in parts if part not in CLEANUP_POLICIES]:
            raise PolicyError(
                f"{section} {key}: {unknown[0]!r} found, expected delete, compact or both"
            )
        return ",".join(dict.fromkeys(parts))
    if key == "message.timestamp.type" and value not in POLICY_TIMESTAMP_TYPES:
        expected = " or ".join(POLICY_TIMESTAMP_TYPES)
        raise PolicyError(f"{section} {key}: {value!r} found, expected {expected}")
    if not isinstance(value, str | int | float):
        raise PolicyError(f"{section} {key}: {value!r} found, expected one value")
    return str(value)


def _number(key: str, value: Any) -> int:
    """Return milliseconds or bytes; ValueError for what Kafka has no such setting of."""
    least = _LEAST.get(key, 0)
    most, limit = (2**31 - 1, "2^31 - 1") if key in _INT32_KEYS else (MAX_INT64, "2^63 - 1")
    parse: Callable[[str | int], int]
    if key in _COUNT_KEYS:
        parse, form = _count, "an integer"
    elif key.endswith(".ms"):
        parse, form = duration_ms, DURATION_EXPECTED
    else:
        parse, form = size_bytes, SIZE_EXPECTED
    lowest = "any negative number" if least == -(2**63) else str(least)
    expected = f"{value!r} found, expected {form}, from {lowest} to {limit}"
    if isinstance(value, str) and _NEGATIVE.fullmatch(value):
        value = int(value)
    try:
        number = value if type(value) is int and value < 0 else parse(value)
    except ValueError as error:
        raise ValueError(expected) from error
    if not least <= number <= most:
        raise ValueError(expected)
    return number


def _count(value: str | int) -> int:
    if isinstance(value, bool):
        raise ValueError
    return int(value)


def _require_form(key: str, value: Any) -> None:
    """Raise ValueError for no boolean and no ratio where Kafka wants one; nothing reads them."""
    text = str(value).strip()
    if key in _BOOLEAN_KEYS and text.lower() not in ("true", "false"):
        raise ValueError(f"{value!r} found, expected true or false")
    if key == _RATIO_KEY:
        try:
            is_ratio = 0 <= float(text) <= 1
        except ValueError:
            is_ratio = False
        if not is_ratio:
            raise ValueError(f"{value!r} found, expected a number from 0 to 1")
