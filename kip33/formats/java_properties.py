"""Java's property files, as `java.util.Properties.load` reads them: for Spark and for brokers.

    # a comment; `!` also begins one
    key value     key=value     key: value     key = value
    long.key = the first part, \
               and the rest: a backslash at the end continues a line, leading blanks are dropped
    escaped\\ key = \u0041 \t \n, any other character after a backslash stands for itself
"""

import re
from collections.abc import Iterator
from typing import Final

_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPE: Final = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|(.))", re.DOTALL)
_BAD_ESCAPE: Final = re.compile(r"(?<!\\)(?:\\\\)*\\u(?![0-9A-Fa-f]{4})")
_PAIR: Final = re.compile(r"((?:\\.|[^\\=:\s])*)\s*[=:]?\s*(.*)", re.DOTALL)
_BLANKS: Final = " \t\f"


def parse_properties(text: str) -> dict[str, str]:
    r"""Return the pairs; the last one wins if a key is repeated. ValueError, with the line, for
    `\u` without four hexadecimal digits.

    >>> parse_properties("a = 1\nb:2\nc 3, \\\n   4\n# d=5")
    {'a': '1', 'b': '2', 'c': '3, 4'}
    """
    pairs = {}
    for number, line in _logical_lines(text):
        if _BAD_ESCAPE.search(line):
            raise ValueError(f"line {number}: \\u without four hexadecimal digits")
        found = _PAIR.fullmatch(line)
        if found:
            pairs[_unescaped(found[1])] = _unescaped(found[2])
    return pairs


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield (number, line) for lines with a pair; lines that a backslash continues are joined."""
    joined, begun = "", 0
    for number, line in enumerate(re.split(r"\r\n|\r|\n", text), 1):
        line = line.lstrip(_BLANKS)
        if not joined and (not line or line[0] in "#!"):
            continue
        begun = begun or number
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            joined += line[:-1]
            continue
        yield begun, joined + line
        joined, begun = "", 0
    if joined:
        yield begun, joined


def _unescaped(text: str) -> str:
    def character(found: re.Match[str]) -> str:
        if found[1]:
            return chr(int(found[1], 16))
        return _ESCAPES.get(found[2], found[2])

    return _ESCAPE.sub(character, text)
