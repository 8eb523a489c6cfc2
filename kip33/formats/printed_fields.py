"""Values as programs read them: JSON, bytes as text or base64, lines of CSV.

Also what a Python prompt and a notebook show of kip33's objects.
"""

import csv
import json
import re
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any, Final

from kip33.formats.times import TIME_FIELDS, iso_time

BASE64: Final = "_base64"  # the end of the name of a field whose bytes are not UTF-8
FORMULA: Final = re.compile(r"[=+\-@\t\r]")  # what a spreadsheet evaluates, or strips first
NUMBER: Final = re.compile(r"[+-]?[0-9]+(?:\.[0-9]+)?")
MOST_ROWS_SHOWN: Final = 10  # by a notebook
_BLANK: Final = re.compile(r"\s")


def json_text(value: Any, **how: Any) -> str:
    """Return a value as JSON; only characters that cannot be printed or encoded are escaped.

    >>> json_text({"key": "Grüße, \x9b"}, separators=(",", ":"))
    '{"key":"Grüße, \\\\u009b"}'
    """
    return printable(json.dumps(value, ensure_ascii=False, **how))


def escaped(text: str) -> str:
    r"""Return a text on one line, with JSON's escapes for characters that cannot be printed.

    >>> print(escaped("a\n\x1b[2J\x9b, ä"))
    a\n\u001b[2J\u009b, ä
    """
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else json.dumps(one)[1:-1] for one in text)


def printable(text: str) -> str:
    """Return the lines of a text, each `escaped`."""
    return "\n".join(map(escaped, text.split("\n")))


def known_fields(fields: Mapping[str, Any]) -> dict[str, str]:
    """Return the fields that say something, as texts for a person: times are ISO 8601.

    >>> known_fields({"topic": "orders", "max_timestamp": 250, "error": None, "entries": 1000})
    {'topic': 'orders', 'max_timestamp': '1970-01-01T00:00:00.250Z', 'entries': '1,000'}
    """
    texts = {}
    for name, value in fields.items():
        if name in TIME_FIELDS and isinstance(value, int):
            texts[name] = iso_time(value)
        elif isinstance(value, int) and not isinstance(value, bool):
            texts[name] = f"{value:,}"
        elif isinstance(value, list | tuple):
            texts[name] = ", ".join(map(str, value))
        elif isinstance(value, Mapping):
            texts[name] = ", ".join(f"{count} {what}" for what, count in value.items())
        elif value is not None and value is not False:
            texts[name] = str(value)
    return {name: text for name, text in texts.items() if text}


def object_text(kind: str, fields: Mapping[str, Any]) -> str:
    """Return an object on one line, with the fields that say something.

    >>> object_text("Segment", {"topic": "orders", "error": None, "active_segment": True})
    'Segment(topic=orders, active_segment=True)'
    """
    texts = known_fields(fields).items()
    return escaped(f"{kind}({', '.join(f'{name}={text}' for name, text in texts)})")


def facts_text(kind: str, facts: Mapping[str, Any]) -> str:
    """Return what a program shows of a large object: a line for each fact."""
    texts = known_fields(facts)
    width = max(map(len, texts), default=0)
    return printable("\n".join([kind, *(f"  {name:{width}}  {texts[name]}" for name in texts)]))


def object_html(kind: str, facts: Mapping[str, Any], rows: Sequence[Mapping[str, Any]] = ()) -> str:
    """Return what a notebook shows of an object: its facts, and a small table of its rows.

    >>> "<td style='text-align:left'>&lt;b&gt;</td>" in object_html("Segment", {"topic": "<b>"})
    True
    """
    facts_of = "".join(_html_row((name, text)) for name, text in known_fields(facts).items())
    shown = [known_fields(row) for row in rows]
    names = list(dict.fromkeys(name for row in shown for name in row))
    lines = "".join(_html_row(row.get(name, "") for name in names) for row in shown)
    table = f"<table><thead>{_html_row(names, 'th')}</thead>{lines}</table>" if rows else ""
    return f"<b>{escape(kind)}</b><table>{facts_of}</table>{table}"


def _html_row(cells: Iterable[str], tag: str = "td") -> str:
    texts = (f"<{tag} style='text-align:left'>{escape(escaped(cell))}</{tag}>" for cell in cells)
    return f"<tr>{''.join(texts)}</tr>"


def text_field(name: str, data: bytes | None) -> tuple[str, str | None]:
    """Return a field of JSON: bytes in UTF-8 as text, others in base64 below another name.

    >>> text_field("key", b"order-1"), text_field("key", b"\\xff"), text_field("key", None)
    (('key', 'order-1'), ('key_base64', '/w=='), ('key', None))
    """
    if data is None:
        return name, None
    try:
        return name, data.decode()
    except UnicodeDecodeError:
        return name + BASE64, b64encode(data).decode()


def header_field(header: dict[str, Any]) -> dict[str, str | None]:
    """Return a header of a record, which has `key` and the bytes `value`, as fields of JSON."""
    return {"key": header["key"], **dict([text_field("value", header["value"])])}


class _Returned:
    """What a csv writer writes to, so that it returns its lines without their ends."""

    @staticmethod
    def write(line: str) -> str:
        return line.removesuffix("\r\n")


_CSV: Final[Any] = csv.writer(_Returned())  # it quotes what its own end of a line has: \r, \n


def csv_line(cells: Iterable[Any], *, guard_formulas: bool = False) -> str:
    """A line of CSV without its end.

    A text stays as it is. With `guard_formulas` one that a spreadsheet takes for a formula gets an
    apostrophe before it: it begins with `=`, `+`, `-`, `@`, a tab or a carriage return, and is no
    number. Words in a list have blanks between them; other lists and objects are JSON.

    >>> csv_line(["=1+1", -1, True, None]), csv_line(["=1+1", "-1", "a-b"], guard_formulas=True)
    ('=1+1,-1,true,', "'=1+1,-1,a-b")
    >>> csv_line([["gzip", None, "none"], ["two words"]])
    'gzip none,"[""two words""]"'
    """
    texts = map(_csv_cell, cells)
    line: str = _CSV.writerow(map(_guarded, texts) if guard_formulas else texts)
    return line


def _guarded(cell: Any) -> Any:
    is_formula = isinstance(cell, str) and FORMULA.match(cell) and not NUMBER.fullmatch(cell)
    return f"'{cell}" if is_formula else cell


def _csv_cell(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        words = [str(one) for one in value if one is not None]
        is_plain = all(isinstance(one, str | int | None) for one in value)
        value = " ".join(words) if is_plain and not _BLANK.search("".join(words)) else [*value]
    if isinstance(value, list | dict):
        return json_text(value)
    return value
