"""CSV has each text as it is; on request, no cell is a formula to a spreadsheet."""

import csv
import io
from pathlib import Path

import pytest
from click.testing import CliRunner

from kip33.cli.output import Output, RowList, csv_rows, show
from kip33.cli.records import records as records_command
from tests.builders.segment_builder import Record, v2_batch

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
    "old\rline": "old\rline",
    "": "",
}


def cells_of(printed: str) -> list[str]:
    return [row["topic"] for row in csv.DictReader(io.StringIO(printed, newline=""))]


@pytest.mark.parametrize("is_guarded", [False, True])
def test_answers_have_each_text_and_on_request_no_formula(
    capfdbinary: pytest.CaptureFixture[bytes], is_guarded: bool
) -> None:
    rows = [{"topic": text, "offset": -1} for text in TEXTS]
    show(Output(page=(), rows=[RowList("rows", rows)]), "csv", guard_formulas=is_guarded)

    printed = capfdbinary.readouterr().out.decode()
    assert cells_of(printed) == [*(TEXTS.values() if is_guarded else TEXTS)]
    assert {row["offset"] for row in csv.DictReader(io.StringIO(printed, newline=""))} == {"-1"}


@pytest.mark.parametrize("is_guarded", [False, True])
def test_records_have_each_text_and_on_request_no_formula(
    tmp_path: Path, is_guarded: bool, subtests: pytest.Subtests
) -> None:
    log = tmp_path / "archive/orders-0" / f"{0:020d}.log"
    log.parent.mkdir(parents=True)
    log.write_bytes(v2_batch(0, [Record(0, None, text.encode()) for text in TEXTS]))
    flags = ["--guard-formulas"] if is_guarded else []
    for output in ([], ["--output", str(tmp_path / "rows.csv")]):
        with subtests.test(output=output):
            asked = [str(log.parent.parent), "--columns", "value", "--format", "csv"]
            done = CliRunner().invoke(records_command, [*asked, *flags, *output])
            text = Path(output[1]).read_bytes().decode() if output else done.stdout
            rows = csv.DictReader(io.StringIO(text, newline=""))
            assert [row["value"] for row in rows] == [*(TEXTS.values() if is_guarded else TEXTS)]


def test_lists_are_words_or_json_and_none_is_empty() -> None:
    row = {"codecs": ["none", "gzip"], "problems": ["at byte 5"], "is_ours": False, "n": None}

    assert list(csv_rows([row], [*row])) == [
        "codecs,problems,is_ours,n",
        'none gzip,"[""at byte 5""]",false,',
    ]
