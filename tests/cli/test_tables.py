"""Tables for people: printed without rich where nobody looks at them, to the byte as rich does."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kip33.cli import output

CELLS = st.one_of(
    st.none(),
    st.integers(-(10**12), 10**12),
    st.floats(0, 1e6).map(lambda value: round(value, 2)),
    st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=12),
    st.text(max_size=5),
    st.sampled_from(["[bold]x[/bold]", "a\nb", ":smile:", " x", "x ", "http://a.b/c", "é", "日本"]),
)
NAMES = st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=8)


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[str], list[list[Any]], str | None]:
    width = draw(st.integers(1, 4))
    columns = draw(st.lists(NAMES, min_size=width, max_size=width))
    rows = draw(st.lists(st.lists(CELLS, min_size=width, max_size=width), max_size=4))
    return columns, rows, draw(st.none() | st.text("ab 9.:", max_size=40))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tables())
def test_a_plain_table_is_what_rich_prints(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    given: tuple[list[str], list[list[Any]], str | None],
) -> None:
    columns, rows, title = given
    output.print_table(columns, rows, title=title)
    printed = capsys.readouterr().out
    with monkeypatch.context() as patch:
        patch.setattr(output, "_plain_table", lambda *_: None)
        output.print_table(columns, rows, title=title)
    assert printed == capsys.readouterr().out


def test_plain_cells_need_no_rich(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delattr(output, "_print_by_rich")
    output.print_table(("name", "count"), [("a", 1_000), ("bc", 2)], title="two")
    assert capsys.readouterr().out == (
        "two             \n"
        "┏━━━━━━┳━━━━━━━┓\n"
        "┃ name ┃ count ┃\n"
        "┡━━━━━━╇━━━━━━━┩\n"
        "│ a    │ 1,000 │\n"
        "│ bc   │     2 │\n"
        "└──────┴───────┘\n"
    )


def test_a_tuple_has_a_line_for_each_text_and_a_text_has_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    output.print_table(("problems",), [[("missing", "log: \x1b[2J")], ["a\nb"]])
    lines = [line.strip("│ ") for line in capsys.readouterr().out.splitlines()]
    assert lines[3:6] == ["missing", r"log: \u001b[2J", r"a\nb"]
