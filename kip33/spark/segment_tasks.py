"""The tasks of a reading of records on Spark: what each one reads, and its rows in Spark's types.

`spark.segment_frame` and `spark.segment_source`, which PySpark 3.5 cannot import, both use it.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from kip33.records.partitions import PartitionSegments, source_at
from kip33.records.reading import Reading
from kip33.rules.packing import cost_bytes, even_bins
from kip33.spark.store_settings import SessionStores, Stores
from kip33.spark.tasks import arrow_schema

TASK_BYTES: Final = 128 << 20  # as Spark's own files sources
LEAST_TASK_BYTES: Final = 8 << 20  # less is not shared by more tasks
_PARTS_OF_A_CORE: Final = 4  # with more parts, cores are used evenly without dividing segments
_MOST_MS: Final = (2**63 - 1) // 1000  # a timestamp of Spark is microseconds in 64 bits


class RowSource(NamedTuple):
    """What a query or a stream reads, in which columns, and with which stores."""

    places: Sequence[str]
    reading: Reading
    schema: StructType
    stores: SessionStores | None  # None: those of each worker

    def use_stores(self) -> Stores | None:
        """Use the stores of the session in this process; return them."""
        return None if self.stores is None else self.stores.use()

    def partitions(self) -> list[PartitionSegments]:
        """Return the partitions to read; errors are those of `kip33.read_arrow`."""
        self.use_stores()
        return self.reading.partitions(source_at(self.places))

    def rows(self, parts: Sequence[PartitionSegments]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of some parts, with the stores that this process uses."""
        return rows_of(self.reading, parts, self.schema)


def tasks_of(
    reading: Reading, partitions: Sequence[PartitionSegments], cores: int
) -> list[list[PartitionSegments]]:
    """Return the parts of each task. Large segments are divided if all are few."""
    parts = reading.parts(partitions)
    if parts and len(parts) < _PARTS_OF_A_CORE * cores:
        sizes = _sizes(parts)
        even_bytes = int(sizes.sum()) // _tasks(sizes, cores)
        parts = reading.shared(parts, max(even_bytes, LEAST_TASK_BYTES))
    return bins_of(parts, cores)


def bins_of(parts: Sequence[PartitionSegments], cores: int) -> list[list[PartitionSegments]]:
    """Return the parts of each task: even in bytes, in order."""
    if not parts:
        return []
    sizes = _sizes(parts)
    bins = even_bins(sizes, _tasks(sizes, cores))
    return [[parts[row] for row in rows] for rows in bins]


def _sizes(parts: Sequence[PartitionSegments]) -> npt.NDArray[np.int64]:
    return np.array([sum(one.listed_bytes for one in part) for part in parts], np.int64)


def _tasks(sizes: npt.NDArray[np.int64], cores: int) -> int:
    """Return how many tasks are worth their start."""
    cost = cost_bytes(sizes)
    return max(-(-cost // TASK_BYTES), min(cores, -(-cost // LEAST_TASK_BYTES)), 1)


def spark_schema(reading: Reading) -> StructType:
    """Return the columns in Spark's types."""
    schema: StructType = from_arrow_schema(reading.schema)
    return schema


def with_schema(reading: Reading, schema: StructType) -> Reading:
    """Return the reading with the columns of a user's schema; ValueError for another column."""
    types = {field.name: field.dataType.simpleString() for field in spark_schema(reading)}
    for field in schema:
        expected, found = types.get(field.name), field.dataType.simpleString()
        if expected is None:
            raise ValueError(
                f"kafka-segments: column {field.name!r} found, expected some of {', '.join(types)}"
            )
        if found != expected:
            raise ValueError(
                f"kafka-segments: column {field.name!r} of type {found} found, expected {expected}"
            )
    return reading.with_columns(schema.names)


def rows_of(
    reading: Reading, parts: Sequence[PartitionSegments], schema: StructType
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of some parts; a timestamp that Spark cannot have becomes its latest."""
    arrow = arrow_schema(schema)
    for batch in reading.read(parts):
        columns = [_cast(*pair) for pair in zip(batch.columns, arrow, strict=True)]
        yield pa.RecordBatch.from_arrays(columns, schema=arrow)


def _cast(column: Any, field: "pa.Field[Any]") -> Any:
    if not pa.types.is_timestamp(field.type):
        return column.cast(field.type)
    try:
        return column.cast(field.type)
    except pa.ArrowInvalid:
        in_ms = column.cast(pa.int64())
        above = pc.max_element_wise(in_ms, -_MOST_MS, skip_nulls=False)
        within = pc.min_element_wise(above, _MOST_MS, skip_nulls=False)
        return within.cast(column.type).cast(field.type)
