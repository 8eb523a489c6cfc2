"""Records selected by key, text or number: read, matched, decoded and written as text by workers.

A `Selecting` does what costs, where a record batch is read: in this process or in a worker. A
`RecordSelection` takes what it gives, in order, counts it, and stops at the limit.
"""

import os
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from functools import partial
from typing import Annotated, Any, Final, NamedTuple, TypeAlias, TypedDict

import pyarrow as pa
import pyarrow.compute as pc

from kip33.archive import common_options as common
from kip33.catalog.catalog import Warn
from kip33.catalog.schema import chosen
from kip33.errors import LocationError, without_secrets
from kip33.formats.names import parse_partition_dir
from kip33.formats.times import TimesName
from kip33.options import Option
from kip33.records.columns import CORRUPT, UNDECIDED
from kip33.records.decode import ValueDecoder, decoder_of, pieces_to_decode
from kip33.records.parallel_reading import ParallelReading, PartEngine
from kip33.records.partitions import Source
from kip33.records.reading import Reading, ReadOptions
from kip33.records.record_texts import TEXTS, file_writer, record_text
from kip33.records.schema_text import SchemaText
from kip33.records.schemas import SCHEMAS_TOPIC, Schemas
from kip33.stores.filesystem_option import Filesystem, StorageOptions
from kip33.stores.locations import Location
from kip33.stores.own_files import streamed_file
from kip33.stores.progress import OnProgress, Phase, Progress, tell_nobody

_TEXT_ROWS: Final = 1_024  # that become text, and Python's values, at one time
_SEGMENT: Final = ("log_dir", "topic", "partition", "base_offset")
_PAYLOAD: Final = ("key", "value")
Show: TypeAlias = Callable[[pa.RecordBatch], Any]
"""Returns records as a writer takes them."""


class SelectOptions(TypedDict, total=False):
    """Which records are selected, and whether their values are decoded."""

    where_key: Annotated[
        str | None, Option("Only records with exactly this key (UTF-8).", metavar="KEY")
    ]
    grep: Annotated[
        str | None, Option("Only records with this text in key or value.", metavar="TEXT")
    ]
    limit: Annotated[int | None, Option("Stop reading after N records.", metavar="N", least=1)]
    decode: Annotated[
        bool, "Show values in Confluent's wire format (Avro, Protobuf, JSON Schema) as JSON."
    ]
    schemas: Annotated[
        str | None,
        Option(
            "Where --decode finds schemas: an archive or a catalog with a topic _schemas, a "
            "directory with 7.avsc, 8.json or 9.proto, or a registry's URL [default: SOURCE or "
            "CATALOG].",
            metavar="PLACE",
        ),
    ]
    times: Annotated[
        TimesName,
        Option(
            "Times in json, jsonl and csv: ms since 1970, or iso, such as "
            "2024-05-01T12:00:00.000Z.",
            default="ms",
        ),
    ]
    guard_formulas: Annotated[bool, common.GUARD_FORMULAS]


class SelectedRecords(NamedTuple):
    """What a selection had: numbers, and the first lines on what could not be read."""

    output: str | None  # the file's URI
    records: int
    payload_bytes: int  # of keys and values
    segments: int  # with records between the times
    damaged: int  # problems in the logs
    undecided: int | None  # may be of aborted transactions; None if these were not left out
    undecoded: int | None  # values; None if they were not decoded
    problems: list[str]

    def as_record(self) -> dict[str, Any]:
        """Return the numbers that are known, as the summary of `kip33 records` has them."""
        left_out = {"problems"} | {
            name for name in ("undecided", "undecoded") if getattr(self, name) is None
        }
        return {name: one for name, one in self._asdict().items() if name not in left_out}


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
        asked: SelectOptions,
        names: Sequence[str],
        limit: int | None,
        decoding: "ValueDecoding | None",
        text_of: Show | None,
    ) -> None:
        """Take the columns to show, and what makes texts; None: a writer takes record batches."""
        self._where_key, self._grep = asked["where_key"], asked["grep"]
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
            0 if segment is None else _payload_bytes(records),
            _undecided_of(records),
            undecoded,
            None if self._limit is None else records,
        )


