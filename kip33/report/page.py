"""A report as one HTML page: no scripts, nothing from a network, every text escaped."""

from collections import Counter
from collections.abc import Iterable
from importlib.resources import files
from typing import Any, Final, NamedTuple

from kip33.errors import counted
from kip33.formats.times import iso_time
from kip33.report.facts import (
    Bar,
    BarState,
    FindingLevel,
    FreedFacts,
    HoleMark,
    PartitionFacts,
    Report,
    Timelines,
)
from kip33.rules.policies import human_bytes, human_duration

PAGE_START: Final = "<!doctype html>\n<!-- kip33 report, version 1 -->\n"
WIDTH: Final = 1000  # of every drawing, in its own units
_LEAST_BAR: Final = 4.0
_THIN_BAR: Final = 7.0  # without a line around it
_MOST_TICKS: Final = 6
_DAY_MS: Final = 86_400_000
_STEPS_MS: Final = tuple(
    [s * 1_000 for s in (1, 10, 60, 300, 900, 3_600, 3 * 3_600, 6 * 3_600, 12 * 3_600)]
    + [days * _DAY_MS for days in (1, 2, 7, 14, 28, 91, 182, 365, 2 * 365, 5 * 365, 10 * 365)]
)
_DRAWN_FIRST: Final = (BarState.KEPT, BarState.EXPIRED, BarState.BLOCKED, BarState.BLOCKER)
_WITHIN_DAYS: Final = (0, 1, 7, 30, 90, 365)


class DrawnBar(NamedTuple):
    """A rectangle of a timeline, and what it says under the pointer."""

    x: str
    width: str
    kind: str
    title: str
    is_untrusted: bool
    is_cut: bool  # its largest timestamp is after the end of the axis
    reach: str = ""  # the width of the line behind it, up to its largest timestamp


class AxisTick(NamedTuple):
    """A line of the axis with its label."""

    x: str
    percent: str
    label: str


class FreedMilestone(NamedTuple):
    """What becomes deletable within some days, together with what is deletable now."""

    within: str
    segments: int
    bytes: int


