"""The page of a report: its numbers are the facts', foreign texts stay texts, it needs nothing."""

from html.parser import HTMLParser
from pathlib import Path

import pytest

from kip33.report.facts import FindingLevel
from kip33.report.page import page_of
from tests.builders.report_catalog import HOSTILE
from tests.report.conftest import MadeReport, made_report

MOST_BYTES = 2_000_000


class ReadPage(HTMLParser):
    """The elements of a page, the values by their ids, and all texts."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.values: dict[str, int] = {}
        self.texts: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        of_tag = dict(attrs)
        self.elements.append((tag, of_tag))
        if tag == "data" and of_tag.get("id"):
            self.values[str(of_tag["id"])] = int(str(of_tag["value"]))

    handle_startendtag = handle_starttag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


@pytest.fixture(scope="module")
def page(made: MadeReport) -> ReadPage:
    return ReadPage(made.page)


def test_the_numbers_on_the_page_are_the_facts(made: MadeReport, page: ReadPage) -> None:
    totals = made.report.totals
    damaged = sum(totals.by_status[one] for one in ("truncated", "invalid", "unreadable"))
    assert page.values == {
        "segments": totals.segments,
        "partitions": totals.partitions,
        "log_bytes": totals.log_bytes,
        "records": totals.records,
        "missing_offsets": totals.missing_offsets,
        "damaged_segments": damaged,
        "deletable_bytes": totals.deletable_bytes,
        "deletable_segments": totals.deletable_segments,
        "blocked_bytes": totals.blocked_bytes,
        "blocked_partitions": totals.blocked_partitions,
        "rows": totals.segments,
    }
    assert made.report.evidence.commit_sha256 in page.texts


def test_each_finding_has_its_level_count_and_command(made: MadeReport, page: ReadPage) -> None:
    shown = [
        (attrs["data-level"], int(str(attrs["data-count"])))
        for tag, attrs in page.elements
        if tag == "li" and "data-level" in attrs
    ]
    assert shown == [(one.level.value, one.count) for one in made.report.findings]
    assert all(one.command in page.texts for one in made.report.findings if one.command)
    problems = sum(one.level is FindingLevel.PROBLEM for one in made.report.findings)
    assert f"{problems} problems, 5 warnings, 3 notes" in page.texts


def test_a_line_goes_from_a_blocker_to_its_largest_timestamp(page: ReadPage) -> None:
    reaches = [of for _, of in page.elements if "reach" in (of.get("class") or "").split()]
    [line] = [of for of in reaches if "s-blocker" in (of.get("class") or "")]
    assert float(line["x"] or 0) + float(line["width"] or 0) == 1000  # the end of the axis
    assert float(line["width"] or 0) > 100


def test_pages_are_below_two_megabytes(made: MadeReport, tmp_path: Path) -> None:
    """Of ten thousand segments; and where each shown partition has the most bars."""
    assert made.report.totals.segments > 10_000
    for page in (made.page, made_report(tmp_path, partitions=31, segments=125).page):
        assert len(page.encode()) < MOST_BYTES


def test_foreign_texts_stay_texts(made: MadeReport, page: ReadPage) -> None:
    assert {tag for tag, _ in page.elements} <= {
        *("html", "head", "meta", "link", "title", "style", "body", "main", "header", "footer"),
        *("h1", "h2", "p", "dl", "dt", "dd", "div", "span", "b", "i", "small", "section", "code"),
        *("ul", "li", "table", "tr", "th", "td", "data", "svg", "path", "rect"),
    }
    attributes = {name for _, attrs in page.elements for name in attrs}
    assert not [name for name in attributes if name.startswith("on")]
    visible = HOSTILE.replace("\u202e", "\\u202e")
    assert f"broker-0/{visible}-0" in page.texts
    assert "\u202e" not in made.page
    assert "{{7*7}}" in made.page and "49}}" not in made.page


def test_a_hostile_path_stays_a_text(tmp_path: Path) -> None:
    folder = tmp_path / "<script>alert(1)<\\script> $(touch x) 'a\""
    made = made_report(folder, partitions=10, segments=8)
    read = ReadPage(made.page)
    assert "script" not in {tag for tag, _ in read.elements}
    commands = [one.command for one in made.report.findings if one.command]
    assert any("$(touch x)" in one for one in commands)


def test_the_page_loads_nothing(made: MadeReport, page: ReadPage) -> None:
    links = [
        value
        for _, attrs in page.elements
        for name, value in attrs.items()
        if name in ("src", "href", "action", "srcset", "poster", "xlink:href")
    ]
    assert links == ["data:,"]
    style = made.page.partition("<style>")[2].partition("</style>")[0]
    assert "url(" not in style and "@import" not in style
    [policy] = [a["content"] for t, a in page.elements if t == "meta" and "http-equiv" in a]
    assert str(policy).startswith("default-src 'none'")


def test_without_a_policy_there_is_no_forecast(tmp_path: Path) -> None:
    page = made_report(tmp_path, judged=False, partitions=10, segments=8).page
    assert "retention is not judged" in page
    assert 'id="forecast"' not in page


def test_a_page_without_findings_says_so(tmp_path: Path) -> None:
    from dataclasses import replace

    report = made_report(tmp_path, partitions=10, segments=8).report
    page = page_of(replace(report, findings=()))
    assert "Nothing found" in page
