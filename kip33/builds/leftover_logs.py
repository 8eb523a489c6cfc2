"""The logs of leftover index files: while one of them exists, the index file stays."""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple, Self

from kip33.archive.leftover_files import INDEX_END, Leftover, LeftoverKind
from kip33.builds.leftovers import index_dir_of
from kip33.catalog.catalog import Catalog, Snapshot
from kip33.catalog.orphan_list import read_orphans
from kip33.stores.locations import Location

_LOG, _SWAP = ".log", ".swap"  # a broker that starts removes `.swap` from a log's name
_ENDS: Final = ("", _LOG, f"{_LOG}{_SWAP}")


class LeftoverLogs(NamedTuple):
    """What a snapshot tells about the logs of leftover index files."""

    by_orphan: dict[str, str]  # the log's URI by the URI of our index file
    source: Location
    index_dir: Location

    @classmethod
    def of(cls, catalog: Catalog, snapshot: Snapshot) -> Self:
        """Return the logs of a snapshot's orphans; an unreadable list of them has no logs."""
        orphans, _ = read_orphans(catalog, snapshot)
        uris = (orphans[name].to_pylist() for name in ("index_uri", "log_uri"))
        source = Location.of(snapshot.source)
        return cls(dict(zip(*uris, strict=True)), source, index_dir_of(snapshot))

    @property
    def roots(self) -> tuple[Location, Location]:
        """Return SOURCE and the index directory."""
        return self.source, self.index_dir

    def of_leftover(self, one: Leftover) -> tuple[Location, ...]:
        """Return the places of the logs, none for a leftover that is no index file."""
        if one.kind == LeftoverKind.ORPHAN:
            log = Location.of(self.by_orphan[one.uri])
            return log, log._replace(path=log.path + _SWAP)
        if one.kind == LeftoverKind.INDEX:
            return tuple(self._beside(Location.of(one.uri)))
        return ()

    def _beside(self, index: Location) -> Iterator[Location]:
        """Yield the places of the logs of an index file that kip33 did not write, in any layout."""
        stem = index._replace(path=re.sub(INDEX_END, "", index.path))
        stems = [stem]
        if self.index_dir != self.source and self.index_dir.contains(index):
            below = stem.path.removeprefix(self.index_dir.path).lstrip("/")
            stems.append(self.source.child(below))
        for place in stems:
            yield from (place._replace(path=place.path + end) for end in _ENDS)
