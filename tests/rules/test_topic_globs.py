"""The topics selected by `--topics`, including `!GLOB`."""

import random
import re

import pytest

from kip33.rules.policies import TopicGlobs

NAMES = ("orders", "orders-test", "clicks", "clicks-changelog", "a.b", "ORDERS")
CASES = [
    # globs, topics asked for
    ([], NAMES),
    (["orders*"], ("orders", "orders-test")),
    (["!*-changelog"], ("orders", "orders-test", "clicks", "a.b", "ORDERS")),
    (["orders*", "!*-test"], ("orders",)),
    (["!*-test", "orders*"], ("orders",)),
    (["clicks", "orders", "!orders"], ("clicks",)),
    (["!*"], ()),
    (["a?b", "![A-Z]*"], ("a.b",)),
]


@pytest.mark.parametrize(("globs", "wanted"), CASES, ids=lambda value: " ".join(value) or "none")
def test_topics_that_globs_ask_for(globs: list[str], wanted: tuple[str, ...]) -> None:
    asked = TopicGlobs.of(globs)
    assert tuple(name for name in NAMES if asked.matches(name)) == wanted


def test_an_exclamation_mark_alone_is_refused_in_one_line() -> None:
    with pytest.raises(ValueError, match=r"expected a glob after !, such as '!\*-changelog'"):
        TopicGlobs.of(["orders", "!"])


def test_the_regular_expressions_say_the_same_of_random_names() -> None:
    seed = 20_261_122
    print("seed", seed)
    chance = random.Random(seed)
    for _ in range(2_000):
        globs = [
            chance.choice(["", "!"]) + "".join(chance.choices("ab.-*?", k=chance.randint(1, 4)))
            for _ in range(chance.randint(1, 3))
        ]
        name = "".join(chance.choices("ab.-", k=chance.randint(1, 5)))
        asked = TopicGlobs.of(globs)
        included, excluded = asked.included_regex, asked.excluded_regex
        by_regex = (not included or re.search(included, name)) and not (
            excluded and re.search(excluded, name)
        )
        assert asked.matches(name) == bool(by_regex), (globs, name)
