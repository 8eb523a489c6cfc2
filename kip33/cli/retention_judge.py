"""Judge a catalog: from the options to the engine's answer, its output and the plan."""

import json
import time
from typing import Any

import pyarrow as pa

from kip33.archive.bins import EngineName
from kip33.archive.plans import require_plan_place
from kip33.catalog.holes import hole_totals
from kip33.cli.engine_option import engine_choice, open_session
from kip33.cli.metrics_file import publish_metrics
from kip33.cli.options import publish_summary
from kip33.cli.output import Output, RowList, counted, show, warn
from kip33.cli.progress import progress_line
from kip33.cli.retention_answer import (
    JudgedHere,
    RetentionAnswer,
    judge_here,
    local_answer,
    rows_of,
)
from kip33.cli.retention_question import (
    RESULT_TABLES,
    AskedRetention,
    require_equal_totals,
)
from kip33.cli.retention_tables import retention_page
from kip33.errors import LocationError
from kip33.retention.evaluated_tables import (
    remove_results,
    require_results_place,
    totals_of,
    write_summary,
)
from kip33.retention.make_plan import DeletionDoubts, PlanInProgress
from kip33.rules.offset_holes import missing_holes
from kip33.rules.policies import require_topics
from kip33.stores.locations import Location
from kip33.stores.progress import OnProgress, Phase, Progress


def judge_catalog(asked: AskedRetention) -> set[str]:
    """Print and write the answer; return the findings: blocked, expired, untrusted, holes."""
    started = time.monotonic()
    choice = engine_choice(asked.options.engine).name
    output = Location.of(asked.options.output) if asked.options.output else None
    plan_place = Location.of(asked.options.plan_file) if asked.options.plan_file else None
    require_topics(asked.options.topics, asked.topics)
    if plan_place:
        require_plan_place(plan_place)
    if output:
        _require_apart(output, asked)
        require_results_place(output, RESULT_TABLES)
    with progress_line("retention") as on_progress:
        on_progress(Progress(Phase.EVALUATING, 0, asked.snapshot.rows))
        answer, judged = _answer(asked, choice, output, on_progress)
        summary = {
            "catalog": asked.catalog.location.uri,
            "snapshot": asked.snapshot.name,
            "source": asked.snapshot.source,
            "now_ms": asked.request.now_ms,
            **answer.totals,
            **hole_totals(answer.holes)._asdict(),
            "warnings": list(asked.warnings),
            "engine": choice,
            "workers": answer.workers,
        }
        found = _findings(summary)
        summary["findings"] = sorted(found)
    if plan_place and judged and judged.plan:
        summary["plan"] = _plan(plan_place, judged.plan)
    summary["seconds"] = round(time.monotonic() - started, 3)
    if output:
        write_summary(output, summary)
    publish_summary(asked.options.summary_file, summary)
    _publish_metrics(asked, answer, summary)
    _print(asked, answer, judged, summary)
    return found


def _publish_metrics(
    asked: AskedRetention, answer: RetentionAnswer, summary: dict[str, Any]
) -> None:
    metrics = asked.options.metrics
    if metrics.metrics_file is None:
        return
    from kip33.cli.metrics_file import retention_gauges

    gauges = retention_gauges(summary, answer.partitions, answer.holes, metrics)
    publish_metrics(metrics, "retention", {"catalog": summary["catalog"]}, gauges)


def _require_apart(output: Location, asked: AskedRetention) -> None:
    """Raise LocationError if results are inside the archive or catalog, or the other way round."""
    for place in (Location.of(asked.snapshot.source), asked.catalog.location):
        if output.contains(place) or place.contains(output):
            raise LocationError(
                f"{output.uri}: --output and {place.uri} overlap; give a separate folder"
            )


def _answer(
    asked: AskedRetention, engine: EngineName, output: Location | None, on_progress: OnProgress
) -> tuple[RetentionAnswer, JudgedHere | None]:
    """Return the engine's answer, and what this process judged.

    A plan and --emit always use the decisions of this process. So Spark's totals must be equal to
    its totals.
    """
    if engine == EngineName.LOCAL:
        if output:
            remove_results(output, RESULT_TABLES)
        judged = judge_here(asked, on_progress, output)
        return local_answer(asked, judged), judged
    from kip33.cli.retention_spark import spark_answer

    spark = open_session(asked.options.engine)
    if output:
        remove_results(output, RESULT_TABLES)
    by_spark = spark_answer(spark, asked, output)
    if not (asked.options.plan_file or asked.options.emit):
        return by_spark, None

    def require(partitions: pa.Table) -> None:
        require_equal_totals(by_spark.totals, totals_of(partitions))

    return by_spark, judge_here(asked.without_index_files(), on_progress, require=require)


def _findings(summary: dict[str, Any]) -> set[str]:
    untrusted = (
        *("last_modified_segments", "unverified_segments", "doubtful_segments"),
        "tiered_segments",
    )
    counts = {
        "blocked": summary["blocked_segments"],
        "expired": summary["deletable_segments"],
        "untrusted": sum(summary[name] for name in untrusted),
        "holes": missing_holes(summary["by_hole"]),
    }
    return {name for name, count in counts.items() if count}


def _plan(place: Location, plan: PlanInProgress) -> dict[str, Any]:
    """Warn of what is not in the plan; return the plan's part of the summary."""
    for partition in plan.left_out:
        if rest := partition.left_out:
            warn(
                f"{partition.directory.uri}: {counted(rest.segments, 'deletable segment')} not in "
                f"the plan: {rest.why}"
            )
    totals = plan.totals
    if more := totals.left_out_partitions - len(plan.left_out):
        warn(
            f"{counted(more, 'other partition')} with deletable segments that are not in the plan; "
            f"{place.uri} has the reason for each"
        )
    return {
        "file": place.uri,
        "plan_id": plan.plan_id,
        "segments": totals.segments,
        "bytes": totals.size_bytes,
        "log_bytes": totals.log_bytes,
        "left_out_segments": totals.left_out_segments,
        "left_out_bytes": totals.left_out_bytes,
    }


def _print(
    asked: AskedRetention,
    answer: RetentionAnswer,
    judged: JudgedHere | None,
    summary: dict[str, Any],
) -> None:
    options = asked.options
    emitted = [_emitted(asked, answer, judged.doubts)] if judged and judged.doubts else None
    lists = [
        RowList("segments", answer.segments(), "segment", is_compact=True, columns=answer.columns),
        RowList("partitions", rows_of(answer.partitions), "partition", is_compact=True),
    ]
    if answer.freed is not None:
        lists.append(RowList("freed", rows_of(answer.freed), "freed", is_compact=True))
    printed = Output(
        page=retention_page(answer, summary, with_broker_view=options.show_broker_view),
        rows=lists,
        summary=summary,
        summary_key="summary",
        csv=emitted,
    )
    show(printed, "csv" if options.emit else options.output_format)


def _emitted(asked: AskedRetention, answer: RetentionAnswer, doubts: DeletionDoubts) -> str:
    """Return what brokers can delete; warn about each partition left out because of doubts."""
    for (topic, partition), why in doubts.partitions.items():
        warn(f"{topic}-{partition} is skipped: {why}")
    for uri in doubts.of_any_topic:
        warn(f"{uri} could not be listed; it may have replicas that keep more")
    trust = asked.options.trust_last_modified
    found = answer.delete_records(trust_last_modified=trust, left_out=doubts.partitions)
    return json.dumps(found)
