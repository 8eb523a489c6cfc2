"""The file with defaults of options: that of --config or KIP33_CONFIG, else one that is found.

Without either, `kip33.toml` is looked for in the working directory and in those above it, up to the
home directory or the root. A file of another user is not taken, and with an empty KIP33_CONFIG
nothing is looked for. The file may say where the archive is, so `kip33 verify` alone is a command:

    source = "/archive/kafka-logs"
    index-dir = "/archive/indexes"
    catalog = "/archive/indexes/_catalog"    # by default `_catalog` in the index directory

The places of a file belong together: `drop_unused` leaves out those of another archive. A command
of `_CHANGING` uses no file that was only found, and no such file makes `build` replace files.
"""

import os
import re
import stat
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, Final, NamedTuple

import click
from click.core import ParameterSource

from kip33.cli.declared_options import ChoiceList, names_in
from kip33.cli.engine_option import is_typed
from kip33.cli.main import COMMANDS, CONFIG_META, ConfigNote, get_command
from kip33.cli.output import warn
from kip33.errors import proves_nothing
from kip33.rules.policies import nearest

CONFIG_VARIABLE: Final = "KIP33_CONFIG"
_NAME: Final = "kip33.toml"
_MOST_CONFIG_BYTES: Final = 1 << 20
_PLACES: Final = ("source", "index-dir", "catalog")
_OF_PLACES: Final = {"DIR", "FILE", "FOLDER", "CATALOG"}  # placeholders of options
_CHANGING: Final = {
    *("retention apply", "retention undo", "catalog prune", "catalog orphans"),
    *("repair", "restore", "truncate"),
}
_ARGUMENTS: Final = {"source": "SOURCE", "catalog_dir": "CATALOG"}  # by their names in click
_OWN_PLACES: Final = ("index_dir", "catalog")
_INDEX_PLACES: Final = ("index_dir", "in_place", "index_files")  # one says where index files are
_REPLACING: Final = ("overwrite", "in_place")
_UNUSED: Final = {"overwrite": False, "in_place": False, "index_files": True}  # others: None


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
    config: ConfigFile | None = click.get_current_context().meta.get(CONFIG_META)
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
    if config.is_found and _name_of(ctx.command) in _CHANGING:
        how = f"--config {config.path} uses it"
        warn(f"{config.path}: not used, because {ctx.command_path} changes files; {how}")
        return
    try:
        tables = _tables_in(config.path)
        options = _defaults_of(ctx.command, config, tables)
        defaults = options | _places_of(ctx.command, config, tables)
    except click.BadParameter as error:
        if config.is_found:
            raise click.UsageError(error.message, ctx) from error
        if ctx.get_parameter_source(str(param.name)) is ParameterSource.ENVIRONMENT:
            error.param_hint = CONFIG_VARIABLE
        raise
    ctx.meta[CONFIG_META] = config
    ctx.default_map = {**(ctx.default_map or {}), **defaults}


def drop_unused(values: dict[str, Any]) -> None:
    """Leave out what a file says of another archive, or what the command line says otherwise."""
    ctx = click.get_current_context()
    config: ConfigFile | None = ctx.meta.get(CONFIG_META)
    if config is None:
        return
    unused: dict[str, str] = {}
    if config.is_found:
        why = "it is taken from the command line, or from a file that --config names"
        unused = {name: why for name in _REPLACING if values.get(name)}
    if typed := next((name for name in _INDEX_PLACES if is_typed(name)), None):
        unused |= {name: f"{_shown(ctx, typed)} is given" for name in _INDEX_PLACES}
        is_other = typed != "index_dir" or _is_other(ctx, config, typed)
        if ctx.lookup_default("index_dir") and is_other:
            unused["catalog"] = "it is of the file's --index-dir"
    for name, shown in _ARGUMENTS.items():
        if is_typed(name) and _is_other(ctx, config, name):
            unused |= dict.fromkeys(_OWN_PLACES, f"{shown} is not that of the file")
    for name, why in unused.items():
        if name in values and ctx.get_parameter_source(name) is ParameterSource.DEFAULT_MAP:
            values[name] = _UNUSED.get(name)
            warn(f"{config.path}: {_shown(ctx, name)} is not used: {why}")


def _shown(ctx: click.Context, name: str) -> str:
    """Return an option's flag, or what an argument is called."""
    of_option = (one.opts[0] for one in ctx.command.params if one.name == name)
    return _ARGUMENTS.get(name) or next(of_option)


def _is_other(ctx: click.Context, config: ConfigFile, name: str) -> bool:
    """Return whether a command's place is not the file's; a found file without one has another."""
    typed, own = ctx.params.get(name), (ctx.default_map or {}).get(name)
    if own is None:
        return config.is_found
    return typed is not None and _real_place(typed) != _real_place(own)


