"""Retention policies of topics: sections of settings in Kafka's key names, and which one applies.

One section and the defaults apply to a topic. The section is the one with exactly its name, else
the most specific glob that matches: most literal characters, then fewest wildcards, then the later
in the file. Its keys override those of the defaults; other matching sections are ignored. Without a
matching section and defaults a topic has no policy, and nothing expires.

Five topics are Kafka's own. Defaults and globs do not apply to them, only a section with exactly
their name. As Kafka creates them, `__consumer_offsets` and `__transaction_state` are compacted,
`__remote_log_metadata` and `__share_group_state` are kept for ever. `__cluster_metadata` is a KRaft
log with snapshots, to which topic settings never apply.

A topic with `remote.storage.enable` has two limits of each kind: `retention.*` for what readers
find, and `local.retention.*` for a broker's disk (-2: the same). With `remote.log.copy.disable` a
broker judges its disk by `retention.*`, as if there was no tiered storage. Since Kafka 4.4 a leader
uploads a segment once it is as old as `remote.copy.lag.ms`, or as many bytes follow it as
`remote.copy.lag.bytes` (KIP-1241; 0, the default of the first: at once; -1: the local limit).

Settings are checked as Kafka checks them. They and sizes have units, or are as in Kafka. Durations
that are no setting of Kafka need a unit, unless their name ends in `ms`:

    duration   7d  36h  15m  30s  500ms     or milliseconds
    size       2TiB  10GiB  5MiB  1KiB      or bytes

Fractions, sums (`1d12h`) and `GB`, which is ambiguous, are refused.

`--topic` selects topics by a list of globs:

    orders*           topics whose names begin with orders
    !*-changelog      all topics but those that end in -changelog
    orders* !*-test   topics that match the first glob but not the second

A topic is selected if it matches a glob without `!`, or if no such glob is given, and if it matches
no glob with `!`. Kafka allows no `!` in a topic's name.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any, Final, NamedTuple, Self

from kip33.errors import CatalogError, PolicyError
from kip33.formats.kafka_configs import TOPIC_KEYS
from kip33.formats.names import METADATA_TOPIC, partition_dir_name
from kip33.formats.times import Milliseconds
from kip33.rules.retention import NO_LIMIT, RetentionMode

DEFAULTS_SECTION: Final = "defaults"
BUILT_IN: Final = "built in"
TIERED_KEY: Final = "remote.storage.enable"
_COPY_DISABLED_KEY: Final = "remote.log.copy.disable"
AS_TOPIC: Final = -2  # of local.retention.ms and local.retention.bytes: retention.ms, .bytes
AS_LOCAL: Final = -1  # of remote.copy.lag.ms and remote.copy.lag.bytes: local.retention.ms, .bytes

MAX_INT64: Final = 2**63 - 1
_SettingValue = str | int

# How Kafka creates its own topics (4.1: `GroupCoordinatorConfig`, `TransactionLogConfig`,
# `TopicBasedRemoteLogMetadataManagerConfig`, `ShareCoordinatorService`).
BUILT_IN_TOPICS: Final[Mapping[str, Mapping[str, _SettingValue]]] = {
    METADATA_TOPIC: {},
    "__consumer_offsets": {"cleanup.policy": "compact"},
    "__transaction_state": {"cleanup.policy": "compact"},
    "__remote_log_metadata": {"cleanup.policy": "delete", "retention.ms": NO_LIMIT},
    "__share_group_state": {"cleanup.policy": "delete", "retention.ms": NO_LIMIT},
}

_EXCLUDES: Final = "!"
_MOST_NAMES: Final = 5
_NEAR: Final = 0.7  # how like a name is one that may have been meant
_GLOB_TOKEN = re.compile(r"\[!?\]?[^\]]*\]|.", re.DOTALL)


class Policy(NamedTuple):
    """The policy of one topic; a limit that is not set is -1 (no limit), not Kafka's default."""

    match: str  # the section: a name, a glob, "defaults" or "built in"; "" for none
    retention_ms: int = NO_LIMIT
    retention_bytes: int = NO_LIMIT
    cleanup_policy: tuple[str, ...] | None = None  # () is a list without any: Kafka 4.2 and later
    segment_ms: int | None = None
    segment_jitter_ms: int | None = None
    segment_bytes: int | None = None
    message_timestamp_type: str | None = None
    message_timestamp_after_max_ms: int | None = None
    message_timestamp_before_max_ms: int | None = None
    index_interval_bytes: int | None = None
    segment_index_bytes: int | None = None
    max_compaction_lag_ms: int | None = None
    local_retention_ms: int = AS_TOPIC
    local_retention_bytes: int = AS_TOPIC
    remote_copy_lag_ms: int = 0
    remote_copy_lag_bytes: int = NO_LIMIT
    is_judged: bool = True  # False: __cluster_metadata
    is_tiered: bool = False  # remote.storage.enable, and segments are copied
    upload_within_ms: int | None = None  # of a broker's disk: the topic's own retention.ms

    @property
    def mode(self) -> RetentionMode:
        """Return what retention may do: a `rules.retention.RetentionMode`."""
        if not self.is_judged:
            return RetentionMode.UNJUDGED
        if not self.match:
            return RetentionMode.NO_POLICY
        if self.is_tiered:
            is_compacted = RetentionMode.COMPACT in (self.cleanup_policy or ())
            is_local = self.upload_within_ms is not None and not is_compacted
            return RetentionMode.LOCAL_TIER if is_local else RetentionMode.TIERED
        deletes = self.cleanup_policy is None or RetentionMode.DELETE in self.cleanup_policy
        return RetentionMode.DELETE if deletes else RetentionMode.COMPACT

    @property
    def topic_retention_ms(self) -> int:
        """Return retention.ms of the topic, also of a policy for a broker's disk."""
        return self.retention_ms if self.upload_within_ms is None else self.upload_within_ms

    def of_local_tier(self) -> "Policy":
        """Return what limits a broker's disk, where it is known what was uploaded.

        The limits are `local.retention.*`, and a lag of -1 is the limit; those of a topic without
        tiered storage stay.
        """
        if not self.is_tiered:
            return self
        ms, size = self.local_retention_ms, self.local_retention_bytes
        ms = self.retention_ms if ms == AS_TOPIC else ms
        size = self.retention_bytes if size == AS_TOPIC else size
        lag_ms, lag_bytes = self.remote_copy_lag_ms, self.remote_copy_lag_bytes
        return self._replace(
            retention_ms=ms,
            retention_bytes=size,
            upload_within_ms=self.retention_ms,
            remote_copy_lag_ms=ms if lag_ms == AS_LOCAL else lag_ms,
            remote_copy_lag_bytes=size if lag_bytes == AS_LOCAL else lag_bytes,
        )


