"""Offsets for times in one job: the answers of a partition alone, for every request at once."""

from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from kip33.catalog.catalog import Catalog
from kip33.catalog.tiers import CatalogSnapshot
from kip33.catalog.topic_totals import topics_of
from kip33.demo import COPIED_MS, START_MS, make_archive, make_sensors
from kip33.formats.partition_metadata import PartitionMetadata
from kip33.search.answers import SearchOptions
from kip33.search.catalog_search import QUESTIONS_AT_ONCE, rows_of, search_rows
from kip33.search.replica_search import TimeQuestion
from kip33.spark.catalog import load_catalog
from kip33.spark.search import offsets_for_times
from tests.builders.changing_archive import ChangingArchive, batches
from tests.faults.builds import build_here

pytestmark = pytest.mark.spark

COMPARED = ("offset", "timestamp", "result", "exactness", "note")
REQUESTS = "topic string, partition int, target_ms bigint, log_dir string, name string"
DAY_MS = 86_400_000


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    root = tmp_path_factory.mktemp("search")
    make_archive(root / "archive")
    make_sensors(root / "archive")
    build_here(root / "archive", root / "indexes", now_ms=COPIED_MS + DAY_MS)
    return Catalog.at(str(root / "indexes/_catalog"))


@pytest.fixture(scope="module")
def segments(spark: SparkSession, catalog: Catalog) -> DataFrame:
    return load_catalog(spark, catalog.location.uri)


def questions(topics: list[str]) -> list[TimeQuestion]:
    """Times all over each topic, of all its partitions or one, there or not."""
    targets = [-3, -2, -1, 0, *range(START_MS - DAY_MS, START_MS + 7 * DAY_MS, DAY_MS)]
    asked = [TimeQuestion(topic, None, target) for topic in topics for target in targets]
    asked += [TimeQuestion("sensors", 1, target) for target in targets]
    asked += [
        TimeQuestion("orders", 0, target, f"broker-{i % 3}") for i, target in enumerate(targets)
    ]
    return [
        *asked,
        TimeQuestion("sensors", 9, 0),
        TimeQuestion("none", None, 0),
        TimeQuestion("none", 3, 0),
    ]


def test_spark_answers_as_one_partition_after_another(
    spark: SparkSession, catalog: Catalog, segments: DataFrame
) -> None:
    how = SearchOptions(as_kafka=True)
    snapshot = catalog.require_newest()
    topics = topics_of(catalog, snapshot)
    asked = questions(topics)
    here = search_rows(rows_of(CatalogSnapshot(catalog, snapshot), [*topics, "none"]), asked, how)
    requests = spark.createDataFrame([(*q, str(i)) for i, q in enumerate(asked)], REQUESTS)

    answered = offsets_for_times(segments, requests, as_kafka=True).collect()

    found = [
        (int(row.name), row.log_dir, row.topic, row.partition, *(row[n] for n in COMPARED))
        for row in answered
    ]
    expected = [
        (
            *(one.question, one.located.log_dir, one.topic, one.partition),
            *(getattr(one.located.answer, name) for name in COMPARED),
        )
        for one in here
    ]
    assert sorted(found, key=str) == sorted(expected, key=str)
    results = Counter(row.result for row in answered)
    assert {result for result, count in results.items() if count > 2} == {
        *("found", "after_end", "no_timestamps", "no_such_partition", "before_start")
    }, results


def test_columns_of_the_requests_are_kept_and_filled_in(
    spark: SparkSession, segments: DataFrame
) -> None:
    requests = spark.createDataFrame(
        [("mine", "orders", START_MS + DAY_MS, None)],
        "name string, topic string, target_ms bigint, partition int",
    )

    answered = offsets_for_times(segments, requests, all_replicas=True).collect()

    answered.sort(key=lambda row: row.log_dir)
    assert [row.asDict() | {"bytes_read": 0} for row in answered] == [
        {
            "name": "mine",
            "topic": "orders",
            "target_ms": START_MS + DAY_MS,
            "partition": 0,
            "log_dir": log_dir,
            "offset": 4000,
            "timestamp": 1_700_086_400_104,
            "result": "found",
            "exactness": "record",
            "bytes_read": 0,
            "note": None,
            "passed_over": False,
        }
        for log_dir in ("broker-1", "broker-2")
    ]


