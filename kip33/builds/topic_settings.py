"""Each topic's own index settings, from the saved output of Kafka's tools: `--kafka-configs`."""

from typing import Final

from kip33.errors import PolicyError
from kip33.retention.policy_files import load_kafka_configs
from kip33.rules.index_builder import IndexSettings, TopicSettings

INTERVAL: Final = "index.interval.bytes"
INDEX_SIZE: Final = "segment.index.bytes"
MOST: Final = 2**31 - 1  # both are int32 in Kafka


def load_topic_settings(default: IndexSettings, kafka_configs: str | None) -> TopicSettings:
    """Return the settings of every topic: those in the file, otherwise those of `default`.

    `kafka_configs` is a local path or URI with the saved output of `kafka-configs.sh --describe
    --entity-type topics --all` or of `kafka-topics.sh --describe`; None: every topic has the
    default. Raises PolicyError, one line, for a file that cannot be read or a value that Kafka
    refuses; ValueError for a default that Kafka refuses.
    """
    default.require_valid(drafts=True)
    if kafka_configs is None:
        return TopicSettings(default)
    by_topic = {}
    for topic, said in load_kafka_configs(kafka_configs).items():
        by_topic[topic] = default._replace(
            index_interval_bytes=_number(
                kafka_configs, topic, said, INTERVAL, default.index_interval_bytes
            ),
            segment_index_bytes=_number(
                kafka_configs, topic, said, INDEX_SIZE, default.segment_index_bytes
            ),
        )
        try:
            by_topic[topic].require_valid(drafts=True)
        except ValueError as error:
            raise PolicyError(f"{kafka_configs}: topic {topic}: {error}") from error
    return TopicSettings.of_topics(default, by_topic)


def _number(file: str, topic: str, said: dict[str, str], key: str, default: int) -> int:
    """Return a setting of a topic, `default` if it is not set."""
    text = said.get(key)
    if text is None:
        return default
    if not (text.isascii() and text.isdecimal()) or len(text) > len(str(MOST)) or int(text) > MOST:
        raise PolicyError(
            f"{file}: topic {topic}: {key}={text} found, expected a number from 0 to "
            f"{MOST}; save the tool's output again, unchanged"
        )
    return int(text)
