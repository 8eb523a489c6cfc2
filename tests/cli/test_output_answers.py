"""An answer in each format: the same rows as a table, JSON, lines of JSON and CSV."""

import io
import json
from collections.abc import Iterable, Iterator
from typing import Any

import click
import pytest

from kip33.cli.output import (
    FORMATS,
    RESULT,
    RESULT_LINE,
    Column,
    Output,
    RowList,
    Table,
    facts,
    human_bytes,
    print_lines,
    show,
    some,
)

ROWS: list[dict[str, Any]] = [
    {"name": "a", "size": 2048, "parts": 1},
    {"name": "=b", "size": None, "parts": 1_234},
]
COLUMNS = (
    Column("name", "name"),
    Column("size", "size", human_bytes),
    Column("twice", lambda row: row["parts"] * 2),
    Column("size again", "size", none=""),
)


def printed(capsys: pytest.CaptureFixture[str], answer: Output, output_format: str) -> str:
    show(answer, output_format)
    return capsys.readouterr().out


def cells(table: str) -> list[list[str]]:
    """Return the heading and the rows of a printed table."""
    lines = [line for line in table.splitlines() if line[0] in "┃│"]
    return [
        [cell.strip() for cell in line.strip("┃│").replace("┃", "│").split("│")] for line in lines
    ]


def answer_of(rows: Any = ROWS, **fields: Any) -> Output:
    return Output(page=fields.pop("page", ()), rows=[RowList("things", rows, "thing")], **fields)


def test_columns_make_the_cells(capsys: pytest.CaptureFixture[str]) -> None:
    table = printed(capsys, answer_of(page=[Table(COLUMNS, ROWS, "things"), "two"]), "table")

    assert table.splitlines()[0].strip() == "things"
    assert cells(table) == [
        ["name", "size", "twice", "size again"],
        ["a", "2.0 KiB", "2", "2,048"],
        ["=b", "-", "2,468", ""],
    ]
    assert table.splitlines()[-1] == "two"


def test_a_table_says_how_many_rows_it_leaves_out(
    capsys: pytest.CaptureFixture[str], subtests: pytest.Subtests
) -> None:
    for table, expected in [
        (Table(COLUMNS, iter(ROWS), most=1), "and 1 more; --format jsonl shows all of them"),
        (
            Table(COLUMNS, ROWS[:1], what="things", total=1_001),
            "and 1,000 more things; --format jsonl shows all of them",
        ),
    ]:
        with subtests.test(f"{table}"):
            lines = printed(capsys, answer_of(page=[table]), "table").splitlines()

            assert lines[-1] == expected
            assert len(lines) == 6


def test_facts_without_a_text_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    few, none = some(1_000, "{:,} files"), some(0, "{:,} files")
    table = facts("build", ("log", few), ("holes", none), ("", ""))

    shown = cells(printed(capsys, answer_of(page=[table]), "table"))
    assert shown[1:] == [["log", "1,000 files"], ["", ""]]


def test_an_object_is_what_json_makes_of_all_rows(capsys: pytest.CaptureFixture[str]) -> None:
    head, tail = {"snapshot": "s", "counts": {"x": 1}}, {"failures": []}
    compact = [{"name": "é", "parts": [1, 2]}]
    summary = {"x": None}

    for key, before, after in (("", summary, {}), ("sums", {}, {"sums": summary})):
        lists = [RowList("things", iter(ROWS)), RowList("others", iter(compact), is_compact=True)]
        answer = Output(page=(), rows=lists, head=head, tail=tail, summary=summary, summary_key=key)
        text = json.dumps(head | before | {"things": ROWS, "others": "compact"} | tail | after)
        text = text.replace('"compact"', '[{"name":"é","parts":[1,2]}]')
        assert printed(capsys, answer, "json") == text + "\n"


