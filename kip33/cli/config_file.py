"""The file with defaults of options: that of --config or KIP33_CONFIG, else one that is found.

Without either, `kip33.toml` is looked for in the working directory and in those above it, up to the
home directory or the root. A file of another user is not taken, and with an empty KIP33_CONFIG
nothing is looked for. The file may say where the archive is, so `kip33 verify` alone is a command:

    source = "/archive/kafka-logs"
    index-dir = "/archive/indexes"
    catalog = "/archive/indexes/_catalog"    # by default `_catalog` in the index directory

What is changed is named: by the command line, or by a file that --config or KIP33_CONFIG names. A
file that was found never gives a place to a command of `_CHANGING`, nor an option of `_BY_HAND`.
"""

import os
import stat
from collections.abc import Collection, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, Final, NamedTuple

import click
from click.core import ParameterSource

from kip33.cli.main import COMMANDS, get_command
from kip33.cli.output import warn
from kip33.rules.policies import nearest

CONFIG_VARIABLE: Final = "KIP33_CONFIG"
_NAME: Final = "kip33.toml"
_META: Final = "kip33.config"  # where click's `meta` has the file
_MOST_CONFIG_BYTES: Final = 1 << 20
_PLACES: Final = ("source", "index-dir", "catalog")
_OF_PLACES: Final = {"DIR", "FILE", "FOLDER", "CATALOG"}  # placeholders of options
_CHANGING: Final = {
    *("retention apply", "retention undo", "catalog prune", "catalog orphans"),
    *("repair", "restore", "truncate"),
}
_BY_HAND: Final = {"apply", "abandon", "to"}
_IN_PLACE: Final = "in-place"


class ConfigFile(NamedTuple):
    """A file with defaults, and whether it was found by itself."""

    path: Path
    is_found: bool = False

    def of_place(self, text: str) -> str:
        """Return a place; in a file that was found it is relative to the file."""
        if not self.is_found or "://" in text or not text:
            return text
        return os.path.join(self.path.parent, text)  # noqa: PTH118 - `s//x` stays as it is


def by_hand(ctx: click.Context, param: click.Parameter, value: Any) -> Any:
    """Refuse an option from a configuration file: no default may plan or do a removal."""
    if value and ctx.get_parameter_source(str(param.name)) is ParameterSource.DEFAULT_MAP:
        raise click.BadParameter(
            "give this option on the command line, not in the configuration file", ctx, param
        )
    return value


def _found_config() -> ConfigFile | None:
    """Return the nearest `kip33.toml` from the working directory up, None without one."""
    for folder in _folders_above():
        path = folder / _NAME
        try:
            status = path.stat()
        except OSError:
            continue
        if not stat.S_ISREG(status.st_mode):
            continue
        if status.st_uid in (os.geteuid(), 0):
            return ConfigFile(path, is_found=True)
        warn(f"{path}: belongs to another user, so it is not read; give it by --config")
        return None
    return None


def _folders_above() -> Iterator[Path]:
    """Yield the working directory and those above it, up to the home directory or the root."""
    try:
        here = Path.cwd()
        home = Path.home().resolve()
    except (OSError, RuntimeError):  # it was removed; there is no home
        return
    for folder in (here, *here.parents):
        yield folder
        if folder == home:
            return


def show_config() -> None:
    """Print which file gave defaults, if one did, on standard error."""
    config: ConfigFile | None = click.get_current_context().meta.get(_META)
    if config:
        how = "found" if config.is_found else f"named by --config or {CONFIG_VARIABLE}"
        click.echo(f"Config: {config.path}, {how}", err=True)


def _take_config(ctx: click.Context, param: click.Parameter, path: Path | None) -> None:
    """Take a command's defaults from a TOML file: its own table overrides the top-level keys.

    `kip33 verify quick` takes what it knows of `[verify]`, which `[verify.quick]` overrides.
    """
    if ctx.resilient_parsing:  # a shell completes it
        return
    is_off = CONFIG_VARIABLE in os.environ  # and empty
    config = ConfigFile(path) if path else None if is_off else _found_config()
    if config is None:
        return
    tables = _tables_in(config.path)
    defaults = _defaults_of(ctx.command, config, tables) | _places_of(ctx.command, config, tables)
    ctx.meta[_META] = config
    ctx.default_map = {**(ctx.default_map or {}), **defaults}


