"""Commands with modes: `kip33 catalog CATALOG`, and `kip33 catalog diff CATALOG A B`.

A mode is a command of its own, named by the first word. What was an option in earlier versions,
such as `kip33 catalog CATALOG --diff A B`, is hidden and still does the same, with a line that
names the new form.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import click
from click.shell_completion import CompletionItem

from kip33.cli.option_groups import GroupedCommand
from kip33.cli.output import counted, warn
from kip33.rules.policies import nearest


class Earlier(NamedTuple):
    """An option that became a mode; the values that it took are the last arguments of the mode."""

    mode: str
    values: int = 0
    is_kept: bool = False  # the mode has the option, too


class Mode(GroupedCommand):
    """A mode; `of` is the name of its command."""

    of: str = ""


class FirstArgument(click.Argument):
    """The first argument of a command with modes: a shell completes their names, too."""

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return what the type completes, then the modes that begin so."""
        modes: Mapping[str, Mode] = getattr(ctx.command, "modes", {})
        names = (name for name in modes if name.startswith(incomplete))
        return [*super().shell_complete(ctx, incomplete), *map(CompletionItem, names)]


class CommandWithModes(GroupedCommand):
    """A command whose first argument may be the name of one of its modes."""

    modes: Mapping[str, Mode] = {}
    earlier: Mapping[str, Earlier] = {}

    def make_context(
        self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any
    ) -> click.Context:
        """Return the context of the mode that the arguments name, else of the command itself."""
        if not extra.get("resilient_parsing"):  # a shell completes it
            args = self._as_now(args, info_name or "")
        mode = self.modes.get(args[0]) if args else None
        if mode is None:
            self._require_no_near_mode(args[:1], f"kip33 {info_name}")
            return super().make_context(info_name, args, parent, **extra)
        return mode.make_context(f"{info_name} {mode.name}", args[1:], parent, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command of a context, which may be a mode's."""
        return super().invoke(ctx) if ctx.command is self else ctx.command.invoke(ctx)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, then the modes."""
        super().format_options(ctx, formatter)
        shown = [(name, mode.get_short_help_str(200)) for name, mode in self.modes.items()]
        with formatter.section(f"Commands ({ctx.command_path} COMMAND --help)"):
            formatter.write_dl(shown)

    def _require_no_near_mode(self, words: Sequence[str], command: str) -> None:
        """Raise UsageError if the first word is no place, and almost one of the modes."""
        for word in words:
            near = nearest(words, self.modes)
            if near and "/" not in word and not os.path.lexists(word):
                raise click.UsageError(f"no place and no command {word!r} of {command}{near}")

    def _as_now(self, args: Sequence[str], command: str) -> list[str]:
        """Return the arguments with the mode of an earlier option in front."""
        if args and args[0] in self.modes:
            return [*args]
        options = args[: args.index("--")] if "--" in args else args
        found = (at for at, arg in enumerate(options) if arg.partition("=")[0] in self.earlier)
        at = next(found, None)
        if at is None:
            return [*args]
        flag, is_joined, value = args[at].partition("=")
        earlier = self.earlier[flag]
        warn(
            f"{flag} is now a command: kip33 {command} {earlier.mode}; the next version will not "
            "have the option"
        )
        if earlier.is_kept:
            return [earlier.mode, *args]
        first = [value] if is_joined else []
        end = at + 1 + earlier.values - len(first)
        if end > len(options):  # `retention PLAN --apply` was an error, and must not delete
            raise click.UsageError(f"{flag} requires {counted(earlier.values, 'argument')}")
        others = [arg for arg in (*args[:at], *args[end:]) if arg != flag]
        return [earlier.mode, *others, *first, *args[at + 1 : end]]


def with_modes(
    own: CommandWithModes, *modes: Mode, earlier: Mapping[str, Earlier]
) -> CommandWithModes:
    """Give a command its modes, and the options of earlier versions that became them."""
    own.modes = {str(mode.name): mode for mode in modes}
    for mode in modes:
        mode.of = str(own.name)
    own.earlier = earlier
    return own
