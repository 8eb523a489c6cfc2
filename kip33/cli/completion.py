"""`kip33 completion`: the shell's completion of commands, options, choices, paths and topics.

The script and its protocol are click's. What click does not know is added here to a command's
parameters, by their placeholders in the help: which ones are places, and which ones are topics.
"""

from collections.abc import Iterable, Iterator
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
_FILES: Final = ("FILE", "FILE...", "PLACE")
_DIRECTORIES: Final = (
    *("CATALOG", "[CATALOG]", "[REMOTE]", "CATALOG|SOURCE", "SOURCE|CATALOG"),
    *("DIR", "LOG_DIR", "SOURCE", "[SOURCE]", "PARTITION_DIR"),
)
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


class _Place(StringParamType):
    """A text that completes as a path: `file`, or `dir` for directories alone."""

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return [CompletionItem(incomplete, type=self._kind)]


class _Topic(StringParamType):
    """A glob of topics that completes as a topic of the catalog on the command line."""

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        excludes = "!" * incomplete.startswith("!")
        # Where the option at the end still lacks its value, click leaves arguments in `ctx.args`.
        places = (*map(ctx.params.get, _OF_CATALOGS), *ctx.args)
        names = _topics_of(filter(None, places))
        shown = (excludes + name for name in names)
        return [CompletionItem(one) for one in shown if one.startswith(incomplete)]


def add_completion(command: click.Command) -> None:
    """Let a command's places and topics complete."""
    for param in command.params:
        metavar = param.metavar or (
            param.name.upper() if isinstance(param, click.Argument) and param.name else ""
        )
        if type(param.type) is not StringParamType or param.name in _NO_PLACES:
            continue
        if metavar in _FILES or metavar in _DIRECTORIES:
            param.type = _Place("file" if metavar in _FILES or param.name == "source" else "dir")
        elif param.name in ("topic", "topics"):
            param.type = _Topic()


def _topics_of(places: Iterable[str]) -> Iterator[str]:
    """Yield the topics of the first place that is, or has, a catalog on this machine.

    No other store is asked: a shell waits for the answer. No CRC is verified.
    """
    from kip33.catalog.catalog import CATALOG_FOLDER, Catalog
    from kip33.errors import Kip33Error

    for place in places:
        for folder in (Path(place), Path(place) / CATALOG_FOLDER):
            if not (folder / "commits").is_dir():
                continue
            catalog = Catalog.at(str(folder))
            try:
                snapshot = catalog.newest()
                if snapshot:
                    parts = [part.name for part in snapshot.parts]
                    yield from _topics_in(Path(catalog.snapshot_folder(snapshot.name).path), parts)
            except (Kip33Error, OSError, ValueError):
                pass
            return


def _topics_in(folder: Path, parts: Iterable[str]) -> list[str]:
    import pyarrow.parquet as pq

    from kip33.formats.names import is_topic

    topics: set[str | None] = set()
    for part in parts:
        with pq.ParquetFile(folder / part, pre_buffer=False) as file:
            topics.update(file.read(["topic"], use_threads=False)["topic"].unique().to_pylist())
    return sorted(topic for topic in topics if topic and is_topic(topic))
