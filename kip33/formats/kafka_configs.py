r"""Texts of Kafka's tools and brokers: topic settings, committed offsets, property files.

Topic settings, in the saved output of two tools:

    kafka-configs.sh --describe --entity-type topics --all     every effective setting
        All configs for topic orders are:
          cleanup.policy=compact,delete sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:...}
    without --all: only what was set for the topic itself
        Dynamic configs for topic orders are:
          retention.ms=-1 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=-1, ...}
    with --zookeeper, before Kafka 3.0: the same on one line
        Configs for topic 'orders' are retention.ms=-1,cleanup.policy=compact,delete
    kafka-topics.sh --describe                                 what differs from Kafka's defaults
        Topic: orders   TopicId: ...    PartitionCount: 1  ReplicationFactor: 1  Configs: k=v,k=v
            Topic: orders   Partition: 0    Leader: 1  Replicas: 1  Isr: 1

A key that is not listed is unknown: only `--all` lists every key. kafka-topics.sh shows a broker's
log.segment.bytes as a topic setting, but not its log.retention.hours. One text may mix the forms.
Values are kept as printed: they may contain `=`, `,` and spaces, or be empty.
Kafka: `ConfigCommand.describeResourceConfig`, `TopicCommand.TopicDescription.printDescription`.

Committed offsets, as the CSV of `kafka-consumer-groups.sh --export` or the output of `--describe`:

    topic,partition,offset              header optional
    group,topic,partition,offset        several groups

    GROUP  TOPIC  PARTITION  CURRENT-OFFSET  LOG-END-OFFSET  LAG  CONSUMER-ID  HOST  CLIENT-ID
    g      orders 0          4711            4800            89   -            -     -

    GROUP  TOPIC  PARTITION  LEADER-EPOCH  START-OFFSET  LAG           kafka-share-groups.sh
    g      orders 0          3             4711          89

Output of `--describe` may have other columns in between, and blanks in the names of groups and of
clients: cells begin below their titles. A share group's next offset is its START-OFFSET. Partitions
without a committed offset (`-`) are told apart. Kafka: `ConsumerGroupCommand` (`CsvUtils`,
`printOffsets`), 2.x to 4.x; `ShareGroupCommand`, 4.0 to 4.4.

Property files, as `java.util.Properties.load` reads them:

    # a comment; `!` also begins one
    key value     key=value     key: value     key = value
    long.key = the first part, \
               and the rest: a backslash at the end continues a line, leading blanks are dropped
    escaped\ key = A\n, any other character after a backslash stands for itself
"""

import csv
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from kip33.errors import PolicyError

# org.apache.kafka.common.config.TopicConfig of 4.4, the throttles of LogConfig, and three keys of
# older versions at the end.
TOPIC_KEYS: Final = frozenset(
    {
        "cleanup.policy",
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.type",
        "compression.zstd.level",
        "delete.retention.ms",
        "errors.deadletterqueue.group.enable",
        "file.delete.delay.ms",
        "flush.messages",
        "flush.ms",
        "follower.replication.throttled.replicas",
        "index.interval.bytes",
        "internal.segment.bytes",
        "leader.replication.throttled.replicas",
        "local.retention.bytes",
        "local.retention.ms",
        "max.compaction.lag.ms",
        "max.decompressed.message.bytes",
        "max.message.bytes",
        "message.timestamp.after.max.ms",
        "message.timestamp.before.max.ms",
        "message.timestamp.type",
        "min.cleanable.dirty.ratio",
        "min.compaction.lag.ms",
        "min.insync.replicas",
        "preallocate",
        "remote.copy.lag.bytes",
        "remote.copy.lag.ms",
        "remote.log.copy.disable",
        "remote.log.delete.on.disable",
        "remote.storage.enable",
        "retention.bytes",
        "retention.ms",
        "segment.bytes",
        "segment.index.bytes",
        "segment.jitter.ms",
        "segment.ms",
        "unclean.leader.election.enable",
        "message.downconversion.enable",
        "message.format.version",
        "message.timestamp.difference.max.ms",
    }
)

EXPECTED_OUTPUT: Final = (
    "the output of kafka-configs.sh --describe --entity-type topics --all "
    "or of kafka-topics.sh --describe"
)
_LONGEST_QUOTE: Final = 80

