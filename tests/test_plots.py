"""`kip33.plots`: the plots have the facts of the report."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kip33 import plots
from kip33.catalog.catalog import Catalog
from kip33.report.facts import BarState, Report
from tests.builders.report_catalog import NOW_MS, POLICY, make_catalog

matplotlib = pytest.importorskip("matplotlib")


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> Report:
    folder = tmp_path_factory.mktemp("plots")
    catalog: Catalog = make_catalog(folder, partitions=10, segments=8)
    (folder / "policy.toml").write_text(POLICY)
    policy = str(folder / "policy.toml")
    return plots.report_facts(catalog.location.path, now=NOW_MS, policy=policy)


@pytest.fixture
def pyplot() -> Iterator[Any]:
    matplotlib.use("agg")
    from matplotlib import pyplot

    yield pyplot
    pyplot.close("all")


def test_a_timeline_has_a_row_for_each_partition(
    facts: Report, pyplot: Any, tmp_path: Path
) -> None:
    ax = plots.timelines(facts, most=5)
    names = [label.get_text() for label in ax.get_yticklabels()]
    assert len(names) == 5
    assert names[-1] == facts.timelines.partitions[4].name
    drawn = sum(len(collection.get_paths()) for collection in ax.collections)
    shown = facts.timelines.partitions[:5]
    untrusted = sum(bar.untrusted > 0 for one in shown for bar in one.bars)
    lines = sum(facts.timelines.reach_ms(bar) is not None for one in shown for bar in one.bars)
    assert drawn == sum(len(one.bars) + len(one.marks) for one in shown) + untrusted + lines > lines
    legend = [text.get_text() for text in ax.get_legend().get_texts()]
    assert legend == ["kept", "expired", "blocked", "blocker", "untrusted", "missing offsets"]
    ax.figure.savefig(tmp_path / "t.png")


def test_a_line_goes_from_a_blocker_to_its_largest_timestamp(facts: Report, pyplot: Any) -> None:
    [row] = [
        number
        for number, one in enumerate(facts.timelines.partitions)
        if any(bar.state is BarState.BLOCKER for bar in one.bars)
    ]
    ax = plots.timelines(facts)
    boxes = [path.get_extents() for drawn in ax.collections for path in drawn.get_paths()]
    lines = [box for box in boxes if row - 0.1 < box.y0 < box.y1 < row + 0.1]
    assert [line.x1 for line in lines] == [ax.get_xlim()[1]]  # in 2034, after the end of the axis


def test_a_forecast_ends_with_all_that_is_freed(facts: Report, pyplot: Any) -> None:
    ax = plots.forecast(facts)
    [line] = ax.get_lines()
    freed = sum(day.bytes for day in facts.forecast)
    assert line.get_ydata()[-1] * 2**30 == pytest.approx(freed)
    assert len(line.get_xdata()) == len(facts.forecast)


def test_ages_add_up(facts: Report, pyplot: Any) -> None:
    _, ax = pyplot.subplots()
    assert plots.ages(facts, ax) is ax
    widths = [bar.get_width() for bar in ax.patches]
    assert sum(widths) * 2**30 == pytest.approx(facts.totals.log_bytes)


def test_without_a_policy(facts: Report, pyplot: Any, tmp_path: Path) -> None:
    catalog = make_catalog(tmp_path, partitions=10, segments=8)
    unjudged = plots.report_facts(catalog.location.path, now=NOW_MS)
    assert not unjudged.is_judged
    plots.forecast(unjudged)
    plots.timelines(unjudged)


def test_wrong_arguments(tmp_path: Path) -> None:
    catalog = make_catalog(tmp_path, partitions=1, segments=2)
    with pytest.raises(ValueError, match="days 400: expected 0 to 366"):
        plots.report_facts(catalog.location.path, now=NOW_MS, days=400)