def _is_about_damage(batch: pa.RecordBatch) -> bool:
    """Return whether a batch is one row that says what cannot be read."""
    if CORRUPT not in batch.schema.names:
        return False
    return bool(pc.any(batch.column(CORRUPT).is_valid()).as_py())


def _payload_bytes(records: pa.RecordBatch) -> int:
    columns = (records.column(name) for name in _PAYLOAD if name in records.schema.names)
    return sum(pc.sum(pc.binary_length(column)).as_py() or 0 for column in columns)


def _undecided_of(records: pa.RecordBatch) -> int:
    if UNDECIDED not in records.schema.names:
        return 0
    return records.num_rows - records.column(UNDECIDED).null_count


class RecordSelection:
    """Reads the selected records, and counts them meanwhile."""

    def __init__(
        self,
        source: Source,
        read: ReadOptions,
        asked: SelectOptions,
        engine: PartEngine,
        warn: Warn,
        *,
        default_columns: Sequence[str] | None = None,
        to_columns: bool = False,
        access: tuple[StorageOptions | None, Filesystem | None] = (None, None),
    ) -> None:
        """List the partitions; ValueError, one line, for an unknown column of those to show.

        `to_columns`: values are decoded to a column of the type of one schema (`ValueDecoding`).
        `access`: keys of the source's store, or a filesystem instead.
        """
        columns = read["columns"]
        if asked["schemas"] is not None and not asked["decode"]:
            raise ValueError("--schemas requires --decode")
        if asked["decode"] and columns and "value" not in columns:
            raise ValueError("--decode requires the column value in --columns")
        self._asked, self._engine, self._warn = asked, engine, warn
        of_all: ReadOptions = {**read, "columns": None}
        self._reading = Reading.of(**of_all)
        names = self._reading.schema.names
        if wanted := columns or default_columns:
            problems = [name for name in names if name.startswith("_")]
            names = list(dict.fromkeys([*wanted, *problems]))
        self._names = names
        self.schema = chosen(self._reading.schema, names)
        self._partitions = self._reading.partitions(
            source, *access, warn=warn, choice="--on-error fail"
        )
        self._decoding = None
        if asked["decode"]:
            topics = {segments[0].topic for segments in self._partitions}
            schemas = _schemas_of(asked["schemas"], source, read["layout"])
            self._decoding = ValueDecoding(schemas, topics, to_columns=to_columns)
            self.schema = self._decoding.schema(self.schema)
        self.records = self._payload_bytes = self._damaged = self._undecoded = 0
        self._undecided = 0 if UNDECIDED in self._reading.schema.names else None
        self._problems: list[str] = []  # the first of them, unless they are rows
        self._segments: set[tuple[Any, ...]] = set()

    def done(self, output: str | None = None) -> SelectedRecords:
        """Return what was read so far."""
        return SelectedRecords(
            output,
            self.records,
            self._payload_bytes,
            len(self._segments),
            self._damaged,
            self._undecided,
            self._undecoded if self._decoding else None,
            self._problems,
        )

    def read(
        self, most_problems: int, limit: int | None, text_of: Show | None = None
    ) -> Generator[Any, None, None]:
        """Yield what a writer takes until the limit; keep the first `most_problems` lines."""
        selecting = Selecting(self._asked, self._names, limit, self._decoding, text_of)
        reading = self._reading.with_columns(self._columns_to_read())
        parallel = ParallelReading(reading, self._engine, selecting, self._warn)
        skipped: list[str] = []
        left = limit
        with closing(parallel.read(self._partitions, skipped, may_stop=left is not None)) as found:
            for selected in found:
                self._count_problems(skipped, most_problems)
                if left is not None:
                    selected = selecting.cut(selected, left)
                    left -= selected.rows
                self._count(selected)
                if selected.rows:
                    yield selected.shown
                if left == 0:
                    return
        self._count_problems(skipped, most_problems)

    def texts(self, output_format: str, most_problems: int) -> Generator[Any, None, None]:
        """Yield what the writer of a format takes: texts, or record batches."""
        asked = self._asked
        text_of = partial(
            record_text,
            output_format,
            times=asked["times"],
            guard_formulas=asked["guard_formulas"],
        )
        is_text = output_format in TEXTS
        return self.read(most_problems, asked["limit"], text_of if is_text else None)

    def _columns_to_read(self) -> list[str]:
        """Return the columns to show, those of the filter, and those that name the segment."""
        filtered = _PAYLOAD if self._asked["grep"] is not None else ()
        by_key = ("key",) if self._asked["where_key"] is not None else ()
        return list(dict.fromkeys((*self._names, *filtered, *by_key, *_SEGMENT)))

    def _count_problems(self, skipped: list[str], most: int) -> None:
        self._damaged += len(skipped)
        self._problems += skipped[: most - len(self._problems)]
        skipped.clear()

    def _count(self, selected: Selected) -> None:
        self._undecoded += selected.undecoded
        if selected.segment is None:
            self._damaged += selected.rows
            return
        self._segments.add(selected.segment)
        self.records += selected.rows
        self._payload_bytes += selected.payload_bytes
        if self._undecided is not None:
            self._undecided += selected.undecided


