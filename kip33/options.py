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
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, wraps
from textwrap import wrap
from types import UnionType
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
_PLACE: Final = re.compile(r"^( *)- `options`: .*(?:\n\1  .*)*\n", re.MULTILINE)
_FLAG: Final = re.compile(r"--[a-z][a-z-]*[a-z]")
_SAID_FLAG: Final = re.compile(rf"(?<!\S){_FLAG.pattern}")  # not in a path
_WIDTH: Final = 100
_A_TIME: Final = (
    " A time is ISO 8601, a `datetime` with a time zone, a time of pandas, NumPy or pyarrow, or ms "
    "since 1970."
)


class Option(NamedTuple):
    """What is said of an option; the type in its hint is that of its value."""

    help: str  # in a command; of a bool that is True by default: what `--no-NAME` does
    default: Any = None  # of a bool: False
    flag: str = ""  # in a command: `--only damaged`; else it is made of the keyword
    metavar: str | None = None
    least: int | None = None  # of a number
    most: int | None = None
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
            _require_kind(one, given[one.name])
            made[one.name] = _value(one.option, given[one.name])
    return made  # type: ignore[no-any-return]


def _default(option: Option) -> Any:
    """Return the value of a default, which may be a text such as `1m`."""
    return _value(option, option.default) if isinstance(option.default, str) else option.default


def _value(option: Option, given: Any) -> Any:
    """Return the value of what a program gives; a path becomes a text."""
    value = os.fspath(given) if isinstance(given, os.PathLike) else given
    return value if option.parse is None or value is None else option.parse(value)


def _require_kind(one: Declared, given: Any) -> None:
    """Raise ValueError for what a command would not take: a wrong choice, number or list."""
    is_union = get_origin(one.type) in (Union, UnionType)
    kinds = get_args(one.type) if is_union else (one.type,)
    if str in kinds or (given is None and type(None) in kinds):
        return
    origins = [get_origin(kind) for kind in kinds]
    if Sequence in origins and (given is None or isinstance(given, str)):
        of_numbers = any(get_args(kind) == (int,) for kind in kinds)
        is_number = of_numbers and given is not None and given.isdecimal()
        such = "" if given is None else f", such as [{int(given) if is_number else repr(given)}]"
        raise ValueError(f"{one.name} {given!r}: expected a list{such}")
    if int in kinds and isinstance(given, str):
        raise ValueError(f"{one.name} {given!r}: expected a number")
    if kinds == (bool,) and not isinstance(given, bool):
        raise ValueError(f"{one.name} {given!r}: expected True or False")
    if Literal in origins and not one.option.parse:
        choices = [one for kind in kinds if get_origin(kind) is Literal for one in get_args(kind)]
        if given not in choices:
            raise ValueError(f"{one.name} {given!r}: expected one of {', '.join(choices)}")
    least, most = one.option.least, one.option.most
    is_small = least is not None and isinstance(given, int) and given < least
    if is_small or (most is not None and isinstance(given, int) and given > most):
        range_text = f"{least} or more" if most is None else f"{least} to {most}"
        raise ValueError(f"{one.name} {given}: expected {range_text}")


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
        words = {f"--{name.replace('_', '-')}": name for name in named}
        words |= {one.flags.split()[0]: one.name for one in declared(kind)}

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
                error.args = tuple(_with_keywords(one, words) for one in error.args)
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
    words = {one.flags.split()[0]: one.name for one in declared(kind)}
    words |= {name.upper(): name for name in arguments}
    word = re.compile(rf"{_FLAG.pattern}|\b(?:{'|'.join(map(str.upper, arguments))})\b")
    for one in declared(kind):
        text = word.sub(lambda found: _in_python(found[0], words), one.text)
        item = f"- `{one.name}`: {text}{_A_TIME if _is_time(one.type) else ''}"
        lines = wrap(item, _WIDTH - len(indent), subsequent_indent="  ", break_on_hyphens=False)
        yield from (f"{indent}{line}\n" for line in lines)


def _is_time(kind: Any) -> bool:
    """Return whether a value is a time, or may be a list of times."""
    return getattr(kind, "__module__", "") == "datetime" or any(map(_is_time, get_args(kind)))


def _with_keywords(text: Any, names: Mapping[str, str]) -> Any:
    """Return what an error says, with keywords in place of a command's options."""
    if not isinstance(text, str):
        return text
    return _SAID_FLAG.sub(lambda found: names.get(found[0], found[0]), text)


def _in_python(word: str, names: Mapping[str, str]) -> str:
    return f"`{names[word]}`" if word in names else word