_KEYS: Final = {name: name.replace("_", ".") for name in Policy._fields[1:-3]}
_TIMESTAMP_LIMITS: Final = ("message_timestamp_after_max_ms", "message_timestamp_before_max_ms")
_DIFFERENCE_KEY: Final = "message.timestamp.difference.max.ms"  # the older name of both limits
_OTHER_KEYS: Final = (_DIFFERENCE_KEY, TIERED_KEY, _COPY_DISABLED_KEY)
_READ_KEYS: Final = (*_KEYS.values(), *_OTHER_KEYS)  # what is kept of a section
_SectionSettings = tuple[tuple[str, _SettingValue], ...]  # of one section, by key


@dataclass(frozen=True, init=False)
class Policies:
    """The sections, checked and with plain numbers; settings that no `Policy` has are left out.

    >>> week = Policies({"defaults": {"retention.ms": "7d"}, "topics": {"a*": {}}})
    >>> week.of("orders").retention_ms
    604800000

    Raises PolicyError, with section, key, found and expected, for values that Kafka refuses.
    """

    defaults: _SectionSettings
    topics: tuple[tuple[str, _SectionSettings], ...]
    of_tools: frozenset[str] = field(default=frozenset(), compare=False, repr=False)

    def __init__(
        self,
        tables: Mapping[str, Mapping[str, Any]] | None = None,
        *,
        of_tools: Iterable[str] = (),
    ) -> None:
        """Take `{"defaults": {KEY: VALUE}, "topics": {NAME_OR_GLOB: {KEY: VALUE}}}`, or nothing.

        Keys are Kafka's, values text or integers: `retention.ms` may be 604800000, "604800000" or
        "7d". Raises PolicyError, with section, key, found and expected, for values that Kafka
        refuses. Empty defaults are the same as no defaults. `of_tools` are topics whose settings
        Kafka's tools printed, so they are in the cluster.
        """
        tables = tables or {}
        for name in tables:
            if name not in (DEFAULTS_SECTION, "topics"):
                raise PolicyError(f"[{name}]: unknown section, expected [defaults] and [topics]")
        defaults = _checked_settings(f"[{DEFAULTS_SECTION}]", tables.get(DEFAULTS_SECTION, {}))
        topics = tuple(
            (_topic_or_glob(match), _checked_settings(f'[topics."{match}"]', settings))
            for match, settings in tables.get("topics", {}).items()
        )
        for match, settings in (("", ()), *topics):
            section = f'[topics."{match}"]' if match else f"[{DEFAULTS_SECTION}]"
            _require_local_within(section, {**dict(defaults), **dict(settings)})
        object.__setattr__(self, "defaults", defaults)
        object.__setattr__(self, "topics", topics)
        object.__setattr__(self, "of_tools", frozenset(of_tools))

    def of(self, topic: str) -> Policy:
        """Return the policy that applies to a topic.

        - `topic`: its name
        """
        exact = self._by_name.get(topic)
        if topic in BUILT_IN_TOPICS:
            if topic == METADATA_TOPIC or exact is None:
                return _policy(BUILT_IN, BUILT_IN_TOPICS[topic], is_judged=topic != METADATA_TOPIC)
            return _policy(topic, {**BUILT_IN_TOPICS[topic], **dict(exact)})
        if exact is not None:
            return self._section(topic, exact)
        for glob, settings in self._globs:
            if fnmatchcase(topic, glob):
                return self._section(glob, settings)
        return self._section(DEFAULTS_SECTION, ()) if self.defaults else Policy("")

    def unmatched(self, topics: Collection[str]) -> list[str]:
        """The names and globs of sections that match none of the topics, in their order.

        A topic of the cluster that is not among them is no mistake: those of `of_tools`, and
        Kafka's own.
        """
        in_cluster = self.of_tools.union(BUILT_IN_TOPICS, topics)
        return [
            match
            for match, _ in self.topics
            if match not in in_cluster
            and not (_is_glob(match) and any(fnmatchcase(topic, match) for topic in topics))
        ]

    def keeps_everything(self) -> bool:
        """Return whether no topic, whatever its name, can lose a segment by time or by size."""
        policies = [
            *(self.of(name) for name in self._by_name),
            *(self._section(glob, settings) for glob, settings in self._globs),
            self._section(DEFAULTS_SECTION, ()),
        ]
        return not any(
            policy.mode in (RetentionMode.DELETE, RetentionMode.LOCAL_TIER)
            and (policy.retention_ms >= 0 or policy.retention_bytes >= 0)
            for policy in (one.of_local_tier() for one in policies)
        )

    def to_record(self) -> dict[str, Any]:
        """Return what JSON can hold; the sections are a list, since of equals the later one wins.

        `{"defaults": {KEY: VALUE}, "topics": [[NAME_OR_GLOB, {KEY: VALUE}], ...]}`
        """
        topics = [[match, dict(settings)] for match, settings in self.topics]
        return {DEFAULTS_SECTION: dict(self.defaults), "topics": topics}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Self:
        """Return the policies of which `record` is the `to_record`, checked as if a user's."""
        return cls({DEFAULTS_SECTION: record[DEFAULTS_SECTION], "topics": dict(record["topics"])})

    def of_remote_tier(self) -> Self:
        """Return the policies for tiered storage itself, where `retention.ms` is the limit."""

        def without(settings: _SectionSettings) -> dict[str, Any]:
            return {key: value for key, value in settings if key != TIERED_KEY}

        topics = {match: without(settings) for match, settings in self.topics}
        return type(self)({DEFAULTS_SECTION: without(self.defaults), "topics": topics})

    @cached_property
    def _by_name(self) -> dict[str, _SectionSettings]:
        return {match: settings for match, settings in self.topics if not _is_glob(match)}

    @cached_property
    def _globs(self) -> list[tuple[str, _SectionSettings]]:
        """Return the globs' sections, the one that wins first."""
        globs = [section for section in reversed(self.topics) if _is_glob(section[0])]
        return sorted(globs, key=lambda section: _specificity(section[0]))

    def _section(self, match: str, settings: _SectionSettings) -> Policy:
        return _policy(match, {**dict(self.defaults), **dict(settings)})


