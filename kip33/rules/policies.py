"""Retention policies of topics: sections of settings in Kafka's key names, and which one applies.

One section and the defaults apply to a topic. The section is the one with exactly its name, else
the most specific glob that matches: most literal characters, then fewest wildcards, then the later
in the file. Its keys override those of the defaults; other matching sections are ignored. Without a
matching section and defaults a topic has no policy, and nothing expires.

Five topics are Kafka's own. Defaults and globs do not apply to them, only a section with exactly
their name. As Kafka creates them, `__consumer_offsets` and `__transaction_state` are compacted,
`__remote_log_metadata` and `__share_group_state` are kept for ever. `__cluster_metadata` is a KRaft
log with snapshots, to which topic settings never apply.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any, Final, NamedTuple, Self

from kip33.errors import PolicyError
from kip33.formats.names import METADATA_TOPIC, partition_dir_name
from kip33.rules.policy_settings import (
    DEFAULTS_SECTION,
    SectionSettings,
    SettingValue,
    checked_settings,
)
from kip33.rules.quantities import MAX_INT64
from kip33.rules.retention import NO_LIMIT, RetentionMode

BUILT_IN: Final = "built in"
TIERED_KEY: Final = "remote.storage.enable"

# How Kafka creates its own topics (4.1: `GroupCoordinatorConfig`, `TransactionLogConfig`,
# `TopicBasedRemoteLogMetadataManagerConfig`, `ShareCoordinatorService`).
BUILT_IN_TOPICS: Final[Mapping[str, Mapping[str, SettingValue]]] = {
    METADATA_TOPIC: {},
    "__consumer_offsets": {"cleanup.policy": "compact"},
    "__transaction_state": {"cleanup.policy": "compact"},
    "__remote_log_metadata": {"cleanup.policy": "delete", "retention.ms": NO_LIMIT},
    "__share_group_state": {"cleanup.policy": "delete", "retention.ms": NO_LIMIT},
}

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
    is_judged: bool = True  # False: __cluster_metadata
    is_tiered: bool = False  # remote.storage.enable

    @property
    def mode(self) -> RetentionMode:
        """Return what retention may do: a `rules.retention.RetentionMode`."""
        if not self.is_judged:
            return RetentionMode.UNJUDGED
        if not self.match:
            return RetentionMode.NO_POLICY
        if self.is_tiered:
            return RetentionMode.TIERED
        deletes = self.cleanup_policy is None or RetentionMode.DELETE in self.cleanup_policy
        return RetentionMode.DELETE if deletes else RetentionMode.COMPACT


@dataclass(frozen=True, init=False)
class Policies:
    """The sections, checked and with plain numbers; settings that no `Policy` has are left out."""

    defaults: SectionSettings
    topics: tuple[tuple[str, SectionSettings], ...]

    def __init__(self, tables: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        """Take `{"defaults": {KEY: VALUE}, "topics": {NAME_OR_GLOB: {KEY: VALUE}}}`, or nothing.

        Keys are Kafka's, values text or integers: `retention.ms` may be 604800000, "604800000" or
        "7d". Raises PolicyError, with section, key, found and expected, for values that Kafka
        refuses. Empty defaults are the same as no defaults.
        """
        tables = tables or {}
        for name in tables:
            if name not in (DEFAULTS_SECTION, "topics"):
                raise PolicyError(f"[{name}]: unknown section, expected [defaults] and [topics]")
        defaults = checked_settings(f"[{DEFAULTS_SECTION}]", tables.get(DEFAULTS_SECTION, {}))
        topics = tuple(
            (_topic_or_glob(match), checked_settings(f'[topics."{match}"]', settings))
            for match, settings in tables.get("topics", {}).items()
        )
        object.__setattr__(self, "defaults", defaults)
        object.__setattr__(self, "topics", topics)

    def of(self, topic: str) -> Policy:
        """Return the policy that applies to `topic`."""
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

    def keeps_everything(self) -> bool:
        """Return whether no topic, whatever its name, can lose a segment by time or by size."""
        policies = [
            *(self.of(name) for name in self._by_name),
            *(self._section(glob, settings) for glob, settings in self._globs),
            self._section(DEFAULTS_SECTION, ()),
        ]
        return not any(
            policy.mode in (RetentionMode.DELETE, RetentionMode.TIERED)
            and (policy.retention_ms >= 0 or policy.retention_bytes >= 0)
            for policy in policies
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

        def without(settings: SectionSettings) -> dict[str, Any]:
            return {key: value for key, value in settings if key != TIERED_KEY}

        topics = {match: without(settings) for match, settings in self.topics}
        return type(self)({DEFAULTS_SECTION: without(self.defaults), "topics": topics})

    @cached_property
    def _by_name(self) -> dict[str, SectionSettings]:
        return {match: settings for match, settings in self.topics if not _is_glob(match)}

    @cached_property
    def _globs(self) -> list[tuple[str, SectionSettings]]:
        """Return the globs' sections, the one that wins first."""
        globs = [section for section in reversed(self.topics) if _is_glob(section[0])]
        return sorted(globs, key=lambda section: _specificity(section[0]))

    def _section(self, match: str, settings: SectionSettings) -> Policy:
        return _policy(match, {**dict(self.defaults), **dict(settings)})


def _policy(match: str, said: Mapping[str, Any], *, is_judged: bool = True) -> Policy:
    """Return the policy of one section whose keys already override the defaults."""
    cleanup = said.get("cleanup.policy")
    return Policy(
        match,
        said.get("retention.ms", NO_LIMIT),
        said.get("retention.bytes", NO_LIMIT),
        None if cleanup is None else tuple(filter(None, cleanup.split(","))),
        said.get("segment.ms"),
        said.get("segment.jitter.ms"),
        said.get("segment.bytes"),
        said.get("message.timestamp.type"),
        _timestamp_limit(said, "message.timestamp.after.max.ms"),
        _timestamp_limit(said, "message.timestamp.before.max.ms"),
        said.get("index.interval.bytes"),
        said.get("segment.index.bytes"),
        said.get("max.compaction.lag.ms"),
        is_judged,
        said.get(TIERED_KEY) == "true",
    )


def _timestamp_limit(said: Mapping[str, Any], key: str) -> int | None:
    """Return a limit in ms; Kafka 3.6 to 3.9 takes the older key for a side that has none."""
    limit: int | None = said.get(key)
    if limit in (None, MAX_INT64):
        limit = said.get("message.timestamp.difference.max.ms", limit)
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
