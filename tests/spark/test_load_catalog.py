"""`load_catalog` of the newest snapshot, of another one, and of one that is damaged."""

from pathlib import Path
from typing import Any

import pytest

from kip33.catalog.catalog import Catalog
from kip33.errors import CatalogError
from kip33.spark.catalog import load_catalog
from tests.builders.snapshots import part_path, row, write

pytestmark = pytest.mark.spark


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return Catalog.at(str(tmp_path / "c"))


@pytest.mark.parametrize("of", [None, "name", "sequence", "snapshot_id"])
def test_a_snapshot_is_loaded_by(spark: Any, catalog: Catalog, of: str | None) -> None:
    older = write(catalog, [row(0)], [row(1)])
    write(catalog, [row(2)])
    name = str(getattr(older, of)) if of else None
    loaded = load_catalog(spark, catalog.location.uri, name).select("partition").collect()
    assert sorted(one.partition for one in loaded) == ([0, 1] if of else [2])


def test_half_a_snapshot_is_not_loaded(spark: Any, catalog: Catalog) -> None:
    damaged = write(catalog, [row(0)], [row(1)])
    write(catalog, [row(2)])
    part_path(catalog, damaged, 1).unlink()
    with pytest.raises(
        CatalogError, match=r"part-00001\.parquet: no bytes found, .* the snapshot is damaged"
    ):
        load_catalog(spark, catalog.location.uri, damaged.name)