def _policy(match: str, settings: Mapping[str, Any], *, is_judged: bool = True) -> Policy:
    """Return the policy of one section whose keys already override the defaults."""
    values = {name: settings[key] for name, key in _KEYS.items() if key in settings}
    if "cleanup_policy" in values:
        values["cleanup_policy"] = tuple(filter(None, values["cleanup_policy"].split(",")))
    for name in _TIMESTAMP_LIMITS:
        values[name] = _timestamp_limit(settings, _KEYS[name])
    is_tiered = settings.get(TIERED_KEY) == "true" and settings.get(_COPY_DISABLED_KEY) != "true"
    return Policy(match, **values, is_judged=is_judged, is_tiered=is_tiered)


def _timestamp_limit(settings: Mapping[str, Any], key: str) -> int | None:
    """Return a limit in ms; Kafka 3.6 to 3.9 takes the older key for a side that has none."""
    limit: int | None = settings.get(key)
    if limit in (None, MAX_INT64):
        limit = settings.get(_DIFFERENCE_KEY, limit)
    return limit


def _topic_or_glob(match: str) -> str:
    """Return a section's name; PolicyError where no topic can ever have it."""
    if not _is_glob(match):
        try:
            partition_dir_name(match, 0)
        except ValueError as error:
            raise PolicyError(
                f'[topics."{match}"]: not the name of a topic: expected letters, '
                'digits, ".", "_", "-" and wildcards'
            ) from error
    return match


