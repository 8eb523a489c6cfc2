"""Sphinx's configuration of these pages; `make docs` builds them.

The line `<!-- commands -->` in `reference/commands.md` becomes the reference of all commands: their
usage, description, options and examples, from the definitions that `kip33 --help` prints.
"""

import re
from typing import Any, Final

from pygments.lexers.special import TextLexer

from kip33 import __version__
from kip33.cli.main import COMMANDS, get_command

project = "kip33"
author = "The kip33 project"
copyright = author  # noqa: A001
release = version = __version__
extensions = ["myst_parser"]
myst_enable_extensions = ["deflist"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = f"kip33 {__version__}"
html_copy_source = False
smartquotes = False  # they would make one dash of `--layout`

MARK: Final = "<!-- commands -->"
SPECIAL: Final = re.compile(r"([\\`*_{}\[\]<>#|$~&])")


def reference() -> str:
    """Return the reference of all commands as Markdown, one section a command."""
    return "\n".join(_section(name) for name in COMMANDS)


def _section(name: str) -> str:
    command = get_command(name)
    context = command.context_class(command, info_name=f"kip33 {name}")
    lines = [f"## kip33 {name}", "", "```text", command.get_usage(context), "```", ""]
    for paragraph in _paragraphs(command.help):
        lines += _formatted(paragraph)
    lines += ["### Options of " + name, ""]
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record and record[0].startswith("-"):  # arguments are in the usage
            form, text = record
            lines += [f"`{form}`", f": {_escaped(' '.join(text.split()))}", ""]
    for paragraph in _paragraphs(command.epilog):
        lines += ["```text", paragraph.removeprefix("\b\n"), "```", ""]
    return "\n".join(lines)


def _paragraphs(text: str | None) -> list[str]:
    return [part for part in re.split(r"\n\s*\n", (text or "").strip()) if part.strip()]


def _formatted(paragraph: str) -> list[str]:
    """Return a paragraph of help; one that click prints as it stands is a block."""
    if paragraph.startswith("\b"):
        return ["```text", paragraph.removeprefix("\b").strip("\n"), "```", ""]
    return [_escaped(" ".join(paragraph.split())), ""]


def _escaped(text: str) -> str:
    return SPECIAL.sub(r"\\\1", text)


def _insert_reference(app: Any, docname: str, source: list[str]) -> None:
    source[0] = source[0].replace(MARK, reference()) if MARK in source[0] else source[0]


def setup(app: Any) -> None:
    """Let Sphinx put the reference of the commands where its mark is, and take hex for text."""
    app.add_lexer("hex", TextLexer)
    app.connect("source-read", _insert_reference)
