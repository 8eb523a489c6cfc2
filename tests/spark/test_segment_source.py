"""Archives as data sources of Spark, and as DataFrames of `read_segments`."""

from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyspark
import pytest
from pyspark.errors import AnalysisException
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from kip33.archive.log_slice import LogSlice
from kip33.errors import LocationError
from kip33.records.partitions import ReadSegment
from kip33.spark import read_segments, register, segment_tasks
from kip33.spark.jobs import cores
from kip33.spark.segment_frame import FILTER_PUSHDOWN
from kip33.spark.segment_tasks import TASK_BYTES, bins_of
from kip33.stores.locations import Location
from kip33.stores.settings import settings
from tests.builders.layouts import Stored
from tests.builders.log_file import write_log
from tests.builders.record_questions import (
    COLUMNS,
    Row,
    random_archive,
    random_conditions,
    rows_of,
    those,
)
from tests.builders.segment_builder import Record, v2_batch, with_broken_crc
from tests.builders.two_tiers import built
from tests.records.test_levels import build

pytestmark = pytest.mark.spark

T = 1_700_000_000_000
FORMAT = "kafka-segments"
has_sources = pytest.mark.skipif(pyspark.__version__ < "4", reason="PySpark 3.5 has none")


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return random_archive(Random(4), tmp_path_factory.mktemp("frames"), disorder_ms=500)


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    register(spark, push_filters=True)
    return spark


def rows(frame: DataFrame) -> list[Row]:
    stamp = sf.unix_millis("timestamp").alias("timestamp")
    found = frame.select(*(stamp if name == "timestamp" else name for name in COLUMNS)).collect()
    plain = [tuple(bytes(one) if isinstance(one, bytearray) else one for one in r) for r in found]
    return sorted(plain, key=str)


@has_sources
def test_random_questions(session: SparkSession, sources: tuple[Path, Path]) -> None:
    random = Random(5)
    every = rows_of(sources[0])
    for number in range(2):
        asked = random_conditions(random, every)
        where = " AND ".join(one.sql("timestamp_millis({})", "`") for one in asked)
        frame = session.read.format(FORMAT).option("on_error", "row").load(str(sources[number % 2]))
        assert rows(frame.where(where)) == sorted(those(every, asked), key=str), where


@has_sources
def test_options_and_sql(session: SparkSession, sources: tuple[Path, Path]) -> None:
    read = (
        session.read.format(FORMAT)
        .option("on_error", "row")
        .option("topic", "orders, nothing")
        .option("partition", 1)
    )
    asked = read.option("start_time", "2023-11-14T22:13:20Z").option("columns", "offset, topic")
    frame = asked.load(str(sources[0]))
    assert frame.dtypes == [("offset", "bigint"), ("topic", "string")]
    frame.createOrReplaceTempView("from_options")
    found = session.sql("SELECT count(*), min(topic) FROM from_options").first()
    every = rows_of(sources[0], topic="orders", partition=1, start_time=T)
    assert tuple(found or ()) == (len(every), "orders")
    session.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW clicks USING `{FORMAT}` "
        f"OPTIONS (path '{sources[1]}', topic 'clicks')"
    )
    counted = session.sql("SELECT count(*) AS n FROM clicks WHERE offset < 20000").first()
    expected = [row for row in rows_of(sources[1], topic="clicks") if row[2] in range(20_000)]
    assert counted is not None
    assert counted.n == len(expected)


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """The segment at offset 2 cannot be read; the last record's time is too large for Spark."""
    sent = Record(T, b"k", b"v", (("h", b"1"), ("n", None)))
    write_log(
        tmp_path / "orders-0", 0, v2_batch(0, [sent]), v2_batch(1, [Record(2**62, None, None)])
    )
    write_log(tmp_path / "orders-0", 2, with_broken_crc(v2_batch(2, [sent])))
    return tmp_path


@has_sources
def test_what_a_filter_excludes_is_not_read(session: SparkSession, archive: Path) -> None:
    read = session.read.format(FORMAT)
    columns = "headers array<struct<key: string, value: binary>>, offset long, topic string"
    frame = read.schema(columns).load(str(archive))
    (row,) = frame.drop("topic").where("offset < 1").collect()
    assert row.asDict(recursive=True) == {
        "headers": [{"key": "h", "value": b"1"}, {"key": "n", "value": None}],
        "offset": 0,
    }
    assert frame.where("topic = 'none'").count() == 0


