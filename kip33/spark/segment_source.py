"""`spark.read.format("kafka-segments")`: an archive as a data source of PySpark 4.

Spark makes the source in a Python worker, plans the query there, and reads in tasks. A filter
reaches the reader only with a setting that is off by default, and a reader that takes filters
fails without the setting. So there are two readers. Options are texts, with the names of
`read_arrow`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final, NoReturn, Unpack

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.types import StructType

from kip33.archive.moments import time_ms
from kip33.options import keywords_of, with_keywords
from kip33.records.reading import Reading, ReadOptions
from kip33.records.record_request import Comparison, FilterBounds
from kip33.rules.policies import MAX_INT64
from kip33.spark.jobs import UNKNOWN_CORES
from kip33.spark.segment_stream import SegmentStream, StreamOptions
from kip33.spark.segment_tasks import RowSource, spark_schema, tasks_of, with_schema
from kip33.spark.store_settings import SessionStores

NAME: Final = "kafka-segments"
PATH, REMOTE = "path", "remote"
_COMPARISONS: Final = {  # by the names of Spark's filters, which PySpark has from 4.1 on
    "EqualTo": Comparison.EQUAL,
    "EqualNullSafe": Comparison.EQUAL,
    "LessThan": Comparison.LESS,
    "LessThanOrEqual": Comparison.LESS_OR_EQUAL,
    "GreaterThan": Comparison.GREATER,
    "GreaterThanOrEqual": Comparison.GREATER_OR_EQUAL,
    "In": Comparison.IN,
}


class SegmentSource(DataSource):
    """An archive or a catalog; `kip33.spark.register` makes the class of a session from it."""

    stores: ClassVar[SessionStores | None] = None  # None: each worker has its own settings
    cores: ClassVar[int] = UNKNOWN_CORES
    folder: ClassVar[str | None] = None  # of the caller, for relative paths; None: not known
    takes_filters: ClassVar[bool] = False

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return NAME

    def schema(self) -> StructType:
        """Return the columns; ValueError for a wrong option."""
        return spark_schema(self._parsed()[1])

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return what reads the columns of `schema`; ValueError for a column that is not there."""
        kind = FilteringReader if self.takes_filters else RowReader
        return kind(self._rows(schema, *self._parsed()[:2]), self.cores)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Return what reads new records of a catalog; errors are those of `reader`."""
        places, reading, options = self._parsed(isolation="read_committed")
        return SegmentStream(self._rows(schema, places, reading), options)

    def _parsed(self, **defaults: Unpack[ReadOptions]) -> tuple[list[str], Reading, StreamOptions]:
        places, options, of_stream = parsed_options(self.options)
        places = [self._from_caller(place) for place in places]
        try:
            return places, Reading.of(**(defaults | options)), of_stream
        except ValueError as error:
            text = with_keywords(str(error), keywords_of(ReadOptions))
            raise ValueError(f"{NAME}: {text}") from error

    def _from_caller(self, place: str) -> str:
        """A place; a relative path is the caller's, not one of the worker that plans."""
        if "://" in place:
            return place
        if self.folder is None and not (Path(place).is_absolute() or Path(place).exists()):
            raise ValueError(
                f"{NAME}: path {place!r} found, expected an absolute path or a URI, or a session "
                "that kip33.spark.register has told its folder"
            )
        return str(Path(self.folder or "", place))

    def _rows(self, schema: StructType, places: list[str], reading: Reading) -> RowSource:
        return RowSource(places, with_schema(reading, schema), schema, self.stores)

    def writer(self, schema: StructType, overwrite: bool) -> NoReturn:
        """Refuse to write."""
        raise ValueError(f"{NAME}: writing found, expected reading; an archive is never changed")

    def streamWriter(self, schema: StructType, overwrite: bool) -> NoReturn:  # noqa: N802
        """Refuse to write."""
        self.writer(schema, overwrite)


