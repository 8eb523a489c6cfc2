"""Choose the snapshot that a user means, and report newer ones that are ignored."""

import sys
import warnings
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from kip33.catalog.catalog import Catalog
from kip33.catalog.snapshot import Snapshot
from kip33.errors import CatalogError

Warn: TypeAlias = Callable[[str], object]
"""What shows one line to the user."""


class Choice(NamedTuple):
    """A snapshot, and one line for each newer snapshot that is ignored."""

    snapshot: Snapshot
    warnings: tuple[str, ...] = ()


def warn_caller(message: str) -> None:
    """Give a Python warning at the line that called kip33."""
    depth, frame, package = 1, sys._getframe(0), __name__.split(".")[0]
    while frame.f_back and frame.f_globals.get("__name__", "").split(".")[0] == package:
        depth, frame = depth + 1, frame.f_back
    warnings.warn(message, stacklevel=depth)


def choose(catalog: Catalog, text: str | None, warn: Warn = warn_caller) -> Choice:
    """Return the snapshot with a name, a sequence number or an id; the newest one for None.

    `warn` is called for each newer snapshot that is ignored, so that no caller forgets them. Raises
    CatalogError if there is no such snapshot, or its parts differ from the commit.
    """
    if text is None:
        choice = _newest(catalog)
        for warning in choice.warnings:
            warn(warning)
        return choice
    snapshot = catalog.named(text)
    damage = catalog.damage(snapshot)
    if damage:
        if snapshot.name not in catalog.commit_names():
            raise catalog.removed(snapshot)
        raise CatalogError(f"{damage}; the snapshot is damaged: choose another")
    return Choice(snapshot)


def _newest(catalog: Catalog) -> Choice:
    ignored: list[str] = []
    for candidate in catalog.candidates():
        if candidate.snapshot and not candidate.problem:
            return Choice(candidate.snapshot, tuple(ignored))
        ignored.append(f"{candidate.problem}; this snapshot is ignored")
    return Choice(catalog.require_newest())  # raises an error that says why there is no snapshot