def _is_glob(match: str) -> bool:
    return any(character in match for character in "*?[")


def _specificity(glob: str) -> tuple[int, int]:
    """Return what sorts the most specific glob first; `[...]` is one wildcard, as `?` and `*`."""
    tokens = _GLOB_TOKEN.findall(glob)
    wildcards = sum(token in ("*", "?") or len(token) > 1 for token in tokens)
    return wildcards - len(tokens), wildcards


_CLEANUP_POLICIES: Final = ("delete", "compact")
_POLICY_TIMESTAMP_TYPES: Final = ("CreateTime", "LogAppendTime")

# The least that Kafka takes, where it is not 0; of segment.bytes before 4.0. Kafka has no least
# retention.bytes: any negative number is no limit. `LogConfig.CONFIG` of 3.9 and 4.4.
_LEAST: Final = {
    "flush.messages": 1,
    "internal.segment.bytes": -(2**31),
    "local.retention.bytes": -2,
    "local.retention.ms": -2,
    "max.compaction.lag.ms": 1,
    "max.decompressed.message.bytes": 1,
    "min.insync.replicas": 1,
    "remote.copy.lag.bytes": NO_LIMIT,
    "remote.copy.lag.ms": NO_LIMIT,
    "retention.bytes": -(2**63),
    "retention.ms": NO_LIMIT,
    "segment.bytes": 14,
    "segment.index.bytes": 4,
    "segment.ms": 1,
}
_INT32: Final = (2**31 - 1, "2^31 - 1")
_MOST: Final = {  # with its text; of others 2^63 - 1
    "index.interval.bytes": _INT32,
    "internal.segment.bytes": _INT32,
    "max.decompressed.message.bytes": (2**31 - 9, "2^31 - 9"),
    "max.message.bytes": _INT32,
    "min.insync.replicas": _INT32,
    "segment.bytes": _INT32,
    "segment.index.bytes": _INT32,
}
_COUNT_KEYS: Final = ("flush.messages", "min.insync.replicas")
_RATIO_KEY: Final = "min.cleanable.dirty.ratio"
_BOOLEAN_KEYS: Final = (
    *("errors.deadletterqueue.group.enable", "message.downconversion.enable", "preallocate"),
    "remote.log.copy.disable",
    *("remote.log.delete.on.disable", "remote.storage.enable", "unclean.leader.election.enable"),
)
_NEGATIVE = re.compile(r"\s*-[0-9]{1,19}\s*")


