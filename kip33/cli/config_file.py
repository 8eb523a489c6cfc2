"""The file of --config: a command's defaults in TOML."""

import tomllib
from pathlib import Path
from typing import Any, Final

import click

from kip33.cli.main import COMMANDS, get_command

MOST_CONFIG_BYTES: Final = 1 << 20


def load_config(ctx: click.Context, param: click.Parameter, path: Path | None) -> None:
    """Take a command's defaults from a TOML file: its own table overrides the top-level keys."""
    if path is None:
        return
    try:
        tables = tomllib.loads(_config_text(path))
    except OSError as error:
        raise click.BadParameter(f"{path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:  # of the text, or a NUL in the file's name
        raise click.BadParameter(f"{path}: not valid TOML: {error}") from error
    command = ctx.command.name or ""
    own = tables.get(command, {})
    own = own if isinstance(own, dict) else {}
    shared = {
        key: value
        for key, value in tables.items()
        if not (key in COMMANDS and isinstance(value, dict))
    }
    options = _long_options(ctx.command)
    defaults = {}
    for key, value in (shared | own).items():
        option = options.get(key.replace("_", "-"))
        if option is None and key in own:
            raise click.BadParameter(f"{path}: [{command}] has no option {key!r}")
        if option is None and not _is_known(key):
            what = "command" if isinstance(value, dict) else "option"
            raise click.BadParameter(f"{path}: unknown {what} {key!r}")
        if option and option.name:
            try:
                defaults[option.name] = _default_of(option, value)
            except ValueError as error:
                raise click.BadParameter(f"{path}: {key}: expected {error}") from error
    ctx.default_map = {**(ctx.default_map or {}), **defaults}


def _config_text(path: Path) -> str:
    """Return a small file's text; an endless device is refused."""
    with path.open("rb") as file:
        data = file.read(MOST_CONFIG_BYTES + 1)
    if len(data) > MOST_CONFIG_BYTES:
        raise ValueError(f"the file has more than {MOST_CONFIG_BYTES} bytes")
    return data.decode()


def _default_of(option: click.Option, value: Any) -> Any:
    """Return a TOML value in the form of the command line; ValueError says what is expected.

    Numbers become text, so that `1.5` is not accepted as an integer here either.
    """
    if option.is_flag:
        if not isinstance(value, bool):
            raise ValueError("true or false")
        return value
    if option.multiple or option.nargs != 1:
        if not isinstance(value, list) or not all(map(_is_plain, value)):
            raise ValueError("a list [...] of texts or numbers")
        return [str(one) for one in value]
    if not _is_plain(value):
        raise ValueError("a text or a number")
    return str(value)


def _is_plain(value: Any) -> bool:
    return isinstance(value, str | int | float) and not isinstance(value, bool)


def _is_known(key: str) -> bool:
    """Return whether any command, not necessarily this one, has such an option."""
    return any(key.replace("_", "-") in _long_options(get_command(name)) for name in COMMANDS)


def _long_options(command: click.Command) -> dict[str, click.Option]:
    """Return a command's options by their names in a configuration file."""
    return {
        name.removeprefix("--"): option
        for option in command.params
        if isinstance(option, click.Option) and option.name != "config"
        for name in option.opts
        if name.startswith("--")
    }
