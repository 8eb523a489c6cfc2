"""What earlier builds left: the newest snapshot with its rows, and claimed index files."""

from typing import Final, NamedTuple

from kip33.archive.listing import Column
from kip33.builds.build_spec import BuildSpec
from kip33.builds.reusable_rows import ReusableRows, read_reusable
from kip33.catalog.catalog import Catalog, Snapshot
from kip33.catalog.draft import claimed_index_uris
from kip33.errors import CatalogError, UnreadableCatalogError

FIX_IT: Final = (
    "without it this build cannot tell which index files it owns: fix it and run the command again"
)


class EarlierBuilds(NamedTuple):
    """The newest snapshot and the index files of earlier builds."""

    newest: Snapshot | None
    known: ReusableRows | None
    warnings: tuple[str, ...]
    claimed: Column  # our index files that may be in no snapshot
    suspect: Column  # of these: perhaps rewritten since the newest snapshot


def look_back(catalog: Catalog, build: BuildSpec) -> EarlierBuilds:
    """Return what earlier builds left, all of one moment; raises as `newest_known`."""
    while True:
        committed = set(catalog.commit_names())
        newest, known, warnings = newest_known(catalog, build)
        sequence = newest.sequence if newest else 0
        name = newest.name if newest else ""
        claimed = claimed_index_uris(catalog, since=sequence, above=name)
        suspect = claimed_index_uris(catalog, since=sequence + 1, above=name)
        # A build that commits in between removes its claims; then its snapshot has the files.
        if set(catalog.commit_names()) <= committed:
            return EarlierBuilds(newest, known, warnings, claimed, suspect)


def newest_known(
    catalog: Catalog, build: BuildSpec
) -> tuple[Snapshot | None, ReusableRows | None, tuple[str, ...]]:
    """Return the newest undamaged snapshot, its reusable rows, and warnings about damaged ones.

    Raises UnreadableCatalogError for a file that cannot be read now, which does not prove damage.
    """
    warnings: list[str] = []
    for candidate in catalog.candidates():
        problem = candidate.problem
        if candidate.snapshot and not problem:
            try:
                known = read_reusable(catalog, candidate.snapshot, build)
            except UnreadableCatalogError as error:
                raise UnreadableCatalogError(f"{error}; {FIX_IT}") from error
            except CatalogError as error:
                problem = str(error)
            else:
                return candidate.snapshot, known, tuple(warnings)
        if candidate.is_unreadable:
            raise UnreadableCatalogError(f"{problem}; {FIX_IT}")
        warnings.append(f"{problem}; snapshot {candidate.name} is ignored")
    return None, None, tuple(warnings)
