"""`spark.readStream.format("kafka-segments")`: nights of an archive in one table, each row once."""

from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.sql import SparkSession

from kip33.records.log_ranges import LogRangeError
from kip33.spark import register
from tests.builders import layouts
from tests.builders.layouts import Stored
from tests.builders.log_file import write_log
from tests.builders.segment_builder import Record, end_txn_marker, v2_batch
from tests.builders.two_tiers import catalogs_of
from tests.faults.builds import build_here

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(pyspark.__version__ < "4", reason="PySpark 3.5 has no Python sources"),
]
has_limits = pytest.mark.skipif(pyspark.__version__ < "4.2", reason="PySpark 4.1 has no limits")
T = 1_700_000_000_000


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    register(spark)
    return spark


def plain(first: int, end: int) -> list[bytes]:
    return [v2_batch(at, [Record(T + at, None, b"%d" % at)]) for at in range(first, end)]


def night(spark: SparkSession, place: Path, catalog: Path, **options: Any) -> list[int]:
    """Read what is new into a table; return the rows of each batch."""
    options = {"columns": "offset, value", **options}
    stream = spark.readStream.format("kafka-segments").options(**options).load(str(catalog))
    query = (
        stream.writeStream.format("parquet")
        .option("path", str(place / "table"))
        .option("checkpointLocation", str(place / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return [count for one in query.recentProgress if (count := one["numInputRows"])]


def offsets_in(spark: SparkSession, place: Path) -> list[int]:
    return sorted(row.offset for row in spark.read.parquet(str(place / "table")).collect())


def built(place: Path) -> Path:
    build_here(place / "archive", place / "indexes", offset_index=True)
    return place / "indexes/_catalog"


@has_limits
def test_nights_limits_and_a_lost_commit(session: SparkSession, tmp_path: Path) -> None:
    """An open transaction ends a night, and a batch that Spark repeats is the same."""
    partition = tmp_path / "archive/orders-0"
    producer = {"transactional": True, "producer_id": 5, "producer_epoch": 0}
    write_log(partition, 0, *plain(0, 10), v2_batch(10, [Record(T)], **producer), *plain(11, 14))
    limits = {"maxOffsetsPerTrigger": 6, "maxRecordsPerPartition": 4}
    assert night(session, tmp_path, built(tmp_path), **limits) == [6, 4]

    marker = end_txn_marker(14, T, producer_id=5, commit=False)
    write_log(partition, 14, marker, *plain(15, 20))
    (newest, *_) = sorted((tmp_path / "checkpoint/commits").glob("[0-9]*"), reverse=True)
    newest.unlink()
    newest.with_name(f".{newest.name}.crc").unlink(missing_ok=True)
    night(session, tmp_path, built(tmp_path))
    assert offsets_in(session, tmp_path) == [*range(10), *range(11, 14), *range(15, 20)]
    assert night(session, tmp_path, built(tmp_path)) == []


def test_two_tiers_are_one_log(session: SparkSession, tmp_path: Path) -> None:
    tiers = {"disks": (5, 12), "bucket": (0, 8)}
    of_tier = {
        name: Stored("orders", 0, at, b"".join(plain(at, to))) for name, (at, to) in tiers.items()
    }
    layouts.kafka(tmp_path / "disks", [of_tier["disks"]])
    layouts.local_tiered(tmp_path / "bucket", [of_tier["bucket"]])
    local, remote = catalogs_of(tmp_path)
    uncommitted = {"remote": str(remote), "isolation": "read_uncommitted"}
    assert sum(night(session, tmp_path, local, **uncommitted)) == 12
    assert offsets_in(session, tmp_path) == [*range(12)]


def test_a_stream_fails_in_one_line(session: SparkSession, tmp_path: Path) -> None:
    write_log(tmp_path / "archive/orders-0", 0, *plain(0, 3))
    for source, options, message in (
        (built(tmp_path), {"level": "batches", "columns": "position"}, "expected records"),
        (built(tmp_path), {"maxOffsetsPerTrigger": 0}, "'0' found, expected 1 to "),
        (tmp_path / "archive", {}, "no committed snapshot found"),
    ):
        with pytest.raises(Exception, match=message):
            night(session, tmp_path, source, **options)


def test_a_topic_that_is_away_for_a_night_is_not_read_twice(
    session: SparkSession, tmp_path: Path
) -> None:
    """Of a catalog that was built with the defaults; PySpark 4.1 gives no start."""
    for topic in "ab":
        write_log(tmp_path / f"archive/{topic}-0", 0, *plain(0, 3))
    away, here = tmp_path / "away", tmp_path / "archive/a-0"
    for move, end in ((None, 3), ((here, away), 4), ((away, here), 5)):
        if move:
            move[0].rename(move[1])
        write_log(tmp_path / "archive/b-0", 0, *plain(0, end))
        build_here(tmp_path / "archive", tmp_path / "indexes")
        night(session, tmp_path, tmp_path / "indexes/_catalog")
    assert offsets_in(session, tmp_path) == sorted([*range(3), *range(5)])


def test_a_stream_goes_on_only_with_the_log_that_it_has_read(tmp_path: Path) -> None:
    """The planning worker alone: at the second night another leader has cut the log."""
    reader = stream_of(tmp_path, (3, 0, 10))
    at = reader.latestOffset(reader.initialOffset())
    assert at["epochs"] == {"orders": {"0": 3}}
    reader = stream_of(tmp_path, (3, 0, 7))
    with pytest.warns(UserWarning, match="a replica that is behind"):
        assert reader.latestOffset(at) == at
    for end in (9, 12):
        reader = stream_of(tmp_path, (3, 0, 7), (4, 7, end))
        with pytest.raises(LogRangeError, match=r"up to offset 10, .* epoch 3; from offset 7 on"):
            reader.partitions(at, reader.latestOffset(at))


def stream_of(place: Path, *epochs: tuple[int, int, int]) -> Any:
    batches = (
        v2_batch(at, [Record(T)], leader_epoch=epoch)
        for epoch, first, end in epochs
        for at in range(first, end)
    )
    write_log(place / "archive/orders-0", 0, *batches)
    from kip33.spark.segment_source import SegmentSource  # PySpark 3.5 has no sources

    source = SegmentSource({"path": str(built(place))})
    return source.streamReader(source.schema())
