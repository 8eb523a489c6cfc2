"""Required and measured ratios, and those that became worse since the last results."""

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

FELL_BY: Final = 0.25  # a larger fall of a figure since the last results is reported
DOWNWARD: Final = (
    "s",
    "ms",
    "MiB",
    "times",
    "% of bytes",
    "% of time",
)  # units for which less is better


class Ratio(NamedTuple):
    """One line of the table: `work` against something else, by default in times faster."""

    work: str
    against: str
    measured: float
    unit: str = "x"
    at_least: float | None = None  # at most, if less is better
    aim: float | None = None

    @property
    def name(self) -> str:
        return f"{self.work} / {self.against}" if self.against else self.work

    @property
    def less_is_better(self) -> bool:
        return self.unit in DOWNWARD

    @property
    def met(self) -> str:
        """Return `met`, `aim met`, `missed`, or an empty text if nothing is required."""
        if self._reaches(self.aim):
            return "aim met"
        if self.at_least is None:
            return ""
        return "met" if self._reaches(self.at_least) else "**missed**"

    def _reaches(self, wanted: float | None) -> bool:
        if wanted is None:
            return False
        return self.measured <= wanted if self.less_is_better else self.measured >= wanted

    def line(self) -> str:
        """Return the table's line."""
        wanted = self._text(self.at_least)
        if self.aim is not None:
            wanted += f", aim {self._text(self.aim)}"
        if self.less_is_better and wanted:
            wanted = f"at most {wanted}"
        cells = (self.work, self.against, wanted, self._text(self.measured), self.met)
        return f"| {' | '.join(cells)} |"

    def _text(self, figure: float | None) -> str:
        if figure is None:
            return ""
        digits = ".2f" if abs(figure) < 1 else ".1f" if abs(figure) < 100 else ",.0f"
        space = "" if self.unit.startswith("%") else " "
        return f"{figure:{digits}}{space}{self.unit}"


def table(ratios: Iterable[Ratio]) -> list[str]:
    """Return the Markdown table of all ratios."""
    head = ["| work | against | at least | measured | |", "|---|---|---:|---:|---|"]
    return [*head, *(ratio.line() for ratio in ratios)]


def fallen(before: Mapping[str, Any], now: Iterable[Ratio]) -> list[str]:
    """Return a line for each ratio that is more than a quarter worse; `before` is measured by name.

    >>> fallen({"a / b": 4.0}, [Ratio("a", "b", 2.9)])
    ['a / b: 2.9 x, 4.0 x before']
    """
    lines = []
    for ratio in now:
        old = before.get(ratio.name)
        if not old:
            continue
        worse = ratio.measured / old - 1 if ratio.less_is_better else 1 - ratio.measured / old
        if worse > FELL_BY:
            was = ratio._replace(measured=old)
            lines.append(
                f"{ratio.name}: {ratio._text(ratio.measured)}, {was._text(was.measured)} before"
            )
    return lines
