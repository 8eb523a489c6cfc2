"""`kip33 retention`: show what is deletable and what blocks the rest.

`kip33 retention apply` and `undo` are in `retention_apply`.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

import click
import pyarrow as pa

from kip33.archive.bins import EngineName
from kip33.archive.common_options import RetentionPolicies
from kip33.archive.plans import require_plan_place
from kip33.catalog.catalog_columns import rows_of
from kip33.catalog.holes import hole_text
from kip33.catalog.tiers import CatalogSnapshot
from kip33.cli.catalog_places import catalog_argument, chosen_snapshot, other_tier_argument
from kip33.cli.config_file import by_hand
from kip33.cli.declared_options import options_of
from kip33.cli.engine_option import engine_choice, open_session
from kip33.cli.metrics_file import retention_gauges
from kip33.cli.modes import CommandWithModes, Earlier, with_modes
from kip33.cli.output import (
    MOST_FINDING_LINES,
    Column,
    Output,
    OutputFinding,
    Row,
    RowList,
    Table,
    counted,
    counts_text,
    facts,
    human_bytes,
    iso_time,
    warn,
)
from kip33.cli.retention_apply import retention_apply, retention_undo
from kip33.cli.runs import CommandRun, Findings, runs
from kip33.cli.times import MOMENTS
from kip33.formats.names import segment_file_name
from kip33.retention.answer import (
    RETENTION_FINDINGS,
    JudgedHere,
    RetentionAnswer,
    judge_here,
    local_answer,
    plan_record,
    plan_warnings,
    records_to_delete,
    require_apart,
    require_equal_totals,
    worst_partitions,
)
from kip33.retention.evaluated_tables import (
    remove_results,
    require_results_place,
    totals_of,
    write_summary,
)
from kip33.retention.partition_texts import (
    block_sentence,
    name_of,
    policy_text,
    remarks_of,
    sizes_text,
)
from kip33.retention.policy_files import policies_of
from kip33.retention.question import RetentionQuestion, moments_of, what_if_of
from kip33.retention.retention_options import (
    JudgingOptions,
    MomentOptions,
    TrustOption,
    ViewOptions,
)
from kip33.rules.offset_holes import HoleTotals
from kip33.rules.policies import Policies
from kip33.rules.retention import WhatIf
from kip33.stores.locations import Location
from kip33.stores.progress import Phase, Progress

MOST_PARTITIONS: Final = 1_000  # rows of a table
_MOST_BLOCKS: Final = 20  # that are explained in sentences


class RetentionCommand(RetentionPolicies, JudgingOptions, ViewOptions, MomentOptions, TrustOption):
    """What `kip33 retention` is asked."""

    catalog_dir: str
    other: str | None  # the catalog of the other tier
    output: str | None
    emit: str | None
    plan_file: str | None


@click.command(
    cls=CommandWithModes,
    epilog="Example: kip33 retention /archive/indexes/_catalog --policy conf/retention.toml "
    "--forecast 30d --fail-on blocked",
)
@catalog_argument
@other_tier_argument
@options_of(JudgingOptions)
@options_of(RetentionPolicies)
@options_of(ViewOptions)
@options_of(MomentOptions, at=MOMENTS)
@click.option(
    "--output",
    metavar="DIR",
    help="Write segments/ and partitions/ (Parquet) and summary.json to this folder. The "
    "folder must be new or empty, or have results of this command.",
)
@click.option(
    "--emit",
    type=click.Choice(["delete-records"]),
    help="Print only the JSON that kafka-delete-records.sh reads.",
)
@click.option(
    "--plan",
    "plan_file",
    metavar="FILE",
    callback=by_hand,
    help="Write the deletable segments to a plan, FILE.jsonl. Replaces FILE only if it is a plan.",
)
@options_of(TrustOption)
@runs(
    work="session",
    metrics=True,
    findings=Findings(
        RETENTION_FINDINGS,
        "Exit 3 if there is any. holes: offsets that are missing between segments. ",
    ),
)
def retention(asked: RetentionCommand, run: CommandRun) -> Output:
    """Show which segments of CATALOG retention can delete, as a broker would decide.

    A row per segment says whether it is deletable, and why. A row per partition says how much is
    deletable, how much has expired but is blocked, by which segment, and until when. This command
    deletes nothing: --plan writes a plan of the deletable segments, and kip33 retention apply
    deletes exactly these.

    With tiered storage, give the catalogs of both tiers; the first one is judged. A broker deletes
    local segments only after their upload: kip33 retention local/_catalog remote/_catalog
    judges topics with remote.storage.enable by local.retention.ms and local.retention.bytes, and
    what is not complete in the remote tier is kept and named. Without OTHER, all segments of these
    topics are kept. With the remote tier first, retention.bytes also counts what only the
    brokers have, their log start offsets are used, and no segment is the active one. The newest
    snapshot of OTHER is used.

    Sizes are those of the catalog. A log that is a symbolic link counts with the size of its
    target, although deleting the link does not free these bytes. --plan skips links.
    """
    question = _question(asked, run)
    output, plan_place = (
        None if one is None else Location.of(one) for one in (asked["output"], asked["plan_file"])
    )
    if plan_place:
        require_plan_place(plan_place)
    if output:
        require_apart(output, question)
        require_results_place(output)
    run.on_progress(Progress(Phase.EVALUATING, 0, question.snapshot.rows))
    answer, judged = _answer(asked, question, run, output, plan_place)
    summary = dict(answer.summary)
    if plan_place and judged and judged.plan:
        warn(*plan_warnings(judged.plan, plan_place))
        summary["plan"] = plan_record(judged.plan, plan_place)
    if output:
        write_summary(output, summary | run.facts())
    emitted = None
    if judged and judged.doubts:
        found = records_to_delete(answer.partitions, judged.doubts)
        warn(*found.warnings)
        emitted = [found.text.rstrip()]
    return Output(
        page=partial(_page, answer),
        rows=[*_rows(answer)],
        summary=summary,
        summary_key="summary",
        emitted=emitted,
        findings=_findings(answer),
        gauges=lambda summary, metrics: retention_gauges(
            summary, answer.partitions, answer.holes, metrics
        ),
        labels={"catalog": summary["catalog"]},
    )


def _findings(answer: RetentionAnswer) -> dict[str, OutputFinding]:
    def examples(finding: str) -> Iterator[str]:
        for row in answer.worst(finding, MOST_FINDING_LINES):
            yield _FOUND_TEXTS[finding](row)

    return {
        name: OutputFinding(
            *(count, "hole" if name == "holes" else "segment", partial(examples, name)),
            is_wrong=name != "expired",
        )
        for name, count in answer.findings.items()
    }


def _expired_text(row: Row) -> str:
    what = counted(row["deletable_segments"], "segment")
    return f"{name_of(row)}: {what} of {human_bytes(row['deletable_bytes'])} can be deleted"


_FOUND_TEXTS: Final = {
    "blocked": block_sentence,
    "expired": _expired_text,
    "untrusted": lambda row: f"{name_of(row)}: {'; '.join(remarks_of(row))}",
    "holes": hole_text,
}


def _question(asked: RetentionCommand, run: CommandRun) -> RetentionQuestion:
    """Return the question, after telling its warnings; UsageError for contradictions."""
    policies, what_if = _policies(asked)
    judged, told = chosen_snapshot(asked["catalog_dir"], asked["snapshot"])
    other: CatalogSnapshot | None = None
    more: tuple[str, ...] = ()
    if asked["other"] is not None:
        other, more = chosen_snapshot(asked["other"], what="OTHER")
    question = RetentionQuestion.of(
        judged,
        policies,
        asked,
        run.started_ms,
        other=other,
        of_tools=asked["kafka_configs"] is not None,
    )
    warn(*question.warnings)
    for note in question.notes:
        click.echo(f"Note: {note}", err=True)
    question = question._replace(warnings=(*told, *more, *question.warnings)).asking(
        what_if=what_if,
        broker_view=asked["show_broker_view"],
        trust_last_modified=asked["trust_last_modified"],
        moments_ms=moments_of(asked, question.request.now_ms),
    )
    if asked["emit"]:
        question.require_now()
    return question


def _policies(asked: RetentionCommand) -> tuple[Policies, WhatIf | None]:
    """Return the policies, and the what-if of --retention-ms beside them and --ignore-future."""
    policy, kafka_configs = asked["policy"], asked["kafka_configs"]
    retention_ms = asked["retention_ms"]
    policies = policies_of(policy, kafka_configs, retention_ms)
    if policies is None:
        raise click.UsageError(
            "no retention policy: give --policy FILE, --kafka-configs FILE or --retention-ms 7d"
        )
    return policies, what_if_of(
        retention_ms if policy or kafka_configs else None, asked["ignore_future"]
    )


def _answer(
    asked: RetentionCommand,
    question: RetentionQuestion,
    run: CommandRun,
    output: Location | None,
    plan_place: Location | None,
) -> tuple[RetentionAnswer, JudgedHere | None]:
    """Return the engine's answer, and what this process judged.

    A plan and --emit always use the decisions of this process. So Spark's totals must be equal to
    its totals.
    """
    emits = asked["emit"] is not None
    engine = engine_choice(run.engine_options).name
    here = partial(judge_here, on_progress=run.on_progress, plan_place=plan_place, emits=emits)
    if engine == EngineName.LOCAL:
        if output:
            remove_results(output)
        judged = here(question, output=output)
        return local_answer(question, judged), judged
    from kip33.spark.retention import answer_on_spark

    spark = open_session(run.engine_options)
    if output:
        remove_results(output)
    has_rows = run.options.output_format != "table" and not emits
    by_spark = answer_on_spark(spark, question, output=output, has_rows=has_rows)
    run.ran_on(engine, by_spark.workers)
    if not (plan_place or emits):
        return by_spark, None

    def require(partitions: pa.Table) -> None:
        require_equal_totals(by_spark.totals, totals_of(partitions))

    return by_spark, here(question.without_index_files(), require=require)


def _rows(answer: RetentionAnswer) -> Iterator[RowList]:
    rows = answer.segments()
    yield RowList("segments", rows, "segment", is_compact=True, columns=answer.columns)
    yield RowList("partitions", rows_of(answer.partitions), "partition", is_compact=True)
    if answer.freed is not None:
        yield RowList("freed", rows_of(answer.freed), "freed", is_compact=True)


def _page(answer: RetentionAnswer, summary: Row) -> Iterator[Table | str]:
    """Yield the partitions, blocked ones first, the reason for each block, and the summary."""
    if answer.question.request.broker_view and (differences := answer.broker_differences()):
        title = "what a broker would do, given the index files beside the logs"
        yield Table(_DIFFERENCES, differences, title)
    rows = worst_partitions(answer.partitions, MOST_PARTITIONS)
    title = f"retention at {iso_time(summary['now_ms'])}, snapshot {summary['snapshot']}"
    yield Table(_columns(rows), rows, title, "partitions", summary["partitions"])
    blocked = [row for row in rows if row["blocked_segments"]]
    yield from (f"- {block_sentence(row)}" for row in blocked[:_MOST_BLOCKS])
    if answer.freed is not None:
        freed = list(rows_of(answer.freed))
        none = "no segment can be deleted at any of these times"
        yield Table(_FREED, freed, most=None) if freed else none
    yield _summary(summary)


def _columns(rows: Sequence[Row]) -> list[Column]:
    asked = rows[0] if rows else {}
    parts = {"deletable": "deletable_", "a broker": "broker_deletable_"}
    parts |= {"what if": "what_if_deletable_", "blocked": "blocked_"}
    return [
        Column("partition", name_of, is_name=True),
        Column("policy", policy_text, rank=2),
        Column("segments", "segments", rank=3),
        Column("log", "bytes", human_bytes),
        *(
            Column(heading, partial(_some, kind=kind), rank=0)
            for heading, kind in parts.items()
            if heading in ("deletable", "blocked") or f"{kind}segments" in asked
        ),
        Column("remarks", lambda row: "; ".join(remarks_of(row)), is_remark=True),
    ]


def _some(row: Row, kind: str) -> str:
    """Return the number and size of segments of a kind: `3 (1.4 GiB)`."""
    segments, size = row[f"{kind}segments"], row[f"{kind}bytes"]
    return f"{segments:,} ({human_bytes(size)})" if segments else "-"


_DIFFERENCES: Final = (
    Column("partition", name_of, is_name=True),
    Column("segment", lambda row: segment_file_name(row["base_offset"], "log"), is_name=True),
    Column("we", lambda row: "deletable" if row["deletable"] else row["reason"], rank=0),
    Column(
        "a broker",
        lambda row: "deletable" if row["broker_deletable"] else row["broker_reason"],
        rank=0,
    ),
    Column("kip33 reads", "largest_timestamp", iso_time),
    Column("broker reads", "broker_largest_timestamp", iso_time),
    Column(".timeindex", "broker_index_fault", none=""),
)
_FREED: Final = (
    Column("up to", "at_ms", iso_time, rank=0),
    Column("topic", "topic", none="", is_name=True),
    Column("newly deletable", "segments"),
    Column("log", "bytes", human_bytes),
)
_TRUST: Final = {
    "last_modified_segments": "by file time",
    "unverified_segments": "unverified",
    "doubtful_segments": "doubtful",
}


def _summary(summary: Row) -> Table:
    trust = [f"{summary[name]:,} {what}" for name, what in _TRUST.items() if summary[name]]
    suspicions = {kind.replace("_", " "): count for kind, count in summary["suspicions"].items()}
    holes = HoleTotals(summary["by_hole"], summary["missing_offsets"])
    plan = summary.get("plan")
    has_what_if = "what_if_deletable_segments" in summary
    return facts(
        "retention",
        ("catalog", summary["catalog"]),
        ("partitions", f"{summary['partitions']:,}"),
        ("segments", _some(summary, "")),
        ("deletable now", _some(summary, "deletable_")),
        ("expired, blocked", _blocked(summary)),
        ("what if", _some(summary, "what_if_deletable_") if has_what_if else None),
        ("a broker", _broker(summary)),
        (
            "not uploaded",
            _some(summary, "not_uploaded_") if summary["not_uploaded_segments"] else None,
        ),
        ("less certain", ", ".join(trust) or "-"),
        ("suspicious", counts_text(suspicions) or None),
        ("holes", holes.as_text() if summary["by_hole"] else None),
        ("plan", _plan(plan) if plan else None),
        (
            "not in the plan",
            _some(plan, "left_out_") if plan and plan["left_out_segments"] else None,
        ),
        ("seconds", f"{summary['seconds']:.1f}"),
    )


def _plan(plan: Row) -> str:
    sizes = sizes_text(plan["log_bytes"], plan["bytes"])
    return f"{plan['file']}: {counted(plan['segments'], 'segment')}: {sizes}"


def _broker(summary: Row) -> str | None:
    if "broker_deletable_segments" not in summary:
        return None
    misread = counted(summary["broker_misread_segments"], "segment")
    differ = f"{summary['broker_different_segments']:,} with another result"
    return f"{_some(summary, 'broker_deletable_')}; {misread} misread, {differ}"


def _blocked(summary: Row) -> str:
    if not summary["blocked_segments"]:
        return "-"
    partitions = counted(summary["blocked_partitions"], "partition")
    return f"{_some(summary, 'blocked_')} in {partitions}"


with_modes(retention, retention_apply, retention_undo, earlier={"--apply": Earlier("apply", 1)})