@has_sources
def test_without_the_setting_spark_filters_alone(session: SparkSession, archive: Path) -> None:
    session.conf.unset(FILTER_PUSHDOWN)
    register(session)
    try:
        assert session.conf.get(FILTER_PUSHDOWN) == "false"
        frame = (
            session.read.format(FORMAT)
            .option("on_error", "row")
            .option("columns", "offset")
            .load(str(archive))
        )
        assert [row.offset for row in frame.where("offset = 1").collect()] == [1]
    finally:
        register(session, push_filters=True)
    assert session.conf.get(FILTER_PUSHDOWN) == "true"


@has_sources
def test_a_query_may_use_a_frame_twice(session: SparkSession, archive: Path) -> None:
    """With filters pushed, Spark 4.3 reads both uses with the filters of one."""
    register(session)
    try:
        frame = (
            session.read.format(FORMAT)
            .option("on_error", "row")
            .option("columns", "offset")
            .load(str(archive))
        )
        both = frame.where("offset = 0").union(frame.where("offset = 1"))
        assert sorted(row.offset for row in both.collect()) == [0, 1]
    finally:
        register(session, push_filters=True)


@has_sources
def test_errors_name_what_is_expected(session: SparkSession, tmp_path: Path) -> None:
    """Those of the options, and one of reading; `parsed_options` has more below."""
    for options, schema, message in (
        ({"colour": "red"}, None, "option 'colour' found, expected some of level, topic"),
        ({}, "colour long", "column 'colour' found, expected some of log_dir, topic"),
        ({}, "offset string", "column 'offset' of type string found, expected bigint"),
        ({}, "offset long", r"nothing: SOURCE\|CATALOG does not exist"),
    ):
        read = session.read.format(FORMAT).option("on_error", "row").options(**options)
        with pytest.raises(AnalysisException, match=message):
            (read.schema(schema) if schema else read).load(str(tmp_path / "nothing")).collect()


@has_sources
def test_it_only_reads(session: SparkSession, archive: Path) -> None:
    with pytest.raises(AnalysisException, match="writing found, expected reading"):
        session.range(1).write.format(FORMAT).mode("append").save(str(archive))


@has_sources
def test_keys_of_stores_are_not_in_the_source(session: SparkSession) -> None:
    from kip33.spark.segment_source import SegmentSource, parsed_options
    from kip33.spark.store_settings import SessionStores

    hadoop = session.sparkContext._jsc.hadoopConfiguration()
    hadoop.set("fs.s3a.bucket.frames.secret.key", "THE-SECRET")
    try:
        stores = SessionStores.of(session, for_planning=True)
    finally:
        hadoop.unset("fs.s3a.bucket.frames.secret.key")
    pickled = CloudPickleSerializer().dumps(type("Source", (SegmentSource,), {"stores": stores}))
    assert b"SECRET" not in pickled

    def known(_: Any) -> list[str | None]:
        stores.use()
        return [settings().get("fs.s3a.bucket.frames.secret.key")]

    assert session.sparkContext.parallelize([0], 1).mapPartitions(known).collect() == ["THE-SECRET"]
    with pytest.raises(ValueError, match=r"option 'fs\.s3a\.access\.key' found") as raised:
        parsed_options({"path": "s3://frames/x", "fs.s3a.access.key": "THE-SECRET"})
    assert "SECRET" not in str(raised.value)


@has_sources
def test_two_tiers(session: SparkSession, tmp_path: Path) -> None:
    expected = [(offset, T + offset) for offset in range(12)]
    whole = [v2_batch(offset, [Record(at)]) for offset, at in expected]
    tiers = built(
        tmp_path,
        *([Stored("orders", 0, at, b"".join(whole[at:to]))] for at, to in ((5, 12), (0, 8))),
    )
    loaded = (
        session.read.format(FORMAT)
        .option("on_error", "row")
        .option("remote", str(tiers[0]))
        .load(str(tiers[1]))
    )
    for frame in (loaded, read_segments(session, [*tiers], on_error="row")):
        found = frame.select("offset", sf.unix_millis("timestamp")).collect()
        assert sorted(map(tuple, found)) == expected