_BLOCK = re.compile(r"(?:All|Dynamic) configs for topic (\S+) are:\s*")
_SETTING = re.compile(r"\s+([^=\s]+)=(.*?) sensitive=(?:true|false) synonyms=\{.*\}\s*")
_ZOOKEEPER = re.compile(r"Configs for topic '?([^'\s]+)'? are\s*(.*)")
_TOPIC = re.compile(
    r"\s*Topic:\s*(\S+)\s+(?:TopicId:\s*\S+\s+)?PartitionCount:\s*\d+"
    r"\s+ReplicationFactor:\s*\d+\s+Configs:\s*(.*?)(?:\s*MarkedForDeletion:\s*\w+)?\s*"
)
_PARTITION = re.compile(r"\s*Topic:\s*\S+\s+Partition:\s*\d+\s+Leader:.*")
# Warnings of a logger or JVM in the saved text. Errors are not ignored: topics may be missing then.
_NOISE = re.compile(
    r"\s*|\[\d{4}-[^\]]*\] (?:DEBUG|INFO|WARN) .*|(?:SLF4J|log4j):.*|Picked up .*"
    r"|(?i:.*\bwarning: .*)"
)
_DOTTED_KEY = re.compile(r"[a-z][a-z0-9]*(?:[.-][a-z0-9]+)+")


def parse_kafka_configs(text: str) -> dict[str, dict[str, str]]:
    """Return each topic's settings as printed, empty for a topic without settings.

    Every line must have one of the forms above. Raises PolicyError, with the line's number, for
    another line, for a setting with two different values, and for a text without topics.

    >>> parse_kafka_configs("Topic: t\\tPartitionCount: 1\\tReplicationFactor: 1\\t"
    ...                     "Configs: cleanup.policy=compact,delete,retention.ms=-1")
    {'t': {'cleanup.policy': 'compact,delete', 'retention.ms': '-1'}}
    """
    topics: dict[str, dict[str, str]] = {}
    block: str | None = None
    for number, line in enumerate(text.split("\n"), 1):
        line = line.removesuffix("\r")
        settings: Iterator[tuple[str, str]] = iter(())
        if found := _BLOCK.fullmatch(line):
            topic = block = found[1]
        elif block and (found := _SETTING.fullmatch(line)):
            topic, settings = block, iter([(found[1], found[2])])
        elif found := _TOPIC.fullmatch(line) or _ZOOKEEPER.fullmatch(line):
            topic, block = found[1], None
            settings = _pieces(found[2], number)
        elif _PARTITION.fullmatch(line) or _NOISE.fullmatch(line):
            continue
        else:
            raise PolicyError(f"line {number}: {_quoted(line)} found, expected {EXPECTED_OUTPUT}")
        known = topics.setdefault(topic, {})
        for key, value in settings:
            if known.setdefault(key, value) != value:
                raise PolicyError(
                    f"line {number}: topic {topic}: {key}={value} found, expected "
                    f"{known[key]!r} as above: give the output of one run on one cluster"
                )
    if not topics:
        raise PolicyError(f"line 1: no topic found, expected {EXPECTED_OUTPUT}")
    return topics


def _pieces(text: str, number: int) -> Iterator[tuple[str, str]]:
    """Yield the settings of `k=v,k=v`; a piece without a key continues the value before it.

    A key is one of Kafka's or any dotted name: keys of a newer Kafka or of a vendor must not become
    part of the value before them.
    """
    if not text:
        return
    key, value = "", ""
    for piece in text.split(","):
        name, sign, rest = piece.partition("=")
        if sign and (name in TOPIC_KEYS or _DOTTED_KEY.fullmatch(name)):
            if key:
                yield key, value
            key, value = name, rest
        elif key:
            value += "," + piece
        else:
            raise PolicyError(f"line {number}: {_quoted(piece)} found, expected KEY=VALUE")
    yield key, value


def _quoted(line: str) -> str:
    if len(line) > _LONGEST_QUOTE:
        line = line[:_LONGEST_QUOTE] + "..."
    return repr(line)


_DELETE_RECORDS_VERSION: Final = 1


def delete_records_object(offsets: Iterable[tuple[str, int, int]]) -> dict[str, Any]:
    """Return the JSON object of `kafka-delete-records.sh --offset-json-file`, in the given order.

    It deletes the records of a partition before an offset. Source: `DeleteRecordsCommand`,
    version 1.

    >>> delete_records_object([("orders", 0, 42)])
    {'partitions': [{'topic': 'orders', 'partition': 0, 'offset': 42}], 'version': 1}
    """
    partitions = [
        {"topic": topic, "partition": partition, "offset": offset}
        for topic, partition, offset in offsets
    ]
    return {"partitions": partitions, "version": _DELETE_RECORDS_VERSION}


