"""Which snapshot a user means."""

from kip33.errors import CatalogError
from kip33.storage.catalog import Catalog
from kip33.storage.snapshots import Snapshot


def chosen(catalog: Catalog, text: str | None) -> Snapshot:
    """Return the snapshot of a name, a sequence number or an id; the newest one for None.

    Raises CatalogError where there is none, or its parts are not what was committed.
    """
    if text is None:
        return catalog.require_newest()
    snapshot = catalog.named(text)
    damage = catalog.damage(snapshot)
    if damage:
        raise CatalogError(f"{damage}; the snapshot counts as none, choose another")
    return snapshot
