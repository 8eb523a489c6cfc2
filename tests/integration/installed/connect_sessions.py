"""Two sessions of a Spark Connect server, of which the second has keys of a store.

python connect_sessions.py URL ARCHIVE ARCHIVE_IN_S3 STORAGE_OPTIONS.json
"""

import faulthandler
import json
import sys
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql import DataFrame, SparkSession

from kip33.spark import register
from kip33.spark.segment_source import SegmentSource
from kip33.spark.store_settings import SessionStores

FORMAT = "kafka-segments"
ENDS_WITHIN_S = 600  # a minute on a fast machine; then it ends and shows where each thread is


def counted(spark: SparkSession, place: str, where: str) -> int:
    """Return the number of such records of a topic."""
    return (
        spark.read.format(FORMAT)
        .option("on_error", "row")
        .option("topic", "orders")
        .load(place)
        .where(where)
        .count()
    )


def streamed(spark: SparkSession, catalog: str) -> int:
    """Return the number of records of a topic that a stream writes."""
    stream = spark.readStream.format(FORMAT).option("topic", "orders").load(catalog)
    writer = stream.writeStream.format("parquet").option("path", f"{catalog}-table")
    writer = writer.option("checkpointLocation", f"{catalog}-checkpoint")
    writer.trigger(availableNow=True).start().awaitTermination()
    return spark.read.parquet(f"{catalog}-table").count()


def plan_of(frame: DataFrame) -> str:
    """Return what a session shows of a query."""
    with redirect_stdout(StringIO()) as shown:
        frame.explain(True)
    return shown.getvalue()


def main(url: str, archive: str, catalog: str, in_s3: str, options: str) -> None:
    """Print what was found.

    A session that is left to the end of Python may wait there forever for the end of a call: grpc's
    own thread, which would tell it, has stopped by then. So both sessions are stopped here.
    """
    builder = SparkSession.builder.remote(url)
    with builder.create() as first, builder.create() as second:
        print(json.dumps(answers(first, second, archive, catalog, in_s3, options)), flush=True)


def answers(
    first: SparkSession, second: SparkSession, archive: str, catalog: str, in_s3: str, options: str
) -> dict[str, Any]:
    """Return what the sessions found, how one without keys is refused, and whether keys show."""
    keys = json.loads(Path(options).read_text())
    found = [counted(first, archive, "true")]
    known = {key: text for key, text in keys.items() if not key.endswith(".key")}
    register(first, storage_options=known)
    register(second, push_filters=True, storage_options=keys)
    found += [counted(second, in_s3, "true"), counted(second, in_s3, "offset < 5")]
    second.sql(
        f"CREATE TEMPORARY VIEW orders USING `{FORMAT}` OPTIONS (path '{in_s3}', topic 'orders')"
    )
    found += [second.table("orders").count()]
    found += [streamed(second, catalog)]
    try:
        refused = str(counted(first, in_s3, "true"))
    except AnalysisException as error:
        refused = str(error)
    shown = plan_of(second.table("orders"))
    source = type("Source", (SegmentSource,), {"stores": SessionStores.of(second)})
    pickled = CloudPickleSerializer().dumps(source)
    secret = keys["fs.s3a.secret.key"]
    return {
        "found": found,
        "refused": refused,
        "has_secret": secret in shown or secret.encode() in pickled,
    }


if __name__ == "__main__":
    faulthandler.dump_traceback_later(ENDS_WITHIN_S, exit=True)
    main(*sys.argv[1:])
