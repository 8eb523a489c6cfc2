"""Choose the snapshot that a command uses, and print warnings about ignored ones."""

from kip33.catalog.catalog import Catalog, Choice, choose
from kip33.cli.output import warn


def choose_and_warn(catalog: Catalog, text: str | None) -> Choice:
    """Return `choose(...)` and print each of its warnings on one line."""
    return choose(catalog, text, warn)
