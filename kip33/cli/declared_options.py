"""Options of commands, made of the declarations that Python functions have (`kip33.options`)."""

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, Final, Literal, TypeVar, get_args, get_origin

import click

from kip33.archive.moments import time_ms, times_ms
from kip33.cli.times import DURATION, LIMIT, MOMENT, MOMENTS, POSITIVE_DURATION, SIZE, Quantity
from kip33.options import Declared, declared
from kip33.rules.policies import MAX_INT64, duration_ms, limit_ms, positive_ms, size_bytes

_Command = TypeVar("_Command", bound=Callable[..., Any])
_EARLIER_NAMES: Final = {"--topic": "--topics"}
_QUANTITIES: Final[dict[Any, Quantity]] = {
    duration_ms: DURATION,
    positive_ms: POSITIVE_DURATION,
    limit_ms: LIMIT,
    size_bytes: SIZE,
    time_ms: MOMENT,
    times_ms: MOMENTS,
}


class _Number(click.IntRange):
    """A number; the help has only a limit that is smaller than its type's."""

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return the number of a text."""
        number = super().convert(value, param, ctx)
        if number > MAX_INT64:
            self.fail(f"{number} found, expected at most 2^63 - 1", param, ctx)
        return number


class ChoiceList(click.Choice[str]):
    """Choices with commas between them; `joined` makes one list if the option is repeated."""

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return the choices of one text."""
        return tuple(super(ChoiceList, self).convert(one, param, ctx) for one in names_in(value))

    @staticmethod
    def joined(_: click.Context, __: click.Parameter, values: Sequence[Sequence[str]]) -> Any:
        """Return all choices."""
        return tuple(chain.from_iterable(values))


def names_in(text: str) -> list[str]:
    """Return the names in a text with commas between them."""
    return [name.strip() for name in text.split(",")]


class DeclaredOption(click.Option):
    """An option; its name in earlier versions does the same and is in no help."""

    @property
    def earlier_names(self) -> list[str]:
        """Return that name, if it had one."""
        return [_EARLIER_NAMES[name] for name in self.opts if name in _EARLIER_NAMES]

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        """Let a command line have either name."""
        super().add_to_parser(parser, ctx)
        if names := self.earlier_names:
            parser.add_option(self, names, self.name, action="append")


def options_of(kind: Any, **types: Any) -> Callable[[_Command], _Command]:
    """Return a decorator that adds the options of a typed dict; some have types of their own."""

    def add(command: _Command) -> _Command:
        for one in reversed(declared(kind)):
            command = _option(one, types.get(one.name))(command)
        return command

    return add


def option_of(name: str, hint: Any) -> Callable[[_Command], _Command]:
    """Return the decorator of one declared option, whose value a command gets as `name`."""
    return _option(Declared.of(name, hint))


def _option(one: Declared, its_type: Any = None) -> Callable[[_Command], _Command]:
    option = one.option
    how: dict[str, Any] = {"help": option.help, "metavar": option.metavar}
    flags, _, choice = one.flags.partition(" ")
    if choice:
        how |= {"type": click.Choice([choice]), "callback": _is_given}
    elif one.type is bool:
        how |= {"is_flag": True} | ({"callback": _negated} if option.default else {})
    else:
        quantity = its_type or _quantity_of(one)
        how |= _of_value(one) | ({"type": quantity} if quantity else {})
        how |= {"callback": ChoiceList.joined} if isinstance(quantity, ChoiceList) else {}
    if option.parse and not isinstance(how.get("type"), Quantity | ChoiceList):
        how["callback"] = _parsed(option.parse)
    return click.option(flags, one.name, cls=DeclaredOption, **how)


def _quantity_of(one: Declared) -> Quantity | None:
    """Return the type of a number with a unit."""
    option = one.option
    if option.parse and option.metavar and int in get_args(one.type):
        return _QUANTITIES.get(option.parse) or Quantity("number", option.parse, option.metavar)
    return _QUANTITIES.get(option.parse)


def _of_value(one: Declared) -> dict[str, Any]:
    """Return how a value is given."""
    option, kinds = one.option, get_args(one.type) or (one.type,)
    default = None if option.default is False else option.default  # of `bool | str`
    how: dict[str, Any] = {"default": default, "show_default": default is not None}
    if Sequence in {get_origin(kind) for kind in (one.type, *kinds)}:
        how = {"multiple": True, "callback": lambda _, __, values: values or option.default}
    for choices in (one.type, *kinds):
        if get_origin(choices) is Literal:
            return how | {"type": click.Choice(get_args(choices))}
    if int in kinds and not option.parse:
        return how | {"type": _Number(option.least, option.most)}
    return how


def _is_given(_: click.Context, __: click.Parameter, value: str | None) -> bool:
    return value is not None


def _negated(_: click.Context, __: click.Parameter, value: bool) -> bool:
    return not value


def _parsed(parse: Callable[[str], Any]) -> Callable[[click.Context, click.Parameter, Any], Any]:
    def value_of(ctx: click.Context, param: click.Parameter, text: str | None) -> Any:
        try:
            return None if text is None else parse(text)
        except ValueError as error:
            raise click.BadParameter(str(error), ctx, param) from error

    return value_of