_OFFSET_COLUMNS: Final = ("CURRENT-OFFSET", "START-OFFSET")
_NUMBERS: Final = frozenset(
    {*_OFFSET_COLUMNS, "PARTITION", "LEADER-EPOCH", "LOG-END-OFFSET", "LAG"}
)
_NO_ROWS: Final = ("Consumer group", "Share group", "Streams group", "Warning", "Error")
_NUMBER_OR_NONE: Final = re.compile(r"[0-9]{1,19}|-", re.ASCII)
_MOST: Final = {"partition": 2**31 - 1, "offset": 2**63 - 1}
_CSV_EXPECTED: Final = "topic,partition,offset or group,topic,partition,offset"


class GroupOffset(NamedTuple):
    """The next offset that a group reads from a partition; `group` is empty if it is not named.

    >>> GroupOffset("billing", "orders", 0, 8000).offset
    8000
    """

    group: str
    topic: str
    partition: int
    offset: int


class GroupOffsets(NamedTuple):
    """What a file of committed offsets has, each in order."""

    committed: list[GroupOffset]
    without: list[tuple[str, str, int]]  # group, topic ("": no partition) and partition


def parse_group_offsets(text: str) -> GroupOffsets:
    """The offsets of a CSV or of the text of `--describe`.

    Raises ValueError for other text, for a text without offsets, and for two offsets of one
    partition and group. The message has the line, what was found and what was expected.
    """
    described = any(_columns_of(line.split()) for line in text.splitlines())
    offsets: dict[tuple[str, str, int], GroupOffset] = {}
    without: list[tuple[str, str, int]] = []
    for number, row in _described(text, without) if described else _csv(text):
        key = row[:3]
        if offsets.setdefault(key, row) != row:
            raise ValueError(
                f"line {number}: {row.topic}-{row.partition} has offset {row.offset}, "
                f"but {offsets[key].offset} above; expected one offset"
            )
    if not offsets:
        raise ValueError(f"no offsets found, expected lines of {_CSV_EXPECTED}")
    return GroupOffsets(list(offsets.values()), without)


def _columns_of(cells: list[str]) -> tuple[str, ...]:
    """Return the columns to read if these are the titles of a table, the offset's last."""
    named = next((name for name in _OFFSET_COLUMNS if name in cells), "")
    wanted = ("TOPIC", "PARTITION", named)
    return wanted if named and set(wanted) <= set(cells) else ()


def _described(text: str, without: list[tuple[str, str, int]]) -> Iterator[tuple[int, GroupOffset]]:
    """Yield lines with an offset; append the partitions that have none to `without`."""
    header = ""
    for number, line in enumerate(text.splitlines(), 1):
        cells = line.split()
        if _columns_of(cells):
            header = line
            continue
        row = _row(line, header) if header else None
        columns = _columns_of(header.split())
        if row:
            group, topic, partition, offset = (row.get(name, "") for name in ("GROUP", *columns))
            if offset != "-":
                yield number, _offset(number, group, topic, partition, offset)
            elif partition == "-":  # a member that reads nothing
                without.append((group, "", 0))
            else:
                without.append((group, topic, number_in_line(number, "partition", partition)))
        elif header and not row and cells and not line.startswith(_NO_ROWS):
            titles = len(header.split())
            raise ValueError(f"line {number}: {len(cells)} cells found, expected {titles}")


def _row(line: str, header: str) -> dict[str, str] | None:
    """Return the cells of a line below its header by their titles, None for another line.

    The names of groups and clients may contain blanks. Where cells do not begin below their titles,
    the text was changed after the tool printed it. Then a line counts that can be read in one way.
    """
    titles, cells = header.split(), line.split()
    below = _below_titles(line, header)
    if below and _is_right(below):
        return below
    may_have_blanks = titles[-1] == "CLIENT-ID"
    more = len(cells) - len(titles)
    readings = []
    for extra in range(more + 1):  # words of the group's name, after the first
        if titles[0] == "GROUP":
            row = dict(
                zip(titles, [" ".join(cells[: extra + 1]), *cells[extra + 1 :]], strict=False)
            )
        else:
            row = dict(zip(titles, cells, strict=False))
        if (extra == more or may_have_blanks) and _is_right(row):
            readings.append(row)
    if len(readings) == 1:
        return readings[0]
    return dict(zip(titles, cells, strict=True)) if more == 0 else None


