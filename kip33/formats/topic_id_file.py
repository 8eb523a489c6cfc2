"""Topic ids in a user's file: a JSON object, or the saved output of `kafka-topics.sh --describe`.

    {"orders": "bn9RMmT4REWVDFQzf3IUaQ"}

    Topic: orders   TopicId: bn9RMmT4REWVDFQzf3IUaQ PartitionCount: 1  ReplicationFactor: 1  ...
        Topic: orders   Partition: 0    Leader: 1  Replicas: 1  Isr: 1

Kafka: `TopicCommand.TopicDescription.printDescription` (2.8 to 4.x).
"""

import json
import re
from typing import Final

from kip33.formats.names import is_topic
from kip33.formats.partition_metadata import parse_topic_id

_DESCRIBED: Final = re.compile(r"\s*Topic:\s*(\S+)\s+TopicId:\s*(\S+)")
TOPIC_IDS_EXPECTED: Final = (
    'a JSON object such as {"orders": "ID"}, or the output of kafka-topics.sh --describe'
)


def parse_topic_ids(text: str) -> dict[str, str]:
    """Return {topic: id}, ids as 22 characters; ValueError, one line, for other text.

    >>> parse_topic_ids('{"orders": "6e7f5132-64f8-4445-950c-54337f721469"}')
    {'orders': 'bn9RMmT4REWVDFQzf3IUaQ'}
    """
    if text.lstrip().startswith("{"):
        record = json.loads(text)
        pairs = [(topic, str(topic_id)) for topic, topic_id in record.items()]
    else:
        described = map(_DESCRIBED.match, text.splitlines())
        pairs = [(match[1], match[2]) for match in described if match]
    if not pairs:
        raise ValueError(f"no topic ids found, expected {TOPIC_IDS_EXPECTED}")
    found: dict[str, str] = {}
    for topic, written in pairs:
        topic_id = parse_topic_id(written)
        if not is_topic(topic):
            raise ValueError(f"topic {topic[:80]!r} found, expected a name that Kafka allows")
        if topic_id is None:
            raise ValueError(
                f"topic {topic}: id {written[:80]!r} found, expected 22 characters of base64"
            )
        if found.setdefault(topic, topic_id) != topic_id:
            both = f"{found[topic]} and {topic_id}"
            raise ValueError(f"topic {topic}: ids {both} found, expected one")
    return found
