"""`kip33 repair`: repair the index files in a stopped broker's log directory."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import click

from kip33.builds.repair_plan import REPAIRS, RepairFinding, RepairOptions, RepairRequest
from kip33.cli.declared_options import options_of
from kip33.cli.output import (
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
    skipped_facts,
    some,
)
from kip33.cli.runs import CommandRun, Findings, runs
from kip33.rules.broker_start import RepairAction

if TYPE_CHECKING:
    from kip33.builds.repair_plan import RepairSummary, SegmentRepair

_WARNINGS: Final = {
    RepairFinding.DAMAGED: "nothing was changed; --apply writes and removes these index files",
    RepairFinding.BY_HAND: "some segments must be repaired by hand; their rows say what to do",
    RepairFinding.FAILED: "some repairs failed; their rows say why",
}


_FAIL_ON: Final = Findings(
    [finding.value for finding in RepairFinding],
    "Exit 3. damaged: kip33 has files to write or remove (without --apply). by-hand: neither kip33 "
    "nor a broker can repair a segment. failed: a repair of --apply failed (without this option: "
    "exit 1).",
)


@click.command(
    epilog="Example: kip33 repair /var/lib/kafka/data --kafka-configs topics.txt, then the "
    "same with --apply. kip33/REPAIR.md describes all steps in order."
)
@click.argument("log_dir")
@options_of(RepairOptions)
@runs(work="here", findings=_FAIL_ON)
def repair(request: RepairRequest, run: CommandRun) -> Output:
    """Repair the index files in a stopped broker's log directory, LOG_DIR.

    The command reads every log, shows a plan and changes nothing; --apply carries the plan out. It
    needs no Spark. Run it as the broker's user, once for each log directory. It refuses to run
    while a broker holds the directory's .lock; with --apply, no broker can start before it ends.

    \b
    write     the file is missing, damaged or wrong, and the log is sound:
              kip33 writes it again
    remove    the .index of a log with a damaged end: without it, a broker
              that starts cuts that end
    broker    left to the broker, which writes the file when it starts
    by hand   neither kip33 nor a broker can repair it; the row says what to do

    Lines on standard error name what else keeps a broker from starting, or makes it delete or put
    aside a partition: directories that are no partition, damaged small files, a log that ends
    before its log start offset.
    """
    from kip33.archive.layouts.kafka import LOST_TIME_INDEX
    from kip33.builds.repair_plan import run_repair

    repaired = run_repair(request, now_ms=run.started_ms, on_progress=run.on_progress)
    of_findings = (_WARNINGS[finding] for finding in repaired.findings)
    remarks = [*of_findings, *repaired.on_start, *repaired.notes]
    if lost := repaired.passed_over.get(LOST_TIME_INDEX):
        remarks.append(
            f"{lost} {LOST_TIME_INDEX}: a starting broker "
            "renames these files and does not build the .timeindex; start the broker, "
            "stop it, and run the repair again"
        )
    return Output(
        page=lambda summary: _page(repaired, summary),
        rows=[
            RowList("repairs", (one.as_row() for one in repaired.repairs), columns=REPAIRS.names)
        ],
        summary=repaired.as_record(),
        findings=_findings(repaired),
        incomplete=[RepairFinding.FAILED],
        remarks=remarks,
    )


def _findings(repaired: "RepairSummary") -> dict[str, OutputFinding]:
    from kip33.builds.repair_plan import RepairOutcome
    from kip33.rules.broker_start import RepairAction

    below, changes = repaired.log_dir + "/", {RepairAction.WRITE, RepairAction.REMOVE}
    of_kind: dict[str, list[str]] = {kind.value: [] for kind in RepairFinding}
    for one in repaired.repairs:
        actions, outcome = {*one.repair[:2]}, one.outcome or ""
        text = f"{one.verdict.log_uri.removeprefix(below)}: {one.repair.why}"
        if not repaired.applied and actions & changes:
            of_kind[RepairFinding.DAMAGED].append(text)
        if RepairAction.BY_HAND in actions:
            of_kind[RepairFinding.BY_HAND].append(text)
        if outcome.startswith(RepairOutcome.FAILED):
            of_kind[RepairFinding.FAILED].append(f"{text}; {outcome}")
    return {
        name: OutputFinding(len(examples), "segment", partial(iter, examples))
        for name, examples in of_kind.items()
    }


def _page(repaired: "RepairSummary", summary: Row) -> Iterator[Table | str]:
    applied, below = repaired.applied, repaired.log_dir + "/"
    if groups := _grouped(repaired.repairs):
        columns = (
            Column("segments", lambda group: len(group)),
            Column(
                "first", lambda group: group[0].verdict.log_uri.removeprefix(below), is_name=True
            ),
            *(Column(name, partial(_of_first, show), rank=0) for name, show in _CELLS),
            Column("why", lambda group: group[0].repair.why, none="", is_remark=True),
            *[Column("outcome", lambda group: group[0].outcome, none="", is_remark=True)] * applied,
        )
        yield Table(columns, groups, _title(repaired, summary), "groups")
        if len(groups) < len(repaired.repairs):
            yield "A row has the segments with one reason; --format jsonl has each segment."
    cut, unfinished = summary["cut_bytes"], summary["unfinished_removed"]
    yield facts(
        "repair",
        ("segments", f"{repaired.segments:,}"),
        (".timeindex", counts_text(repaired.by_action["time_index"])),
        (".index", counts_text(repaired.by_action["offset_index"])),
        ("a broker will cut", f"{human_bytes(cut)} of damaged logs" if cut else None),
        *skipped_facts(repaired.passed_over),
        ("done", counted(summary["segments_done"], "segment") if applied else None),
        ("failed", counted(summary["segments_failed"], "segment") if applied else None),
        ("removed", some(unfinished, counted(unfinished, "temporary file") + " of killed runs")),
        ("seconds", f"{summary['seconds']:.1f}"),
    )


def _title(repaired: "RepairSummary", summary: Row) -> str:
    if not repaired.applied:
        return "to repair"
    return "repaired" if summary["segments_done"] else "nothing is repaired"


def _grouped(repairs: "Sequence[SegmentRepair]") -> "list[list[SegmentRepair]]":
    """Return the segments with equal reasons together, those to repair by hand last."""
    groups: dict[tuple[Any, ...], list[SegmentRepair]] = {}
    for one in repairs:
        cells = (show(one) for _, show in _CELLS)
        groups.setdefault((*cells, one.repair.why, one.outcome), []).append(one)
    return sorted(groups.values(), key=lambda group: RepairAction.BY_HAND in group[0].repair[:2])


def _of_first(show: "Callable[[SegmentRepair], str]", group: "Sequence[SegmentRepair]") -> str:
    return show(group[0])


_CELLS: "Final[tuple[tuple[str, Callable[[SegmentRepair], str]], ...]]" = (
    ("log", lambda one: one.verdict.log_status),
    (".timeindex", lambda one: f"{one.verdict.verdict}: {one.repair.time_index}"),
    (
        ".index",
        lambda one: f"{one.verdict.offset_index_verdict or 'missing'}: {one.repair.offset_index}",
    ),
)
