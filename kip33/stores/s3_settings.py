"""One bucket's settings and their values: `fs.s3a.bucket.NAME.KEY` overrides `fs.s3a.KEY`."""

import re
from collections.abc import Mapping
from typing import Final

from kip33.errors import LocationError
from kip33.stores.settings import require_expanded

_SECONDS: Final = {"ms": 1e-3, "s": 1, "m": 60, "h": 3600, "d": 86400}


class BucketSettings:
    """The settings of one bucket."""

    def __init__(self, settings: Mapping[str, str], bucket: str) -> None:
        """Take Hadoop's settings for `bucket`."""
        self.bucket = bucket
        self._settings = settings

    def get(self, key: str) -> str | None:
        """Return the value of `fs.s3a.` + `key`, None if it is not set or empty."""
        for full in (f"fs.s3a.bucket.{self.bucket}.{key}", f"fs.s3a.{key}"):
            value = self._settings.get(full, "").strip()
            if value:
                require_expanded(full, value)
                return value
        return None

    def flag(self, key: str) -> bool | None:
        """Return the value of a `true` or `false`; LocationError for anything else."""
        value = self.get(key)
        if value is None:
            return None
        if value.lower() not in ("true", "false"):
            raise self.wrong(key, "true or false")
        return value.lower() == "true"

    def seconds(self, key: str, *, unit: str = "ms") -> float | None:
        """Return a duration in seconds: `200s`, `5m`, or a bare number in `unit`, as in Hadoop."""
        value = self.get(key)
        found = re.fullmatch(r"(\d+)\s*(ms|[smhd]?)", value) if value else None
        if value and not found:
            raise self.wrong(key, "a duration such as 200s")
        return int(found[1]) * _SECONDS[found[2] or unit] if found else None

    def number(self, key: str) -> int | None:
        """Return a count; LocationError for anything else."""
        value = self.get(key)
        if value and not value.isdecimal():
            raise self.wrong(key, "a number")
        return int(value) if value else None

    def wrong(self, key: str, expected: str) -> LocationError:
        """Return the error for a wrong value, which is not shown because it may be a secret."""
        return LocationError(f"s3a://{self.bucket}: fs.s3a.{key}: expected {expected}")

    def keys(self) -> dict[str, str]:
        """Return the keys in the settings, by pyarrow's names; empty unless both are set."""
        found = {
            "access_key": self.get("access.key"),
            "secret_key": self.get("secret.key"),
            "session_token": self.get("session.token"),
        }
        if not (found["access_key"] and found["secret_key"]):
            return {}
        return {name: value for name, value in found.items() if value}
