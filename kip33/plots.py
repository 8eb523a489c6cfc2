"""The plots of `kip33 report` for notebooks, by matplotlib (`pip install 'kip33[notebook]'`).

    facts = kip33.plots.report_facts("indexes/_catalog", now=now, policy="retention.toml")
    kip33.plots.timelines(facts)
    kip33.plots.forecast(facts)
    kip33.plots.ages(facts)

The facts are those of the page. Each plot draws on the `ax` that it is given, or on a new one, and
returns it. Times are in UTC.
"""

import importlib
from os import PathLike
from typing import Any, Final

import numpy as np

from kip33.archive.moments import moment_ms
from kip33.catalog.catalog import catalog_at, choose
from kip33.formats.times import Time
from kip33.options import parsed
from kip33.report.facts import BarState, PartitionFacts, Report, Timelines
from kip33.report.make_report import MOST_FORECAST_DAYS, ReportRequest, make_report, report_policies
from kip33.stores.locations import Location

_COLOURS: Final = {  # as on the page
    BarState.KEPT: "#b9c5d3",
    BarState.EXPIRED: "#16936d",
    BarState.BLOCKED: "#e09b12",
    BarState.BLOCKER: "#c5341b",
}
_UNTRUSTED: Final = "#7f4fd0"
_HOLE: Final = "#c01472"
_OF_ALL: Final = "#2563a8"
_GIB: Final = 1 << 30
_MOST_LETTERS: Final = 40
_LEAST_WIDTH: Final = 400  # a bar is at least this part of the axis


def report_facts(
    catalog: str | PathLike[str],
    *,
    now: Time,
    policy: str | None = None,
    kafka_configs: str | None = None,
    snapshot: str | None = None,
    days: int = 30,
) -> Report:
    """Return the facts of a report on a catalog, which `kip33/report/facts.py` describes.

    `now` is the time at which retention is judged: ISO 8601, an aware `datetime`, a time of pandas
    or NumPy, or milliseconds. `policy` and `kafka_configs` are files, as the command takes them;
    without either retention is not judged. `days` is the length of the forecast, at most 366.
    Raises LocationError, CatalogError or PolicyError for what cannot be read, ValueError for other
    arguments.
    """
    if not 0 <= days <= MOST_FORECAST_DAYS:
        raise ValueError(f"days {days}: expected 0 to {MOST_FORECAST_DAYS}")
    opened = catalog_at(Location.of(str(catalog)))
    policies, words = report_policies(policy, kafka_configs, None)
    now_ms = parsed("now", moment_ms, now)
    asked = ReportRequest(policies, words, now_ms, now_ms, days)
    return make_report(opened, choose(opened, snapshot), asked)


def timelines(report: Report, ax: Any = None, *, most: int = 20) -> Any:
    """Draw the segments of the worst partitions as bars in time; return the Axes.

    A bar ends where the next segment begins, and a line goes on to its largest timestamp. A purple
    line is below untrusted segments, a dashed box around missing offsets.
    """
    shown = report.timelines.partitions[:most]
    ax = _axes(ax, height=1 + 0.35 * len(shown))
    axis = report.timelines
    least = (axis.until_ms - axis.from_ms) // _LEAST_WIDTH
    for row, one in enumerate(shown):
        _draw_partition(ax, row, one, axis, least)
    ax.set_yticks(range(len(shown)), [_plain_text(one.name) for one in shown])
    ax.invert_yaxis()
    ax.set_xlim(_moment(axis.from_ms), _moment(axis.until_ms))
    _short_dates(ax)
    ax.set_title("Segments in time")
    if shown:
        ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    return ax


def _draw_partition(ax: Any, row: int, one: PartitionFacts, axis: Timelines, least: int) -> None:
    for state, colour in _COLOURS.items():
        bars = [bar for bar in one.bars if bar.state is state]
        spans = [_span(bar.from_ms, bar.until_ms, least) for bar in bars]
        label = state.value if row == 0 else None  # one entry of the legend for each state
        ax.broken_barh(spans, (row - 0.3, 0.6), facecolors=colour, label=label)
        ends = [(bar.until_ms, axis.reach_ms(bar)) for bar in bars]
        lines = [_span(until_ms, reach_ms, 0) for until_ms, reach_ms in ends if reach_ms]
        ax.broken_barh(lines, (row - 0.04, 0.08), facecolors=colour)
    untrusted = [_span(bar.from_ms, bar.until_ms, least) for bar in one.bars if bar.untrusted]
    label = "untrusted" if row == 0 else None
    ax.broken_barh(untrusted, (row + 0.36, 0.08), facecolors=_UNTRUSTED, label=label)
    holes = [_span(mark.from_ms, mark.until_ms, least) for mark in one.marks]
    label = "missing offsets" if row == 0 else None
    style = {"facecolors": "none", "edgecolors": _HOLE, "linestyles": "--"}
    ax.broken_barh(holes, (row - 0.38, 0.76), label=label, **style)


def forecast(report: Report, ax: Any = None) -> Any:
    """Draw what is deletable now and on each of the next days, summed up; return the Axes."""
    ax = _axes(ax, height=3)
    sizes = np.cumsum([day.bytes for day in report.forecast]) / _GIB
    moments = [_moment(day.at_ms) for day in report.forecast]
    ax.step(moments, sizes, where="post", color=_COLOURS[BarState.EXPIRED])
    ax.fill_between(moments, sizes, step="post", alpha=0.3, color=_COLOURS[BarState.EXPIRED])
    _short_dates(ax)
    ax.set_ylim(bottom=0)
    ax.set_ylabel("deletable, GiB")
    ax.set_title("What retention frees")
    return ax


def ages(report: Report, ax: Any = None) -> Any:
    """Draw bytes by the age of the largest timestamp, the newest first; return the Axes."""
    ax = _axes(ax, height=3)
    shown = [one for one in report.ages if one.segments]
    ax.barh([one.age for one in shown], [one.bytes / _GIB for one in shown], color=_OF_ALL)
    ax.invert_yaxis()
    ax.set_xlabel("logs, GiB")
    ax.set_title("Storage by age")
    return ax


def _axes(ax: Any, *, height: float) -> Any:
    """Return the given Axes, or new ones; ModuleNotFoundError says what to install."""
    if ax is not None:
        return ax
    try:
        pyplot = importlib.import_module("matplotlib.pyplot")
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "kip33.plots: the Python package matplotlib is not installed; "
            "install it with: pip install 'kip33[notebook]'",
            name=error.name,
        ) from None
    _, made = pyplot.subplots(figsize=(10, height), layout="constrained")
    return made


def _short_dates(ax: Any) -> None:
    """Let the axis of time have dates that do not overlap."""
    dates = importlib.import_module("matplotlib.dates")
    locator = dates.AutoDateLocator(maxticks=8)
    ax.xaxis.set_major_locator(locator)
    ax.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator))


def _moment(timestamp_ms: int) -> "np.datetime64[Any]":
    return np.datetime64(timestamp_ms, "ms")


def _span(from_ms: int, until_ms: int, least: int) -> tuple[Any, Any]:
    """Return where a bar begins and how wide it is."""
    return _moment(from_ms), np.timedelta64(max(least, until_ms - from_ms), "ms")


def _plain_text(name: str) -> str:
    r"""Return a name that matplotlib draws as it is; cut if it is long, `\$` for a dollar sign."""
    visible = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in name)
    shown = visible if len(visible) <= _MOST_LETTERS else f"{visible[:_MOST_LETTERS]}…"
    return shown.replace("$", r"\$")