def _checked_settings(section: str, settings: Mapping[str, Any]) -> _SectionSettings:
    """Return what a `Policy` reads of a section's settings, after all of them were checked."""
    for key in settings:
        if key not in TOPIC_KEYS:
            raise PolicyError(f"{section} {key}: not a topic setting of Kafka{_hint(section, key)}")
    values = {key: _value(section, key, value) for key, value in sorted(settings.items())}
    return tuple((key, value) for key, value in values.items() if key in _READ_KEYS)


def _require_local_within(section: str, settings: Mapping[str, Any]) -> None:
    """Raise PolicyError for limits of a broker's disk that Kafka refuses beside `retention.*`.

    `LogConfig.validateRemoteStorageRetentionTime`, `...RetentionSize`, without copying
    `validateRetentionConfigsWhenRemoteCopyDisabled`, and `validateRemoteCopyLagTime`, `...LagSize`.
    """
    if settings.get(TIERED_KEY) != "true":
        return
    for key in ("retention.ms", "retention.bytes"):
        limit, local = settings.get(key, NO_LIMIT), settings.get(f"local.{key}", AS_TOPIC)
        if local in (AS_TOPIC, limit) or key not in settings:
            continue
        found = f"{section} local.{key}: {local} found"
        if settings.get(_COPY_DISABLED_KEY) == "true":
            raise PolicyError(
                f"{found}, expected -2 or {limit}, as {key}: {_COPY_DISABLED_KEY} is true"
            )
        if limit != NO_LIMIT and not 0 <= local <= limit:
            raise PolicyError(f"{found}, expected -2 or at most {limit}, as {key}")
    for unit in ("ms", "bytes"):
        lag, local = settings.get(f"remote.copy.lag.{unit}", 0), f"local.retention.{unit}"
        limit = settings.get(local, AS_TOPIC)
        if limit == AS_TOPIC:
            limit = settings.get(f"retention.{unit}", NO_LIMIT)
        if lag > limit >= 0:
            raise PolicyError(
                f"{section} remote.copy.lag.{unit}: {lag} found, expected at most {limit}, as "
                f"{local}"
            )


def _hint(section: str, key: str) -> str:
    """Return what may have been meant by an unknown key, to be put after a message."""
    for known in sorted(TOPIC_KEYS, key=len, reverse=True):
        if key == f"log.{known}":  # a broker's setting
            break
        if key.endswith(f".{known}") and section != f"[{DEFAULTS_SECTION}]":
            return f'; for {known}, quote a name with dots: [topics."orders.eu"]'
    return nearest([key.removeprefix("log.")], sorted(TOPIC_KEYS))


