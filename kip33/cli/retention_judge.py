"""Judging a catalog: from options to Spark to what is printed, written and planned."""

import json
import os
import time
from typing import Any, NamedTuple

import click
from pyspark import StorageLevel
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as sf

from kip33.archive.output_files import require_plan_place
from kip33.cli.output import warn
from kip33.cli.progress import progress_bar
from kip33.cli.retention_lines import print_csv, print_lines, print_object
from kip33.cli.retention_question import RetentionQuestion
from kip33.cli.retention_tables import (
    MOST_PARTITIONS,
    RESULT,
    print_broker_differences,
    print_tables,
)
from kip33.cli.summary_file import publish_summary
from kip33.errors import CatalogError, LocationError
from kip33.retention.deletion_doubts import find_doubts
from kip33.retention.make_plan import basis_of, plan_retention
from kip33.retention.plan_file import write_plan
from kip33.rules.topic_globs import TopicGlobs
from kip33.spark import session
from kip33.spark.catalog import load_catalog
from kip33.spark.result_folder import require_results_place, write_summary, written
from kip33.spark.retention.delete_records import delete_records
from kip33.spark.retention.evaluate import evaluate_topics, question_of
from kip33.spark.retention.summary import (
    freed_by,
    summarize_partitions,
    totals_of,
    worst_and_totals,
)
from kip33.stores.locations import Location

TABLES = ("segments", "partitions", "freed")


def judge_catalog(asked: RetentionQuestion) -> set[str]:
    """Answer on standard output and in files; return the findings: blocked, expired, untrusted."""
    started = time.monotonic()
    output = Location.of(asked.options.output) if asked.options.output else None
    plan_place = Location.of(asked.options.plan_file) if asked.options.plan_file else None
    if plan_place:
        require_plan_place(plan_place)
    if output:
        _require_apart(output, asked)
        require_results_place(output, TABLES)
    with progress_bar("retention: Spark evaluates segments"):
        spark = session.create_session(master=asked.options.master, conf=asked.options.conf)
        answer = _answer(spark, asked, output)
        summary = {
            "catalog": asked.catalog.location.uri,
            "snapshot": asked.snapshot.name,
            "source": asked.snapshot.source,
            "now_ms": asked.now_ms,
            **answer.totals,
            "warnings": list(asked.warnings),
        }
    if not summary["partitions"] and asked.options.topics:
        raise CatalogError(
            f"no topic of {asked.snapshot.name} matches "
            f"{' or '.join(asked.options.topics)}; `kip33 catalog` shows the topics"
        )
    found = _findings(summary)
    summary["findings"] = sorted(found)
    if plan_place:
        summary["plan"] = _plan(asked, plan_place)
    summary["seconds"] = round(time.monotonic() - started, 3)
    if output:
        write_summary(output, summary)
    publish_summary(asked.options.summary_file, summary)
    _print(asked, answer, summary)
    return found


def _require_apart(output: Location, asked: RetentionQuestion) -> None:
    """Raise LocationError for results around or inside the archive or the catalog."""
    for place in (Location.of(asked.snapshot.source), asked.catalog.location):
        if output.contains(place) or place.contains(output):
            raise LocationError(
                f"{output.uri}: --output and {place.uri} overlap; give a separate folder"
            )


class JudgedCatalog(NamedTuple):
    """What Spark made of the question; `rows` is how many segments there are at most."""

    judged: DataFrame
    partitions: DataFrame
    worst: list[Row]  # of the partitions, for a table
    totals: dict[str, Any]
    freed: DataFrame | None
    rows: int


