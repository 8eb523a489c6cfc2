"""Select topics by a list of globs: the meaning of `--topics` and `--topic`.

    orders*           topics whose names begin with orders
    !*-changelog      all topics but those that end in -changelog
    orders* !*-test   topics that match the first glob but not the second

A topic is selected if it matches a glob without `!`, or if no such glob is given, and if it matches
no glob with `!`. Kafka allows no `!` in a topic's name.
"""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase, translate
from typing import Final, NamedTuple

EXCLUDES: Final = "!"
_MOST_NAMES: Final = 5


class TopicGlobs(NamedTuple):
    """The globs to include and those to exclude, both without `!`."""

    included: tuple[str, ...]
    excluded: tuple[str, ...]

    @classmethod
    def of(cls, globs: Sequence[str]) -> "TopicGlobs":
        """Return the parsed globs of a user; ValueError for a `!` with nothing after it."""
        if EXCLUDES in globs:
            raise ValueError("--topics '!': expected a glob after !, such as '!*-changelog'")
        return cls(
            tuple(glob for glob in globs if not glob.startswith(EXCLUDES)),
            tuple(glob[1:] for glob in globs if glob.startswith(EXCLUDES)),
        )

    def matches(self, topic: str) -> bool:
        """Return whether the topic is selected.

        >>> TopicGlobs.of(["orders*", "!*-test"]).matches("orders-test")
        False
        """
        is_included = not self.included or _matches_any(topic, self.included)
        return is_included and not _matches_any(topic, self.excluded)

    @property
    def included_regex(self) -> str | None:
        """Return the regular expression of the globs to include, also valid in Java; None: all."""
        return _regex(self.included)

    @property
    def excluded_regex(self) -> str | None:
        """Return the regular expression of the globs to exclude; None: no such globs."""
        return _regex(self.excluded)


def nearest_topics(wanted: Iterable[str], topics: Iterable[str | None]) -> str:
    """Return, to be put after a message, the topics that may have been meant; else the first ones.

    >>> nearest_topics(["order"], ["clicks", "orders"]), nearest_topics(["x"], ["clicks", "orders"])
    ('; did you mean orders?', '; there are clicks, orders')
    """
    known = sorted(filter(None, topics))
    near = [one for name in wanted for one in get_close_matches(name, known, n=_MOST_NAMES)]
    if near:
        return f"; did you mean {' or '.join(dict.fromkeys(near))}?"
    more = ", ..." if len(known) > _MOST_NAMES else ""
    return f"; there are {', '.join(known[:_MOST_NAMES])}{more}" if known else ""


def _matches_any(topic: str, globs: Sequence[str]) -> bool:
    return any(fnmatchcase(topic, glob) for glob in globs)


def _regex(globs: Sequence[str]) -> str | None:
    return f"^(?:{'|'.join(translate(glob) for glob in globs)})" if globs else None