def _value(section: str, key: str, value: Any) -> _SettingValue:
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
        if unknown := [part for part in parts if part not in _CLEANUP_POLICIES]:
            raise PolicyError(
                f"{section} {key}: {unknown[0]!r} found, expected delete, compact or both"
            )
        return ",".join(dict.fromkeys(parts))
    if key == "message.timestamp.type" and value not in _POLICY_TIMESTAMP_TYPES:
        expected = " or ".join(_POLICY_TIMESTAMP_TYPES)
        raise PolicyError(f"{section} {key}: {value!r} found, expected {expected}")
    if not isinstance(value, str | int | float):
        raise PolicyError(f"{section} {key}: {value!r} found, expected one value")
    return str(value)


def _number(key: str, value: Any) -> int:
    """Return milliseconds or bytes; ValueError for what Kafka has no such setting of."""
    least = _LEAST.get(key, 0)
    most, limit = _MOST.get(key, (MAX_INT64, "2^63 - 1"))
    parse: Callable[[str | int], int]
    if key in _COUNT_KEYS:
        parse, form = _count, "an integer"
    elif key.endswith(".ms"):
        parse, form = setting_ms, DURATION_EXPECTED
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


class TopicGlobs(NamedTuple):
    """The globs to include and those to exclude, both without `!`."""

    included: tuple[str, ...]
    excluded: tuple[str, ...]

    @classmethod
    def of(cls, globs: Sequence[str]) -> "TopicGlobs":
        """Return the parsed globs of a user; ValueError for a `!` with nothing after it."""
        if _EXCLUDES in globs:
            raise ValueError("--topic '!': expected a glob after !, such as '!*-changelog'")
        return cls(
            tuple(glob for glob in globs if not glob.startswith(_EXCLUDES)),
            tuple(glob[1:] for glob in globs if glob.startswith(_EXCLUDES)),
        )

    def matches(self, topic: str) -> bool:
        """Return whether the topic is selected.

        >>> TopicGlobs.of(["orders*", "!*-test"]).matches("orders-test")
        False
        """
        is_included = not self.included or _matches_any(topic, self.included)
        return is_included and not _matches_any(topic, self.excluded)


def nearest(wanted: Iterable[str], known: Iterable[str], most: int = 1) -> str:
    """Return, to be put after a message, the names that may have been meant, if there are any.

    >>> nearest(["biuld"], ["build", "verify"]), nearest(["x"], ["build"])
    ('; did you mean build?', '')
    """
    names = {name.lstrip("-"): name for name in known}
    near = [
        names[name]
        for one in wanted
        for name in get_close_matches(one.lstrip("-"), names, most, cutoff=_NEAR)
    ]
    return f"; did you mean {' or '.join(dict.fromkeys(near))}?" if near else ""


def nearest_topics(wanted: Iterable[str], topics: Iterable[str | None]) -> str:
    """Return, to be put after a message, the topics that may have been meant; else the first ones.

    >>> nearest_topics(["order"], ["clicks", "orders"]), nearest_topics(["x"], ["clicks", "orders"])
    ('; did you mean orders?', '; there are clicks, orders')
    """
    known = sorted(filter(None, topics))
    if near := nearest(wanted, known, most=_MOST_NAMES):
        return near
    more = ", ..." if len(known) > _MOST_NAMES else ""
    return f"; there are {', '.join(known[:_MOST_NAMES])}{more}" if known else ""


def require_topics(globs: Sequence[str], topics: Iterable[str | None]) -> None:
    """Raise CatalogError, with the topics that may have been meant, if globs match none of them."""
    known = set(filter(None, topics))
    if globs and not any(map(TopicGlobs.of(globs).matches, known)):
        raise CatalogError(f"no topic matches {' or '.join(globs)}{nearest_topics(globs, known)}")


def _matches_any(topic: str, globs: Sequence[str]) -> bool:
    return any(fnmatchcase(topic, glob) for glob in globs)


_WITH_UNIT: Final = "7d, 36h, 15m, 30s or 500ms"
DURATION_EXPECTED: Final = "7d, 36h, 15m, 30s, 500ms or milliseconds"
SIZE_EXPECTED: Final = "2TiB, 10GiB, 5MiB, 1KiB or bytes"

