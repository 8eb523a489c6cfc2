"""How a command takes one catalog, or the two of a cluster with tiered storage: CATALOG [REMOTE].

The two are given in any order: the layout of a snapshot says which tier it is of.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from kip33.archive.common_options import SnapshotName
from kip33.cli.declared_options import option_of
from kip33.cli.modes import FirstArgument
from kip33.cli.options import together
from kip33.cli.output import open_catalog_dir, warn

if TYPE_CHECKING:
    from kip33.catalog.tiers import CatalogSnapshot, Tiers

snapshot_option: Final = option_of("snapshot", SnapshotName)
catalog_argument: Final = click.argument("catalog_dir", metavar="CATALOG", cls=FirstArgument)
catalog_places: Final = together(
    catalog_argument,
    click.argument("remote_dir", metavar="[REMOTE]", required=False),
    snapshot_option,
)


_EARLIER_OTHERS: Final = "kip33.earlier others"  # catalogs of --remote and --local, in `meta`


def _keep_other(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    if value is not None:
        ctx.meta.setdefault(_EARLIER_OTHERS, []).append(value)
        warn(
            f"{param.opts[0]} is now the second argument: kip33 {ctx.command.name} CATALOG OTHER; "
            "the next version will not have the option"
        )


def _other(ctx: click.Context, _: click.Parameter, value: str | None) -> str | None:
    given: list[str | None] = [*ctx.meta.get(_EARLIER_OTHERS, ()), *([value] if value else [])]
    if len(given) > 1:
        raise click.UsageError(
            "--remote and --local cannot be combined: CATALOG is one tier, give the other"
        )
    return given[0] if given else None


def _earlier_other(flag: str) -> Callable[[Any], Any]:
    how: dict[str, Any] = {"is_eager": True, "expose_value": False, "callback": _keep_other}
    return click.option(flag, hidden=True, **how)


other_tier_argument: Final = together(  # and what gave it in earlier versions
    click.argument("other", metavar="[OTHER]", required=False, callback=_other),
    _earlier_other("--remote"),
    _earlier_other("--local"),
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
    from kip33.catalog.catalog import choose
    from kip33.catalog.tiers import CatalogSnapshot

    catalog = open_catalog_dir(place, what)
    snapshot, warnings, _ = choose(catalog, name, warn)
    return CatalogSnapshot(catalog, snapshot), warnings
