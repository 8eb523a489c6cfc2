"""The pages of kip33/docs: what they name exists.

`tests/integration/installed` runs what they show. `tests/integration/browser` builds the site,
which fails for a page that no table of contents has.
"""

import re
import shlex
from pathlib import Path

from kip33.cli.main import COMMANDS, get_command
from tests.cli.command_lines import commands_and_modes
from tests.pages import Block, blocks_of

PROJECT = Path(__file__).parents[1]
DOCS = PROJECT / "kip33" / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
MARKS = r"(step|step with Java|install|test: \w+)$|needs: "
CODE = ("bash", "console", "python")
BUILD_SITE = ("-m", "sphinx", "-b", "html", "-W", "--keep-going", "-q")


def name_of(page: Path) -> str:
    return page.relative_to(DOCS).as_posix()


def commands_in(block: Block) -> list[list[str]]:
    """Return the words of each `kip33 ...` in a block, one list a command."""
    lines = block.code.replace("\\\n", " ").splitlines()
    calls = [re.split(r"&&|\|\||[|>;]", line[5:])[0] for line in lines if line.startswith("kip33")]
    return [shlex.split(call, comments=True) for call in calls]


def unknown_in(words: list[str]) -> list[str]:
    """Return the options of a command line that its command does not have."""
    if not words or words[0] not in COMMANDS:
        return [] if words == ["--version"] else words[:1]
    command = get_command(words[0])
    command = getattr(command, "modes", {}).get(words[1], command)
    known = {form for parameter in command.params for form in parameter.opts}
    return [word for word in words[1:] if word.startswith("--") and word not in known]


def test_every_block_of_code_says_how_it_is_tested() -> None:
    untested = [
        f"{page}: {block.code}"
        for page in PAGES
        for block in blocks_of(page)
        if block.language in CODE and not re.match(MARKS, block.mark)
    ]
    assert untested == []


def test_every_option_on_a_page_exists() -> None:
    unknown = [
        f"{page}: {word}"
        for page in PAGES
        for block in blocks_of(page)
        if block.language == "bash"
        for words in commands_in(block)
        for word in unknown_in(words)
    ]
    assert unknown == []


def test_every_command_has_its_section_with_all_of_its_options() -> None:
    names: dict[str, object] = {}
    exec((DOCS / "conf.py").read_text(encoding="utf-8"), names)
    text = names["reference"]()  # type: ignore[operator]
    parts = re.split(r"^##+ kip33 (.*)$", text, flags=re.MULTILINE)
    sections = dict(zip(parts[1::2], parts[2::2], strict=True))
    every = dict(commands_and_modes())
    assert list(sections) == list(every)
    for name, section in sections.items():
        forms = {p.opts[0] for p in every[name].params if p.opts[0].startswith("--")}
        hidden = {p.opts[0] for p in every[name].params if getattr(p, "hidden", False)}
        shown = set(
            re.findall(r"--[\w-]+", " ".join(re.findall(r"^`(.*)`$", section, re.MULTILINE)))
        )
        assert forms - hidden <= shown
