"""Values as programs read them: JSON, bytes as text or base64, cells that are no formula."""

import json
import re
from base64 import b64encode
from typing import Any, Final

BASE64: Final = "_base64"  # the end of the name of a field whose bytes are not UTF-8
FORMULA: Final = re.compile(r"[=+\-@\t\r]")  # what a spreadsheet evaluates, or strips first
NUMBER: Final = re.compile(r"[+-]?[0-9]+(?:\.[0-9]+)?")
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


def csv_cell(value: Any) -> Any:
    """Return a cell that a spreadsheet reads as a text or a number, not as a formula.

    A text that begins with `=`, `+`, `-`, `@`, a tab or a carriage return gets an apostrophe before
    it, unless it is a number. JSON has every text as it is. Words in a list have blanks between
    them; other lists and objects are JSON.

    >>> csv_cell("=1+1"), csv_cell("-1"), csv_cell(-1), csv_cell("a-b"), csv_cell(True)
    ("'=1+1", '-1', -1, 'a-b', 'true')
    >>> csv_cell(["gzip", None, "none"]), csv_cell(["two words"]), csv_cell({"ok": 1})
    ('gzip none', '["two words"]', '{"ok": 1}')
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        words = [str(one) for one in value if one is not None]
        is_plain = all(isinstance(one, str | int | None) for one in value)
        value = " ".join(words) if is_plain and not _BLANK.search("".join(words)) else [*value]
    if isinstance(value, list | dict):
        return json_text(value)
    is_formula = isinstance(value, str) and FORMULA.match(value) and not NUMBER.fullmatch(value)
    return f"'{value}" if is_formula else value
