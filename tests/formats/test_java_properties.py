"""Property files: what Java's own reader makes of them."""

import pytest

from kip33.formats.kafka_configs import parse_properties

CASES = {
    "a value": ("a", "value"),
    "a=value": ("a", "value"),
    "a = value ": ("a", "value "),
    "a:value": ("a", "value"),
    "a : b=c": ("a", "b=c"),
    "a\tvalue": ("a", "value"),
    "  a=1": ("a", "1"),
    "a": ("a", ""),
    "a=": ("a", ""),
    "=1": ("", "1"),
    "a==1": ("a", "=1"),
    "a\\=b=c": ("a=b", "c"),
    "a\\ b c": ("a b", "c"),
    "a=one \\\n   two": ("a", "one two"),
    "a=one\\\r\ntwo": ("a", "onetwo"),
    "a=one\\\\": ("a", "one\\"),
    "a=one\\\n#two": ("a", "one#two"),
    "a=\\u0041\\t\\q": ("a", "A\tq"),
    "a=1\\": ("a", "1"),
}


@pytest.mark.parametrize("text", CASES)
def test_a_pair_is_what_java_reads(text: str) -> None:
    assert parse_properties(f"# a comment\n! another\n\n{text}\n") == dict([CASES[text]])


def test_the_last_of_two_values_wins() -> None:
    assert parse_properties("a=1\na=2") == {"a": "2"}


@pytest.mark.parametrize("text", ["a=\\u12", "a=\\uXXXX", "a=\\\\\\u1"])
def test_an_escape_without_digits_is_named_with_its_line(text: str) -> None:
    with pytest.raises(ValueError, match=r"line 2: .u without four hexadecimal digits"):
        parse_properties(f"\n{text}")
