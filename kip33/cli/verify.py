"""`kip33 verify`."""

import sys
from collections import Counter

import click

from kip33.cli.layout_option import layout_option
from kip33.cli.options import format_option, index_options, spark_options
from kip33.cli.output import print_json, print_table
from kip33.cli.progress import progress_bar
from kip33.cli.summary_file import publish_summary, summary_option
from kip33.rules.indexes import IndexSettings
from kip33.rules.verdict import GOOD, VERDICTS
from kip33.storage.by_path import topic_of, verify_segment
from kip33.storage.locations import Location
from kip33.storage.segment_files import index_path
from kip33.storage.topic_settings import load_topic_settings
from kip33.storage.verification import SegmentVerdict


@click.command(epilog="Example: kip33 verify /archive/kafka-logs --fail-on wrong --fail-on missing")
@click.argument("source")
@click.option(
    "--index-dir", metavar="DIR", help="Where the index files are [default: beside the logs]."
)
@layout_option
@index_options
@click.option(
    "--fail-on",
    multiple=True,
    type=click.Choice(VERDICTS),
    help="Exit 3 if any .timeindex or .index has this verdict; may be repeated.",
)
@summary_option
@spark_options
@format_option("table", "json", "jsonl")
def verify(
    source: str,
    index_dir: str | None,
    layout: str,
    index_interval_bytes: int,
    segment_index_bytes: int,
    kafka_configs: str | None,
    no_check_crc: bool,
    fail_on: tuple[str, ...],
    summary_file: Location | None,
    topics: tuple[str, ...],
    parallelism: int | None,
    master: str | None,
    conf: dict[str, str],
    output_format: str,
) -> None:
    """Hold every .timeindex below SOURCE against its log and give one verdict a file.

    identical (to a dialect's bytes), consistent (true, other density), incomplete (closing entry
    missing), padded (zeros or stale entries at the end), wrong, malformed, missing, unreadable.
    SOURCE may be one .log or .timeindex: that runs at once, without Spark.
    """
    default = IndexSettings("recover", index_interval_bytes, segment_index_bytes, not no_check_crc)
    settings = load_topic_settings(default, kafka_configs)
    below = ""  # what every index's URI begins with, left out of tables
    if source.endswith((".log", ".timeindex")):
        verdicts = [_verify_one(source, index_dir, settings.of(topic_of(source)))]
    else:
        from kip33.spark.session import create_session
        from kip33.spark.verify import plan_verify, run_verify

        with progress_bar("verify") as bar:
            plan = plan_verify(
                source,
                index_dir,
                settings=settings,
                topics=topics,
                layout=layout,
                on_listed=bar.listed if bar else None,
            )
            below = plan.verify.index_dir.uri + "/"
            verdicts = run_verify(
                create_session(master=master, conf=conf),
                plan,
                parallelism=parallelism,
                on_progress=bar.advance if bar else None,
            )
    counts = Counter(verdict.verdict for verdict in verdicts)
    offset_counts = Counter(verdict.offset_index_verdict for verdict in verdicts)
    summary = {
        "segments": len(verdicts),
        "by_verdict": {name: counts[name] for name in VERDICTS if counts[name]},
        "by_offset_index_verdict": {
            name: offset_counts[name] for name in VERDICTS if offset_counts[name]
        },
    }
    publish_summary(summary_file, summary)
    if output_format == "jsonl":
        for verdict in verdicts:
            print_json(verdict.as_row())
    elif output_format == "json":
        print_json(summary | {"verdicts": [verdict.as_row() for verdict in verdicts]})
    else:
        _print_tables(verdicts, counts, offset_counts, below)
    if any(counts[verdict] or offset_counts[verdict] for verdict in fail_on):
        sys.exit(3)


def _verify_one(path: str, index_dir: str | None, settings: IndexSettings) -> SegmentVerdict:
    log = path.removesuffix(".timeindex") + ".log" if path.endswith(".timeindex") else path
    index = path if path.endswith(".timeindex") else None
    if index_dir:
        name = index_path(Location.of(log).name, "timeindex")
        index = Location.of(index_dir).child(name).uri
    return verify_segment(
        log,
        index,
        index_interval_bytes=settings.index_interval_bytes,
        segment_index_bytes=settings.segment_index_bytes,
        check_crc=settings.check_crc,
    )


def _print_tables(
    verdicts: list[SegmentVerdict],
    counts: Counter[str],
    offset_counts: Counter[str | None],
    below: str,
) -> None:
    rows = [
        (name, counts[name], offset_counts[name])
        for name in VERDICTS
        if counts[name] or offset_counts[name]
    ]
    what = f"{len(verdicts)} segment{'' if len(verdicts) == 1 else 's'}"
    print_table(("verdict", ".timeindex", ".index"), rows, title=what)
    good = (*GOOD, None)
    bad = [
        (
            verdict.verdict,
            verdict.offset_index_verdict or "-",
            verdict.log_status,
            verdict.index_uri.removeprefix(below),
            "\n".join(
                verdict.problems + ((f"log: {verdict.log_error}",) if verdict.log_error else ())
            ),
        )
        for verdict in verdicts
        if verdict.verdict not in GOOD or verdict.offset_index_verdict not in good
    ]
    if bad:
        print_table((".timeindex", ".index", "log", "file", "problems"), bad)