def _answer(
    spark: SparkSession, asked: RetentionQuestion, output: Location | None
) -> JudgedCatalog:
    options = asked.options
    rows = load_catalog(spark, asked.catalog.location.uri, asked.snapshot.name)
    if options.topics:
        globs = TopicGlobs.of(options.topics)
        if globs.included_regex:
            rows = rows.where(sf.col("topic").rlike(globs.included_regex))
        if globs.excluded_regex:
            rows = rows.where(~sf.col("topic").rlike(globs.excluded_regex))
    judged = evaluate_topics(
        rows,
        asked.topics,
        asked.policies,
        question_of(asked.now_ms, options.active_segment, options.boundary),
        log_start_offsets=asked.log_start_offsets,
        what_if=asked.what_if,
        broker_view=options.show_broker_view,
    )
    if output:
        judged = written(spark, output, "segments", judged)
    elif options.show_broker_view:
        judged = judged.persist(StorageLevel.DISK_ONLY)  # index files are read once
    partitions = summarize_partitions(judged, now_ms=asked.now_ms)
    freed = freed_by(judged, asked.moments_ms) if asked.moments_ms else None
    if output:
        partitions = written(spark, output, "partitions", partitions)
        freed = written(spark, output, "freed", freed) if freed is not None else None
    if options.output_format == "table" and not options.emit:
        worst, totals = worst_and_totals(partitions, MOST_PARTITIONS)
    else:
        partitions = partitions.persist()  # all of them are told as well
        worst, totals = [], totals_of(partitions)
    return JudgedCatalog(judged, partitions, worst, totals, freed, asked.snapshot.rows)


def _findings(summary: dict[str, Any]) -> set[str]:
    untrusted = ("last_modified_segments", "unverified_segments", "doubtful_segments")
    found = {
        "blocked": summary["blocked_segments"],
        "expired": summary["deletable_segments"],
        "untrusted": sum(summary[name] for name in untrusted),
    }
    return {name for name, count in found.items() if count}


def _plan(asked: RetentionQuestion, place: Location) -> dict[str, Any]:
    """Write the plan; return what the summary says of it."""
    plan = plan_retention(
        asked.catalog,
        asked.snapshot,
        asked.policies,
        now_ms=asked.now_ms,
        clock_ms=asked.clock_ms,
        active_segment=asked.options.active_segment,
        boundary=asked.options.boundary,
        log_start_offsets=asked.log_start_offsets,
        trust_last_modified=asked.options.trust_last_modified,
        topics=asked.options.topics,
    )
    write_plan(plan, place)
    left_out = [one.left_out for one in plan.partitions if one.left_out]
    for partition in plan.partitions:
        if partition.left_out:
            warn(
                f"{partition.directory.uri}: {partition.left_out.segments:,} deletable segments "
                f"are not in the plan: {partition.left_out.why}"
            )
    return {
        "file": place.uri,
        "plan_id": plan.plan_id,
        "segments": plan.segments,
        "bytes": plan.size_bytes,
        "left_out_segments": sum(one.segments for one in left_out),
        "left_out_bytes": sum(one.log_bytes for one in left_out),
    }


def _print(asked: RetentionQuestion, answer: JudgedCatalog, summary: dict[str, Any]) -> None:
    output_format = asked.options.output_format
    if asked.options.emit:
        _emit(asked, answer)
        _say_apart(summary)
    elif output_format == "table":
        if asked.options.show_broker_view:
            print_broker_differences(answer.judged)
        print_tables(answer.worst, answer.freed, summary)
    elif output_format == "csv":
        print_csv(answer.judged, answer.rows)
        _say_apart(summary)
    elif output_format == "jsonl":
        print_lines(answer.judged, answer.partitions, answer.freed, answer.rows)
        click.echo(json.dumps({"kind": "summary", **summary}))
    else:
        print_object(answer.judged, answer.partitions, answer.freed, answer.rows, summary)


def _emit(asked: RetentionQuestion, answer: JudgedCatalog) -> None:
    """Print what may be deleted on brokers; warn of each partition that is left out in doubt."""
    options = asked.options
    basis = basis_of(
        asked.catalog,
        asked.snapshot,
        asked.policies,
        now_ms=asked.now_ms,
        clock_ms=asked.clock_ms,
        active_segment=options.active_segment,
        boundary=options.boundary,
        trust_last_modified=options.trust_last_modified,
    )
    starts, topics = asked.log_start_offsets, options.topics
    doubts = find_doubts(basis, asked.catalog, asked.snapshot, starts or {}, topics)
    for (topic, partition), why in doubts.partitions.items():
        warn(f"{topic}-{partition} is skipped: {why}")
    for uri in doubts.unlistable_uris:
        warn(f"{uri} could not be listed; it may have replicas that keep more")
    trust = options.trust_last_modified
    found = delete_records(answer.partitions, trust_last_modified=trust, left_out=doubts.partitions)
    click.echo(json.dumps(found))


def _say_apart(summary: dict[str, Any]) -> None:
    """Print the machine-readable line where it is no part of the data: spark-submit joins both."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        click.echo(RESULT + json.dumps(summary), err=True)
