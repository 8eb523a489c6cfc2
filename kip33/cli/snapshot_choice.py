"""The snapshot that a command answers from; what is passed over is said on standard error."""

from kip33.catalog.catalog import Catalog
from kip33.catalog.choosing import Choice, choose
from kip33.cli.output import warn


def choose_and_warn(catalog: Catalog, text: str | None) -> Choice:
    """Return `choose(...)`, each of its warnings printed as a line."""
    choice = choose(catalog, text)
    for warning in choice.warnings:
        warn(warning)
    return choice