def _below_titles(line: str, header: str) -> dict[str, str] | None:
    """Return the cells that begin below their titles; None if one does not, or is missing."""
    starts, line = [*re.finditer(r"\S+", header)], line.ljust(len(header))
    ends = [*(title.start() for title in starts[1:]), max(len(line), len(header))]
    row = {one[0]: line[one.start() : end] for one, end in zip(starts, ends, strict=True)}
    *cells, last = row.values()
    is_aligned = all(cell[:1].strip() and cell[-1:].isspace() for cell in cells)
    if not is_aligned or not (last[:1].strip() or "CLIENT-ID" in row):
        return None
    return {title: cell.strip() for title, cell in row.items()}


def _is_right(row: dict[str, str]) -> bool:
    """Return whether the cells may be what their titles say."""
    numbers = [cell for title, cell in row.items() if title in _NUMBERS]
    return " " not in row["TOPIC"] and all(map(_NUMBER_OR_NONE.fullmatch, numbers))


def _csv(text: str) -> Iterator[tuple[int, GroupOffset]]:
    first: int | None = None
    for number, line in enumerate(text.splitlines(), 1):
        try:
            cells = [cell.strip() for row in csv.reader([line]) for cell in row]
        except csv.Error as error:
            raise ValueError(f"line {number}: {error}, expected {_CSV_EXPECTED}") from error
        if not any(cells):
            continue
        if first not in (None, len(cells)):
            raise ValueError(f"line {number}: {len(cells)} columns found, but {first} above")
        first = len(cells)
        if number == 1 and cells[-3:] == ["topic", "partition", "offset"]:
            continue
        if len(cells) not in (3, 4):
            raise ValueError(f"line {number}: {len(cells)} columns found, expected {_CSV_EXPECTED}")
        group = cells[0] if len(cells) == 4 else ""
        yield number, _offset(number, group, *cells[-3:])


def _offset(line: int, group: str, topic: str, partition: str, offset: str) -> GroupOffset:
    if not topic:
        raise ValueError(f"line {line}: the topic is empty, expected {_CSV_EXPECTED}")
    numbers = number_in_line(line, "partition", partition), number_in_line(line, "offset", offset)
    return GroupOffset(group, topic, *numbers)


def number_in_line(line: int, name: str, text: str) -> int:
    """The partition or offset in a cell of a file; ValueError, with the line, for another text."""
    most = _MOST[name]
    if not (text.isascii() and text.isdigit() and len(text) <= 19 and int(text) <= most):
        raise ValueError(f"line {line}: {name} {text[:40]!r} found, expected a number up to {most}")
    return int(text)


_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPE: Final = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|(.))", re.DOTALL)
_BAD_ESCAPE: Final = re.compile(r"(?<!\\)(?:\\\\)*\\u(?![0-9A-Fa-f]{4})")
_PAIR: Final = re.compile(r"((?:\\.|[^\\=:\s])*)\s*[=:]?\s*(.*)", re.DOTALL)
_BLANKS: Final = " \t\f"


def parse_properties(text: str) -> dict[str, str]:
    r"""Return the pairs; the last one wins if a key is repeated. ValueError, with the line, for
    `\u` without four hexadecimal digits.

    >>> parse_properties("a = 1\nb:2\nc 3, \\\n   4\n# d=5")
    {'a': '1', 'b': '2', 'c': '3, 4'}
    """
    pairs = {}
    for number, line in _logical_lines(text):
        if _BAD_ESCAPE.search(line):
            raise ValueError(f"line {number}: \\u without four hexadecimal digits")
        found = _PAIR.fullmatch(line)
        if found:
            pairs[_unescaped(found[1])] = _unescaped(found[2])
    return pairs


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield (number, line) for lines with a pair; lines that a backslash continues are joined."""
    joined, begun = "", 0
    for number, line in enumerate(re.split(r"\r\n|\r|\n", text), 1):
        line = line.lstrip(_BLANKS)
        if not joined and (not line or line[0] in "#!"):
            continue
        begun = begun or number
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            joined += line[:-1]
            continue
        yield begun, joined + line
        joined, begun = "", 0
    if joined:
        yield begun, joined


def _unescaped(text: str) -> str:
    def character(found: re.Match[str]) -> str:
        if found[1]:
            return chr(int(found[1], 16))
        return _ESCAPES.get(found[2], found[2])

    return _ESCAPE.sub(character, text)
