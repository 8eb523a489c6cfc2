"""The records that `kip33 records` selects: read, matched, decoded and written as text by workers.

A `Selecting` does what costs, where a record batch is read: in this process or in a worker. A
`RecordSelection` takes what it gives, in order, counts it, and stops at the limit.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from typing import Any, Final, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from kip33.cli.output import warn
from kip33.cli.records_options import ON_ERROR_FAILS, RecordsCommand, source_of
from kip33.errors import LocationError
from kip33.formats.names import parse_partition_dir
from kip33.local.local_engine import LocalEngine
from kip33.records.columns import CORRUPT, UNDECIDED, chosen
from kip33.records.decode import ValueDecoder, decoder_of, pieces_to_decode
from kip33.records.parallel_reading import ParallelReading
from kip33.records.partitions import Source
from kip33.records.reading import Reading
from kip33.records.record_request import LogsRead
from kip33.records.schema_text import SchemaText
from kip33.records.schemas import SCHEMAS_TOPIC, Schemas
from kip33.stores.locations import Location

_TEXT_ROWS: Final = 1_024  # that become text, and Python's values, at one time
_NO_BYTES: Final = pa.scalar(None, pa.binary())
_SEGMENT: Final = ("log_dir", "topic", "partition", "base_offset")
_PAYLOAD: Final = ("key", "value")
Show: TypeAlias = Callable[[pa.RecordBatch], Any]
"""Returns records as a writer takes them."""


class Selected(NamedTuple):
    """Selected records of one segment, and what is counted of them."""

    segment: tuple[Any, ...] | None  # None: the row says what cannot be read
    rows: int
    shown: Any = None  # as a writer takes them
    payload_bytes: int = 0
    undecided: int = 0  # may be of aborted transactions
    undecoded: int = 0  # values that cannot be decoded
    records: pa.RecordBatch | None = None  # before they were decoded; only with a limit


class Selecting:
    """Selects records of a batch, and makes what a writer takes."""

    def __init__(
        self,
        request: RecordsCommand,
        names: Sequence[str],
        limit: int | None,
        decoding: "ValueDecoding | None",
        text_of: Show | None,
    ) -> None:
        """Take the columns to show, and what makes texts; None: a writer takes record batches."""
        self._where_key, self._grep = request.where_key, request.grep
        self._names, self._limit = list(names), limit
        self._decoding, self._text_of = decoding, text_of

    def __call__(self, batch: pa.RecordBatch) -> Iterator[Selected]:
        """Yield the selected records of a batch, some at a time; once without any."""
        segment = None
        if batch.num_rows and not _is_about_damage(batch):
            segment = tuple(batch.column(name)[0].as_py() for name in _SEGMENT)
            batch = self._matching(batch)
            if self._limit is not None:
                batch = batch.slice(0, self._limit)
        batch = batch.select(self._names)
        if not batch.num_rows:
            yield Selected(segment, 0)
        for piece in self._pieces(batch):
            yield self._selected(segment, piece)

    def cut(self, selected: Selected, rows: int) -> Selected:
        """Return only the first of the selected records."""
        if selected.records is None or selected.rows <= rows:
            return selected
        return self._selected(selected.segment, selected.records.slice(0, rows))

    def _matching(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if self._where_key is not None:
            wanted = pa.scalar(self._where_key.encode(), pa.binary())
            batch = batch.filter(pc.equal(batch.column("key"), wanted))
        if self._grep is not None:
            found = [
                pc.fill_null(pc.match_substring(batch.column(name), self._grep.encode()), False)
                for name in _PAYLOAD
            ]
            batch = batch.filter(pc.or_(*found))
        return batch

    def _pieces(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        pieces: Iterable[pa.RecordBatch] = (batch,)
        if self._decoding:
            pieces = pieces_to_decode(batch, "value")
        for piece in pieces:
            step = _TEXT_ROWS if self._text_of else piece.num_rows
            for start in range(0, piece.num_rows, step):
                yield piece.slice(start, step)

    def _selected(self, segment: tuple[Any, ...] | None, records: pa.RecordBatch) -> Selected:
        shown, undecoded = records, 0
        if self._decoding:
            shown, undecoded = self._decoding.decoded(records)
        return Selected(
            segment,
            records.num_rows,
            self._text_of(shown) if self._text_of else shown,
            0 if segment is None else sum(map(_payload_bytes, _payload_of(records))),
            _undecided_of(records),
            undecoded,
            None if self._limit is None else records,
        )


def _is_about_damage(batch: pa.RecordBatch) -> bool:
    """Return whether a batch is one row that says what cannot be read."""
    if CORRUPT not in batch.schema.names:
        return False
    return bool(pc.any(batch.column(CORRUPT).is_valid()).as_py())


def _payload_of(records: pa.RecordBatch) -> list["pa.Array[Any]"]:
    return [records.column(name) for name in _PAYLOAD if name in records.schema.names]


def _payload_bytes(column: "pa.Array[Any]") -> int:
    return pc.sum(pc.binary_length(column)).as_py() or 0


def _undecided_of(records: pa.RecordBatch) -> int:
    if UNDECIDED not in records.schema.names:
        return 0
    return records.num_rows - records.column(UNDECIDED).null_count


class RecordSelection:
    """Reads the selected records; `records` and the other numbers are counted meanwhile.

    `undecided` of the records may be of aborted transactions; None if these were not left out.
    `topics` are those of the partitions that are read, None for an unknown one; `source` has them.
    """

    def __init__(
        self, request: RecordsCommand, default_columns: Sequence[str] | None, limit: int | None
    ) -> None:
        """List the partitions; ValueError, one line, for an unknown column of those to show.

        `limit` is the most rows; None: all.
        """
        self._request, self._limit = request, limit
        self._reading = Reading.of(**request.read)
        names = self._reading.schema.names
        if wanted := request.shown_columns or default_columns:
            problems = [name for name in names if name.startswith("_")]
            names = list(dict.fromkeys([*wanted, *problems]))
        self.schema = chosen(self._reading.schema, names)
        self.source = source_of(request.source, request.remote)
        self._partitions = self._reading.partitions(self.source, warn=warn, choice=ON_ERROR_FAILS)
        self.topics = {segments[0].topic for segments in self._partitions}
        self.records = self.payload_bytes = self.damaged = self.undecoded = 0
        self.undecided = 0 if UNDECIDED in self._reading.schema.names else None
        self.problems: list[str] = []  # the first of them, unless they are rows
        self.logs = LogsRead()
        self._segments: set[tuple[Any, ...]] = set()

    @property
    def segments(self) -> int:
        """Return how many segments had records between the times."""
        return len(self._segments)

    def read(
        self, most_problems: int, decoding: "ValueDecoding | None", text_of: Show | None
    ) -> Generator[Any, None, None]:
        """Yield what a writer takes until the limit; keep the first `most_problems` lines."""
        names = self.schema.names
        selecting = Selecting(self._request, names, self._limit, decoding, text_of)
        reading = self._reading.with_columns(self._columns_to_read())
        parallel = ParallelReading(
            reading, LocalEngine(self._request.engine.workers, tell=warn), selecting, warn
        )
        skipped: list[str] = []
        left = self._limit
        with closing(
            parallel.read(self._partitions, skipped, self.logs, may_stop=left is not None)
        ) as found:
            for selected in found:
                self._count_problems(skipped, most_problems)
                if left is not None:
                    selected = selecting.cut(selected, left)
                    left -= selected.rows
                self._count(selected)
                if selected.rows:
                    yield selected.shown
                if left == 0:
                    self.logs.is_any_read = True
                    return
        self._count_problems(skipped, most_problems)
        self.logs.require_one()

    def _columns_to_read(self) -> list[str]:
        """Return the columns to show, those of the filter, and those that name the segment."""
        filtered = _PAYLOAD if self._request.grep is not None else ()
        by_key = ("key",) if self._request.where_key is not None else ()
        return list(dict.fromkeys((*self.schema.names, *filtered, *by_key, *_SEGMENT)))

    def _count_problems(self, skipped: list[str], most: int) -> None:
        self.damaged += len(skipped)
        self.problems += skipped[: most - len(self.problems)]
        skipped.clear()

    def _count(self, selected: Selected) -> None:
        self.undecoded += selected.undecoded
        if selected.segment is None:
            self.damaged += selected.rows
            return
        self._segments.add(selected.segment)
        self.records += selected.rows
        self.payload_bytes += selected.payload_bytes
        if self.undecided is not None:
            self.undecided += selected.undecided


class ValueDecoding:
    """Decodes the values of records to JSON text, or to the type of one schema.

    The decoder itself is made in each process.
    """

    def __init__(
        self, request: RecordsCommand, source: Source, topics: set[str | None], *, to_columns: bool
    ) -> None:
        """Choose JSON text, or a column of the one schema that values of these topics have.

        `source` is what is read; its schemas are the default. `to_columns` is for Parquet; it keeps
        the bytes that cannot be decoded in `value_bytes`. Raises the errors of `kip33.Schemas`, and
        ValueError for a schema that cannot be used.
        """
        self._to_columns = to_columns
        self._schemas = _schemas_of(request, source)
        self._reader_schema = self._one_schema(topics) if to_columns else None
        self._decoder: ValueDecoder | None = decoder_of(self._schemas, self._reader_schema)
        self._type = self._decoder.type

    def __getstate__(self) -> dict[str, Any]:
        """Return what is sent to a worker process."""
        return self.__dict__ | {"_decoder": None}

    def _one_schema(self, topics: set[str | None]) -> SchemaText | None:
        """Return the schema whose type all values get, None if there is no such schema."""
        schema_id = self._schemas.only()
        if schema_id is None and len(topics) == 1 and None not in topics:
            [topic] = topics
            schema_id = self._schemas.newest(f"{topic}-value")
        if schema_id is None:
            return None
        schema = self._schemas.get(schema_id)
        if schema is None:
            raise ValueError(f"schema {schema_id} is not in {self._schemas.name}")
        return schema

    def schema(self, schema: pa.Schema) -> pa.Schema:
        """Return the columns of decoded records: `schema_id` and `decode_error` after `value`.

        JSON text is binary, because a value that cannot be decoded keeps its bytes.
        """
        place = schema.get_field_index("value")
        added = [
            pa.field("value", self._type if self._to_columns else pa.binary()),
            pa.field("schema_id", pa.int32()),
            pa.field("decode_error", pa.string()),
            *([pa.field("value_bytes", pa.binary())] if self._to_columns else []),
        ]
        fields = list(schema)
        return pa.schema([*fields[:place], *added, *fields[place + 1 :]])

    def decoded(self, records: pa.RecordBatch) -> tuple[pa.RecordBatch, int]:
        """Return records with decoded values, and how many cannot be decoded."""
        if self._decoder is None:
            self._decoder = decoder_of(self._schemas, self._reader_schema)
        columns = dict(zip(records.schema.names, records.columns, strict=True))
        sent = columns["value"]
        values: Any = sent.to_pylist()
        found, columns["schema_id"], columns["decode_error"] = self._decoder.columns(values)
        is_wrong = columns["decode_error"].is_valid()
        if self._to_columns:
            columns["value"] = found
            columns["value_bytes"] = pc.if_else(is_wrong, sent, _NO_BYTES)
        else:
            columns["value"] = pc.if_else(is_wrong, sent, found.cast(pa.binary()))
        schema = self.schema(records.schema)
        batch = pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)
        return batch, pc.sum(is_wrong).as_py() or 0


def _schemas_of(request: RecordsCommand, source: Source) -> Schemas:
    """Return the schemas in the place of --schemas, by default those of what is read."""
    layout = request.read["layout"]
    if request.schemas is not None:
        return Schemas.of(request.schemas, layout=layout)
    given = Location.of(request.source)
    try:
        if given.name.endswith(".log") or parse_partition_dir(given.name):
            raise LocationError(f"{given.uri}: has no topic {SCHEMAS_TOPIC}")
        return Schemas.from_archive(source, layout=layout)
    except LocationError as error:
        raise LocationError(
            f"--decode: {error}; give --schemas an archive, a directory of schemas or a registry's "
            "URL"
        ) from None
