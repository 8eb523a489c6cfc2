"""All that a cluster answered about some topics, read from what LostAndFound.java wrote."""

import hashlib
from collections import defaultdict
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

TopicPartition = tuple[str, int]


class Found(NamedTuple):
    """A record that a consumer got; `digest` is of key, value and headers."""

    offset: int
    timestamp: int
    timestamp_type: int
    leader_epoch: int
    digest: str


@dataclass
class Answers:
    """What was asked of each partition, and the answers."""

    earliest: dict[TopicPartition, int] = field(default_factory=dict)
    latest: dict[TopicPartition, int] = field(default_factory=dict)
    latest_committed: dict[TopicPartition, int] = field(default_factory=dict)
    max_timestamp: dict[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    # Offset and timestamp by the time that was asked for; -1 where there is no such record.
    times: dict[TopicPartition, dict[int, tuple[int, int]]] = field(
        default_factory=partial(defaultdict, dict)
    )
    # Id, epoch, last sequence, last timestamp, coordinator's epoch, start of what is open or -1.
    producers: dict[TopicPartition, list[tuple[int, ...]]] = field(
        default_factory=partial(defaultdict, list)
    )
    records: dict[str, dict[TopicPartition, list[Found]]] = field(
        default_factory=partial(defaultdict, partial(defaultdict, list))
    )

    @classmethod
    def read(cls, file: Path) -> "Answers":
        """Return what one `ask` of LostAndFound.java wrote."""
        answers = cls()
        for line in file.read_text().splitlines():
            kind, topic, number, *said = line.split()
            answers._add(kind, (topic, int(number)), said)
        for states in answers.producers.values():
            states.sort()
        return answers

    def offsets(self, topic: str, partition: int) -> list[int]:
        """Return those of all records that a consumer got."""
        return [one.offset for one in self.records["read_uncommitted"][topic, partition]]

    def _add(self, kind: str, where: TopicPartition, said: list[str]) -> None:
        if kind == "record":
            level, *numbers, digest = said
            self.records[level][where].append(Found(*map(int, numbers), digest))
            return
        numbers = [int(word) for word in said]
        match kind:
            case "earliest" | "latest" | "latest_committed":
                getattr(self, kind)[where] = numbers[0]
            case "max_timestamp":
                self.max_timestamp[where] = numbers[0], numbers[1]
            case "time":
                self.times[where][numbers[0]] = numbers[1], numbers[2]
            case "producer":
                self.producers[where].append(tuple(numbers))


def within(records: list[Found], start: int, end: int) -> list[Found]:
    """Return the records of these offsets."""
    return [one for one in records if start <= one.offset < end]


def first_at(records: list[Found], timestamp: int) -> tuple[int, int]:
    """Return what ListOffsets says of a time where these are all records of a partition."""
    for one in records:
        if one.timestamp >= timestamp:
            return one.offset, one.timestamp
    return -1, -1


def digest_of(row: dict[str, Any]) -> str:
    """Return the digest that LostAndFound.java has of a record."""
    headers = b"".join(header["value"] for header in row["headers"])
    return hashlib.sha256(row["key"] + row["value"] + headers).hexdigest()[:24]
