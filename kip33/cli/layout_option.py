"""`--layout`: the layout of an archive, by name or pattern."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

_Command = TypeVar("_Command", bound=Callable[..., Any])


def layout_option(command: _Command) -> _Command:
    """Add --layout, a text that `kip33.archive.layouts.layout_of` takes."""
    return click.option(
        "--layout",
        metavar="NAME|PATTERN",
        default="kafka",
        show_default=True,
        callback=_known,
        help="How files are arranged below SOURCE: kafka, pinterest, aiven, local-tiered, "
        "hdfs-rsm, or a pattern of the paths such as "
        "'{log_dir}/{topic}-{partition}/{base_offset}.log'.",
    )(command)


def _known(ctx: click.Context, param: click.Parameter, text: str) -> str:
    from kip33.archive.layouts import layout_of

    try:
        return layout_of(text).name
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from error
