"""The options of a capability, declared once for its command, for Python and for Spark.

A capability declares them as a typed dict, and says in each hint what the option means:

    class BuildOptions(TypedDict, total=False):
        full: Annotated[bool, "Read every segment again."]
        layout: Annotated[str, Option("How files are arranged.", default="kafka")]

`takes(BuildOptions)` gives a function with `**options: Unpack[BuildOptions]` all of them, those
that a caller leaves out with their defaults. It also makes the signature that a notebook completes,
and the list in the docstring. A command makes its options of the same declaration
(`cli.declared_options`).
"""

import inspect
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial, wraps
from operator import index
from textwrap import wrap
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    NamedTuple,
    TypeAlias,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

Path: TypeAlias = str | os.PathLike[str]
"""A path or URI; a function that `takes` options gets it as a text."""
_Function = TypeVar("_Function", bound=Callable[..., Any])
_Dict = TypeVar("_Dict")
_Value = TypeVar("_Value")
_PLACE: Final = re.compile(r"^( *)- `options`: .*(?:\n\1  .*)*\n", re.MULTILINE)
_FLAG: Final = re.compile(r"--[a-z][a-z-]*[a-z]")
_SAID_FLAG: Final = re.compile(rf"(?<!\S){_FLAG.pattern}")  # not in a path
_WIDTH: Final = 100
_MOST: Final = 2**63 - 1  # of a number that has no smaller limit: it is an int64
_UNFIT: Final = object()
_KINDS: Final = {bool: "True or False", int: "a number", str: "a text", os.PathLike: "a path"}
_A_TIME: Final = (
    " A time is ISO 8601, `now-3h`, a `datetime` with a time zone, a time of pandas, NumPy or "
    "pyarrow, or ms since 1970."
)


class Option(NamedTuple):
    """What is said of an option; the type in its hint is that of its value."""

    help: str  # in a command; of a bool that is True by default: what `--no-NAME` does
    default: Any = None  # of a bool: False
    flag: str = ""  # in a command: `--only damaged`; else it is made of the keyword
    metavar: str | None = None
    least: int = 0  # of a number
    most: int | None = None  # None: 2^63 - 1
    parse: Callable[[Any], Any] | None = None  # returns the value of what is given; ValueError
    python: str = ""  # the help in Python, if it differs


class Declared(NamedTuple):
    """An option with its keyword and its type."""

    name: str
    type: Any
    option: Option

    @classmethod
    def of(cls, name: str, hint: Any) -> "Declared":
        """Return what `Annotated[type, Option(...)]` declares; a text is an option's help."""
        of_value, said = get_args(hint)[:2]
        option = said if isinstance(said, Option) else Option(said)
        is_off = of_value is bool and option.default is None
        return cls(name, of_value, option._replace(default=False) if is_off else option)

    @property
    def flags(self) -> str:
        """Return how a command line gives it: `--no-fsync`, `--only damaged`."""
        option = self.option
        no = "no-" if self.type is bool and option.default else ""
        return option.flag or f"--{no}{self.name.replace('_', '-')}"

    @property
    def text(self) -> str:
        """Return what the value means in Python: the help of `--no-fsync` says what False does."""
        option = self.option
        if option.python or self.type is not bool:
            return option.python or option.help
        if option.default:
            return f"False: {option.help[0].lower()}{option.help[1:]}"
        text = option.help.removeprefix(f"{option.flag.partition(' ')[2]}: ")
        return f"{text[0].upper()}{text[1:]}"


@cache
def declared(kind: Any) -> tuple[Declared, ...]:
    """Return the options of a typed dict, in order; a field without a help is a place."""
    hints = get_type_hints(kind, include_extras=True)
    said = (item for item in hints.items() if get_origin(item[1]) is Annotated)
    return tuple(Declared.of(*item) for item in said)


def with_defaults(kind: type[_Dict], given: Mapping[str, Any], **defaults: Any) -> _Dict:
    """Return all options of a typed dict: those given, else these defaults, else their own."""
    options: tuple[Declared, ...] = declared(kind)  # type: ignore[arg-type]  # a class has a hash
    made: Any = {one.name: _default(one.option) for one in options} | defaults
    for one in options:
        if one.name in given:
            made[one.name] = _checked(one, given[one.name])
    return made  # type: ignore[no-any-return]


def _default(option: Option) -> Any:
    """Return the value of a default, which may be a text such as `1m`."""
    return _value_of(option, option.default) if isinstance(option.default, str) else option.default


def _value_of(option: Option, value: Any) -> Any:
    return value if option.parse is None or value is None else option.parse(value)


def _checked(one: Declared, given: Any) -> Any:
    """The value of what a program gives; a path becomes a text, a number of NumPy an `int`.

    ValueError, which names the option, for what its command would refuse.
    """
    value = _of_type(one, os.fspath(given) if isinstance(given, os.PathLike) else given)
    return parsed(one.name, partial(_value_of, one.option), value)


def parsed(name: str, parse: Callable[[Any], _Value], given: Any) -> _Value:
    """What `parse` returns; its ValueError names the argument."""
    try:
        return parse(given)
    except ValueError as error:
        text = str(error)
        raise ValueError(text if text.startswith(name) else f"{name}: {text}") from error


def _of_type(one: Declared, given: Any) -> Any:
    """The value as a type of the declaration has it."""
    is_union = get_origin(one.type) in (Union, UnionType)
    kinds = get_args(one.type) if is_union else (one.type,)
    for kind in kinds if given is not None else {NoneType}.intersection(kinds):
        if (value := _of_kind(one, kind, given)) is not _UNFIT:
            return value
    expected = " or ".join(filter(None, (_expected(kind, given) for kind in kinds)))
    raise ValueError(f"{one.name} {given!r}: expected {expected or 'a value'}")


