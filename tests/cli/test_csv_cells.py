"""CSV: blanks stay, and no cell is a formula to a spreadsheet."""

import csv
import io

import pytest

from kip33.cli.output import Output, csv_rows, show
from kip33.cli.retention_answer import csv_values

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
    rows = [{"topic": text, "partition": -1} for text in TEXTS]

    printed = "\n".join(csv_rows(csv_values(rows), ("topic", "partition")))

    assert cells_of(printed) == list(TEXTS.values())
