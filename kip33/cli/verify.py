"""`kip33 verify`."""

import sys
from collections import Counter
from typing import Any, TypeAlias

import click

from kip33.archive.engine_name import EngineName
from kip33.archive.segment_paths import index_path
from kip33.builds.topic_settings import load_topic_settings
from kip33.cli.dialect_option import dialect_option
from kip33.cli.engine_option import (
    EngineOptions,
    engine_choice,
    engine_options,
    open_engine,
)
from kip33.cli.layout_option import layout_option
from kip33.cli.options import format_option, index_options, spark_options
from kip33.cli.output import print_json, print_table
from kip33.cli.progress import progress_bar
from kip33.cli.summary_file import publish_summary, summary_option
from kip33.indexing.by_path import topic_of, verify_segment
from kip33.indexing.segment_verdict import INDEX_KINDS, IndexKind, SegmentVerdict
from kip33.rules.index_builder import IndexSettings
from kip33.rules.index_verdict import IndexVerdict
from kip33.stores.locations import Location

FILES = (".log", ".timeindex", ".index", ".txnindex")
Counts: TypeAlias = dict[IndexKind, Counter[IndexVerdict | None]]
"""Index files of each kind by their verdict, None for those that are not there."""


@click.command(epilog="Example: kip33 verify /archive/kafka-logs --fail-on wrong --fail-on missing")
@click.argument("source")
@click.option(
    "--index-dir", metavar="DIR", help="Folder of the index files [default: beside the logs]."
)
@layout_option
@dialect_option
@index_options
@click.option(
    "--fail-on",
    multiple=True,
    type=click.Choice([verdict.value for verdict in IndexVerdict]),
    help="Exit 3 if any index file has this verdict. May be repeated.",
)
@summary_option
@engine_options
@spark_options
@format_option("table", "json", "jsonl")
def verify(
    source: str,
    index_dir: str | None,
    layout: str,
    dialect: str,
    index_interval_bytes: int,
    segment_index_bytes: int,
    kafka_configs: str | None,
    no_check_crc: bool,
    fail_on: tuple[str, ...],
    summary_file: Location | None,
    engine: str,
    workers: int | None,
    verbose: bool,
    topics: tuple[str, ...],
    parallelism: int | None,
    master: str | None,
    conf: dict[str, str],
    output_format: str,
) -> None:
    """Check every .timeindex, .index and .txnindex below SOURCE against its log.

    There is one verdict for each file.

    identical: the bytes that a broker, or --dialect, writes. consistent: every entry is correct,
    at another density. sparse: every entry is correct, but entries are missing, so that lookups
    read more than two intervals of the log (see --index-interval-bytes). incomplete: the closing
    entry is missing. padded: correct entries, then zeros or stale entries. wrong: an entry does
    not match the log. malformed: the size is not a multiple of the entry size. missing.
    unreadable.

    A .index is missing only if other segments have one: in the same tree, or in the same directory
    if SOURCE is one file. A .txnindex is missing if there is a .index and a transaction was
    aborted. unknown: the .txnindex depends on transactions of earlier segments, which are not
    there; a .snapshot beside the log would tell. SOURCE may be one .log or index file: that needs
    no Spark.
    """
    default = IndexSettings(dialect, index_interval_bytes, segment_index_bytes, not no_check_crc)
    settings = load_topic_settings(default, kafka_configs)
    options = EngineOptions(engine, workers, verbose, master, conf)
    ran = {"engine": EngineName.LOCAL, "workers": 1}
    below = ""  # what every index's URI begins with, left out of tables
    if source.endswith(FILES):
        engine_choice(options._replace(verbose=False))  # refuses options that contradict each other
        verdicts = [_verify_one(source, index_dir, settings.of(topic_of(source)))]
    else:
        from kip33.indexing.verify_tree import execute_verify, plan_verify

        opened = open_engine(options)
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
            verdicts = execute_verify(
                plan,
                opened,
                parallelism=parallelism,
                on_progress=bar.advance if bar else None,
            )
        ran = {"engine": opened.name, "workers": opened.workers}
    counts: Counts = {
        kind: Counter(verdict.on(kind) for verdict in verdicts) for kind in INDEX_KINDS
    }
    summary: dict[str, Any] = {"segments": len(verdicts)}
    for kind, found in counts.items():
        summary[kind.count_field] = {name: found[name] for name in IndexVerdict if found[name]}
    for kind in INDEX_KINDS:
        if kind.gap_field is None:
            continue
        gaps = [gap for verdict in verdicts if (gap := verdict.largest_gap(kind)) is not None]
        summary[kind.gap_field] = max(gaps, default=None)
    summary |= ran
    publish_summary(summary_file, summary)
    if output_format == "jsonl":
        for verdict in verdicts:
            print_json(verdict.as_row())
    elif output_format == "json":
        print_json(summary | {"verdicts": [verdict.as_row() for verdict in verdicts]})
    else:
        _print_tables(verdicts, counts, below)
    if any(found[IndexVerdict(name)] for found in counts.values() for name in fail_on):
        sys.exit(3)


def _verify_one(path: str, index_dir: str | None, settings: IndexSettings) -> SegmentVerdict:
    suffix = next(suffix for suffix in FILES if path.endswith(suffix))
    stem = path.removesuffix(suffix)
    index = None if suffix == ".log" else f"{stem}.timeindex"
    if index_dir:
        name = index_path(Location.of(f"{stem}.log").name, "timeindex")
        index = Location.of(index_dir).child(name).uri
    verdict = verify_segment(
        f"{stem}.log",
        index,
        dialect=settings.dialect,
        index_interval_bytes=settings.index_interval_bytes,
        segment_index_bytes=settings.segment_index_bytes,
        check_crc=settings.check_crc,
    )
    return verdict.with_missing_offset_index() if suffix == ".index" else verdict


def _print_tables(verdicts: list[SegmentVerdict], counts: Counts, below: str) -> None:
    rows = [
        (name, *(found[name] for found in counts.values()))
        for name in IndexVerdict
        if any(found[name] for found in counts.values())
    ]
    what = f"{len(verdicts)} segment{'' if len(verdicts) == 1 else 's'}"
    kinds = [kind.suffix for kind in INDEX_KINDS]
    print_table(("verdict", *kinds), rows, title=what)
    bad = [
        (
            *(verdict.on(kind) or "-" for kind in INDEX_KINDS),
            verdict.log_status,
            verdict.index_uri.removeprefix(below),
            "\n".join(
                verdict.problems + ((f"log: {verdict.log_error}",) if verdict.log_error else ())
            ),
        )
        for verdict in verdicts
        if not verdict.is_good
    ]
    if bad:
        print_table((*kinds, "log", "file", "problems"), bad)
