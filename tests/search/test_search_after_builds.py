"""Search by time after several builds: index files of another dialect."""

import os
from pathlib import Path
from typing import Any

from kip33.catalog.catalog import Catalog
from kip33.catalog.tiers import CatalogSnapshot
from kip33.search.answers import Answer, SearchOptions
from kip33.search.catalog_search import rows_of, search_rows
from kip33.search.replica_search import TimeQuestion
from tests.builders.generated_segments import plain_batch, wire_of
from tests.cases import each_case
from tests.faults.builds import build_here

OLD_NS = 1_600_000_000 * 10**9


def archived(folder: Path, times: list[int], value_bytes: int = 30) -> tuple[Path, Path]:
    """Write one partition of a batch of one record for each time; return it and an index folder."""
    log = folder / "archive" / "t-0" / f"{0:020d}.log"
    log.parent.mkdir(parents=True)
    log.write_bytes(
        wire_of([plain_batch(i, [time], bytes(value_bytes)) for i, time in enumerate(times)])
    )
    os.utime(log, ns=(OLD_NS, OLD_NS))
    return folder / "archive", folder / "indexes"


def found(indexes: Path, target_ms: int, snapshot: str | None = None, **how: Any) -> Answer:
    catalog = Catalog.at(str(indexes / "_catalog"))
    chosen = catalog.named(snapshot) if snapshot else catalog.require_newest()
    [one] = search_rows(
        rows_of(CatalogSnapshot(catalog, chosen), ["t"]),
        [TimeQuestion("t", 0, target_ms)],
        SearchOptions(**how),
    )
    return one.located.answer


@each_case("dialects", (("kip33", "recover"), ("recover", "kip33")))
def test_index_only_promises_less_where_the_file_is_not_the_rows(
    dialects: Any, tmp_path: Path
) -> None:
    times = [1000 + 10 * i for i in range(400)]
    source, indexes = archived(tmp_path, times)
    build_here(source, indexes, dialect=dialects[0], index_interval_bytes=200)
    old = Catalog.at(str(indexes / "_catalog")).require_newest().name
    build_here(source, indexes, dialect=dialects[1], index_interval_bytes=200, only_damaged=True)
    middle = Catalog.at(str(indexes / "_catalog")).require_newest().name
    build_here(source, indexes, dialect=dialects[1], index_interval_bytes=200, full=True)

    for snapshot in (old, middle, None):
        for target in range(1000, 4990, 61):
            answer = found(indexes, target, snapshot, index_only=True)
            expected = next(i for i, time in enumerate(times) if time >= target)
            assert answer.offset is not None and answer.offset <= expected, (snapshot, target)
