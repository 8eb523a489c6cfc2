"""Judge a catalog: from the options to the engine's answer, its output and the plan."""

import json
import time
from typing import Any, Final

from kip33.archive.bins import EngineName
from kip33.archive.plans import require_plan_place
from kip33.catalog.holes import hole_totals
from kip33.cli.engine_option import engine_choice, leave_pandas_out, open_session
from kip33.cli.metrics_file import publish_metrics
from kip33.cli.options import publish_summary
from kip33.cli.output import Output, RowList, counted, show, warn
from kip33.cli.progress import progress_line
from kip33.cli.retention_answer import RetentionAnswer, local_answer, rows_of
from kip33.cli.retention_question import (
    RESULT_TABLES,
    AskedRetention,
    require_equal_totals,
)
from kip33.cli.retention_tables import retention_page
from kip33.errors import LocationError
from kip33.retention.evaluated_tables import (
    partitions_table,
    remove_results,
    require_results_place,
    totals_of,
    write_summary,
)
from kip33.retention.evaluation import EvaluatedCatalog
from kip33.retention.make_plan import find_doubts, plan_judged
from kip33.retention.plan import write_plan
from kip33.rules.offset_holes import missing_holes
from kip33.rules.policies import require_topics
from kip33.stores.locations import Location
from kip33.stores.progress import Phase, Progress

MOST_WARNINGS: Final = 20  # of one kind; a plan has them all


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
        on_progress(Progress(Phase.EVALUATING))
        answer, evaluated = _answer(asked, choice, output)
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
        if plan_place:
            on_progress(Progress(Phase.WRITING_PLAN))
            summary["plan"] = _plan(asked, plan_place, evaluated)
    summary["seconds"] = round(time.monotonic() - started, 3)
    if output:
        write_summary(output, summary)
    publish_summary(asked.options.summary_file, summary)
    _publish_metrics(asked, answer, summary)
    _print(asked, answer, evaluated, summary)
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
    asked: AskedRetention, engine: EngineName, output: Location | None
) -> tuple[RetentionAnswer, EvaluatedCatalog | None]:
    """Return the engine's answer, and that of this process if it is needed.

    A plan and --emit always use the decisions of this process. So Spark's totals must be equal to
    its totals.
    """
    options = asked.options
    deletes = bool(options.plan_file or options.emit)
    if engine == EngineName.LOCAL:
        leave_pandas_out()
        at_once = deletes or options.show_broker_view  # the view reads each index file once
        evaluated = asked.evaluate(with_files=deletes) if at_once else None
        if output:
            remove_results(output, RESULT_TABLES)
        return local_answer(asked, evaluated, output), evaluated
    from kip33.cli.retention_spark import spark_answer

    spark = open_session(options.engine)
    if output:
        remove_results(output, RESULT_TABLES)
    by_spark = spark_answer(spark, asked, output)
    if not deletes:
        return by_spark, None
    evaluated = asked.without_index_files().evaluate(with_files=True)
    require_equal_totals(by_spark.totals, totals_of(partitions_table(evaluated)))
    return by_spark, evaluated


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


def _plan(
    asked: AskedRetention, place: Location, evaluated: EvaluatedCatalog | None
) -> dict[str, Any]:
    """Write the plan; return its part of the summary."""
    judged = evaluated.judged.partitions() if evaluated else ()
    plan = plan_judged(asked.basis, asked.snapshot, judged)
    write_plan(plan, place)
    left_out = [(one.directory, one.left_out) for one in plan.partitions if one.left_out]
    for directory, rest in left_out[:MOST_WARNINGS]:
        warn(
            f"{directory.uri}: {counted(rest.segments, 'deletable segment')} not in the plan: "
            f"{rest.why}"
        )
    if len(left_out) > MOST_WARNINGS:
        more = len(left_out) - MOST_WARNINGS
        warn(
            f"{counted(more, 'other partition')} with deletable segments that are not in the plan; "
            f"{place.uri} has the reason for each"
        )
    return {
        "file": place.uri,
        "plan_id": plan.plan_id,
        "segments": plan.segments,
        "bytes": plan.size_bytes,
        "log_bytes": plan.log_bytes,
        "left_out_segments": sum(rest.segments for _, rest in left_out),
        "left_out_bytes": sum(rest.log_bytes for _, rest in left_out),
    }


def _print(
    asked: AskedRetention,
    answer: RetentionAnswer,
    evaluated: EvaluatedCatalog | None,
    summary: dict[str, Any],
) -> None:
    options = asked.options
    emitted = [_emitted(asked, answer, evaluated)] if options.emit else None
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


def _emitted(
    asked: AskedRetention, answer: RetentionAnswer, evaluated: EvaluatedCatalog | None
) -> str:
    """Return what brokers can delete; warn about each partition left out because of doubts."""
    judged = evaluated.judged.partitions() if evaluated else ()
    doubts = find_doubts(asked.basis, judged, asked.catalog, asked.snapshot)
    for (topic, partition), why in doubts.partitions.items():
        warn(f"{topic}-{partition} is skipped: {why}")
    for uri in doubts.unlistable_uris:
        warn(f"{uri} could not be listed; it may have replicas that keep more")
    trust = asked.options.trust_last_modified
    found = answer.delete_records(trust_last_modified=trust, left_out=doubts.partitions)
    return json.dumps(found)
