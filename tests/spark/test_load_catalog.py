"""`load_catalog` of the newest snapshot, of another one, and of one that is damaged."""

from functools import partial
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.errors import PySparkException

from kip33.catalog.catalog import Catalog
from kip33.errors import CatalogError
from kip33.spark import read_segments, register
from kip33.spark.audits import timestamp_profile
from kip33.spark.catalog import load_catalog
from tests.builders.log_file import write_log
from tests.builders.segment_builder import Record, v2_batch
from tests.builders.snapshots import catalog_of_topics, part_path, row, write
from tests.faults.builds import build_here

pytestmark = pytest.mark.spark


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return Catalog.at(str(tmp_path / "c"))


def test_the_newest_snapshot_is_loaded_or_a_named_one(spark: Any, catalog: Catalog) -> None:
    older = write(catalog, [row(0)], [row(1)])
    write(catalog, [row(2)])
    for name, partitions in ((None, [2]), (older.name, [0, 1])):
        loaded = load_catalog(spark, catalog.location.uri, name).select("partition").collect()
        assert sorted(one.partition for one in loaded) == partitions


def test_half_a_snapshot_is_not_loaded(spark: Any, catalog: Catalog) -> None:
    damaged = write(catalog, [row(0)], [row(1)])
    write(catalog, [row(2)])
    part_path(catalog, damaged, 1).unlink()
    with pytest.raises(
        CatalogError, match=r"part-00001\.parquet: no bytes found, .* the snapshot is damaged"
    ):
        load_catalog(spark, catalog.location.uri, damaged.name)


@pytest.fixture
def lost(tmp_path: Path) -> str:
    """Return a catalog whose newest snapshot has 200 records and lost a part; the other has 100."""
    for offset in (0, 100):
        records = [Record(1_700_000_000_000, None, b"v")] * 100
        write_log(tmp_path / "archive/t-0", offset, v2_batch(offset, records))
        build_here(tmp_path / "archive", tmp_path / "indexes")
    opened = Catalog.at(str(tmp_path / "indexes/_catalog"))
    part_path(opened, opened.require_newest()).unlink()
    return opened.location.path


def segment_source(spark: Any, catalog: str, **options: Any) -> Any:
    register(spark)
    return (
        spark.read.format("kafka-segments")
        .option("on_error", "row")
        .options(**options)
        .load(catalog)
    )


def profile(spark: Any, catalog: str) -> Any:
    return timestamp_profile(spark, catalog, now_ms=1_800_000_000_000)


def test_a_reader_warns_that_the_newest_snapshot_is_ignored(spark: Any, lost: str) -> None:
    with_rows = partial(read_segments, on_error="row")
    for read, rows in ((load_catalog, 1), (with_rows, 100), (profile, 1)):
        with pytest.warns(UserWarning, match=r"no bytes found, .*; this snapshot is ig") as seen:
            assert read(spark, lost).count() == rows
        assert __file__ in [one.filename for one in seen]


def test_segments_may_be_read_only_from_the_newest_snapshot(spark: Any, lost: str) -> None:
    with pytest.raises(CatalogError, match=r"no bytes found, .*; run `kip33 build`"):
        read_segments(spark, lost)


@pytest.mark.skipif(pyspark.__version__ < "4", reason="PySpark 3.5 has no data sources")
def test_the_data_source_reads_only_the_newest_snapshot_if_asked(spark: Any, lost: str) -> None:
    assert segment_source(spark, lost).count() == 100  # the warning is in the log of Spark
    with pytest.raises(PySparkException, match=r"no bytes found, .*; run `kip33 build`"):
        segment_source(spark, lost, on_error="fail").count()


def test_a_query_for_one_topic_reads_one_row_group(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = catalog_of_topics(tmp_path, monkeypatch)
    loaded = load_catalog(spark, opened.location.uri)
    found = loaded.where("topic = 'topic-07'").select("base_offset")
    assert sorted(one.base_offset for one in found.collect()) == list(range(10))
    [scan] = [
        leaf
        for leaf in leaves_of(found._jdf.queryExecution().executedPlan())
        if leaf.metrics().contains("numFiles")
    ]
    assert scan.metrics().apply("numOutputRows").value() == 10  # of 200


def leaves_of(plan: Any) -> list[Any]:
    """Return the leaves of a plan that was run, below its adaptive one."""
    if plan.getClass().getSimpleName() == "AdaptiveSparkPlanExec":
        plan = plan.executedPlan()
    leaves = plan.collectLeaves()
    return [leaves.apply(number) for number in range(leaves.size())]
