"""A stranger follows each how-to page: an environment with what the page installs, no checkout.

Pages that install the same share an environment. Each runs in an empty folder of its own.
"""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.integration.installed.stranger import JAVA, Stranger, java_home
from tests.pages import DOCS, INSTALL, PIP, Block, blocks_of, is_printed

pytestmark = pytest.mark.integration
PAGES = [
    page
    for page in sorted((DOCS / "how-to").glob("*.md"))
    if any(block.mark == INSTALL for block in blocks_of(page))
]
ENVIRONMENT = "python3 -m venv kip33-environment\n. kip33-environment/bin/activate\n"
ENTER = ". kip33-environment/bin/activate\nmkdir {name}\ncd {name}\n"


class Strangers:
    """A stranger for each text of `pip`, who has installed what it names."""

    def __init__(self, wheel: Path, stack: ExitStack) -> None:
        self._wheel, self._stack = wheel, stack
        self._of_lines: dict[str, Stranger] = {}

    def who_installed(self, page: Path) -> Stranger:
        """Return the stranger who has what a page needs; the first page makes the environment."""
        [block] = [block for block in blocks_of(page) if block.mark == INSTALL]
        lines = "".join(PIP.findall(block.code))
        assert lines
        if lines not in self._of_lines:
            folder = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="kip33-pages-"))
            stranger = Stranger(Path(folder))
            shutil.copy(self._wheel, stranger.folder)
            [made] = stranger.follow([Block("needs: a network", "bash", ENVIRONMENT + lines, None)])
            assert made.exit_code == 0, made.stderr
            self._of_lines[lines] = stranger
        return self._of_lines[lines]


@pytest.fixture(scope="module")
def strangers(wheel: Path) -> Iterator[Strangers]:
    with ExitStack() as stack:
        yield Strangers(wheel, stack)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_needs_what_it_installs_and_shows_what_one_sees(
    page: Path, strangers: Strangers
) -> None:
    stranger = strangers.who_installed(page)
    steps = [
        block._replace(code=PIP.sub("", block.code)) if block.mark == INSTALL else block
        for block in blocks_of(page)
        if block.is_step and (java_home() or JAVA not in block.mark)
    ]
    enter = Block("needs: an environment", "bash", ENTER.format(name=page.stem), None)

    walk = stranger.follow([enter, *steps])[1:]

    for step, printed in zip(steps, walk, strict=False):
        assert printed.exit_code == 0, (step.code, printed.stdout, printed.stderr)
        assert step.output is None or is_printed(step.output, printed.stdout), printed.stdout
    assert len(walk) == len(steps)


def test_every_page_with_steps_says_what_to_install() -> None:
    with_steps = {
        page for page in (DOCS / "how-to").glob("*.md") if any(b.is_step for b in blocks_of(page))
    }
    assert with_steps == set(PAGES)
    assert len(PAGES) > 10