class RowReader(DataSourceReader):
    """Reads the rows of one query; Spark filters them."""

    def __init__(self, rows: RowSource, cores: int) -> None:
        self._rows, self._cores = rows, cores

    def partitions(self) -> Sequence[InputPartition]:
        """Return what each task reads; errors are those of `kip33.read_arrow`."""
        tasks = tasks_of(self._rows.reading, self._rows.partitions(), self._cores)
        return [InputPartition(one) for one in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task; without parts there is one task with None."""
        self._rows.use_stores()
        yield from self._rows.rows(partition.value or ())


class FilteringReader(RowReader):
    """Leaves out what the filter of a query removes, as far as that is known beforehand."""

    def pushFilters(self, filters: list[Any]) -> list[Any]:  # noqa: N802
        """Take the filters, and return all of them, so that Spark applies them to the rows."""
        bounds = FilterBounds()
        for condition in filters:
            comparison = _COMPARISONS.get(type(condition).__name__)
            if comparison and len(condition.attribute) == 1:
                bounds = bounds.where(condition.attribute[0], comparison, condition.value)
        self._rows = self._rows._replace(reading=self._rows.reading.inside(bounds))
        return filters


def _texts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",")]


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise ValueError(f"{text!r} found, expected an integer") from error


def _numbers(text: str) -> list[int]:
    return [_number(part) for part in _texts(text)]


def _positive(text: str) -> int:
    if not 1 <= (number := _number(text)) <= MAX_INT64:
        raise ValueError(f"{text!r} found, expected 1 to 2^63 - 1")
    return number


def _flag(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(f"{text!r} found, expected true or false")
    return text.lower() == "true"


_PARSED: Final[Mapping[str, Callable[[str], Any]]] = {
    **{"level": str, "topic": _texts, "partition": _numbers, "log_dir": str, "columns": _texts},
    **{"start_time": time_ms, "end_time": time_ms},
    **{"start_offset": _number, "end_offset": _number},
    **{"isolation": str, "include_control": _flag, "on_error": str, "disorder": str},
    **{"max_batch_bytes": _number, "layout": str},
}
"""How the text of each option is read; lists have commas."""


_OF_STREAM: Final[Mapping[str, tuple[str, Callable[[str], Any]]]] = {
    "maxoffsetspertrigger": ("max_offsets", _positive),
    "maxbytespertrigger": ("max_bytes", _positive),
    "maxrecordsperpartition": ("share_records", _positive),
    "failondataloss": ("fail_on_data_loss", _flag),
}
"""The options of a stream alone, with the names of Spark's Kafka source; a query ignores them."""


def parsed_options(
    texts: Mapping[str, str],
) -> tuple[list[str], ReadOptions, StreamOptions]:
    """Return the places that are read, the options of `read_arrow`, and those of a stream.

    With the catalog of a remote tier there are two places. Raises ValueError, one line, for a wrong
    option; of an unknown one the line does not have the value, because it may be a key.
    """
    options: Any = {}
    of_stream: Any = {}
    for name, text in texts.items():
        if name in (PATH, REMOTE):
            continue
        field, parse = _OF_STREAM.get(name.lower()) or (name, _PARSED.get(name))
        if parse is None:
            raise ValueError(
                f"kafka-segments: option {name!r} found, expected some of {', '.join(_PARSED)}, "
                f"{REMOTE}; "
                "settings of stores are settings of the session (spark.hadoop.fs.s3a...)"
            )
        try:
            (of_stream if field != name else options)[field] = parse(text.strip())
        except ValueError as error:
            raise ValueError(f"kafka-segments: option {name!r}: {error}") from error
    if not texts.get(PATH):
        raise ValueError("kafka-segments: no path found, expected load(SOURCE) or load(CATALOG)")
    places = [texts[name] for name in (PATH, REMOTE) if name in texts]
    return places, options, StreamOptions(**of_stream)
