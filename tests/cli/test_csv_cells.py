"""CSV: blanks stay, and no cell is a formula to a spreadsheet."""

import csv
import io

import pytest

from kip33.cli.output import Output, RowList, csv_rows, show

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
    show(Output(page=(), rows=[RowList("rows", rows)]), "csv")

    printed = capsys.readouterr().out
    assert cells_of(printed) == list(TEXTS.values())
    assert {row["offset"] for row in csv.DictReader(io.StringIO(printed))} == {"-1"}


def test_lists_are_words_or_json_and_none_is_empty() -> None:
    row = {"codecs": ["none", "gzip"], "problems": ["at byte 5"], "is_ours": False, "n": None}

    assert list(csv_rows([row], [*row])) == [
        "codecs,problems,is_ours,n",
        'none gzip,"[""at byte 5""]",false,',
    ]
