"""How `kip33 retention` answers programs: JSON and CSV that Spark makes, a piece at a time."""

import json
from collections.abc import Iterator
from typing import Any, Final

import click
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from kip33.cli.output import FORMULA, NUMBER
from kip33.spark.retention.rule import PARTITION

LINES_AT_ONCE: Final = 20_000  # fetched from Spark
_JSON: Final = {"ignoreNullFields": "false"}
_CSV: Final = {
    **{"emptyValue": "", "escape": '"'},  # quotes are doubled, as everywhere but in Spark
    **{"ignoreLeadingWhiteSpace": "false", "ignoreTrailingWhiteSpace": "false"},
}


def print_lines(
    judged: DataFrame, partitions: DataFrame, freed: DataFrame | None, rows: int
) -> None:
    """Print one JSON object a line: segments, then partitions, then what is freed when."""
    for line in _segments(judged, rows, "segment"):
        click.echo(line)
    for kind, table in (("partition", partitions), ("freed", freed)):
        for line in _json(table, kind) if table is not None else ():
            click.echo(line)


def print_object(
    judged: DataFrame,
    partitions: DataFrame,
    freed: DataFrame | None,
    rows: int,
    summary: dict[str, Any],
) -> None:
    """Print one JSON object on one line, a million segments or one."""
    click.echo('{"segments": [', nl=False)
    _print_joined(_segments(judged, rows, None))
    click.echo('], "partitions": [', nl=False)
    _print_joined(_json(partitions, None))
    if freed is not None:
        click.echo('], "freed": [', nl=False)
        _print_joined(_json(freed, None))
    click.echo(f'], "summary": {json.dumps(summary)}}}')


def print_csv(judged: DataFrame, rows: int) -> None:
    """Print a header and one line a segment; lists are joined by spaces."""
    columns = [
        _csv_cell(
            sf.concat_ws(" ", name) if kind.startswith("array") else sf.col(name), kind
        ).alias(name)
        for name, kind in judged.dtypes
    ]
    click.echo(",".join(judged.columns))
    for line in _in_order(judged, rows, sf.to_csv(sf.struct(*columns), _CSV)):
        click.echo(line)


def _csv_cell(cell: Column, kind: str) -> Column:
    """`kip33.cli.output.csv_cell`, for the columns that are texts."""
    if kind not in ("string", "array<string>"):
        return cell
    is_formula = cell.rlike(f"^{FORMULA.pattern}") & ~cell.rlike(rf"\A{NUMBER.pattern}\z")
    return sf.when(is_formula, sf.concat(sf.lit("'"), cell)).otherwise(cell)


def _print_joined(lines: Iterator[str]) -> None:
    for number, line in enumerate(lines):
        click.echo((", " if number else "") + line, nl=False)


def _segments(judged: DataFrame, rows: int, kind: str | None) -> Iterator[str]:
    return _in_order(judged, rows, sf.to_json(_struct(judged, kind), _JSON))


def _json(table: DataFrame, kind: str | None) -> Iterator[str]:
    for row in table.select(sf.to_json(_struct(table, kind), _JSON)).toLocalIterator():
        yield row[0]


def _struct(table: DataFrame, kind: str | None) -> Column:
    named = [sf.lit(kind).alias("kind")] if kind else []
    return sf.struct(*named, *table.columns)


def _in_order(judged: DataFrame, rows: int, line: Column) -> Iterator[str]:
    """Yield a line a segment, by partition and oldest first; the driver holds a piece at a time."""
    order = (*PARTITION, "base_offset", "log_uri")
    pieces = judged.repartitionByRange(rows // LINES_AT_ONCE + 1, *order)
    for row in pieces.sortWithinPartitions(*order).select(line).toLocalIterator():
        yield row[0]
