"""`kip33 retention` on Spark: the rule in tasks, for catalogs too large for one machine.

Spark also formats JSON and CSV; the driver holds only a piece of the rows at a time.
"""

from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Any, Final

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf

from kip33.cli.output import FORMULA, NUMBER
from kip33.cli.retention_question import AskedRetention
from kip33.retention.evaluated_tables import delete_records_of
from kip33.retention.evaluation import policies_for
from kip33.rules.policies import TopicGlobs
from kip33.spark.catalog import load_catalog, written
from kip33.spark.retention import (
    COLUMNS_FOR_SUMS,
    evaluate,
    freed_by,
    summarize_partitions,
    totals_of,
    worst_and_totals,
)
from kip33.spark.tasks import PARTITION, cores
from kip33.stores.locations import Location

LINES_AT_ONCE: Final = 20_000  # fetched from Spark
_JSON: Final = {"ignoreNullFields": "false"}
_CSV: Final = {
    **{"emptyValue": "", "escape": '"'},  # double the quotes; Spark's default is a backslash
    **{"ignoreLeadingWhiteSpace": "false", "ignoreTrailingWhiteSpace": "false"},
}


class SparkAnswer:
    """Spark's answer to the question (`cli.retention_question`)."""

    def __init__(
        self, spark: SparkSession, asked: AskedRetention, output: Location | None, most: int
    ) -> None:
        """Judge, and write the tables to `output`; `most` is the number of rows of `worst`."""
        self.workers = cores(spark)
        self._rows = asked.snapshot.rows
        prints_rows = asked.options.output_format != "table" and not asked.options.emit
        judged = _judged(spark, asked, all_columns=bool(output) or prints_rows)
        if output:
            judged = written(spark, output, "segments", judged)
        elif asked.options.show_broker_view:
            judged = judged.persist(StorageLevel.DISK_ONLY)  # index files are read once
        partitions = summarize_partitions(judged, now_ms=asked.request.now_ms)
        freed = freed_by(judged, asked.moments_ms) if asked.moments_ms else None
        if output:
            partitions = written(spark, output, "partitions", partitions)
            freed = written(spark, output, "freed", freed) if freed is not None else None
        if most:
            worst, self.totals = worst_and_totals(partitions, most)
            self._worst = [row.asDict() for row in worst]
        else:
            partitions = partitions.persist()  # they are used for the totals and then printed
            self._worst, self.totals = [], totals_of(partitions)
        self._judged, self._partitions, self._freed = judged, partitions, freed
        self.tells_freed = freed is not None

    def worst(self, most: int) -> list[dict[str, Any]]:
        """Return partitions; those with the most blocked bytes are first."""
        return self._worst[:most]

    def freed(self) -> list[dict[str, Any]]:
        """Return what becomes deletable at which time."""
        return [] if self._freed is None else [row.asDict() for row in self._freed.collect()]

    def broker_differences(self, most: int) -> list[dict[str, Any]]:
        """Return segments whose index differs from the log; those judged differently are first."""
        otherwise = sf.col("broker_deletable") != sf.col("deletable")
        differ = self._judged.where(otherwise | sf.col("broker_index_fault").isNotNull())
        order = (sf.desc(otherwise), *PARTITION, "base_offset", "log_uri")
        return [row.asDict() for row in differ.orderBy(*order).limit(most).collect()]

    def segment_lines(self, kind: str | None) -> Iterator[str]:
        """Yield the segments as JSON, by partition, oldest first."""
        return _in_order(self._judged, self._rows, sf.to_json(_struct(self._judged, kind), _JSON))

    def partition_lines(self, kind: str | None) -> Iterator[str]:
        """Yield the partitions as JSON."""
        return _json(self._partitions, kind)

    def freed_lines(self, kind: str | None) -> Iterator[str]:
        """Yield the rows of `freed` as JSON."""
        return iter(()) if self._freed is None else _json(self._freed, kind)

    def csv_lines(self) -> Iterator[str]:
        """Yield a header and the segments as CSV."""
        return csv_lines(self._judged, self._rows)

    def delete_records(
        self, *, trust_last_modified: bool, left_out: Collection[tuple[str, int]]
    ) -> dict[str, Any]:
        """Return the input of `kafka-delete-records.sh`."""
        rows = (row.asDict() for row in self._partitions.drop("suspicions").collect())
        return delete_records_of(rows, trust_last_modified=trust_last_modified, left_out=left_out)


def _judged(spark: SparkSession, asked: AskedRetention, *, all_columns: bool) -> DataFrame:
    options = asked.options
    rows = load_catalog(spark, asked.catalog.location.uri, asked.snapshot.name)
    if not all_columns:
        rows = rows.select(*COLUMNS_FOR_SUMS)
    if options.topics:
        globs = TopicGlobs.of(options.topics)
        if globs.included_regex:
            rows = rows.where(sf.col("topic").rlike(globs.included_regex))
        if globs.excluded_regex:
            rows = rows.where(~sf.col("topic").rlike(globs.excluded_regex))
    policies = policies_for(asked.snapshot, asked.request.policies)
    return evaluate(rows, replace(asked.request, policies=policies))


def _csv_cell(cell: Column, kind: str) -> Column:
    """Apply `kip33.cli.output.csv_cell` to text columns."""
    if kind not in ("string", "array<string>"):
        return cell
    is_formula = cell.rlike(f"^{FORMULA.pattern}") & ~cell.rlike(rf"\A{NUMBER.pattern}\z")
    return sf.when(is_formula, sf.concat(sf.lit("'"), cell)).otherwise(cell)


def _json(table: DataFrame, kind: str | None) -> Iterator[str]:
    for row in table.select(sf.to_json(_struct(table, kind), _JSON)).toLocalIterator():
        yield row[0]


def _struct(table: DataFrame, kind: str | None) -> Column:
    named = [sf.lit(kind).alias("kind")] if kind else []
    return sf.struct(*named, *table.columns)


def csv_lines(judged: DataFrame, rows: int) -> Iterator[str]:
    """Yield a header and the segments as CSV; `rows` is their approximate number."""
    columns = [
        _csv_cell(
            sf.concat_ws(" ", name) if kind.startswith("array") else sf.col(name), kind
        ).alias(name)
        for name, kind in judged.dtypes
    ]
    yield ",".join(judged.columns)
    yield from _in_order(judged, rows, sf.to_csv(sf.struct(*columns), _CSV))


def _in_order(judged: DataFrame, rows: int, line: Column) -> Iterator[str]:
    """Yield one line per segment; the driver holds a piece at a time."""
    order = (*PARTITION, "base_offset", "log_uri")
    pieces = judged.repartitionByRange(rows // LINES_AT_ONCE + 1, *order)
    for row in pieces.sortWithinPartitions(*order).select(line).toLocalIterator():
        yield row[0]