def test_lines_name_their_kind_and_end_with_the_summary(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = printed(capsys, answer_of(summary={"things": 2}), "jsonl").splitlines()

    assert [json.loads(line) for line in lines] == [
        *({"kind": "thing", **row} for row in ROWS),
        {"kind": "summary", "things": 2},
    ]


def test_an_answer_without_rows_is_one_object_in_lines_too(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert printed(capsys, Output(page=(), summary={"a": 1}), "jsonl") == '{"a": 1}\n'


def test_the_lines_before_an_error_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    def lines() -> Iterator[str]:
        yield "one"
        yield "two"
        raise ValueError("three")

    with pytest.raises(ValueError, match="three"):
        print_lines(lines())

    assert capsys.readouterr().out == "one\ntwo\n"


def test_only_what_is_printed_is_made(
    capsys: pytest.CaptureFixture[str], subtests: pytest.Subtests
) -> None:
    made = []

    def noted(name: str, values: Iterable[Any]) -> Iterator[Any]:
        made.append(name)
        yield from values

    for output_format in FORMATS:
        with subtests.test(output_format):
            made.clear()
            answer = answer_of(noted("rows", ROWS), page=noted("page", ["x"]))
            show(answer, output_format)

            assert made == ["page" if output_format == "table" else "rows"]


def asked_for_a_result_line() -> click.Context:
    context = click.Context(click.Command("any"))
    context.meta[RESULT_LINE] = True
    return context


def test_the_result_line_is_on_standard_error_if_it_is_asked_for(
    capsys: pytest.CaptureFixture[str], subtests: pytest.Subtests
) -> None:
    for output_format in FORMATS:
        with subtests.test(f"{output_format}"):
            answer = answer_of(page=["a page"], summary={"n": 1})

            show(answer, output_format)
            without = capsys.readouterr()
            with asked_for_a_result_line():
                show(answer, output_format)

            assert without.err == ""
            assert capsys.readouterr() == (without.out, RESULT + '{"n": 1}\n')


def test_csv_has_the_first_rows_or_the_summary(capsys: pytest.CaptureFixture[str]) -> None:
    lists = [RowList("things", iter(ROWS)), RowList("others", [{"a": 1}])]
    rows = Output(page=(), rows=lists, summary={"n": 1})
    few = Output(page=(), rows=[RowList("things", iter(ROWS), columns=("size", "name"))])
    none = Output(page=(), rows=[RowList("things", (), columns=("size", "name"))])
    alone = Output(page=(), head={"path": "p"}, summary={"counts": {"ok": 1}})

    assert printed(capsys, rows, "csv") == "name,size,parts\na,2048,1\n=b,,1234\n"
    assert printed(capsys, few, "csv") == "size,name\n2048,a\n,=b\n"
    assert printed(capsys, none, "csv") == "size,name\n"
    assert printed(capsys, alone, "csv") == 'path,counts\np,"{""ok"": 1}"\n'


def test_times_are_ms_or_iso(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"max_timestamp": 1_700_000_000_250, "waited_ms": 5}, {"max_timestamp": -1}]
    answer = answer_of(rows, summary={"now_ms": 0, "newest": [{"created_ms": 1}]})
    show(answer, "json", "iso")
    told = json.loads(capsys.readouterr().out)
    assert told["things"][0] == {"max_timestamp": "2023-11-14T22:13:20.250Z", "waited_ms": 5}
    assert told["things"][1] == {"max_timestamp": None}
    assert told["now_ms"] == "1970-01-01T00:00:00.000Z"
    assert told["newest"] == [{"created_ms": "1970-01-01T00:00:00.001Z"}]
    show(answer, "csv", "iso")
    assert capsys.readouterr().out.split()[1:] == ["2023-11-14T22:13:20.250Z,5", ","]
    assert '"max_timestamp": 1700000000250' in printed(capsys, answer, "jsonl")


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_json_is_utf8_and_safe_for_a_terminal(
    monkeypatch: pytest.MonkeyPatch, encoding: str
) -> None:
    out = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    monkeypatch.setattr("sys.stdout", out)
    name = "Grüße \N{GREEK SMALL LETTER PI}, \x9b\u2028\udc80"
    show(answer_of([{"name": name}], summary={"name": name}), "jsonl")
    out.flush()
    first, last = out.buffer.getvalue().decode("utf-8").splitlines()  # type: ignore[attr-defined]
    assert r"Grüße π, \u009b\u2028\udc80" in first and "Grüße π" in last
    assert json.loads(first)["name"] == name