_MS: Final = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1, "": 1}
_BYTES: Final = {"TiB": 2**40, "GiB": 2**30, "MiB": 2**20, "KiB": 2**10, "": 1}
_DURATIONS: Final = (  # name, smallest value, in ms
    ("years", 1_000 * 86_400_000, 365.25 * 86_400_000),
    ("d", 86_400_000, 86_400_000),
    ("h", 3_600_000, 3_600_000),
    ("min", 60_000, 60_000),
    ("s", 1_000, 1_000),
)
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_QUANTITY = re.compile(r"([0-9]+)([A-Za-z]*)", re.ASCII)
_MOST_DIGITS: Final = 30


def setting_ms(value: str | int) -> int:
    """A setting of Kafka whose name ends in `ms`: with a unit, or in ms as Kafka has it.

    ValueError with what was found and expected.

    >>> setting_ms("36h"), setting_ms("604800000")
    (129600000, 604800000)
    """
    return _quantity(value, _MS, DURATION_EXPECTED)


def duration_ms(value: str | int) -> int:
    """A duration in ms: a text with a unit, or a number that is known to be in ms.

    ValueError with what was found and expected; a text without a unit may mean seconds or days.

    >>> duration_ms("36h"), duration_ms(500)
    (129600000, 500)
    """
    if isinstance(value, str) and value.strip().isdecimal() and value.strip(" 0"):
        raise ValueError(f"{value!r} found, expected a unit: {_WITH_UNIT}")
    return _quantity(value, _MS, _WITH_UNIT)


def duration(value: str | int) -> Milliseconds:
    """A duration in ms under a name that says no unit: a number without one is refused, too.

    What this has returned is taken again.
    """
    return Milliseconds(duration_ms(str(value) if type(value) is int else value))


def positive_ms(value: str | int, parse: Callable[[str | int], int] = duration_ms) -> int:
    """Return a duration in ms; ValueError for 0."""
    found = parse(value)
    if found == 0:
        raise ValueError(f"{value!r} found, expected more than 0")
    return found


def limit_ms(value: str | int) -> int:
    """Return a limit in ms; -1: no limit. ValueError with what was found and expected."""
    if str(value).strip() == str(NO_LIMIT):
        return NO_LIMIT
    try:
        return setting_ms(value)
    except ValueError as error:
        raise ValueError(
            f"{value!r} found, expected {DURATION_EXPECTED}, from -1 to 2^63 - 1"
        ) from error


def size_bytes(value: str | int) -> int:
    """Return bytes >= 0; ValueError with what was found and expected.

    >>> size_bytes("10GiB"), size_bytes(1024)
    (10737418240, 1024)
    """
    return _quantity(value, _BYTES, SIZE_EXPECTED)


def _quantity(value: str | int, units: dict[str, int], expected: str) -> int:
    number = None
    if isinstance(value, str):
        match = _QUANTITY.fullmatch(value.strip())
        if match and match[2] in units and len(match[1]) <= _MOST_DIGITS:
            number = int(match[1]) * units[match[2]]
    elif isinstance(value, int) and not isinstance(value, bool):
        number = value
    if number is None or not 0 <= number <= MAX_INT64:
        raise ValueError(f"{value!r} found, expected {expected}, from 0 to 2^63 - 1")
    return number


def human_bytes(size: int) -> str:
    """Return a size with about three digits: `1.4 GiB`."""
    value, unit = float(size), 0
    while value >= 1024 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{size} B" if unit == 0 else f"{value:.1f} {_UNITS[unit]}"


def human_duration(duration_ms: int) -> str:
    """Return a duration in its largest unit: `7 d`, `1.5 h`; in years from 1,000 days.

    >>> human_duration(604800000), human_duration(-5400000)
    ('7 d', '-1.5 h')
    """
    for name, from_ms, unit_ms in _DURATIONS:
        if abs(duration_ms) >= from_ms:
            return f"{round(duration_ms / unit_ms, 1):,}".removesuffix(".0") + f" {name}"
    return f"{duration_ms} ms"
