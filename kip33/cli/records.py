"""`kip33 records`: the records of an archive, between two times, in five formats."""

from typing import Final

import click

from kip33.cli.options import (
    engine_options,
    makes_request,
    parallelism_option,
    result_line_option,
    session_options,
    summary_option,
)
from kip33.cli.output import FORMATS
from kip33.cli.records_options import RecordsCommand, choice_options, on_error_option

PARQUET: Final = "parquet"


def _names(ctx: click.Context, param: click.Parameter, text: str | None) -> tuple[str, ...] | None:
    """Return the names in a list with commas, each once."""
    if text is None:
        return None
    return tuple(dict.fromkeys(name.strip() for name in text.split(",")))


@click.command(
    epilog="Example: kip33 records /archive/indexes/_catalog --topic orders "
    "--from 2024-05-01T09:00Z --until 2024-05-01T09:05Z --format jsonl"
)
@choice_options
@click.option(
    "--columns",
    "shown_columns",
    callback=_names,
    metavar="A,B",
    help="Columns to show, in this order: log_dir, topic, partition, base_offset (of the segment), "
    "offset, timestamp, timestampType, key, value, headers. What is not named is not decoded.",
)
@click.option("--where-key", metavar="KEY", help="Only records with exactly this key (UTF-8).")
@click.option("--grep", metavar="TEXT", help="Only records with this text in key or value.")
@click.option(
    "--limit", type=click.IntRange(min=1), metavar="N", help="Stop reading after N records."
)
@click.option(
    "--decode",
    is_flag=True,
    help="Show values in Confluent's wire format (Avro, Protobuf, JSON Schema) as JSON.",
)
@click.option(
    "--schemas",
    metavar="PLACE",
    help="Where --decode finds schemas: an archive or a catalog with a topic _schemas, a directory "
    "with 7.avsc, 8.json or 9.proto, or a registry's URL [default: SOURCE or CATALOG].",
)
@on_error_option
@click.option(
    "--format",
    "output_format",
    type=click.Choice([*FORMATS, PARQUET]),
    help="Output format [default: by the name of --output, or table]. With json, jsonl and csv, "
    "standard output has only data.",
)
@click.option(
    "--output",
    metavar="FILE",
    help="Write a new file, *.json, *.jsonl, *.csv or *.parquet; it appears when it is complete. "
    "A file that is there is never replaced.",
)
@click.option(
    "--to",
    metavar="FOLDER",
    help="Add the new records to a folder of Parquet files, by topic and day. The next run begins "
    "where this one ends. By workers, or by the tasks of Spark (--engine spark).",
)
@summary_option
@result_line_option
@engine_options
@parallelism_option
@session_options
@makes_request(RecordsCommand)
def records(command: RecordsCommand) -> None:
    """Show the records of SOURCE or CATALOG by time, key or text, without a broker.

    SOURCE is an archive, a partition's directory or one .log. With a CATALOG, segments without
    records between --from and --until are not read. Records are in the order of topic, partition
    and offset. Of a partition that several brokers have, one replica is read.

    With tiered storage, give the catalog of the log directories and that of the remote tier, in
    any order: each record of the two tiers is shown once. If they have different records at the
    same offsets, the local ones are shown, and --on-error decides, as for damage.

    json, jsonl: key and value are texts if they are UTF-8. Otherwise the row has key_base64 or
    value_base64 instead. timestamp is in milliseconds, null without one. json is one object, with
    the records and then a summary. csv always has both columns of each; it does not tell null from
    empty. parquet has the bytes. A table has at most 1,000 records, with long values cut.

    With --decode, value is JSON, and schema_id and decode_error come after it. A value that cannot
    be decoded stays as it was sent, and decode_error has the reason. In parquet, value has the type
    of the newest schema of <topic>-value, or of the one schema in a directory; if there is no such
    schema, or there are several topics, it is JSON text. value_bytes has what cannot be decoded.
    Keys are not decoded. --grep searches the bytes that were sent.

    With --to, a CATALOG is needed. Files are FOLDER/topic=orders/day=2024-05-01/part-....parquet:
    Spark, pandas and Arrow read FOLDER as one table, DuckDB and Polars with a pattern,
    FOLDER/topic=*/*/*.parquet. Each record is added once: a run begins at the offset at which the
    last one ended, and one that is interrupted adds nothing, or the next one completes it. All runs
    have the same CATALOG and the same options, but for topics and partitions.
    """
    from kip33.cli.records_answer import add_records, show_records

    if command.to is None:
        show_records(command)
    else:
        add_records(command)