def _defaults_of(
    command: click.Command, config: ConfigFile, tables: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the values of a command's options, by their names."""
    options, outer = _long_options(command), _outer(command)
    of_outer = _long_options(outer) if outer else {}
    is_changing = _is_changing(command, config)
    defaults = {}
    for key, (name, value) in _values_of(command, outer, tables).items():
        flag = key.replace("_", "-")
        option = options.get(flag)
        is_of_outer = outer is not None and name == outer.name and flag in of_outer
        if option is None or not option.name:
            if not is_of_outer:
                _require_known(config.path, key, name, value, options)
        elif not (is_changing and flag in _PLACES):
            _require_named(config, flag, value, is_changing=is_changing)
            default = _default_in(config, key, option, value)
            others = _choices(of_outer.get(flag)) if is_of_outer else set()
            defaults[option.name] = _without_choices(default, others - _choices(option))
    return defaults


def _require_known(path: Path, key: str, table: str, value: Any, options: Collection[str]) -> None:
    """Raise BadParameter for a key that is no option; above the tables, of no command at all."""
    if table:
        near = nearest([key], options)
        raise click.BadParameter(f"{path}: [{table}] has no option {key!r}{near}")
    if key.replace("_", "-") not in _PLACES and not _is_known(key):
        what, names = ("command", COMMANDS) if isinstance(value, dict) else ("option", options)
        raise click.BadParameter(f"{path}: unknown {what} {key!r}{nearest([key], names)}")


def _require_named(config: ConfigFile, flag: str, value: Any, *, is_changing: bool) -> None:
    """Raise BadParameter for an option that a file which was found must not give."""
    is_by_hand = flag == _IN_PLACE or (is_changing and flag in _BY_HAND)
    if config.is_found and value and is_by_hand:
        raise click.BadParameter(
            f"{config.path}: {flag!r} is not taken from a file that was found: give the option on "
            "the command line, or the file by --config"
        )


def _default_in(config: ConfigFile, key: str, option: click.Option, value: Any) -> Any:
    """Return the default of an option; BadParameter for one of another form."""
    try:
        default = _default_of(option, value)
    except ValueError as error:
        raise click.BadParameter(f"{config.path}: {key}: expected {error}") from error
    is_place = option.metavar in _OF_PLACES and isinstance(default, str)
    return config.of_place(default) if is_place else default


def _places_of(
    command: click.Command, config: ConfigFile, tables: Mapping[str, Any]
) -> dict[str, str]:
    """Return the arguments SOURCE and CATALOG, by their names, as far as the file has them."""
    if _is_changing(command, config):
        return {}
    texts = {
        key: config.of_place(value)
        for key in _PLACES
        if isinstance(value := tables.get(key, tables.get(key.replace("-", "_"))), str)
    }
    catalog = texts.get("catalog")
    if catalog is None and "index-dir" in texts:
        catalog = f"{texts['index-dir'].rstrip('/')}/_catalog"
    places: dict[str, str] = {}
    for one in command.params:
        if isinstance(one, click.Argument) and one.name in ("source", "catalog_dir"):
            source = texts.get("source") if one.name == "source" else None
            place = catalog if catalog and "CATALOG" in (one.metavar or "") else source
            if place:
                places[one.name] = place
    return places


def _is_changing(command: click.Command, config: ConfigFile) -> bool:
    name = f"{getattr(command, 'of', '')} {command.name}".strip()
    return config.is_found and name in _CHANGING


def _tables_in(path: Path) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(_config_text(path))
    except OSError as error:
        raise click.BadParameter(f"{path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:  # of the text, or a NUL in the file's name
        raise click.BadParameter(f"{path}: not valid TOML: {error}") from error


def _outer(command: click.Command) -> click.Command | None:
    """Return the command of a mode."""
    name = getattr(command, "of", "")
    return get_command(name) if name else None


def _values_of(
    command: click.Command, outer: click.Command | None, tables: Mapping[str, Any]
) -> dict[str, tuple[str, Any]]:
    """Return what a file has for a command: the last table with each key, and the value."""
    values = {key: ("", value) for key, value in _without_tables(tables, COMMANDS).items()}
    table, name = tables, ""
    for one in filter(None, (outer, command)):
        inner = table.get(str(one.name), {})
        table = inner if isinstance(inner, dict) else {}
        name = f"{name}.{one.name}".lstrip(".")
        own = _without_tables(table, getattr(one, "modes", ()))
        values |= {key: (name, value) for key, value in own.items()}
    return values


def _without_tables(table: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    """Return the keys of a table that are not tables of these commands."""
    return {
        key: value for key, value in table.items() if not (key in names and isinstance(value, dict))
    }


def _choices(option: click.Option | None) -> set[str]:
    kind = option.type if option else None
    return set(map(str, kind.choices)) if isinstance(kind, click.Choice) else set()


def _without_choices(default: Any, others: Collection[str]) -> Any:
    """Return a mode's default without what only its command can choose: `--fail-on blocked`."""
    return [one for one in default if one not in others] if isinstance(default, list) else default


def _config_text(path: Path) -> str:
    """Return a small file's text; an endless device is refused."""
    with path.open("rb") as file:
        data = file.read(_MOST_CONFIG_BYTES + 1)
    if len(data) > _MOST_CONFIG_BYTES:
        raise ValueError(f"the file has more than {_MOST_CONFIG_BYTES} bytes")
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
    """Return whether any command or mode, not necessarily this one, has such an option."""
    every = (get_command(name) for name in COMMANDS)
    commands = chain.from_iterable((one, *getattr(one, "modes", {}).values()) for one in every)
    return any(key.replace("_", "-") in _long_options(command) for command in commands)


def _long_options(command: click.Command) -> dict[str, click.Option]:
    """Return a command's options by their names in a configuration file."""
    return {
        name.removeprefix("--"): option
        for option in command.params
        if isinstance(option, click.Option) and option.name != "config"
        for name in (*option.opts, *getattr(option, "earlier_names", ()))
        if name.startswith("--")
    }


config_option: Final = click.option(
    "--config",
    type=click.Path(path_type=Path),
    is_eager=True,
    expose_value=False,
    envvar=CONFIG_VARIABLE,
    callback=_take_config,
    help="TOML file with defaults for these options, like conf/kip33.toml [default: KIP33_CONFIG, "
    "else kip33.toml here or above].",
)
