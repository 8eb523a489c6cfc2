"""Text for people, which a terminal cannot act on, and keys and values as text."""

import json
from base64 import b64encode
from typing import Any, Final

MOST_SHOWN: Final = 60  # characters of a key or value in a table
BASE64: Final = "_base64"  # the end of the name of a field whose bytes are not UTF-8


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


def shown_bytes(data: bytes | None) -> str:
    r"""Return bytes for a table: at most 60 characters on one line, `-` for None.

    Bytes that are not UTF-8, and characters that cannot be printed, are escaped.

    >>> shown_bytes(b"a\n\xff"), shown_bytes("ä".encode()), len(shown_bytes(b"a" * 100))
    ('a\\n\\xff', 'ä', 60)
    """
    if data is None:
        return "-"
    text = data[: 4 * MOST_SHOWN + 4].decode(errors="backslashreplace")
    text = escaped(text[: MOST_SHOWN + 1])
    return text if len(text) <= MOST_SHOWN else text[: MOST_SHOWN - 3] + "..."


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