def _real_place(text: str) -> str:
    from kip33.stores.locations import Location

    place = Location.of(text)
    return str(Path(place.path).resolve()) if place.is_local else place.uri


@contextmanager
def naming_config() -> Iterator[None]:
    """Add to an error which of the file's places it is about: a note, which `main` prints."""
    try:
        yield
    except Exception as error:
        for note in _notes_on(str(error)):
            error.add_note(ConfigNote(note))
        raise


def _notes_on(text: str) -> Iterator[str]:
    ctx = click.get_current_context()
    config: ConfigFile | None = ctx.meta.get(CONFIG_META)
    for one in ctx.command.params if config else ():
        is_place = one.name in _ARGUMENTS or getattr(one, "metavar", None) in _OF_PLACES
        is_default = ctx.get_parameter_source(str(one.name)) is ParameterSource.DEFAULT_MAP
        value = ctx.lookup_default(str(one.name)) if is_place and is_default else None
        if config and value and _is_named(str(value), text):
            yield f"{_shown(ctx, str(one.name))} is from {config.path}"


def _is_named(place: str, text: str) -> bool:
    """Return whether a text names a place, and not one below it."""
    whole = place if "://" in place else os.path.abspath(place)  # noqa: PTH100 - links stay links
    names = {whole, place if set("./") & set(place) else whole}
    return any(re.search(rf"(?<!\w){re.escape(name)}(?![\w/-])", text) for name in names)


def _defaults_of(
    command: click.Command, config: ConfigFile, tables: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the values of a command's options, by their names."""
    options, outer = _long_options(command), _outer(command)
    of_outer = _long_options(outer) if outer else {}
    defaults = {}
    for key, (name, value) in _values_of(command, outer, tables).items():
        flag = key.replace("_", "-")
        option = options.get(flag)
        is_of_outer = outer is not None and name == outer.name and flag in of_outer
        if option is None or not option.name:
            if not is_of_outer:
                _require_known(config.path, key, name, value, options)
        else:
            default = _default_in(config, key, option, value)
            others = _choices(of_outer.get(flag)) if is_of_outer else set()
            defaults[option.name] = _without_choices(default, others - _choices(option))
    return defaults


def _require_known(path: Path, key: str, table: str, value: Any, options: Collection[str]) -> None:
    """Raise BadParameter for a key that is no option; above the tables, of no command at all."""
    if table:
        is_place = key.replace("_", "-") in _PLACES
        end = ": it stands above the tables" if is_place else nearest([key], options)
        raise click.BadParameter(f"{path}: [{table}] has no option {key!r}{end}")
    if key.replace("_", "-") not in _PLACES and not _is_known(key):
        is_table = isinstance(value, dict)
        what, names = ("command", COMMANDS) if is_table else ("option", (*options, *_PLACES))
        raise click.BadParameter(f"{path}: unknown {what} {key!r}{nearest([key], names)}")


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
    texts = {key: config.of_place(text) for key, text in _place_texts(config.path, tables)}
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


def _place_texts(path: Path, tables: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the places above the tables; BadParameter for one that is no text."""
    for key in _PLACES:
        value = tables.get(key, tables.get(key.replace("-", "_")))
        if isinstance(value, str) and (value or key != "source"):
            yield key, value
        elif not (value is None or (key in COMMANDS and isinstance(value, dict))):
            raise click.BadParameter(
                f"{path}: {key}: expected a path or URI in quotes, found {value!r}"
            )


def _name_of(command: click.Command) -> str:
    return f"{getattr(command, 'of', '')} {command.name}".strip()


def _tables_in(path: Path) -> dict[str, Any]:
    import tomllib

    try:
        with path.open("rb") as file:
            data = file.read(_MOST_CONFIG_BYTES + 1)
        if len(data) > _MOST_CONFIG_BYTES:  # an endless device
            raise ValueError(f"the file has more than {_MOST_CONFIG_BYTES} bytes")
        return tomllib.loads(data.decode())
    except OSError as error:
        if proves_nothing(error):
            raise
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


def _default_of(option: click.Option, value: Any) -> Any:
    """Return a TOML value in the form of the command line; ValueError says what is expected.

    Numbers become text, so that `1.5` is not accepted as an integer here either.
    """
    if option.is_flag:
        if not isinstance(value, bool):
            raise ValueError("true or false")
        return value
    if option.multiple or option.nargs != 1:
        has_names = isinstance(option.type, ChoiceList)
        values = [value] if has_names and isinstance(value, str) else value
        if not isinstance(values, list) or not all(map(_is_plain, values)):
            raise ValueError("a list [...] of texts or numbers")
        texts = map(str, values)
        return [*chain.from_iterable(map(names_in, texts))] if has_names else [*texts]
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
