"""Tables for people: boxes that fit the terminal, remarks below their rows, or lines of values.

Names, such as paths and partitions, are never broken. A table that is wider than the terminal has
its remarks on lines below each row, then the headings on several lines, then fewer columns, of
which a line below the table tells. If even the columns that are always shown do not fit, each row
becomes lines of `name: value`. In a file or a pipe, a table is as wide as it has to be, or as the
variable COLUMNS says. At a terminal, words such as `wrong` have the color of their severity, which
NO_COLOR turns off; FORCE_COLOR turns it on in a pipe.
"""

import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice, repeat
from typing import Any, Final, NamedTuple
from unicodedata import category, east_asian_width

import click

from kip33.cli.standard_output import exact_output
from kip33.formats.printed_fields import escaped
from kip33.rules.policies import human_bytes, human_duration

MOST_TABLE_ROWS: Final = 1_000  # a table is for people
_COMMAND: Final = re.compile(r"(- |\w+: )?\$ ")  # a line that is copied
_QUANTITIES: Final = (human_bytes, human_duration)  # texts that are numbers with a unit
_FRAME: Final = "┏━┳┓┃┡╇┩│└─┴┘"
_ASCII_FRAME: Final = "+-++|+++|+-++"
SEVERE: Final = frozenset(
    (
        *("wrong", "malformed", "invalid", "unreadable", "damage", "difference", "problem"),
        *("failed", "refused", "blocked", "stopped", "not removed"),
    )
)
SUSPICIOUS: Final = frozenset(
    (
        *("padded", "incomplete", "sparse", "missing", "changed", "truncated", "unverified"),
        *("archived", "unknown", "unsure", "overlap", "warning", "by hand", "future", "seconds"),
        *("microseconds", "nanoseconds", "unexplained"),
    )
)
_COLORED: Final = re.compile(rf"(?<![\w./-])(?:{'|'.join(SEVERE | SUSPICIOUS)})(?![\w./-])")


class Column(NamedTuple):
    """A column of a table: its heading, and what it shows of a row.

    `value` is the row's field, or a function of the row; `show` makes it readable. `none` is shown
    for None. Where there is no room, columns without a value are left out first, then those of the
    highest `rank`; those of rank 0, and names, are always shown. `is_name`: a path, topic or id,
    which is never broken. `is_remark`: a sentence, which may stand below its row.
    """

    heading: str
    value: str | int | Callable[[Any], Any]
    show: Callable[[Any], Any] | None = None
    none: str = "-"
    rank: int = 1
    is_name: bool = False
    is_remark: bool = False

    def cell(self, row: Any) -> Any:
        """Return a text, a number, or a tuple of texts that have a line each."""
        value = self.value(row) if callable(self.value) else row[self.value]
        if value is None:
            return self.none
        return self.show(value) if self.show else value


class Table(NamedTuple):
    """A table of rows for people; below it stands how many more rows there are.

    `what` names the rows, and `total` is their number where `rows` has not all of them. `most`:
    None for all of them; `most_at_terminal`, if there are to be fewer.
    """

    columns: Sequence[Column]
    rows: Iterable[Any]
    title: str | None = None
    what: str = ""
    total: int | None = None
    most: int | None = MOST_TABLE_ROWS
    most_at_terminal: int | None = None

    def print(self) -> None:
        """Print the first rows, and how many others there are."""
        width = line_width()
        rows, most = iter(self.rows), (is_terminal() and self.most_at_terminal) or self.most
        cells = [[column.cell(row) for column in self.columns] for row in islice(rows, most)]
        is_utf = (getattr(sys.stdout, "encoding", None) or "").lower().startswith("utf")
        frame = _FRAME if is_utf else _ASCII_FRAME
        is_styled = has_styles()
        laid = lay_out(self.columns, cells, width, self.title, frame=frame, is_colored=is_styled)
        head = [click.style(line, bold=True) if is_styled else line for line in laid.head]
        # No cell has a control character, so the only escapes are those of colors and bold.
        click.echo("\n".join([*head, *laid.body]), exact_output(), color=True)
        for line in self._notes(laid, len(cells), rows):
            click.echo("\n".join(_wrapped("", line.split(" "), width)))

    def _notes(self, laid: "Laid", shown: int, others: Iterator[Any]) -> Iterator[str]:
        if laid.left_out:
            yield left_out_text(laid.left_out, laid.needed)
        more = sum(1 for _ in others) if self.total is None else self.total - shown
        if more:
            what = f" {self.what}" if self.what else ""
            yield f"and {more:,} more{what}; --format jsonl shows all of them"


