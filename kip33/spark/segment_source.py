"""`spark.read.format("kafka-segments")`: an archive as a data source of PySpark 4.

Spark makes the source in a Python worker, plans the query there, and reads in tasks. A filter
reaches the reader only with a setting that is off by default, and a reader that takes filters
fails without the setting. So there are two readers. Options are texts, with the names of
`read_arrow`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final, NoReturn

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from kip33.formats.times import milliseconds_of
from kip33.records.reading import Reading, ReadOptions
from kip33.records.record_request import Comparison, FilterBounds
from kip33.spark.jobs import UNKNOWN_CORES
from kip33.spark.segment_tasks import rows_of, source_at, spark_schema, tasks_of, with_schema
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
        places, reading = self._parsed()
        kind = FilteringReader if self.takes_filters else RowReader
        return kind(places, with_schema(reading, schema), schema, self.stores, self.cores)

    def _parsed(self) -> tuple[list[str], Reading]:
        places, options = parsed_options(self.options)
        try:
            return places, Reading.of(**options)
        except ValueError as error:
            raise ValueError(f"{NAME}: {error}") from error

    def writer(self, schema: StructType, overwrite: bool) -> NoReturn:
        """Refuse to write."""
        raise ValueError(f"{NAME}: writing found, expected reading; an archive is never changed")

    def streamWriter(self, schema: StructType, overwrite: bool) -> NoReturn:  # noqa: N802
        """Refuse to write."""
        self.writer(schema, overwrite)

    def streamReader(self, schema: StructType) -> NoReturn:  # noqa: N802
        """Refuse to stream."""
        raise ValueError(f"{NAME}: readStream found, expected read; an archive is read once")


class PartitionParts(InputPartition):
    """What one task reads."""


class RowReader(DataSourceReader):
    """Reads the rows of one query; Spark filters them."""

    def __init__(
        self,
        places: list[str],
        reading: Reading,
        schema: StructType,
        stores: SessionStores | None,
        cores: int,
    ) -> None:
        self._places, self._reading, self._schema = places, reading, schema
        self._stores, self._cores = stores, cores

    def partitions(self) -> Sequence[InputPartition]:
        """Return what each task reads; errors are those of `kip33.read_arrow`."""
        self._use_stores()
        partitions = self._reading.partitions(source_at(self._places))
        tasks = tasks_of(self._reading, partitions, self._cores)
        return [PartitionParts(one) for one in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task; without parts there is one task with None."""
        self._use_stores()
        yield from rows_of(self._reading, partition.value or (), self._schema)

    def _use_stores(self) -> None:
        if self._stores is not None:
            self._stores.use()


class FilteringReader(RowReader):
    """Leaves out what the filter of a query removes, as far as that is known beforehand."""

    def pushFilters(self, filters: list[Any]) -> list[Any]:  # noqa: N802
        """Take the filters, and return all of them, so that Spark applies them to the rows."""
        bounds = FilterBounds()
        for condition in filters:
            comparison = _COMPARISONS.get(type(condition).__name__)
            if comparison and len(condition.attribute) == 1:
                bounds = bounds.where(condition.attribute[0], comparison, condition.value)
        self._reading = self._reading.inside(bounds)
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


def _flag(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(f"{text!r} found, expected true or false")
    return text.lower() == "true"


_PARSED: Final[Mapping[str, Callable[[str], Any]]] = {
    **{"level": str, "topic": _texts, "partition": _numbers, "log_dir": str, "columns": _texts},
    **{"start_time": milliseconds_of, "end_time": milliseconds_of},
    **{"start_offset": _number, "end_offset": _number},
    **{"isolation": str, "include_control": _flag, "on_error": str, "disorder": str},
    **{"max_batch_bytes": _number, "layout": str},
}
"""How the text of each option is read; lists have commas."""


def parsed_options(texts: Mapping[str, str]) -> tuple[list[str], ReadOptions]:
    """Return the source and the options of `read_arrow`; ValueError, one line, for a wrong one.

    With the catalog of a remote tier there are two sources.

    A message has no value of an unknown option: it may be a key.
    """
    options: Any = {}
    for name, text in texts.items():
        if name in (PATH, REMOTE):
            continue
        if name not in _PARSED:
            raise ValueError(
                f"kafka-segments: option {name!r} found, expected some of {', '.join(_PARSED)}, "
                f"{REMOTE}; "
                "settings of stores are settings of the session (spark.hadoop.fs.s3a...)"
            )
        try:
            options[name] = _PARSED[name](text.strip())
        except ValueError as error:
            raise ValueError(f"kafka-segments: option {name!r}: {error}") from error
    if not texts.get(PATH):
        raise ValueError("kafka-segments: no path found, expected load(SOURCE) or load(CATALOG)")
    return [texts[name] for name in (PATH, REMOTE) if name in texts], options
