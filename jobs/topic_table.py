"""spark-submit jobs/topic_table.py CATALOG --table NAME --format iceberg --checkpoint DIR.

The history of topics as a table: the first run adds all records of a catalog, the next ones what is
new since, each record once. Formats other than Parquet need their library (`--packages`).
"""

import re
from typing import Final

import click

from kip33.cli.engine_option import SparkJob
from kip33.cli.main import run
from kip33.errors import ExitCode, Kip33Error
from kip33.spark import create_session, register

_OURS: Final = re.compile(r"^(?:kip33[\w.]+|ValueError): (.+)", re.MULTILINE)
_JAVAS: Final = re.compile(r"^(?:An error occurred while calling .*\n: )?(?:[\w.$]+: )?(.+)")


class TableError(Kip33Error):
    """Spark cannot add the records to the table."""

    exit_code = ExitCode.INCOMPLETE


@click.command()
@click.argument("catalog")
@click.option("--table", metavar="NAME", help="Name of the table; it is made if it is missing.")
@click.option("--path", metavar="FOLDER", help="Folder of the table, instead of a name.")
@click.option(
    "--format", "kind", default="parquet", show_default=True, help="iceberg, delta or parquet."
)
@click.option("--checkpoint", metavar="DIR", required=True, help="Where the table stands.")
@click.option("--topic", "topics", multiple=True, help="Only this topic (repeatable).")
@click.option(
    "--option",
    "pairs",
    metavar="NAME=VALUE",
    multiple=True,
    help="An option of the stream, as columns=offset,key,value (repeatable).",
)
def topic_table(
    catalog: str,
    table: str | None,
    path: str | None,
    kind: str,
    checkpoint: str,
    topics: tuple[str, ...],
    pairs: tuple[str, ...],
) -> None:
    """Add what is new in CATALOG to a table, each record once."""
    if (table is None) == (path is None):
        raise click.UsageError("expected either --table NAME or --path FOLDER")
    if wrong := next((pair for pair in pairs if "=" not in pair), None):
        raise click.UsageError(f"--option {wrong}: expected NAME=VALUE")
    options = dict(pair.split("=", 1) for pair in pairs)
    if topics:
        options["topic"] = ",".join(topics)
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    spark = create_session(conf={"spark.sql.streaming.numRecentProgressUpdates": "100000"})
    register(spark)
    try:
        records = spark.readStream.format("kafka-segments").options(**options).load(catalog)
        writer = records.writeStream.format(kind).option("checkpointLocation", checkpoint)
        writer = writer.trigger(availableNow=True)
        query = writer.toTable(table) if table else writer.option("path", path).start()
        query.awaitTermination()
    except (PySparkException, Py4JError) as error:
        found = _OURS.findall(str(error)) or _JAVAS.findall(str(error))
        raise TableError(found[-1]) from error
    added = sum(batch["numInputRows"] for batch in query.recentProgress)
    click.echo(f"{added:,} records added to {table or path}")


if __name__ == "__main__":
    run(topic_table, SparkJob())
