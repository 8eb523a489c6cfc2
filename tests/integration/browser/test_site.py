"""The site in headless Chromium: no page scrolls to the side, code can be copied."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.command_lines import commands_and_modes
from tests.integration.browser.chromium import Chromium
from tests.test_api_reference import every
from tests.test_docs import BUILD_SITE, DOCS, PAGES, name_of

pytestmark = pytest.mark.integration
PHONE = 390
PYTHON = "reference/python.html"
WITHOUT_BUTTON = (
    "[...document.querySelectorAll('.highlight')].filter(e => !e.querySelector('.copybtn'))"
)
SCROLLED = """[...document.querySelectorAll("html, article *")]
    .filter(e => e.scrollWidth > e.clientWidth)
    .filter(e => e.matches("html") || /auto|scroll/.test(getComputedStyle(e).overflowX))
    .map(e => e.tagName + " " + e.textContent.slice(0, 60))"""
CLICKED = """new Promise((resolve) => {
    document.addEventListener("copy", () => resolve(getSelection().toString()));
    document.getElementById("kip33.%s").parentElement.querySelector(".copybtn").click();
})"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, *BUILD_SITE, str(DOCS), str(folder)], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    return folder


def test_the_reference_has_every_command(site: Path) -> None:
    commands = (site / "reference/commands.html").read_text(encoding="utf-8")
    names = [name.replace(" ", "-") for name, _ in commands_and_modes()]
    assert [name for name in names if f'id="kip33-{name}"' not in commands] == []
    assert "an archive of another --layout" in commands


def test_a_page_fits_a_phone_and_its_code_has_buttons(
    browser: Chromium, site: Path, subtests: pytest.Subtests
) -> None:
    for name in map(name_of, PAGES):
        with subtests.test(name):
            browser.open((site / name).with_suffix(".html"), width=PHONE, scheme="light")
            assert browser.value_of("innerWidth") == PHONE
            assert browser.value_of(SCROLLED) == []
            assert browser.value_of(f"{WITHOUT_BUTTON}.length") == 0


def test_what_is_copied_is_what_one_types(browser: Chromium, site: Path) -> None:
    browser.open(site / PYTHON, width=1200, scheme="light")
    assert browser.value_of(CLICKED % "open_catalog") == (
        'catalog = open_catalog("indexes/_catalog")\ncatalog.segments().num_rows'
    )


def test_every_name_has_an_address_and_is_linked(browser: Chromium, site: Path) -> None:
    browser.open(site / PYTHON, width=1200, scheme="light")
    there = browser.value_of("[...document.querySelectorAll('dt[id]')].map(e => e.id)")
    assert {entry.name for entry in every()} <= {*there}
    broken = "a => a.hash && !document.getElementById(decodeURIComponent(a.hash.slice(1)))"
    links = "[...document.querySelectorAll('article a.reference.internal')]"
    here = f"{links}.filter(a => a.pathname === location.pathname)"
    assert browser.value_of(f"{here}.length") > 100
    assert browser.value_of(f"{here}.filter({broken}).length") == 0
