"""CSV: blanks stay, and no cell is a formula to a spreadsheet."""

import csv
import io
from typing import Any

import pytest

from kip33.cli.output import print_rows
from kip33.cli.retention_lines import print_csv

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
    print_rows([{"topic": text, "offset": -1} for text in TEXTS], ("topic", "offset"), "csv")

    printed = capsys.readouterr().out
    assert cells_of(printed) == list(TEXTS.values())
    assert {row["offset"] for row in csv.DictReader(io.StringIO(printed))} == {"-1"}


@pytest.mark.spark
def test_so_do_the_segments_that_spark_prints(
    spark: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    schema = "log_dir string, topic string, partition int, base_offset long, log_uri string"
    rows = [("", text, -1, number, "u") for number, text in enumerate(TEXTS)]
    judged = spark.createDataFrame(rows, schema)
    capsys.readouterr()

    print_csv(judged, len(rows))

    printed = capsys.readouterr().out
    assert sorted(cells_of(printed)) == sorted(TEXTS.values())