def is_terminal() -> bool:
    """Return whether standard output is a terminal."""
    return sys.stdout is not None and sys.stdout.isatty()


def has_styles() -> bool:
    """Return whether texts are bold or colored: at a terminal, or as NO_COLOR, FORCE_COLOR say."""
    if os.environ.get("NO_COLOR"):
        return False
    is_capable = is_terminal() and os.environ.get("TERM", "dumb") != "dumb"
    return is_capable or bool(os.environ.get("FORCE_COLOR"))


def line_width() -> int | None:
    """Return how many characters a line has: those of the terminal, or of COLUMNS; None: any."""
    return shutil.get_terminal_size().columns if is_terminal() or "COLUMNS" in os.environ else None


def left_out_text(headings: Iterable[str], needed: int) -> str:
    """Return a sentence on columns without room, and how many characters all of them need."""
    return (
        f"left out: {'; '.join(headings)} (widen the terminal to {needed} characters, or use "
        "--format jsonl)"
    )


def print_sentences(text: str) -> None:
    """Print lines of text; at a terminal they are wrapped between words, but not commands."""
    for line in text.split("\n"):
        width = None if _COMMAND.match(line) else line_width()
        later = "  " if line.startswith("- ") else ""
        click.echo("\n".join(_wrapped("", line.split(" "), width, later)))


def facts(name: str, *pairs: tuple[str, str | None]) -> Table:
    """Return a table of names and texts; those that are None are left out.

    >>> list(facts("build", ("log", "1 KiB"), ("holes", None)).rows)
    [('log', '1 KiB')]
    """
    texts = [pair for pair in pairs if pair[1] is not None]
    return Table((Column(name, 0, rank=0), Column("", 1, rank=0)), texts, most=None)


class Laid(NamedTuple):
    """The lines of a table: its title and headings, then the rest.

    `left_out`: the headings of columns without room, which lines of `needed` characters have.
    """

    head: Sequence[str]
    body: Sequence[str]
    left_out: Sequence[str] = ()
    needed: int = 0


@dataclass(frozen=True, eq=False)
class _Texts:
    """A column as texts: each cell has a line or more."""

    column: Column
    heading: str
    cells: Sequence[Sequence[str]]
    cells_width: int
    is_right: bool
    is_colored: bool

    @classmethod
    def of(cls, column: Column, values: Sequence[Any], is_colored: bool) -> "_Texts":
        """Make texts of values; numbers, beside which there may be nothing, are on the right.

        Names and sentences have no colors.
        """
        numbers = [value for value in values if value not in ("", column.none)]
        is_right = column.show in _QUANTITIES or (
            bool(numbers) and all(isinstance(value, int | float) for value in numbers)
        )
        cells = [*map(_lines_of, values)]
        width = max((_cells(line) for cell in cells for line in cell), default=0)
        is_colored = is_colored and not (column.is_name or column.is_remark)
        return cls(column, escaped(column.heading), cells, width, is_right, is_colored)

    @property
    def is_blank(self) -> bool:
        """Return whether no row has anything here: the column is not shown."""
        return not any(line for cell in self.cells for line in cell)

    @property
    def priority(self) -> tuple[bool, int] | None:
        """Return how soon the column is left out, the largest first; None: never."""
        nothing = ("", self.column.none)
        is_empty = all(line in nothing for cell in self.cells for line in cell)
        is_fixed = self.column.is_name or (self.column.rank == 0 and not is_empty)
        return None if is_fixed else (is_empty, self.column.rank)

    def heading_lines(self, is_narrow: bool) -> Sequence[str]:
        return self.heading.split(" ") if is_narrow else [self.heading]

    def padded(self, line: str, width: int, how: Callable[["_Texts", str], str]) -> str:
        blanks, text = " " * (width - _cells(line)), how(self, line)
        return blanks + text if self.is_right else text + blanks

    def plain(self, line: str) -> str:
        return line

    def colored(self, line: str) -> str:
        """Return the text with the colors of its words; below `blocked`, all has that color."""
        if not self.is_colored:
            return line
        if self.heading in SEVERE and line not in ("", self.column.none, "0"):
            return _in_color(self.heading, line)
        return _COLORED.sub(lambda found: _in_color(found[0], found[0]), line)

    def told(self, number: int) -> Iterator[str]:
        """Yield the lines of a cell; an empty one, or a remark of nothing, has none."""
        nothing = ("", self.column.none) if self.column.is_remark else ("",)
        return (line for line in self.cells[number] if line not in nothing)

    def words(self, line: str) -> Sequence[str]:
        """Return what stays on one line: a name, a number with its unit, a word of a text."""
        return [line] if self.column.is_name or self.is_right else line.split(" ")