def test_a_time_may_be_a_spark_timestamp(spark: SparkSession, segments: DataFrame) -> None:
    in_ms = spark.createDataFrame(
        [("orders", 0, 1_700_000_000_500)], "topic string, partition int, target_ms bigint"
    )
    as_time = in_ms.withColumn("target_ms", sf.timestamp_millis("target_ms"))

    rows = offsets_for_times(segments, as_time).collect()
    assert rows == offsets_for_times(segments, in_ms).collect()
    assert rows[0].target_ms == 1_700_000_000_500
    with pytest.raises(ValueError, match="time zone"):
        zoneless = sf.lit("2024-05-01").cast("timestamp_ntz")
        offsets_for_times(segments, in_ms.withColumn("target_ms", zoneless))
    seconds = in_ms.withColumn("target_ms", sf.lit(1_700_000_000))
    with pytest.raises(
        Exception, match=r"in milliseconds it is 1970-01-20 .*, in seconds 2023-11-14"
    ):
        offsets_for_times(segments, seconds).collect()


def test_a_partition_that_is_asked_for_often_is_several_tasks(
    spark: SparkSession, catalog: Catalog, segments: DataFrame
) -> None:
    targets = [*range(START_MS, START_MS + 3 * QUESTIONS_AT_ONCE), *[START_MS + 9] * 20]
    requests = spark.range(len(targets)).join(
        spark.createDataFrame(list(enumerate(targets)), "id long, target_ms long"), "id"
    )
    requests = requests.select(
        "*", sf.lit("sensors").alias("topic"), sf.lit(1).alias("partition"), sf.lit(b"x").alias("b")
    )

    answered = offsets_for_times(segments, requests)
    found = answered.withColumn("task", sf.spark_partition_id()).collect()

    assert len({row.task for row in found}) > 1
    assert {bytes(row.b) for row in found} == {b"x"}
    rows = rows_of(CatalogSnapshot(catalog, catalog.require_newest()), ["sensors"])
    asked = [TimeQuestion("sensors", 1, target) for target in targets]
    here = search_rows(rows, asked, SearchOptions())
    assert {row.id: (row.offset, row.timestamp) for row in found} == {
        one.question: (one.located.answer.offset, one.located.answer.timestamp) for one in here
    }
    assert len(found) == len(targets)


def test_requests_without_their_columns_are_refused(
    spark: SparkSession, segments: DataFrame
) -> None:
    requests = spark.createDataFrame([("orders",)], "topic string")

    with pytest.raises(ValueError, match="missing columns partition, target_ms"):
        offsets_for_times(segments, requests)


def test_the_newest_topic_of_a_name_answers(spark: SparkSession, tmp_path: Path) -> None:
    archive = ChangingArchive(tmp_path)
    for partition, topic_id in (("b1/t-0", "A" * 21 + "Q"), ("b1/t-1", "A" * 21 + "Q")):
        archive.write(archive.log(partition), batches(0, 9), age_ms=9 * DAY_MS)
        archive.write(archive.log(partition).with_name("partition.metadata"), metadata(topic_id))
    later = batches(0, 5, first_ms=START_MS + 9 * DAY_MS)
    archive.write(archive.log("b2/t-0"), later, age_ms=DAY_MS)
    place = archive.log("b2/t-0").with_name("partition.metadata")
    archive.write(place, metadata("A" * 21 + "g"))
    for broker, topic_id in (("b1", "A" * 21 + "Q"), ("b2", "A" * 21 + "g")):  # one topic
        archive.write(archive.log(f"{broker}/u-0"), batches(0, 5))
        archive.write(
            archive.log(f"{broker}/u-0").with_name("partition.metadata"), metadata(topic_id)
        )
    archive.build()
    catalog = Catalog.at(str(archive.catalog))
    rows = rows_of(CatalogSnapshot(catalog, catalog.require_newest()), ["t", "u"])
    questions = [TimeQuestion(topic, None, 0) for topic in ("t", "u")]
    here = search_rows(rows, questions, SearchOptions())
    requests = spark.createDataFrame([("t", 0), ("u", 0)], "topic string, target_ms bigint")
    requests = requests.withColumn("partition", sf.lit(None).cast("int"))

    segments = load_catalog(spark, catalog.location.uri)
    answered = offsets_for_times(segments, requests).orderBy("topic", "partition").collect()

    assert [(row.topic, row.partition, row.log_dir, row.note) for row in answered] == [
        (one.topic, one.partition, one.located.log_dir, one.located.answer.note) for one in here
    ]
    assert [(row.log_dir, row.note is None) for row in answered] == [
        ("b2", False),
        (None, False),
        ("b1", True),
    ]


def metadata(topic_id: str) -> bytes:
    return PartitionMetadata(topic_id).to_bytes()


def test_a_partition_beyond_its_type_ends_the_query(
    spark: SparkSession, segments: DataFrame
) -> None:
    asked = [("orders", 2**32, 1_700_000_000_500)]  # as int it would be 0
    too_large = spark.createDataFrame(asked, "topic string, partition bigint, target_ms bigint")
    with pytest.raises(Exception, match="partition 4294967296: expected 0 to 2147483647"):
        offsets_for_times(segments, too_large).collect()
