"""Policies from files: a TOML file, and the saved output of Kafka's own tools.

    [defaults]                        settings in Kafka's key names, quoted or not
    retention.ms = "7d"
    [topics."orders*"]                a topic's name, or a glob
    "cleanup.policy" = "compact,delete"

The tools' output gives a section with the exact name of each topic. The TOML file's section with
the same name overrides it key by key, and its defaults fill keys that are in neither. A glob of the
TOML file does not apply to a topic in the tools' output.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from kip33.errors import LocationError, PolicyError, proves_nothing
from kip33.formats.kafka_configs import TOPIC_KEYS, parse_kafka_configs
from kip33.options import Path
from kip33.rules.policies import DEFAULTS_SECTION, Policies
from kip33.stores.files import one_line, read_whole
from kip33.stores.locations import Location

MOST_POLICY_BYTES: Final = 2**30  # the tools' output for a million topics
TOPICS: Final = "topics"
SAVE_AGAIN: Final = "save the tool's output again, unchanged"
_SECTIONS_EXPECTED: Final = 'expected [defaults] and [topics."NAME or GLOB"]'

_Table = dict[str, Any]


def load_policies(policy: Path | None = None, kafka_configs: Path | None = None) -> Policies:
    """Return the policies of a TOML file, of the saved output of Kafka's tools, or of both.

    >>> from pathlib import Path
    >>> _ = Path("week.toml").write_text('[defaults]\\n"retention.ms" = "7d"\\n')
    >>> load_policies("week.toml").of("orders").retention_ms
    604800000

    - `policy`: the path or URI of a TOML file

    Without either there are no policies, and nothing expires. Raises
    PolicyError for an unreadable or wrong file: one line with the file, what was found, what was
    expected and what to do.
    """
    defaults: _Table = {}
    topics: dict[str, _Table] = {}
    if kafka_configs is not None:
        topics = _of_tools(kafka_configs)
    of_tools = [*topics]
    if policy is not None:
        defaults, sections = _of_toml(policy)
        for match, settings in sections.items():
            topics[match] = topics.pop(match, {}) | settings
    with _named(policy or kafka_configs or "", "fix it"):
        return Policies({DEFAULTS_SECTION: defaults, TOPICS: topics}, of_tools=of_tools)


def policies_of(
    policy: Path | None, kafka_configs: Path | None, retention_ms: int | str | None
) -> Policies | None:
    """Return those of files, else one with `retention_ms` for all topics, else None.

    PolicyError for a wrong file.
    """
    if policy or kafka_configs:
        return load_policies(policy, kafka_configs)
    if retention_ms is not None:
        return Policies({DEFAULTS_SECTION: {"retention.ms": retention_ms}})
    return None


def _of_tools(file: Path) -> dict[str, _Table]:
    """Return the sections that Kafka's tools printed, without those that TOPIC_KEYS lacks.

    These are of a newer Kafka or of a vendor, not typing errors, and retention needs none.
    """
    topics: dict[str, _Table] = {
        topic: {key: value for key, value in settings.items() if key in TOPIC_KEYS}
        for topic, settings in load_kafka_configs(file).items()
    }
    with _named(file, SAVE_AGAIN):
        Policies({TOPICS: topics})
    return topics


def load_kafka_configs(file: Path) -> dict[str, dict[str, str]]:
    """Return each topic's settings as Kafka's tools printed them into a local file or URI.

    Raises PolicyError, one line with the file, if it cannot be read or has another form.
    """
    text = _text(file)
    with _named(file, SAVE_AGAIN):
        return parse_kafka_configs(text)


def _of_toml(file: Path) -> tuple[_Table, dict[str, _Table]]:
    """Return the defaults and the sections of a TOML file, their keys dotted."""
    import tomllib

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


def _text(file: Path) -> str:
    """Return a file's text; PolicyError, with its name, if it cannot be read."""
    try:
        return read_whole(Location.of(file), most_bytes=MOST_POLICY_BYTES).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise PolicyError(
            f"{file}: byte {error.start} is not UTF-8; save the file as UTF-8"
        ) from error
    except OSError as error:
        if proves_nothing(error):
            raise
        raise PolicyError(
            f"{file}: cannot be read: {one_line(error)}; expected a file; fix it or give another"
        ) from error
    except LocationError as error:
        raise PolicyError(str(error)) from error


@contextmanager
def _named(file: Path, remedy: str) -> Iterator[None]:
    """Add the file's name before an error and the remedy after it, on one line."""
    try:
        yield
    except PolicyError as error:
        raise PolicyError(f"{file}: {' '.join(str(error).split())}; {remedy}") from error