def test_read_segments_has_the_types_of_read_arrow(spark: SparkSession, archive: Path) -> None:
    frame = read_segments(
        spark, archive, columns=["offset", "timestamp", "headers", "_corrupt"], on_error="row"
    )
    stamp = sf.unix_micros("timestamp").alias("timestamp")
    found = frame.select("offset", stamp, "headers", "_corrupt").orderBy("offset").collect()
    corrupt, first, last = (row.asDict(recursive=True) for row in found)
    assert first["headers"] == [{"key": "h", "value": b"1"}, {"key": "n", "value": None}]
    assert (first["offset"], first["timestamp"]) == (0, T * 1000)
    assert last["timestamp"] == 2**63 // 1000 * 1000  # the latest whole ms that Spark has
    assert "do not match its CRC" in corrupt["_corrupt"]
    committed = read_segments(
        spark, archive, isolation="read_committed", columns=["offset"], on_error="row"
    )
    assert {row.offset for row in committed.collect()} == {0, 1, None}


def test_errors_of_read_segments(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(LocationError, match=r"SOURCE\|CATALOG does not exist"):
        read_segments(spark, tmp_path / "nothing", on_error="row")
    with pytest.raises(ValueError, match="3 places found, expected one, or two catalogs"):
        read_segments(spark, [tmp_path] * 3, on_error="row")
    with pytest.raises(TypeError, match=r"read_segments\(\) got an unexpected .*'colour'"):
        read_segments(spark, tmp_path, colour="red", on_error="row")  # type: ignore[call-arg]


@has_sources
def test_options_that_are_no_values() -> None:
    from kip33.spark.segment_source import parsed_options

    for name, text, message in (
        ("partition", "1, two", "'two' found, expected an integer"),
        ("start_time", "yesterday", "'yesterday' found, expected ISO 8601"),
        ("include_control", "yes", "'yes' found, expected true or false"),
    ):
        with pytest.raises(ValueError, match=f"kafka-segments: option '{name}': {message}"):
            parsed_options({"path": "archive", name: text})
    with pytest.raises(ValueError, match="no path found"):
        parsed_options({})


@has_sources
def test_a_relative_path_is_the_callers(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker that plans has another folder with Spark Connect."""
    from kip33.spark.segment_source import SegmentSource

    registered = type("Source", (SegmentSource,), {"folder": str(archive.parent)})
    monkeypatch.chdir("/")
    for path in (archive.name, str(archive), archive.as_uri()):
        source = registered({"path": path, "on_error": "row"})
        assert len(source.reader(source.schema()).partitions()) == 1, path
    with pytest.raises(ValueError, match=f"path '{archive.name}' found, expected an absolute path"):
        SegmentSource({"path": archive.name}).schema()


def test_tasks_are_even_in_bytes() -> None:
    def part(number: int, size: int) -> list[ReadSegment]:
        return [
            ReadSegment(
                LogSlice(Location.of(f"/{number}")), None, "t", 0, number, listed_bytes=size
            )
        ]

    def loads(sizes: list[int], cores: int) -> list[int]:
        bins = bins_of([part(*one) for one in enumerate(sizes)], cores)
        return [sum(one.listed_bytes for part in each for one in part) for each in bins]

    assert loads([], 4) == []
    assert loads([5, 5], 4) == [10]
    many = loads(np.full(100, TASK_BYTES // 10).tolist(), 2)
    assert len(many) == 11
    assert max(many) <= 1.2 * TASK_BYTES
    assert len(loads([TASK_BYTES * 9, 1, 1], 2)) == 3
    assert loads([TASK_BYTES // 8] * 4, 2) == [TASK_BYTES // 4] * 2


def test_a_large_segment_is_read_by_several_tasks(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment_tasks, "LEAST_TASK_BYTES", 8000)
    log = [v2_batch(at, [Record(T, None, b"v" * 900)]) for at in range(100)]
    write_log(tmp_path / "archive/orders-0", 0, *log)
    catalog = build(tmp_path / "archive", tmp_path, "--index-interval-bytes", "0")

    frame = read_segments(spark, catalog, columns=["offset"], on_error="row")
    found = frame.select("offset", sf.spark_partition_id().alias("task")).collect()

    assert sorted(row.offset for row in found) == list(range(100))
    assert len({row.task for row in found}) == min(12, cores(spark))
