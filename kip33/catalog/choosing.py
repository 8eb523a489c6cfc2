"""Choose the snapshot that a user means, and report newer ones that are ignored."""

from typing import NamedTuple

from kip33.catalog.catalog import Catalog
from kip33.catalog.snapshot import Snapshot
from kip33.errors import CatalogError


class Choice(NamedTuple):
    """A snapshot, and one line for each newer snapshot that is ignored."""

    snapshot: Snapshot
    warnings: tuple[str, ...] = ()


def choose(catalog: Catalog, text: str | None) -> Choice:
    """Return the snapshot with a name, a sequence number or an id; the newest one for None.

    Raises CatalogError if there is no such snapshot, or its parts differ from the commit.
    """
    if text is None:
        return _newest(catalog)
    snapshot = catalog.named(text)
    damage = catalog.damage(snapshot)
    if damage:
        if snapshot.name not in catalog.commit_names():
            raise catalog.removed(snapshot)
        raise CatalogError(f"{damage}; the snapshot is damaged: choose another")
    return Choice(snapshot)


def chosen(catalog: Catalog, text: str | None) -> Snapshot:
    """Return `choose(...).snapshot`."""
    return choose(catalog, text).snapshot


def _newest(catalog: Catalog) -> Choice:
    warnings: list[str] = []
    for candidate in catalog.candidates():
        if candidate.snapshot and not candidate.problem:
            return Choice(candidate.snapshot, tuple(warnings))
        warnings.append(f"{candidate.problem}; this snapshot is ignored")
    return Choice(catalog.require_newest())  # raises an error that says why there is no snapshot
