"""Committed offsets in the forms of Kafka's tools: the CSV of `--from-file`, and `--describe`.

    topic,partition,offset              header optional; as `kafka-consumer-groups.sh --export`
    group,topic,partition,offset        several groups

    GROUP  TOPIC  PARTITION  CURRENT-OFFSET  LOG-END-OFFSET  LAG  CONSUMER-ID  HOST  CLIENT-ID
    g      orders 0          4711            4800            89   -            -     -

Output of `--describe` may have other columns in between, and blanks in its last columns. Partitions
without a committed offset (`-`) are left out. Kafka: `ConsumerGroupCommand` (`CsvUtils`,
`printOffsets`), 2.x to 4.x.
"""

import csv
from collections.abc import Iterator
from typing import Final, NamedTuple

_WANTED: Final = ("TOPIC", "PARTITION", "CURRENT-OFFSET")
_MOST_PARTITION: Final = 2**31 - 1
_MOST_OFFSET: Final = 2**63 - 1
_CSV_EXPECTED: Final = "topic,partition,offset or group,topic,partition,offset"


class GroupOffset(NamedTuple):
    """The next offset that a group reads from a partition; `group` is empty if it is not named."""

    group: str
    topic: str
    partition: int
    offset: int


def parse_group_offsets(text: str) -> list[GroupOffset]:
    """Return the offsets of a CSV or of the text of `--describe`, in order.

    Raises ValueError for other text, for a text without offsets, and for two offsets of one
    partition and group. The message has the line, what was found and what was expected.
    """
    described = any(set(_WANTED) <= set(line.split()) for line in text.splitlines())
    offsets: dict[tuple[str, str, int], GroupOffset] = {}
    for number, one in _described(text) if described else _csv(text):
        key = one[:3]
        if offsets.setdefault(key, one) != one:
            raise ValueError(
                f"line {number}: {one.topic}-{one.partition} has offset {one.offset}, "
                f"but {offsets[key].offset} above; expected one offset"
            )
    if not offsets:
        raise ValueError(f"no offsets found, expected lines of {_CSV_EXPECTED}")
    return list(offsets.values())


def _described(text: str) -> Iterator[tuple[int, GroupOffset]]:
    columns: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        cells = line.split()
        if set(_WANTED) <= set(cells):
            columns = cells
        elif columns and _is_row(cells, columns):
            row = dict(zip(columns, cells, strict=False))
            if row["CURRENT-OFFSET"] != "-":
                yield number, _offset(number, row.get("GROUP", ""), *(row[one] for one in _WANTED))
        elif columns and cells and not line.startswith(("Consumer group", "Warning", "Error")):
            raise ValueError(f"line {number}: {len(cells)} cells found, expected {len(columns)}")


def _is_row(cells: list[str], columns: list[str]) -> bool:
    """Return whether a line has a cell for each column; a client's name may contain blanks."""
    if len(cells) <= len(columns) or columns[-1] != "CLIENT-ID":
        return len(cells) == len(columns)
    return cells[columns.index("PARTITION")].isdigit()


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
    numbers = []
    for what, text, most in (
        ("partition", partition, _MOST_PARTITION),
        ("offset", offset, _MOST_OFFSET),
    ):
        if not (text.isascii() and text.isdigit() and len(text) <= 19 and int(text) <= most):
            raise ValueError(f"line {line}: {what} {text!r} found, expected a number up to {most}")
        numbers.append(int(text))
    return GroupOffset(group, topic, *numbers)
