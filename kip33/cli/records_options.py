"""What `kip33 records` and `kip33 count` share: what is read, and what is said of problems."""

from typing import Final

import click

from kip33.cli.options import together
from kip33.cli.output import open_catalog_dir
from kip33.errors import counted
from kip33.records.partitions import Source

places: Final = together(
    click.argument("source", metavar="SOURCE|CATALOG"),
    click.argument("remote", metavar="[REMOTE]", required=False),
)


def source_of(source: str, remote: str | None) -> Source:
    """Return what is read: a place, or the catalogs of two tiers; LocationError without one."""
    if remote is None:
        return source
    from kip33.api.offsets_for_times import OpenedTiers

    return OpenedTiers((open_catalog_dir(source), open_catalog_dir(remote, "REMOTE")))


def problems_text(damaged: int, undecided: int | None, undecoded: int = 0) -> str:
    """Return how many problems there are, and of which records and values; empty for 0.

    A problem is damage, a log that cannot be read or is invalid, or offsets that are missing.
    """
    found = (
        (damaged, "problem", "in the logs"),
        (undecided, "record", "may be of aborted transactions"),
        (undecoded, "value", "cannot be decoded"),
    )
    return "".join(f"{counted(number, what)} {why}; " for number, what, why in found if number)
