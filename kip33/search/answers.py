"""The answers of a search while it goes from segment to segment, and the files of its requests.

The files are committed offsets of groups, and requests for times (CSV or Parquet).
"""

import csv
import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from kip33.errors import LocationError, counted, proves_nothing
from kip33.formats.batch import NO_TIMESTAMP
from kip33.formats.kafka_configs import GroupOffset, number_in_line, parse_group_offsets
from kip33.formats.records import DEFAULT_MAX_BATCH_BYTES, MAX_RECORD_BYTES
from kip33.options import Path
from kip33.rules.policies import TopicGlobs
from kip33.rules.search import LIMITS_RECORDS, NEWEST_KAFKA, Exactness, SearchResult
from kip33.stores.files import one_line, read_whole
from kip33.stores.locations import Location

_MOST_REQUEST_BYTES: Final = 1 << 30
_MOST_NAMED: Final = 10
_REQUIRED_COLUMNS: Final = ("topic", "partition", "time")
EXPECTED_COLUMNS: Final = "the columns topic,partition,time[,log_dir]"


class Answer(NamedTuple):
    """The answer for one target.

    `offset` and `timestamp` are null unless a record was found. With exactness `batch` or `index`
    no such record is before the offset, and there is no timestamp. `bytes_read` counts the bytes
    read for this target in addition to those for smaller targets. `note` is for the user.
    `passed_over`: unreadable records could change the answer, and the exactness is `unsure`.
    """

    target_ms: int
    offset: int | None
    timestamp: int | None
    result: SearchResult
    exactness: Exactness
    bytes_read: int
    note: str | None
    passed_over: bool = False


class SearchOptions(NamedTuple):
    """The options for all requests."""

    as_kafka: bool = False  # with Kafka's traps
    index_only: bool = False  # no log is opened
    all_replicas: bool = False  # each alone; else their one log
    max_batch_bytes: int = DEFAULT_MAX_BATCH_BYTES  # larger decompressed batches are not read
    kafka_version: tuple[int, int] = NEWEST_KAFKA  # whose traps
    max_decompressed_message_bytes: int | None = None  # of the topics; a broker's since 4.4

    @property
    def max_record_bytes(self) -> int:
        """Return the size of the largest record that is read out of a compressed batch."""
        largest = self.max_decompressed_message_bytes if self.as_kafka else None
        return MAX_RECORD_BYTES if largest is None else largest

    def require_valid(self) -> None:
        """Raise ValueError for a limit that the asked broker does not have."""
        has_limit = self.as_kafka and self.kafka_version >= LIMITS_RECORDS
        if self.max_decompressed_message_bytes is not None and not has_limit:
            raise ValueError(
                "max.decompressed.message.bytes: only brokers from Kafka 4.4 on have this limit; "
                "ask for the answer of one (--as kafka, as_kafka in Python)"
            )


@dataclass
class Pending:
    """A target that is searched in segment after segment."""

    target_ms: int  # as given
    time_ms: int  # the time to search for
    choice: int | None = None  # the only segment that a broker searches
    then: int | None = None  # with tiered storage: the one that it searches after that
    answer: Answer | None = None
    bytes_read: int = 0
    notes: list[str] = field(default_factory=list)
    passed_over: bool = False

    def pass_over(self, note: str) -> None:
        """Record that something unreadable could change the answer."""
        self.notes.append(note)
        self.passed_over = True

    def settle(
        self,
        result: SearchResult = SearchResult.FOUND,
        offset: int | None = None,
        timestamp: int | None = None,
        exactness: Exactness = Exactness.RECORD,
    ) -> None:
        """Set the answer, without bytes read and notes."""
        self.answer = Answer(self.target_ms, offset, timestamp, result, exactness, 0, None)

    def settled(self, otherwise: SearchResult, exactness: Exactness) -> Answer:
        """Return the answer with bytes read and notes; `otherwise`: the result without a record."""
        answer = self.answer or Answer(self.target_ms, None, None, otherwise, exactness, 0, None)
        note = joined_notes(*self.notes)
        answer = answer._replace(bytes_read=self.bytes_read, note=note)
        if self.passed_over:
            return answer._replace(exactness=Exactness.UNSURE, passed_over=True)
        return answer


def joined_notes(*notes: str | None) -> str | None:
    """Return the notes as one text, each of them once; None without notes."""
    return "; ".join(dict.fromkeys(filter(None, notes))) or None