def lay_out(
    columns: Sequence[Column],
    rows: Sequence[Sequence[Any]],
    width: int | None,
    title: str | None = None,
    *,
    frame: str = _FRAME,
    is_colored: bool = False,
) -> Laid:
    """Return the lines of a table in a terminal of `width` characters, None for any number.

    >>> columns = Column("topic", 0, is_name=True), Column("records", 1), Column("why", 2)
    >>> laid = lay_out(columns, [("orders", 17_000, "-")], 24)
    >>> print("\\n".join([*laid.head, *laid.body]), laid.left_out, laid.needed)
    ┏━━━━━━━━┳━━━━━━━━━┓
    ┃ topic  ┃ records ┃
    ┡━━━━━━━━╇━━━━━━━━━┩
    │ orders │  17,000 │
    └────────┴─────────┘ ['why'] 26
    """
    by_column = zip(*rows, strict=True) if rows else [()] * len(columns)
    are_facts = len(columns) == 2 and not columns[1].heading  # whose first column has names
    every = [
        _Texts.of(column, values, is_colored and not (are_facts and number == 0))
        for number, (column, values) in enumerate(zip(columns, by_column, strict=True))
    ]
    texts = [text for text in every if not text.is_blank] or every
    titles = _wrapped("", escaped(title).split(" "), width) if title else []
    box, needed = _box_of(texts, width, frame)
    if box is None:
        return _listed(texts, len(rows), titles, width or 0)
    remarks = [text for text in texts if text.column.is_remark and text not in box.shown]
    left_out = [text.heading for text in texts if text not in (*box.shown, *remarks)]
    body = [line for number in range(len(rows)) for line in box.row(number, remarks, width)]
    return Laid([*titles, *box.head()], [*body, box.foot()], left_out, needed)


class _Box:
    """The columns that have room in a box, each with the lines of its heading and its width."""

    def __init__(self, shown: Sequence[_Texts], frame: str, *, is_narrow: bool) -> None:
        """Take columns; `is_narrow`: their headings may have a line for each word."""
        self.shown = list(shown)
        self._frame = tuple(frame)
        self._widths = [
            max(text.cells_width, *map(_cells, text.heading_lines(is_narrow))) for text in shown
        ]
        self.width = sum(self._widths) + 3 * len(shown) + 1

    def head(self) -> list[str]:
        """Return the lines of the headings."""
        headings = [
            _wrapped("", text.heading.split(" "), width)
            for text, width in zip(self.shown, self._widths, strict=True)
        ]
        left, fill, between, right, edge = self._frame[:5]
        below, crossing, end = self._frame[5:8]
        return [
            self._border(left, fill, between, right),
            *self._row(headings, edge, _Texts.plain),
            self._border(below, fill, crossing, end),
        ]

    def foot(self) -> str:
        """Return the last line."""
        return self._border(*self._frame[9:])

    def row(self, number: int, remarks: Sequence[_Texts], width: int | None) -> Iterator[str]:
        """Yield the lines of a row, then its remarks."""
        edge = self._frame[8]
        yield from self._row([text.cells[number] for text in self.shown], edge, _Texts.colored)
        for remark in remarks:
            heading = f"{remark.heading}:".split(" ")
            for line in remark.told(number):
                words = [*heading, *remark.words(line)]
                yield from _wrapped(f"{edge}   ", words, width, f"{edge}   ")
                heading = []

    def _row(
        self, cells: Sequence[Sequence[str]], edge: str, how: Callable[[_Texts, str], str]
    ) -> Iterator[str]:
        columns = list(zip(self.shown, self._widths, cells, strict=True))
        for number in range(max(map(len, cells))):
            padded = (
                text.padded(lines[number] if number < len(lines) else "", width, how)
                for text, width, lines in columns
            )
            yield f"{edge} " + f" {edge} ".join(padded) + f" {edge}"

    def _border(self, left: str, fill: str, between: str, right: str) -> str:
        return left + between.join(fill * (width + 2) for width in self._widths) + right


