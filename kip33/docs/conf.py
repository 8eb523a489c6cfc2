"""Sphinx's configuration of these pages; `make docs` builds them.

The line `<!-- commands -->` in `reference/commands.md` becomes the reference of all commands: their
usage, description, options and examples, from the definitions that `kip33 --help` prints. The
reference of the Python functions is autodoc's, with the docstrings as `api_reference` has them.
"""

import re
from itertools import chain
from typing import Any, Final

from docutils import nodes
from pygments.lexers.special import TextLexer

from kip33 import __version__
from kip33.cli.main import COMMANDS, get_command
from kip33.docs import api_reference

project = "kip33"
author = "The kip33 project"
copyright = author  # noqa: A001
release = version = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_copybutton"]
myst_enable_extensions = ["deflist"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = f"kip33 {__version__}"
html_copy_source = False
html_static_path = ["_static"]
html_css_files = ["narrow.css"]
python_maximum_signature_line_length = 60  # a longer one has a line for each parameter
python_display_short_literal_types = True
autodoc_typehints = "description"
autodoc_typehints_format = "short"
autodoc_member_order = "bysource"
copybutton_prompt_text = r">>> |\.\.\. "
copybutton_prompt_is_regexp = True
smartquotes = False  # they would make one dash of `--layout`

MARK: Final = "<!-- commands -->"
SPECIAL: Final = re.compile(r"([\\`*_{}\[\]<>#|$~&])")


def reference() -> str:
    """Return the reference of all commands as Markdown, a section for each, modes below it."""
    return "\n".join(_section(name) for name in COMMANDS)


def _section(name: str) -> str:
    """Return the section of a command, which ends with those of its modes."""
    command = get_command(name)
    modes: dict[str, Any] = getattr(command, "modes", {})
    below = (_described(mode, f"{name} {word}", "###") for word, mode in modes.items())
    return "\n".join([*_described(command, name, "##"), *chain.from_iterable(below)])


def _described(command: Any, name: str, level: str) -> list[str]:
    context = command.context_class(command, info_name=f"kip33 {name}")
    lines = [f"{level} kip33 {name}", "", "```text", command.get_usage(context), "```", ""]
    for paragraph in _paragraphs(command.help):
        lines += _formatted(paragraph)
    lines += [f"{level}# Options of {name}", ""]
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record and record[0].startswith("-"):  # arguments are in the usage
            form, text = record
            lines += [f"`{form}`", f": {_escaped(' '.join(text.split()))}", ""]
    for paragraph in _paragraphs(command.epilog):
        lines += ["```text", paragraph.removeprefix("\b\n"), "```", ""]
    return lines


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


def _use_colons(app: Any, doctree: nodes.document) -> None:
    """Put a colon between a parameter and its description, where Sphinx has two dashes."""
    for text in [found for found in doctree.findall(nodes.Text) if found == " -- "]:
        text.parent.replace(text, nodes.Text(": "))


def setup(app: Any) -> None:
    """Let Sphinx put the reference of the commands where its mark is, and take hex for text."""
    app.add_lexer("hex", TextLexer)
    app.connect("source-read", _insert_reference)
    app.connect("autodoc-process-docstring", api_reference.format_docstring)
    app.connect("autodoc-process-signature", api_reference.format_signature)
    app.connect("doctree-read", _use_colons)