def page_of(report: Report) -> str:
    """Return the page."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_visible,
    )
    environment.filters |= {
        "bytes": human_bytes,
        "moment": _moment,
        "duration": human_duration,
        "number": lambda value: f"{value:,}",
        "counted": counted,
        "words": lambda text: str(text).replace("_", " "),
        "signed_bytes": _signed_bytes,
        "share": _share,
    }
    template = environment.from_string(
        files("kip33.report").joinpath("page.html").read_text(encoding="utf-8")
    )
    levels = Counter(finding.level for finding in report.findings)
    body = template.render(
        report=report,
        totals=report.totals,
        levels={level: levels[level] for level in FindingLevel},
        ticks_of=lambda axis: ticks_of(axis.from_ms, axis.until_ms),
        now_x_of=lambda axis: _now_x(report.now_ms, axis),
        bars=lambda partition, axis: drawn_bars(partition.bars, axis),
        marks=lambda partition, axis: [_drawn_mark(mark, axis) for mark in partition.marks],
        chips=_chips,
        milestones_of=milestones_of,
        freed_days=_freed_days(report.forecast),
        most_aged=max((one.bytes for one in report.ages), default=0),
        states=[state.value for state in BarState],
    )
    return PAGE_START + body.rstrip() + "\n"


def _visible(value: Any) -> Any:
    r"""Return a text with control characters and other invisible ones as `\x00`."""
    if type(value) is not str or value.isprintable():
        return value
    return "".join(
        one if one.isprintable() else one.encode("unicode_escape").decode() for one in value
    )


def _moment(timestamp_ms: int | None) -> str:
    """Return a time to the minute."""
    text = iso_time(timestamp_ms)
    return f"{text[:10]} {text[11:16]}" if text.endswith("Z") else text


def _signed_bytes(size: int) -> str:
    return f"{'−' if size < 0 else '+'}{human_bytes(abs(size))}" if size else "0 B"


def _share(part: int, all_: int) -> str:
    """Return percent for a width, at least a visible line."""
    return f"{max(0.4, 100 * part / all_):.1f}" if all_ and part else "0"


def _place(moment_ms: int, from_ms: int, until_ms: int) -> float:
    return (moment_ms - from_ms) * WIDTH / (until_ms - from_ms)


def _coordinate(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def ticks_of(from_ms: int, until_ms: int) -> list[AxisTick]:
    """Return at most six lines of an axis at round times.

    >>> [tick.label for tick in ticks_of(1_700_000_000_000, 1_700_020_000_000)]
    ['11-14 23:00', '11-15 00:00', '11-15 01:00', '11-15 02:00', '11-15 03:00']
    """
    length = until_ms - from_ms
    step = next((one for one in _STEPS_MS if length <= one * _MOST_TICKS), length)
    first = -(-from_ms // step) * step
    ticks = []
    for moment_ms in range(first, until_ms + 1, step):
        text = iso_time(moment_ms)
        label = text[:10] if step >= _DAY_MS else f"{text[5:10]} {text[11:16]}"
        label = text[11:19] if step < 60_000 else label
        x = _place(moment_ms, from_ms, until_ms)
        ticks.append(AxisTick(_coordinate(x), _coordinate(x * 100 / WIDTH), label))
    return ticks


def _now_x(now_ms: int, axis: Timelines) -> str | None:
    if not axis.from_ms <= now_ms <= axis.until_ms:
        return None
    return _coordinate(_place(now_ms, axis.from_ms, axis.until_ms))


def drawn_bars(bars: Iterable[Bar], axis: Timelines) -> list[DrawnBar]:
    """Return the rectangles of a partition; what matters most is drawn last, above the others."""
    ordered = sorted(bars, key=lambda bar: _DRAWN_FIRST.index(bar.state))
    return [_drawn_bar(bar, axis) for bar in ordered]


def _drawn_bar(bar: Bar, axis: Timelines) -> DrawnBar:
    x, width = _span(bar.from_ms, bar.until_ms, axis)
    title = f"{bar.state}: {counted(bar.segments, 'segment')}, {human_bytes(bar.bytes)}"
    title += f", from {_moment(bar.from_ms)}"
    if bar.largest_timestamp is not None:
        title += f", largest timestamp {_moment(bar.largest_timestamp)}"
    if bar.untrusted:
        title += f"; {bar.untrusted:,} untrusted"
    is_cut = bar.largest_timestamp is not None and bar.largest_timestamp > axis.until_ms
    kind = f"{bar.state.value} thin" if float(width) < _THIN_BAR else bar.state.value
    reach_ms, reach = axis.reach_ms(bar), ""
    if reach_ms is not None:
        reach = _coordinate(_place(reach_ms, axis.from_ms, axis.until_ms) - float(x))
    return DrawnBar(x, width, kind, title, bar.untrusted > 0, is_cut, reach)


def _drawn_mark(mark: HoleMark, axis: Timelines) -> DrawnBar:
    x, width = _span(mark.from_ms, mark.until_ms, axis)
    title = f"offsets {mark.first_offset:,} to {mark.last_offset:,} are missing, {mark.hole}"
    return DrawnBar(x, width, f"hole {mark.hole}", title, False, False)


def _span(from_ms: int, until_ms: int, axis: Timelines) -> tuple[str, str]:
    """Return x and width, wide enough to be seen."""
    x = _place(from_ms, axis.from_ms, axis.until_ms)
    width = max(_LEAST_BAR, _place(until_ms, axis.from_ms, axis.until_ms) - x)
    return _coordinate(min(x, WIDTH - width)), _coordinate(width)


def _chips(partition: PartitionFacts) -> list[tuple[str, str]]:
    """Return the labels of a partition, each with the name of its colour."""
    chips = []
    if partition.missing_offsets:
        chips.append(("hole", f"{counted(partition.missing_offsets, 'offset')} missing"))
    elif partition.holes:
        chips.append(("hole", f"{counted(partition.holes, 'hole')} filled by replicas"))
    if partition.blocked_segments:
        size = human_bytes(partition.blocked_bytes)
        chips.append(("blocked", f"{partition.blocked_segments:,} blocked, {size}"))
    if partition.deletable_segments:
        size = human_bytes(partition.deletable_bytes)
        chips.append(("expired", f"{partition.deletable_segments:,} expired, {size}"))
    if partition.untrusted_segments:
        chips.append(("untrusted", f"{partition.untrusted_segments:,} untrusted"))
    return chips


def milestones_of(forecast: tuple[FreedFacts, ...]) -> list[FreedMilestone]:
    """Return what is deletable now, and within the next days, weeks and months."""
    found = []
    for days in _WITHIN_DAYS:
        if days < len(forecast):
            some = forecast[: days + 1]
            name = f"within {days} days" if days > 1 else ("within a day" if days else "now")
            found.append(
                FreedMilestone(name, sum(f.segments for f in some), sum(f.bytes for f in some))
            )
    return found


def _freed_days(forecast: tuple[FreedFacts, ...]) -> list[dict[str, Any]]:
    """Return a rectangle for each day after now."""
    days = forecast[1:]
    most = max((day.bytes for day in days), default=0)
    if not most:
        return []
    step = WIDTH / len(days)
    return [
        {
            "x": _coordinate(number * step + step * 0.1),
            "width": _coordinate(step * 0.8),
            "height": _coordinate(100 * day.bytes / most),
            "y": _coordinate(100 - 100 * day.bytes / most),
            "at_ms": day.at_ms,
            "segments": day.segments,
            "bytes": day.bytes,
        }
        for number, day in enumerate(days)
    ]
