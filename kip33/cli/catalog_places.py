"""How a command takes one catalog, or the two of a cluster with tiered storage: CATALOG [REMOTE].

The two are given in any order: the layout of a snapshot says which tier it is of.
"""

from typing import TYPE_CHECKING, Final, NamedTuple

import click

from kip33.archive.common_options import SnapshotName
from kip33.cli.declared_options import option_of
from kip33.cli.modes import FirstArgument
from kip33.cli.options import together
from kip33.cli.output import choose_and_warn, open_catalog_dir, warn

if TYPE_CHECKING:
    from kip33.catalog.tiers import CatalogSnapshot, Tiers

snapshot_option: Final = option_of("snapshot", SnapshotName)
catalog_argument: Final = click.argument("catalog_dir", metavar="CATALOG", cls=FirstArgument)
catalog_places: Final = together(
    catalog_argument,
    click.argument("remote_dir", metavar="[REMOTE]", required=False),
    snapshot_option,
)


class CatalogPlaces(NamedTuple):
    """What `catalog_places` takes."""

    catalog_dir: str
    remote_dir: str | None
    snapshot: str | None  # of one catalog

    def chosen(self) -> "tuple[CatalogSnapshot | Tiers, tuple[str, ...]]":
        """Return the snapshot, or both tiers, and the warnings, which are printed.

        Raises UsageError for a snapshot of two catalogs.
        """
        from kip33.catalog.tiers import Tiers

        if self.remote_dir is not None and self.snapshot:
            raise click.UsageError("--snapshot requires one CATALOG, two found")
        one, warnings = chosen_snapshot(self.catalog_dir, self.snapshot)
        if self.remote_dir is None:
            return one, warnings
        other, more = chosen_snapshot(self.remote_dir, what="REMOTE")
        return Tiers.of(one, other, warn), (*warnings, *more)


def chosen_snapshot(
    place: str, name: str | None = None, what: str = "CATALOG"
) -> "tuple[CatalogSnapshot, tuple[str, ...]]":
    """Return a snapshot of the catalog at a path or URI, and the warnings, which are printed.

    `what` is the argument that names it.
    """
    from kip33.catalog.tiers import CatalogSnapshot

    catalog = open_catalog_dir(place, what)
    snapshot, warnings = choose_and_warn(catalog, name)
    return CatalogSnapshot(catalog, snapshot), warnings
