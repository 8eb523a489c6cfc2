"""Tables for people: what fits a width, what is left out, and that no name is ever broken."""

import re
import unicodedata
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.cells import cell_len

from kip33.cli.tables import Column, Laid, Table, facts, lay_out
from kip33.formats.printed_fields import escaped
from kip33.rules.policies import human_bytes

PARTITION = Column("partition", 0, is_name=True)
SEGMENTS = Column("segments", 1, rank=2)
SIZE = Column("log size", 2, human_bytes)
WHY = Column("why", 3, none="", is_remark=True)
COLUMNS = (PARTITION, SEGMENTS, SIZE, WHY)
ROWS = (("b/orders-0", 1_200, "2.0 KiB", "it is the active segment"), ("b/x-1", 7, "81 B", ""))


def lines_of(laid: Laid) -> list[str]:
    return [*laid.head, *laid.body]


LAYOUTS = {
    "all columns": (
        68,
        """
        ┏━━━━━━━━━━━━┳━━━━━━━━━━┳━━━━━━━━━━┳━━━━━━━━━━━━━━━━━━━━━━━━━━┓
        ┃ partition  ┃ segments ┃ log size ┃ why                      ┃
        ┡━━━━━━━━━━━━╇━━━━━━━━━━╇━━━━━━━━━━╇━━━━━━━━━━━━━━━━━━━━━━━━━━┩
        │ b/orders-0 │    1,200 │  2.0 KiB │ it is the active segment │
        │ b/x-1      │        7 │     81 B │                          │
        └────────────┴──────────┴──────────┴──────────────────────────┘
        """,
        [],
    ),
    "remarks below their rows": (
        36,
        """
        ┏━━━━━━━━━━━━┳━━━━━━━━━━┳━━━━━━━━━━┓
        ┃ partition  ┃ segments ┃ log size ┃
        ┡━━━━━━━━━━━━╇━━━━━━━━━━╇━━━━━━━━━━┩
        │ b/orders-0 │    1,200 │  2.0 KiB │
        │   why: it is the active segment
        │ b/x-1      │        7 │     81 B │
        └────────────┴──────────┴──────────┘
        """,
        [],
    ),
    "headings on two lines": (
        35,
        """
        ┏━━━━━━━━━━━━┳━━━━━━━━━━┳━━━━━━━━━┓
        ┃ partition  ┃ segments ┃     log ┃
        ┃            ┃          ┃    size ┃
        ┡━━━━━━━━━━━━╇━━━━━━━━━━╇━━━━━━━━━┩
        │ b/orders-0 │    1,200 │ 2.0 KiB │
        │   why: it is the active segment
        │ b/x-1      │        7 │    81 B │
        └────────────┴──────────┴─────────┘
        """,
        [],
    ),
    "without the column of the highest rank": (
        25,
        """
        ┏━━━━━━━━━━━━┳━━━━━━━━━━┓
        ┃ partition  ┃ log size ┃
        ┡━━━━━━━━━━━━╇━━━━━━━━━━┩
        │ b/orders-0 │  2.0 KiB │
        │   why: it is the active
        │   segment
        │ b/x-1      │     81 B │
        └────────────┴──────────┘
        """,
        ["segments"],
    ),
    "lines of values": (
        13,
        """
        partition:
        b/orders-0
        segments:
            1,200
        log size:
            2.0 KiB
        why: it is
            the
            active
            segment

        partition:
            b/x-1
        segments: 7
        log size:
            81 B
        """,
        [],
    ),
}


def test_a_table_fits_a_width(subtests: pytest.Subtests) -> None:
    for name, (width, expected, left_out) in LAYOUTS.items():
        with subtests.test(name):
            laid = lay_out(COLUMNS, ROWS, width)

            lines = [line.removeprefix(" " * 8) for line in expected.strip("\n").split("\n")]
            assert lines_of(laid) == [*lines[:-1], *([""] if lines[0][0] == "p" else [])]
            assert list(laid.left_out) == left_out


def test_what_is_left_out_fits_the_width_that_the_table_names() -> None:
    laid = lay_out(COLUMNS, ROWS, 25)

    assert lay_out(COLUMNS, ROWS, laid.needed).left_out == []
    assert lay_out(COLUMNS, ROWS, laid.needed - 1).left_out == ["segments"]


def test_columns_without_a_value_are_left_out_first() -> None:
    columns = (PARTITION, Column("refused", 1, rank=0), SEGMENTS._replace(value=2))
    laid = lay_out(columns, [("b/orders-0", "-", 3), ("b/x-1", "", 4)], 25)

    assert laid.left_out == ["refused"]


def test_a_column_in_which_no_row_has_anything_is_not_shown() -> None:
    laid = lay_out((Column("topic", 0), Column("result", 1, rank=0)), [("a", ""), ("b", "")], None)
    assert laid.head[1] == "┃ topic ┃" and not laid.left_out


def test_facts_without_room_are_lines() -> None:
    table = facts("build", ("log", "1 KiB of 3 files"), ("catalog", "s3a://bucket/_catalog"))

    laid = lay_out(table.columns, list(table.rows), 20)

    assert lines_of(laid) == [
        "build",
        "log:  1 KiB of 3",
        "      files",
        "catalog:",
        "s3a://bucket/_catalog",
        "",
    ]


def test_numbers_are_on_the_right(subtests: pytest.Subtests) -> None:
    for cells, is_right in [
        ([1, 2_000], True),
        ([1.5, "-"], True),
        (["-", "-"], False),
        ([1, "a"], False),
        (["1", "2"], False),
        ([], False),
    ]:
        with subtests.test(f"{cells}"):
            laid = lay_out([Column("a long heading", 0)], [[cell] for cell in cells], None)

            assert laid.head[1] == "┃ a long heading ┃"
            assert [line.startswith("│  ") for line in laid.body[:-1]] == [is_right] * len(cells)


