"""The targets of a search in options and files: a time, or one of Kafka's three names."""

from kip33.cli.times import parse_moment
from kip33.rules.search import TARGETS


def parse_target(text: str, now_ms: int) -> int:
    """Return the target: ms since the epoch, or Kafka's -2, -1, -3 for a name.

    `-3h` is three hours before `now_ms`. ValueError with what was found and expected.

    >>> parse_target("-3h", 10_800_005), parse_target("earliest", 0)
    (5, -2)
    """
    text = text.strip()
    if text in TARGETS:
        return TARGETS[text]
    if text.startswith("-") and not text[1:].isdigit():
        text = f"now{text}"
    try:
        return parse_moment(text, now_ms)
    except ValueError as error:
        raise ValueError(f"{error}; or -3h, {', '.join(TARGETS)}") from error