def _box_of(texts: Sequence[_Texts], width: int | None, frame: str) -> tuple[_Box | None, int]:
    """Return a box that has room, and the width that the columns it leaves out would need.

    There is no box if the columns that are always shown have no room.
    """
    box = _Box(texts, frame, is_narrow=False)
    if width is None or box.width <= width:
        return box, 0
    shown = [text for text in texts if not text.column.is_remark]
    needed = 0
    while shown:
        for is_narrow in (False, True):
            box = _Box(shown, frame, is_narrow=is_narrow)
            if box.width <= width:
                return box, needed
        needed = needed or box.width
        others = [(text.priority, at) for at, text in enumerate(shown) if text.priority]
        if not others:
            break
        del shown[max(others)[1]]
    return None, 0


def _listed(texts: Sequence[_Texts], rows: int, titles: Sequence[str], width: int) -> Laid:
    """Return each row as lines of `name: value`, its names first."""
    if len(texts) == 2 and not texts[1].heading:  # facts: their names are in the rows
        names = [" ".join(cell) for cell in texts[0].cells]
        pairs = list(zip(names, [texts[1]] * rows, texts[1].cells, strict=True))
        return Laid([*titles, texts[0].heading], [*_pair_lines(pairs, width), ""])
    texts = sorted(texts, key=lambda text: not text.column.is_name)
    body: list[str] = []
    for number in range(rows):
        body += _pair_lines([(one.heading, one, one.told(number)) for one in texts], width)
        body.append("")
    return Laid([*titles, ""] if titles else [], body or ["nothing to show", ""])


def _pair_lines(pairs: Sequence[tuple[str, _Texts, Iterable[str]]], width: int) -> list[str]:
    """Return lines of `name: value`; the values begin below each other, where there is room."""
    longest = max((_cells(name) for name, _, _ in pairs), default=0)
    later = " " * min(longest + 2, width // 3)
    lines: list[str] = []
    for name, text, values in pairs:
        first = f"{name}: " + later[_cells(name) + 2 :]
        for value in values:
            wrapped = _wrapped(first, text.words(value), width, later)
            starts = chain([len(first)], repeat(len(later)))
            lines += [
                line[:start] + text.colored(line[start:])
                for line, start in zip(wrapped, starts, strict=False)
            ]
            first = later
    return lines


def _wrapped(first: str, words: Iterable[str], width: int | None, later: str = "") -> list[str]:
    """Return lines of words; no word is broken, and `later` goes where it would not fit.

    >>> _wrapped("why: ", ["the", "file", "orders-0/1.log"], 14, "  ")
    ['why: the file', 'orders-0/1.log']
    """
    lines: list[str] = []
    line, gap = first, ""
    for word in words:
        if width is not None and _cells(line + gap + word) > width:
            lines += [line.rstrip(" ")] if line.strip(" ") else []
            line = later if _cells(later + word) <= width else ""
            gap = ""
        line, gap = line + gap + word, " "
    return [*lines, line.rstrip(" ")]


def _in_color(word: str, text: str) -> str:
    return click.style(text, fg="red" if word in SEVERE else "yellow")


def _lines_of(value: Any) -> Sequence[str]:
    """Return the lines of a cell, without control characters: a tuple's texts have one each."""
    if isinstance(value, tuple):
        return [*map(escaped, value)] or [""]
    if value is None:
        return [""]
    return [escaped(f"{value:,}" if isinstance(value, int) else str(value))]


def _cells(text: str) -> int:
    """Return how many places a text takes: characters of Chinese take two, added accents none.

    >>> _cells("orders"), _cells("注文"), _cells("e\u0301")
    (6, 4, 1)
    """
    if text.isascii():
        return len(text)
    return sum((category(one)[0] != "M") + (east_asian_width(one) in "FW") for one in text)
