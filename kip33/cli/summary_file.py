"""`--summary FILE`: a run's figures as a JSON object, for programs that cannot read its output."""

import functools
import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import click

if TYPE_CHECKING:
    from kip33.stores.locations import Location

SUFFIX: Final = ".json"
_Command = TypeVar("_Command", bound=Callable[..., Any])


def summary_option(command: _Command) -> _Command:
    """Add --summary, a Location or None.

    A wrong place, or a file that must not be replaced, is an error before the work begins.
    """

    @functools.wraps(command)
    def checked(*args: Any, **options: Any) -> Any:
        _require_replaceable(options["summary_file"])
        return command(*args, **options)

    return click.option(
        "--summary",
        "summary_file",
        metavar="FILE",
        callback=_place,
        help="Write a summary of the run to FILE (*.json) as one object, for example for a "
        "scheduler. Written in every --format and also before an exit 3. Replaces FILE "
        "only if it is a summary.",
    )(cast("_Command", checked))


def _place(ctx: click.Context, param: click.Parameter, text: str | None) -> "Location | None":
    from kip33.stores.locations import Location, without_secrets

    if text is None:
        return None
    if not text.endswith(SUFFIX):  # a slip must not replace a segment, index or Parquet file
        raise click.BadParameter(
            f"{without_secrets(text)!r} found, expected a name that ends in {SUFFIX}"
        )
    return Location.of(text)


def publish_summary(place: "Location | None", summary: Mapping[str, Any]) -> None:
    """Publish the summary, replacing an earlier one; PublishError if that fails."""
    from kip33.stores.own_files import publish_or_raise

    _require_replaceable(place)
    if place:
        data = (json.dumps(summary, indent=1) + "\n").encode()
        publish_or_raise(place, data, "the run is complete, only its summary is missing")


def _require_replaceable(place: "Location | None") -> None:
    """Raise LocationError if the place has something other than a summary."""
    from kip33.archive.output_files import require_summary_place

    if place:
        require_summary_place(place)
