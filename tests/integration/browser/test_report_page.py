"""The page of `kip33 report` in headless Chromium: both colour schemes, two widths."""

from pathlib import Path

import pytest

from tests.integration.browser.chromium import Chromium
from tests.report.conftest import MadeReport, made_report

pytestmark = pytest.mark.integration

SIZES = """[...document.querySelectorAll('.tile, section, .line, .command')].filter(
  e => e.getBoundingClientRect().right > document.documentElement.clientWidth + 0.5).length"""

ON_CARDS = """(numbers => [...document.querySelectorAll('.tile b, .tile span, .badge')].map(
  e => [numbers(getComputedStyle(e).color), numbers(getComputedStyle(e.closest('.tile, section'))
    .backgroundColor)]))(text => text.match(/\\d+/g).slice(0, 3).map(Number))"""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> MadeReport:
    return made_report(tmp_path_factory.mktemp("made"))


@pytest.fixture(scope="module")
def page(report: MadeReport, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    path = folder / "report.html"
    path.write_text(report.page)
    return path


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [380, 1200])
def test_the_page_fits_and_the_console_is_empty(
    browser: Chromium, page: Path, width: int, scheme: str
) -> None:
    browser.open(page, width=width, scheme=scheme)

    root = "document.documentElement"
    inner, own, needed = browser.value_of(f"[innerWidth, {root}.clientWidth, {root}.scrollWidth]")
    assert (inner, needed) == (width, own)  # nothing to scroll to the side
    assert browser.value_of(SIZES) == 0
    assert browser.messages == []
    assert [one for one in browser.requests if not one.startswith("data:")] == [page.as_uri()]


def test_each_scheme_has_its_colours(browser: Chromium, page: Path) -> None:
    """Text and ground differ enough to be read: a contrast of 7 is more than WCAG asks for."""
    grounds = set()
    for scheme in ("light", "dark"):
        browser.open(page, width=1200, scheme=scheme)
        colours = "getComputedStyle(document.body).{}.match(/\\d+/g).slice(0, 3).map(Number)"
        text, ground = (browser.value_of(colours.format(n)) for n in ("color", "backgroundColor"))
        assert _contrast(text, ground) > 7
        grounds.add(tuple(ground))
        for one, ground in browser.value_of(ON_CARDS):
            assert _contrast(one, ground) >= 4.5, (scheme, one)
    assert len(grounds) == 2


def _contrast(*colours: list[int]) -> float:
    bright, dim = sorted(map(_luminance, colours), reverse=True)
    return (bright + 0.05) / (dim + 0.05)


def _luminance(colour: list[int]) -> float:
    """Return the relative luminance of WCAG 2."""
    parts = [part / 255 for part in colour]
    linear = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return sum(a * b for a, b in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def test_foreign_texts_run_nothing(browser: Chromium, page: Path) -> None:
    browser.open(page, width=1200, scheme="light")
    assert browser.value_of("document.scripts.length + document.images.length") == 0
    assert browser.value_of("document.body.innerText.includes('<img src=x onerror=alert(1)>')")


def test_it_prints(browser: Chromium, page: Path) -> None:
    browser.open(page, width=1200, scheme="dark")
    browser.ask("Emulation.setEmulatedMedia", media="print")
    ground = browser.value_of("getComputedStyle(document.body).backgroundColor")
    assert ground == "rgb(255, 255, 255)"
    printed = browser.ask("Page.printToPDF", printBackground=True)
    assert len(printed["data"]) > 10_000
