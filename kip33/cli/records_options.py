"""The options of `kip33 records` and `kip33 count` as typed values, and those they share."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from kip33.cli.declared_options import options_of
from kip33.cli.options import together
from kip33.cli.output import open_catalog_dir
from kip33.cli.times import DURATION
from kip33.records.partitions import Source
from kip33.records.reading import ReadOptions

if TYPE_CHECKING:
    from kip33.stores.locations import Location

ON_ERROR_FAILS: Final = "--on-error fail"  # in messages
_Command = TypeVar("_Command", bound=Callable[..., Any])
# --on-error has longer texts, and --columns is of `records` only. Offsets are no options yet.
_NOT_CHOSEN: Final = (
    *("level", "columns", "start_offset", "end_offset", "include_control", "on_error"),
)
choice_options: Final = together(
    click.argument("source", metavar="SOURCE|CATALOG"),
    click.argument("remote", metavar="[REMOTE]", required=False),
    options_of(ReadOptions, without=_NOT_CHOSEN, disorder=DURATION),
)


def source_of(source: str, remote: str | None) -> Source:
    """Return what is read: a place, or the catalogs of two tiers; LocationError without one."""
    if remote is None:
        return source
    from kip33.api.offsets_for_times import OpenedTiers

    return OpenedTiers((open_catalog_dir(source), open_catalog_dir(remote, "REMOTE")))


def require_times(read: ReadOptions) -> None:
    """Raise UsageError, one line, if no time is between --from and --until."""
    start, end = read["start_time"], read["end_time"]
    if isinstance(start, int) and isinstance(end, int) and end <= start:
        raise click.UsageError(
            "--until must be later than --from; records at --until are not included"
        )


@dataclass(frozen=True, kw_only=True)
class CountCommand:
    """The options of `kip33 count`."""

    source: str
    remote: str | None  # the catalog of the other tier
    read: ReadOptions
    per_ms: int
    workers: int | None
    output_format: str
    summary_file: "Location | None"

    def check(self) -> None:
        """Raise UsageError, one line, for times that contradict each other."""
        require_times(self.read)


def on_error_option(*choices: str) -> Callable[[_Command], _Command]:
    """Return the option --on-error with these choices, the first one the default."""
    texts = {
        "skip": "skip: a warning, and the batches after it are read",
        "row": "row: a row with the reason in _corrupt",
        "fail": "fail: an error, also for records that may be of aborted transactions (with "
        "--isolation read_committed), or of no log (of two tiers without leader epochs)",
    }
    return click.option(
        "--on-error",
        type=click.Choice(choices),
        default=choices[0],
        show_default=True,
        help="For a batch, the end of a log or a file that cannot be read: "
        + "; ".join(texts[choice] for choice in choices)
        + ".",
    )