def write_selection(
    selection: RecordSelection,
    place: Location,
    most_problems: int,
    ending: Callable[[], dict[str, Any]],
    on_progress: OnProgress = tell_nobody,
) -> None:
    """Write the selected records to a new file, whose name says the format.

    A file of JSON ends with what `ending` returns. PublishError if the file is there.
    """
    output_format = format_of_name(place.name)
    with (
        closing(selection.texts(output_format, most_problems)) as shown,
        streamed_file(place) as file,
        file_writer(output_format, selection.schema, file) as writer,
    ):
        for records in shown:
            writer.write(records)
            on_progress(Progress(Phase.READING_LOGS, selection.records, unit="record"))
        writer.finish(ending())


def format_of_name(name: str) -> str:
    """Return the format of a file of records; ValueError, one line, for another name."""
    ending = name.rpartition(".")[2]
    if ending not in (*TEXTS, "parquet"):
        raise ValueError(
            f"--output: {without_secrets(name)!r} found, expected a name that ends in "
            + " or ".join(f".{one}" for one in (*TEXTS, "parquet"))
        )
    return ending


class ValueDecoding:
    """Decodes the values of records to JSON text, or to the type of one schema.

    The decoder itself is made in each process.
    """

    def __init__(self, schemas: Schemas, topics: set[str | None], *, to_columns: bool) -> None:
        """Choose JSON text, or a column of the one schema that values of these topics have.

        `to_columns` is for Parquet; it keeps the bytes that cannot be decoded in `value_bytes`.
        Raises the errors of `kip33.Schemas`, and ValueError for a schema that cannot be used.
        """
        self._to_columns = to_columns
        self._schemas = schemas
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
            columns["value_bytes"] = pc.if_else(is_wrong, sent, pa.scalar(None, pa.binary()))
        else:
            columns["value"] = pc.if_else(is_wrong, sent, found.cast(pa.binary()))
        schema = self.schema(records.schema)
        batch = pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)
        return batch, pc.sum(is_wrong).as_py() or 0


def _schemas_of(place: str | None, source: Source, layout: str) -> Schemas:
    """Return the schemas in a place, by default those of what is read."""
    if place is not None:
        return Schemas.of(place, layout=layout)
    try:
        if isinstance(source, str | os.PathLike):
            given = Location.of(source)
            if given.name.endswith(".log") or parse_partition_dir(given.name):
                raise LocationError(f"{given.uri}: has no topic {SCHEMAS_TOPIC}")
        return Schemas.from_archive(source, layout=layout)
    except LocationError as error:
        raise LocationError(
            f"--decode: {error}; give --schemas an archive, a directory of schemas or a registry's "
            "URL"
        ) from None
