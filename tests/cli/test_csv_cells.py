"""CSV: blanks stay, and no cell is a formula to a spreadsheet."""

import csv
import io
from typing import Any

import pyarrow as pa
import pytest

from kip33.cli import retention_local
from kip33.cli.output import Output, csv_rows, show

TEXTS = {
    " blank before": " blank before",
    "blank behind ": "blank behind ",
    "  ": "  ",
    "=HYPERLINK(1)": "'=HYPERLINK(1)",
    "+1+1": "'+1+1",
    "-topic": "'-topic",
    "@sum": "'@sum",
    "\tx": "'\tx",
    "-1": "-1",
    "+2.5": "+2.5",
    "-1\n=x": "'-1\n=x",
    "a=b": "a=b",
    'a "quoted", text': 'a "quoted", text',
    "two\nlines": "two\nlines",
    "": "",
}


def cells_of(printed: str) -> list[str]:
    return [row["topic"] for row in csv.DictReader(io.StringIO(printed, newline=""))]


def test_answers_keep_blanks_and_hold_no_formula(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"topic": text, "offset": -1} for text in TEXTS]
    show(Output(page=(), csv=csv_rows(rows, ("topic", "offset"))), "csv")

    printed = capsys.readouterr().out
    assert cells_of(printed) == list(TEXTS.values())
    assert {row["offset"] for row in csv.DictReader(io.StringIO(printed))} == {"-1"}


def test_so_do_segments() -> None:
    table = pa.table({"topic": list(TEXTS), "partition": [-1] * len(TEXTS)})

    printed = "\n".join(retention_local.csv_lines([table]))

    assert cells_of(printed) == list(TEXTS.values())


@pytest.mark.spark
def test_so_do_the_segments_that_spark_prints(spark: Any) -> None:
    from kip33.cli import retention_spark

    schema = "log_dir string, topic string, partition int, base_offset long, log_uri string"
    rows = [("", text, -1, number, "u") for number, text in enumerate(TEXTS)]
    judged = spark.createDataFrame(rows, schema)

    lines = list(retention_spark.csv_lines(judged, len(rows)))

    assert sorted(cells_of("\n".join(lines))) == sorted(TEXTS.values())
    names = [name.split()[0] for name in schema.split(", ")]
    table = pa.table(dict(zip(names, zip(*rows, strict=True), strict=True)))
    assert sorted(lines) == sorted(retention_local.csv_lines([table]))
