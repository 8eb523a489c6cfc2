"""Which values of topic settings kip33 takes, compared with Kafka's own `LogConfig`."""

import subprocess
from pathlib import Path

import pytest

from kip33.errors import PolicyError
from kip33.formats.kafka_configs import TOPIC_KEYS
from kip33.rules.policies import Policies
from tests.integration.kafka.kafka_jars import (
    KAFKA_3_9,
    NEWEST,
    JarFolder,
    kafka_or_skip,
)

pytestmark = pytest.mark.kafka

PROGRAM = Path(__file__).with_name("TopicSettings.java")
# Nothing reads them, and which values there are differs by version.
UNCHECKED = {key for key in TOPIC_KEYS if key.startswith(("compression", "message.format"))}
UNCHECKED |= {key for key in TOPIC_KEYS if key.endswith("throttled.replicas")}
BORDERS = (-2, -1, 0, 1, 4, 14, 2**31, 2**63, -(2**31), -(2**63))
NUMBERS = sorted({border + step for border in BORDERS for step in (-1, 0)})
WORDS = ("", "0.5", "1.5", "true", "False", "yes", "delete", "compact,delete", "purge", "Delete")
CLASSES = ("CreateTime", "LogAppendTime", "createtime")
LINES = [
    f"{key}={value}"
    for key in sorted(TOPIC_KEYS - UNCHECKED)
    for value in (*NUMBERS, *WORDS, *CLASSES)
]


def answers_of(version: str) -> dict[str, str]:
    """Return what a version says to each line: taken, refused or unknown."""
    jars = JarFolder.of_version(version)
    with kafka_or_skip(f"Kafka {version}"):
        jars.build()
    done = subprocess.run(
        ["java", "-cp", jars.class_path, str(PROGRAM)],
        input="\n".join(LINES),
        capture_output=True,
        text=True,
        check=True,
    )
    return dict(line.split("\t") for line in done.stdout.splitlines())  # type: ignore[misc]


def is_taken(line: str) -> bool:
    key, _, value = line.partition("=")
    try:
        Policies({"topics": {"orders": {key: value}}})
    except PolicyError:
        return False
    return True


def test_kip33_takes_what_a_version_of_kafka_takes_and_nothing_else() -> None:
    older, newer = answers_of(KAFKA_3_9), answers_of(NEWEST)
    by_kafka = {line for line in LINES if "taken" in (older[line], newer[line])}
    known = {line for line in LINES if {older[line], newer[line]} != {"unknown"}}
    assert len(known) == len(LINES)
    assert {line for line in LINES if is_taken(line)} == by_kafka