def test_a_table_without_rows(subtests: pytest.Subtests) -> None:
    for width in [12, 20, 80, None]:
        with subtests.test(f"{width}"):
            text = "\n".join(lines_of(lay_out(COLUMNS, [], width, title="to restore")))

            assert text.startswith("to restore")
            assert "partition" in text or "nothing to show" in text


def test_characters_of_two_places_keep_the_frame_straight() -> None:
    names = ("注文-0", "x", "é", "e\u0301", "\N{GRINNING FACE}", "ｶﾅ", "ไทย")
    rows = [(name, number, "1 B") for number, name in enumerate(names)]
    laid = lay_out(COLUMNS[:3], rows, None)

    assert {cell_len(line) for line in lines_of(laid)} == {cell_len(laid.head[0])}


def test_a_table_has_a_frame(capsys: pytest.CaptureFixture[str]) -> None:
    Table((Column("name", 0), Column("count", 1)), [("a", 1_000), ("bc", 2)], "two").print()
    assert capsys.readouterr().out == (
        "two\n"
        "┏━━━━━━┳━━━━━━━┓\n"
        "┃ name ┃ count ┃\n"
        "┡━━━━━━╇━━━━━━━┩\n"
        "│ a    │ 1,000 │\n"
        "│ bc   │     2 │\n"
        "└──────┴───────┘\n"
    )


def test_a_tuple_has_a_line_for_each_text_and_a_text_has_one() -> None:
    laid = lay_out([Column("problems", 0)], [[("missing", "log: \x1b[2J")], ["a\nb"]], None)
    lines = [line.strip("│ ") for line in laid.body]
    assert lines[:3] == ["missing", r"log: \u001b[2J", r"a\nb"]


WORDS = st.lists(st.sampled_from(["a", "of", "日本", "\x1b[2J", "broker-1/orders-0"]), max_size=9)
# Of others terminals disagree: marks that take a place, and symbols that became wide in Unicode 16.
CHARACTERS = st.characters(exclude_categories=("Cs", "Mc"), max_codepoint=0x10FF)
NAMES = st.text(
    CHARACTERS | st.sampled_from("注文ｶ\u2028\N{GRINNING FACE}"), min_size=1, max_size=40
).map(lambda text: f"/{text}/")


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[Column], list[list[Any]], str | None]:
    kinds = draw(st.lists(st.sampled_from(["name", "text", "number", "remark"]), min_size=1))
    columns, cells = [], []
    rows = draw(st.integers(0, 3))
    values: dict[str, st.SearchStrategy[Any]] = {
        "name": NAMES,
        "text": WORDS.map(" ".join),
        "number": st.integers(-(10**12), 10**12) | st.just("-"),
        "remark": WORDS.map(" ".join) | WORDS.map(tuple),
    }
    for kind in kinds[:6]:
        heading = draw(st.sampled_from(["from", "read twice, at most", "日本"]))
        heading += f" {len(columns)}"
        rank = draw(st.integers(0, 3))
        columns.append(
            Column(heading, 0, rank=rank, is_name=kind == "name", is_remark=kind == "remark")
        )
        cells.append(draw(st.lists(values[kind], min_size=rows, max_size=rows)))
    return (
        columns,
        [list(row) for row in zip(*cells, strict=True)],
        draw(st.none() | st.just("two words")),
    )


LONG_HEADING = Column("read twice, at most 0", 0, is_remark=True), Column("from 1", 0, is_name=True)


@example(([*LONG_HEADING], [["a", "/0/"]], None), 24)
@given(tables(), st.integers(24, 140) | st.none())
def test_no_line_is_longer_than_the_width_and_each_name_stands_whole(
    table: tuple[list[Column], list[list[Any]], str | None], width: int | None
) -> None:
    """A line with a name, or with one word, may be longer."""
    columns, rows, title = table
    lines = lines_of(lay_out(columns, rows, width, title=title))

    names = names_in(columns, rows)
    long = [line for line in lines if width and cell_len(line) > width]
    assert [line for line in long if line not in names and " " in line.strip(" ")] == []
    text = "\n".join(lines)
    assert [name for name in names if name not in text] == []
    assert {one for one in text if unicodedata.category(one) == "Cc"} <= {"\n"}


def names_in(columns: Sequence[Column], rows: Sequence[Sequence[Any]]) -> list[str]:
    """Return the names of a table as they are printed."""
    return [
        escaped(cell)
        for row in rows
        for column, cell in zip(columns, row, strict=True)
        if column.is_name
    ]


@given(tables(), st.integers(24, 140))
def test_nothing_is_hidden_but_what_the_table_names(
    table: tuple[list[Column], list[list[Any]], str | None], width: int
) -> None:
    columns, rows, _ = table
    laid = lay_out(columns, rows, width)

    values = list(zip(*rows, strict=True)) or [()] * len(columns)
    empty = [one for one, cells in zip(columns, values, strict=True) if {*cells} <= {"", "-"}]
    left_out = [one for one in columns if one.heading in laid.left_out]
    assert [one for one in left_out if one.is_name or one.is_remark] == []
    assert [one for one in left_out if one.rank == 0 and one not in empty] == []
    shown = re.sub(r"[\s┃│]+", "", "".join(lines_of(laid)))
    for row in rows:
        for column, cell in zip(columns, row, strict=True):
            if column not in left_out and isinstance(cell, int):
                assert f"{cell:,}" in shown
