"""Which `message.timestamp.*.max.ms` apply to a topic: of options, of policies, of Kafka."""

from typing import NamedTuple

from kip33.rules.policies import Policies
from kip33.rules.suspicious_timestamps import DEFAULT_AFTER_MAX_MS
from kip33.rules.timestamp_profile import TimestampLimits, limits_of


class LimitChoice(NamedTuple):
    """The limits that a user gives, in ms; None if not given.

    A limit for one side comes first, then `difference_max_ms` (Kafka before 4.0, KIP-32), then the
    topic's policy, then the defaults of Kafka 4: none before, an hour after.
    """

    before_max_ms: int | None = None
    after_max_ms: int | None = None
    difference_max_ms: int | None = None
    policies: Policies | None = None

    def of(self, topic: str | None) -> TimestampLimits:
        """Return the limits of a topic, None for the topic of an unknown directory."""
        policy = self.policies.of(topic) if self.policies and topic is not None else None
        return limits_of(
            _first(
                self.before_max_ms,
                self.difference_max_ms,
                policy and policy.message_timestamp_before_max_ms,
            ),
            _first(
                self.after_max_ms,
                self.difference_max_ms,
                policy and policy.message_timestamp_after_max_ms,
                DEFAULT_AFTER_MAX_MS,
            ),
        )

    def timestamp_type(self, topic: str | None) -> str | None:
        """Return `message.timestamp.type` of the topic's policy, None if it has none."""
        if self.policies is None or topic is None:
            return None
        return self.policies.of(topic).message_timestamp_type


def _first(*limits: int | None) -> int | None:
    return next((limit for limit in limits if limit is not None), None)
