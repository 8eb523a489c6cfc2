"""`kip33 completion`: the shell's completion of commands, options, choices, paths and topics.

Scripts, protocol, commands, options and choices are click's. Added here is what click cannot know:
which texts are places, by their placeholders in the help, and which are topics of a catalog.
"""

import re
from collections.abc import Iterable
from contextlib import suppress
from copy import copy
from pathlib import Path
from typing import Final

import click
from click.shell_completion import CompletionItem, get_completion_class
from click.types import StringParamType

COMPLETION_VARIABLE: Final = "_KIP33_COMPLETE"  # set by the scripts
_SHELLS: Final = {
    "bash": 'eval "$(kip33 completion bash)" in ~/.bashrc',
    "zsh": 'eval "$(kip33 completion zsh)" in ~/.zshrc, below compinit',
    "fish": "kip33 completion fish > ~/.config/fish/completions/kip33.fish",
}
_FILE: Final = re.compile(r"FILE|PLACE|PLAN")  # in a placeholder of the help
_DIRECTORY: Final = re.compile(r"CATALOG|DIR|FOLDER|OTHER|REMOTE|SOURCE")
_NO_PLACES: Final = ("replica",)  # LOG_DIR of SOURCE, a name
_OF_CATALOGS: Final = ("catalog_dir", "source", "catalog", "index_dir")


@click.command(epilog="Example: " + "; ".join(f"{name}: {line}" for name, line in _SHELLS.items()))
@click.argument("shell", type=click.Choice(list(_SHELLS)))
def completion(shell: str) -> None:
    """Print the script that lets a SHELL complete the command line of kip33.

    It completes commands, options, choices and paths, and for --topic the topics of a catalog of
    this machine that the command line names.
    """
    from kip33.cli.standard_output import exact_output

    kind = get_completion_class(shell)
    assert kind is not None  # a choice
    every = click.get_current_context().find_root().command
    script = kind(every, {}, "kip33", COMPLETION_VARIABLE).source()
    click.echo(script, exact_output(), color=True)


def completing(command: click.Command) -> click.Command:
    """Return the command with places and topics that complete. Not to run it: a URI is no path."""
    command = copy(command)
    command.params = [copy(param) for param in command.params]
    for param in command.params:
        name = param.name or ""
        if type(param.type) is not StringParamType or name in _NO_PLACES:
            continue
        placeholder = param.metavar or (isinstance(param, click.Argument) and name.upper()) or ""
        if name in ("topic", "topics"):
            param.type = _Topic()
        elif name == "source" or _FILE.search(placeholder):  # a source may be one log
            param.type = click.Path()
        elif _DIRECTORY.search(placeholder):
            param.type = click.Path(file_okay=False)
    if modes := getattr(command, "modes", {}):
        vars(command)["modes"] = {name: completing(mode) for name, mode in modes.items()}
    return command


class _Topic(StringParamType):
    """A glob of topics that completes as a topic of the catalog on the command line."""

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        excludes = "!" * incomplete.startswith("!")
        # Where the option at the end still lacks its value, click leaves arguments in `ctx.args`.
        places = filter(None, (*map(ctx.params.get, _OF_CATALOGS), *ctx.args))
        shown = (excludes + topic for topic in _topics_of(places))
        return [CompletionItem(one) for one in shown if one.startswith(incomplete)]


def _topics_of(places: Iterable[str]) -> list[str]:
    """Return the topics of the first place that is, or has, a catalog on this machine.

    A shell waits for the answer: no other store is asked, and no CRC is verified.
    """
    import pyarrow.parquet as pq

    from kip33.catalog.catalog import CATALOG_FOLDER, Catalog
    from kip33.errors import Kip33Error
    from kip33.formats.names import is_topic

    folders = (folder for text in places for folder in (Path(text), Path(text) / CATALOG_FOLDER))
    folder = next((folder for folder in folders if (folder / "commits").is_dir()), None)
    if folder is None:
        return []
    topics: set[str | None] = set()
    with suppress(Kip33Error, OSError, ValueError):
        catalog = Catalog.at(str(folder))
        newest = catalog.require_newest()
        for part in newest.parts:
            place = catalog.snapshot_folder(newest.name).child(part.name)
            with pq.ParquetFile(place.path, read_dictionary=["topic"], pre_buffer=False) as file:
                rows = file.read(["topic"], use_threads=False)
                topics.update(rows["topic"].unique().to_pylist())
    return sorted(topic for topic in topics if topic and is_topic(topic))