class Hit(NamedTuple):
    """A record, or, without a timestamp, the batch that should have it but cannot be decoded."""

    offset: int
    timestamp: int | None
    exactness: Exactness = Exactness.RECORD
    note: str | None = None
    is_first_of_batch: bool = False
    position: int = 0  # of the batch
    claimed: int = NO_TIMESTAMP  # the record's timestamp, or the one in the batch's header


class TimeRequest(NamedTuple):
    """A line of a request file; `time` is text, `partition` is None for all partitions."""

    line: int
    topic: str
    partition: int | None
    time: str
    log_dir: str | None


def load_group_offsets(
    file: Path, topics: Sequence[str] = (), warn: Callable[[str], object] = lambda _: None
) -> list[GroupOffset]:
    """Return the committed offsets of a file; LocationError, one line, if it is wrong.

    `topics` are globs. `warn` gets a line for each group and topic with partitions without one.
    """
    place, globs = Location.of(file), TopicGlobs.of(topics)
    try:
        found = parse_group_offsets(_bytes(place).decode("utf-8-sig"))
    except ValueError as error:
        raise LocationError(
            f"{place.uri}: {error}, or the output of kafka-consumer-groups.sh --describe"
        ) from error
    without: dict[tuple[str, str], list[int]] = {}
    for group, topic, partition in found.without:
        without.setdefault((group, topic), []).append(partition)
    seen = {group for group, topic in without if topic} | {one.group for one in found.committed}
    for (group, topic), numbers in without.items():
        nothing = f"group {group} has no committed offset" if group else "no committed offset"
        if not topic and group not in seen:
            warn(nothing)
        elif topic and globs.matches(topic):
            shown = ", ".join(map(str, sorted(numbers)[:_MOST_NAMED]))
            more = ", ..." if len(numbers) > _MOST_NAMED else ""
            where = counted(len(numbers), "partition")
            warn(f"{nothing} in {where} of {topic}: {shown}{more}")
    return [one for one in found.committed if globs.matches(one.topic)]


def load_time_requests(file: str) -> list[TimeRequest]:
    """Return the requests of a CSV with a header or a Parquet file; LocationError for others."""
    place = Location.of(file)
    data = _bytes(place)
    try:
        rows = _of_parquet(data) if data[:4] == b"PAR1" else _of_csv(data.decode("utf-8-sig"))
        requests = [_request(line, row) for line, row in rows]
    except (OSError, ValueError, csv.Error, pa.ArrowException) as error:
        raise LocationError(f"{place.uri}: {one_line(error)}") from error
    if not requests:
        raise LocationError(f"{place.uri}: no requests found, expected lines of {EXPECTED_COLUMNS}")
    return requests


def _bytes(place: Location) -> bytes:
    try:
        return read_whole(place, most_bytes=_MOST_REQUEST_BYTES)
    except OSError as error:
        if proves_nothing(error):
            raise
        raise LocationError(f"{place.uri}: cannot be read: {one_line(error)}") from error


def _of_csv(text: str) -> Iterator[tuple[int, dict[str, Any]]]:
    reader = csv.DictReader(io.StringIO(text), skipinitialspace=True)
    _require_columns(list(reader.fieldnames or ()))
    for row in reader:
        if None in row or None in row.values():
            raise ValueError(f"line {reader.line_num}: expected as many cells as the header has")
        yield reader.line_num, row


def _of_parquet(data: bytes) -> Iterator[tuple[int, dict[str, Any]]]:
    table = pq.read_table(pa.BufferReader(data), use_threads=False)
    _require_columns(table.column_names)
    yield from enumerate(table.to_pylist(), 1)


def _require_columns(names: list[str]) -> None:
    if not set(_REQUIRED_COLUMNS) <= set(names):
        raise ValueError(
            f"the columns {','.join(names) or '(none)'} found, expected {EXPECTED_COLUMNS}"
        )


def _request(line: int, row: dict[str, Any]) -> TimeRequest:
    topic, partition, time = (_text(row[name]) for name in _REQUIRED_COLUMNS)
    if not topic:
        raise ValueError(f"line {line}: the topic is empty, expected {EXPECTED_COLUMNS}")
    number = number_in_line(line, "partition", partition) if partition else None
    return TimeRequest(line, topic, number, time, _text(row.get("log_dir")) or None)


def _text(cell: Any) -> str:
    """Return a cell as text; in a Parquet file it may be a number or a timestamp."""
    if cell is None:
        return ""
    return str(cell.isoformat() if hasattr(cell, "isoformat") else cell).strip()
