"""The code blocks of a page, with what a comment above each says of it.

`<!-- test: name -->`: the block runs alone, in a folder with the demo archive. `<!-- step -->`: it
runs in the page's folder, after the steps before it; a block of text below it is what it prints,
where `...` stands for anything. `<!-- needs: words -->`: it does not run here; its commands and
options are compared with kip33's.
"""

import re
from pathlib import Path
from typing import NamedTuple

BLOCK = re.compile(
    r"(?:^<!-- (?P<mark>[^\n]+) -->\n)?^```(?P<language>\w+)\n(?P<code>.*?)^```$"
    r"(?:\n```text\n(?P<output>.*?)^```$)?",
    re.MULTILINE | re.DOTALL,
)


class Block(NamedTuple):
    """A block of code; `output` is None if the page does not show what it prints."""

    mark: str
    language: str
    code: str
    output: str | None


def blocks_of(page: Path) -> list[Block]:
    """Return a page's blocks of code, in their order."""
    found = BLOCK.finditer(page.read_text(encoding="utf-8"))
    return [Block(one["mark"] or "", one["language"], one["code"], one["output"]) for one in found]


def is_printed(shown: str, printed: str) -> bool:
    """Return whether a program printed what a page shows; spaces and frames do not count."""
    parts = [re.escape(_words(part)) for part in shown.split("...")]
    return re.fullmatch(".*".join(parts), _words(printed)) is not None


def _words(text: str) -> str:
    return re.sub(r"[\s\u2500-\u257f]+", "", text)