def _of_kind(one: Declared, kind: Any, given: Any) -> Any:
    """The value as one kind has it, or _UNFIT. Other kinds are checked where they are used."""
    origin, option = get_origin(kind), one.option
    if kind in (bool, str, NoneType):
        return given if isinstance(given, kind) else _UNFIT
    if kind is int and (option.parse or _is_number(given)):  # `parse` has a range of its own
        most = _MOST if option.most is None else option.most
        return number_of(one.name, given, option.least, most) if not option.parse else given
    if origin is Literal:
        return given if option.parse or given in get_args(kind) else _UNFIT
    if (
        origin in (Sequence, Collection)
        and isinstance(given, Iterable)
        and not isinstance(given, str | bytes)
    ):
        return tuple(_of_type(one._replace(type=get_args(kind)[0]), item) for item in given)
    return _UNFIT if kind is int or origin in (Sequence, Collection, os.PathLike) else given


def _expected(kind: Any, given: Any) -> str:
    """What a value of this kind is, for an error."""
    origin = get_origin(kind)
    if origin is Literal:
        return f"one of {', '.join(get_args(kind))}"
    if origin in (Sequence, Collection):
        if not isinstance(given, str):
            return "a list"
        is_number = get_args(kind) == (int,) and given.isdecimal()
        return f"a list, such as [{int(given) if is_number else repr(given)}]"
    return _KINDS.get(origin or kind, "")


def number_of(name: str, given: Any, least: int = 0, most: int = _MOST) -> int:
    """The number that a program gives, as an `int`; ValueError, which names it, for another value.

    >>> number_of("keep", 3, least=1)
    3
    """
    if not _is_number(given):
        raise ValueError(f"{name} {given!r}: expected a number")
    if not least <= (number := index(given)) <= most:
        last = "2^63 - 1" if most == _MOST else most
        raise ValueError(f"{name} {number}: expected {least} to {last}")
    return number


def _is_number(given: Any) -> bool:
    try:
        index(given)
    except TypeError:
        return False
    return not isinstance(given, bool)


def picked(kind: type[_Dict], options: Any, **others: Any) -> _Dict:
    """Return the typed dict of the options that it has."""
    every = options | others
    made: Any = {name: every[name] for name in inspect.get_annotations(kind)}
    return made  # type: ignore[no-any-return]


def takes(kind: Any, **defaults: Any) -> Callable[[_Function], _Function]:
    """Return a decorator for a function with `**options: Unpack[kind]`: see the module.

    The list replaces the line of the docstring that describes `options`. `defaults` are those of
    this function. TypeError, as Python raises it, for a keyword that the function has not.
    """

    def decorated(function: _Function) -> _Function:
        signature = inspect.signature(function)
        own = [one for one in signature.parameters.values() if one.kind is not one.VAR_KEYWORD]
        added = [_parameter(one, defaults) for one in declared(kind)]
        named = {one.name for one in own}
        known = named | {one.name for one in added}
        words = {f"--{name.replace('_', '-')}": name for name in named} | keywords_of(kind)

        @wraps(function)
        def complete(*args: Any, **given: Any) -> Any:
            if unknown := given.keys() - known:
                raise TypeError(
                    f"{function.__name__}() got an unexpected keyword argument {min(unknown)!r}"
                )
            mine = {name: given[name] for name in given.keys() & named}
            try:
                return function(*args, **mine, **with_defaults(kind, given, **defaults))
            except Exception as error:
                error.args = tuple(with_keywords(one, words) for one in error.args)
                raise

        complete.__signature__ = signature.replace(parameters=[*own, *added])  # type: ignore[attr-defined]
        complete.__doc__ = _PLACE.sub(
            lambda found: "".join(_items(kind, named, found[1])), function.__doc__ or ""
        )
        return complete  # type: ignore[return-value]

    return decorated


def _parameter(one: Declared, defaults: Mapping[str, Any]) -> inspect.Parameter:
    default = defaults.get(one.name, one.option.default)
    keyword = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(one.name, keyword, default=default, annotation=one.type)


def _items(kind: Any, arguments: set[str], indent: str) -> Iterator[str]:
    """Yield the lines of a docstring that describe the options."""
    words = keywords_of(kind) | {name.upper(): name for name in arguments}
    word = re.compile(rf"{_FLAG.pattern}|\b(?:{'|'.join(map(str.upper, arguments))})\b")
    for one in declared(kind):
        text = word.sub(lambda found: _in_python(found[0], words), one.text)
        item = f"- `{one.name}`: {text}{_A_TIME if _is_time(one.type) else ''}"
        lines = wrap(item, _WIDTH - len(indent), subsequent_indent="  ", break_on_hyphens=False)
        yield from (f"{indent}{line}\n" for line in lines)


def _is_time(kind: Any) -> bool:
    """Return whether a value is a time, or may be a list of times."""
    return getattr(kind, "__module__", "") == "datetime" or any(map(_is_time, get_args(kind)))


def keywords_of(kind: Any) -> dict[str, str]:
    """The keyword of each option, by its name in a command: `{"--from": "start_time"}`."""
    return {one.flags.split()[0]: one.name for one in declared(kind)}


def with_keywords(text: Any, names: Mapping[str, str]) -> Any:
    """Return what an error says, with keywords in place of a command's options."""
    if not isinstance(text, str):
        return text
    return _SAID_FLAG.sub(lambda found: names.get(found[0], found[0]), text)


def _in_python(word: str, names: Mapping[str, str]) -> str:
    return f"`{names[word]}`" if word in names else word
