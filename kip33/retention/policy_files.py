"""Policies from files: a TOML file of one's own, and what a cluster's own tools printed.

    [defaults]                        settings in Kafka's key names, quoted or not
    retention.ms = "7d"
    [topics."orders*"]                a topic's name, or a glob
    "cleanup.policy" = "compact,delete"

What the tools printed is a section of exactly its name for every topic; the TOML file's section of
the same name goes over it key by key, its defaults fill what neither says. A glob of the TOML file
says nothing of a topic that the tools named.
"""

import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from kip33.errors import LocationError, PolicyError
from kip33.formats.kafka_configs import TOPIC_KEYS, parse_kafka_configs
from kip33.rules.policies import DEFAULTS_SECTION, Policies
from kip33.stores.files import one_line, read_whole
from kip33.stores.locations import Location

MOST_POLICY_BYTES: Final = 2**30  # what the tools print of a million topics
TOPICS: Final = "topics"
SAVE_AGAIN: Final = "save the tool's output again, unchanged"
_SECTIONS_EXPECTED: Final = 'expected [defaults] and [topics."NAME or GLOB"]'

_Table = dict[str, Any]


def load_policies(policy: str | None = None, kafka_configs: str | None = None) -> Policies:
    """Return the policies of a TOML file, of the saved output of Kafka's tools, or of both.

    Both are local paths or URIs. Without either nothing is said, and nothing expires. PolicyError,
    one line with the file, what was found, what was expected and what to do, for a file that cannot
    be read or taken as it is.
    """
    defaults: _Table = {}
    topics: dict[str, _Table] = {}
    if kafka_configs is not None:
        topics = _of_tools(kafka_configs)
    if policy is not None:
        defaults, sections = _of_toml(policy)
        for match, settings in sections.items():
            topics[match] = topics.pop(match, {}) | settings
    return Policies({DEFAULTS_SECTION: defaults, TOPICS: topics})


def policies_of(
    policy: str | None, kafka_configs: str | None, retention_ms: int | None
) -> Policies | None:
    """Return the policies of files, else one of `retention_ms` for all topics; None without any.

    Errors as those of `load_policies`.
    """
    if policy or kafka_configs:
        return load_policies(policy, kafka_configs)
    if retention_ms is not None:
        return Policies({DEFAULTS_SECTION: {"retention.ms": retention_ms}})
    return None


def _of_tools(file: str) -> dict[str, _Table]:
    """Return the sections that Kafka's tools printed, without settings this Kafka has not.

    They are a newer version's or a vendor's: no typing error, and none that retention reads.
    """
    topics: dict[str, _Table] = {
        topic: {key: value for key, value in settings.items() if key in TOPIC_KEYS}
        for topic, settings in load_kafka_configs(file).items()
    }
    with _named(file, SAVE_AGAIN):
        Policies({TOPICS: topics})
    return topics


def load_kafka_configs(file: str) -> dict[str, dict[str, str]]:
    """Return each topic's settings as Kafka's tools printed them into a local file or URI.

    PolicyError, one line with the file, where it cannot be read or is another text.
    """
    text = _text(file)
    with _named(file, SAVE_AGAIN):
        return parse_kafka_configs(text)


def _of_toml(file: str) -> tuple[_Table, dict[str, _Table]]:
    """Return the defaults and the sections of a TOML file, their keys dotted."""
    text = _text(file)
    with _named(file, "fix it"):
        try:
            tables = tomllib.loads(text)
        except ValueError as error:
            raise PolicyError(f"not valid TOML: {error}") from error
        for name in tables:
            if name not in (DEFAULTS_SECTION, TOPICS):
                raise PolicyError(f"{name!r} found at the top level, {_SECTIONS_EXPECTED}")
        defaults = _settings(f"[{DEFAULTS_SECTION}]", tables.get(DEFAULTS_SECTION, {}))
        sections = {
            match: _settings(f'[{TOPICS}."{match}"]', table)
            for match, table in _table(f"[{TOPICS}]", tables.get(TOPICS, {})).items()
        }
        Policies({DEFAULTS_SECTION: defaults, TOPICS: sections})
    return defaults, sections


def _settings(section: str, table: Any) -> _Table:
    """Return a section with dotted keys: TOML nests `retention.ms` unless it is quoted."""
    settings: _Table = {}
    for key, value in _leaves(_table(section, table)):
        if key in settings:
            raise PolicyError(
                f"{section} {key}: found twice, with and without quotes, expected once"
            )
        settings[key] = value
    return settings


def _leaves(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _table(section: str, value: Any) -> _Table:
    if not isinstance(value, dict):
        raise PolicyError(f"{section}: {value!r} found, {_SECTIONS_EXPECTED}")
    return value


def _text(file: str) -> str:
    """Return a file's text; PolicyError, which names it, where that cannot be had."""
    try:
        return read_whole(Location.of(file), most_bytes=MOST_POLICY_BYTES).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise PolicyError(
            f"{file}: byte {error.start} is not UTF-8; save the file as UTF-8"
        ) from error
    except OSError as error:
        raise PolicyError(
            f"{file}: cannot be read: {one_line(error)}; expected a file; fix it or give another"
        ) from error
    except LocationError as error:
        raise PolicyError(str(error)) from error


@contextmanager
def _named(file: str, remedy: str) -> Iterator[None]:
    """Put the file before what is wrong in it, and what to do behind, on one line."""
    try:
        yield
    except PolicyError as error:
        raise PolicyError(f"{file}: {' '.join(str(error).split())}; {remedy}") from error
