"""The reference of the Python functions is complete: each name, and what each must say."""

import inspect
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import kip33
import kip33.spark
from kip33.docs import api_reference
from kip33.docs.api_reference import documented, format_docstring, public_names

PAGE = Path(api_reference.__file__).parent / "reference" / "python.md"
RESULTS = Path(kip33.__file__).parent / "api" / "RESULTS.md"
DIRECTIVE = re.compile(r"^\.\. auto(\w+):: ([\w.]+)((?:\n   :.*)*)$", re.MULTILINE)


class Entry(NamedTuple):
    """A public function, class, method or property."""

    name: str  # in full
    kind: str  # function, class, exception, method, property
    thing: Any


def entries() -> Iterator[Entry]:
    """Yield what the page asks autodoc for, and the members of classes."""
    for kind, name, options in DIRECTIVE.findall(PAGE.read_text(encoding="utf-8")):
        package, _, short = name.rpartition(".")
        thing = getattr(kip33.spark if package == "kip33.spark" else kip33, short)
        yield Entry(name, kind, thing)
        if kind == "class":
            assert ":members:" in options
            hidden = re.findall(r"\w+", options.partition(":exclude-members:")[2])
            for member, value in vars(thing).items():
                if not member.startswith("_") and member not in hidden:
                    yield from members(f"{name}.{member}", value)


def members(name: str, value: Any) -> Iterator[Entry]:
    if isinstance(value, property):
        yield Entry(name, "property", value)
    elif isinstance(value, classmethod | staticmethod) or inspect.isfunction(value):
        yield Entry(name, "method", getattr(value, "__func__", value))


@cache
def every() -> list[Entry]:
    return list(entries())


def faults_of(entry: Entry) -> Iterator[str]:
    """Yield what an entry lacks."""
    found = documented(entry.thing)
    has_example = ">>>" in found.text
    if not found.text.strip():
        yield "no docstring"
    if entry.kind in ("function", "method"):
        for name, text in found.parameters.items():
            if not text and name != "cls":
                yield f"parameter {name} is not described"
    if entry.kind == "function" and not found.errors:
        yield "no errors"
    of_catalog = entry.kind == "method" and entry.name.startswith("kip33.OpenedCatalog.")
    if (entry.kind == "function" or of_catalog) and not has_example:
        yield "no example"
    if entry.kind == "class" and not is_shown(entry):
        yield "neither an example nor a function with one that returns it"


def is_shown(entry: Entry) -> bool:
    """Return whether an example has such an object."""
    name = re.compile(rf"\b{entry.name.rpartition('.')[2]}\b")
    return any(one.startswith(entry.name) or name.search(text) for one, text in examples())


@cache
def examples() -> list[tuple[str, str]]:
    """Return the names that have examples, with their annotations and texts."""
    return [
        (one.name, f"{inspect.signature(one.thing) if inspect.isroutine(one.thing) else ''} {text}")
        for one in every()
        if ">>>" in (text := documented(one.thing).text)
    ]


def test_an_entry_says_all_that_it_must() -> None:
    faults = [f"{entry.name}: {fault}" for entry in every() for fault in faults_of(entry)]
    assert faults == []


def test_the_page_has_every_public_name_once() -> None:
    shown = [entry.name for entry in every() if entry.kind in ("function", "class", "exception")]
    assert sorted(shown) == sorted(public_names())


def test_every_shared_description_is_used() -> None:
    used = {
        name
        for entry in every()
        for name, text in documented(entry.thing).parameters.items()
        if text == api_reference.SHARED.get(name)
    }
    assert {*api_reference.SHARED} - used == set()


def test_links_to_the_page_of_results_lead_to_its_sections() -> None:
    linked = {
        name for entry in every() for name in re.findall(r"<results\.html#(\w+)>", rst_of(entry))
    }
    sections = re.findall(r"^## `(\w+)`$", RESULTS.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(linked) > 10
    assert {name for name in linked if name not in sections} == set()


def rst_of(entry: Entry) -> str:
    lines: list[str] = []
    format_docstring(None, "", entry.name, entry.thing, None, lines)
    return "\n".join(lines)


def test_a_docstring_becomes_fields_and_links() -> None:
    def example(source: str, names: list[str], *, check_crc: bool = True) -> None:
        """Read `source` with `read_arrow`.

        >>> "`source`"
        '`source`'

        - `source`: an archive, see `open_catalog`; `names`: all `Segment`s, `key_` or "key_"

        Columns are those of `group_lags` in RESULTS.md. Raises LocationError or ValueError.
        """

    assert rst_of(Entry("example", "function", example)).split("\n") == [
        r"Read ``source``\  with :py:obj:`read_arrow <kip33.read_arrow>`\ .",
        "",
        '>>> "`source`"',
        "'`source`'",
        "",
        "Columns are those of `group_lags <results.html#group_lags>`__.",
        "",
        r":param source: an archive, see :py:obj:`open_catalog <kip33.open_catalog>`\ ",
        r":param names: all :py:obj:`Segment <kip33.Segment>`\ s, ``key_``\  or "
        r'"key\_"',
        ":param check_crc: False: read only batch headers. Damage inside of records is "
        "not detected",
        r":Errors: Raises :py:obj:`LocationError <kip33.LocationError>`\  or ``ValueError``\ .",
        "",
    ]
