"""The answer of retention, and how this process makes it: in one pass over the catalog."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kip33.catalog.catalog_columns import OF_FILES, rows_of
from kip33.catalog.holes import hole_totals
from kip33.catalog.partitions import partitions
from kip33.catalog.schema import SEGMENTS
from kip33.errors import ExitCode, Kip33Error, LocationError, counted
from kip33.formats.printed_fields import MOST_ROWS_SHOWN, facts_text, object_html
from kip33.retention.broker_files import SEEN
from kip33.retention.evaluated_tables import (
    TableWriter,
    answer_columns,
    delete_records_of,
    segment_rows,
    totals_of,
)
from kip33.retention.evaluation import JudgedRows, judge_rows, judged_tables
from kip33.retention.make_plan import DeletionDoubts, PlanInProgress, planning
from kip33.retention.question import RetentionQuestion
from kip33.retention.snapshot_sums import SUMMED, SnapshotSums, sums_of, sums_of_all
from kip33.rules.offset_holes import HoleKind, missing_holes
from kip33.rules.retention import Bools
from kip33.stores.locations import Location
from kip33.stores.progress import OnProgress, Phase, Progress, tell_nobody

Row = dict[str, Any]
MOST_DIFFERENCES: Final = 100  # rows in the table of the broker's view
RETENTION_FINDINGS: Final = ("blocked", "expired", "untrusted", "holes")
_OF_DIFFERENCES: Final = ["log_dir", "topic", "partition", "base_offset", "largest_timestamp"]
_SHOWN: Final = [
    *("log_dir", "topic", "partition", "policy", "segments", "bytes"),
    *("deletable_segments", "deletable_bytes", "blocked_segments", "blocked_bytes"),
]
_COUNTED: Final = {
    "blocked": ["blocked_segments"],
    "expired": ["deletable_segments"],
    "untrusted": [
        f"{kind}_segments" for kind in ("last_modified", "unverified", "doubtful", "tiered")
    ],
}
_RETENTION_FIELDS: list["pa.Field[Any]"] = [
    pa.field("log_dir", pa.string(), nullable=False),
    pa.field("topic", pa.string(), nullable=False),
    pa.field("partition", pa.int32(), nullable=False),
    pa.field("base_offset", pa.int64()),
    pa.field("log_uri", pa.string(), nullable=False),
    pa.field("size_bytes", pa.int64()),
    pa.field("last_modified_ms", pa.int64()),
    pa.field("largest_timestamp", pa.int64()),
    pa.field("largest_timestamp_source", pa.string()),
    pa.field("status", pa.string(), nullable=False),
    pa.field("policy", pa.string(), nullable=False),
    pa.field("mode", pa.string(), nullable=False),
    pa.field("retention_ms", pa.int64(), nullable=False),
    pa.field("retention_bytes", pa.int64(), nullable=False),
    pa.field("log_start_offset", pa.int64()),
    pa.field("retention_ms_breached", pa.bool_(), nullable=False),
    pa.field("deletable", pa.bool_(), nullable=False),
    pa.field("reason", pa.string(), nullable=False),
    pa.field("expires_at_ms", pa.int64()),
    pa.field("deletable_at_ms", pa.int64()),
    pa.field("blocked_by_base_offset", pa.int64()),
    pa.field("blocked_by_timestamp", pa.int64()),
    pa.field("upload_before_ms", pa.int64()),
]
RETENTION: Final = pa.schema(_RETENTION_FIELDS)
_WHAT_IF_FIELDS: list["pa.Field[Any]"] = [
    pa.field("what_if_deletable", pa.bool_(), nullable=False),
    pa.field("what_if_reason", pa.string(), nullable=False),
]
_BROKER_FIELDS: list["pa.Field[Any]"] = [
    *SEEN,
    pa.field("broker_deletable", pa.bool_(), nullable=False),
    pa.field("broker_reason", pa.string(), nullable=False),
]
WHAT_IF: Final = pa.schema(_WHAT_IF_FIELDS)
BROKER_VIEW: Final = pa.schema(_BROKER_FIELDS)


def retention_table(question: RetentionQuestion) -> pa.Table:
    """Return the judged segments as a table of RETENTION, and of WHAT_IF and BROKER_VIEW if asked.

    A directory that could not be listed is no segment, whatever partition its name suggests.
    """
    request = question.request
    more = [*(WHAT_IF if request.what_if else ()), *(BROKER_VIEW if request.broker_view else ())]
    schema = pa.schema([*RETENTION, *more])
    tables = judged_tables(question.catalog, question.snapshot, request)
    return pa.concat_tables(_segments_of(judged, schema) for judged in tables)


def _segments_of(judged: JudgedRows, schema: pa.Schema) -> pa.Table:
    answers = answer_columns(judged, 0, judged.rows.num_rows)
    found = {name: answers[name] if name in answers else judged.rows[name] for name in schema.names}
    is_segment = pc.and_(pc.is_valid(judged.rows["base_offset"]), pc.is_valid(judged.rows["topic"]))
    return pa.table(found).filter(is_segment).cast(schema)


@dataclass(frozen=True, repr=False)
class RetentionAnswer:
    """A judged catalog. Its rows have the column names of the results in `kip33.spark`.

    - `partitions`: a row per partition, as `kip33.spark.summarize_partitions` has them
    - `freed`: what becomes deletable at the asked times (`freed` in RESULTS.md); None if no times
      were asked
    - `holes`: offsets that no segment has
    """

    question: RetentionQuestion
    partitions: pa.Table
    freed: pa.Table | None
    holes: pa.Table  # `catalog.holes.HOLES`
    workers: int = 1  # processes or cores that were used
    columns: Sequence[str] = ()  # of the segments
    segments: Callable[[], Iterable[Row]] = tuple  # by partition, oldest first
    broker_differences: Callable[[], Sequence[Row]] = tuple
    """Return segments whose index differs from the log, at most MOST_DIFFERENCES.

    Those that a broker judges differently are first.
    """

    def __repr__(self) -> str:
        """Return its summary, a line for each fact."""
        return facts_text("RetentionAnswer", self._facts())

    def _repr_html_(self) -> str:
        worst = worst_partitions(self.partitions.select(_SHOWN), MOST_ROWS_SHOWN)
        return object_html("RetentionAnswer", self._facts(), worst)

    def _facts(self) -> Row:
        """Return the part of the summary that is not 0."""
        return {name: value for name, value in self.summary.items() if value not in (0, {})}

    @cached_property
    def totals(self) -> Row:
        """Return the sums over all partitions."""
        return totals_of(self.partitions)

    @cached_property
    def summary(self) -> Row:
        """Return the totals with the snapshot, the time, the holes, the warnings, the findings."""
        question, snapshot = self.question, self.question.snapshot
        return {
            "catalog": question.catalog.location.uri,
            "snapshot": snapshot.name,
            "source": snapshot.source,
            "now_ms": question.request.now_ms,
            **self.totals,
            **hole_totals(self.holes)._asdict(),
            "warnings": list(question.warnings),
            "findings": sorted(self.findings),
        }

    @property
    def findings(self) -> dict[str, int]:
        """Return which of RETENTION_FINDINGS there are: the number of segments, or of holes."""
        counts = {
            **{name: sum(self.totals[one] for one in of) for name, of in _COUNTED.items()},
            "holes": missing_holes(hole_totals(self.holes).by_hole),
        }
        return {name: count for name, count in counts.items() if count}

    def worst(self, finding: str, most: int) -> list[Row]:
        """Return rows of `partitions` with the most segments of a finding; of `holes` its largest.

        - `finding`: one of `findings`
        - `most`: the number of rows
        """
        if finding == "holes":
            sizes = self.holes["missing_offsets"].to_numpy()
            which = pc.not_equal(self.holes["hole"], str(HoleKind.FILLED))
            sizes = np.where(np.asarray(which), sizes, 0)
            return _largest(self.holes, sizes, most)
        counts = sum(self.partitions[name].to_numpy() for name in _COUNTED[finding])
        return _largest(self.partitions, counts, most)


def _largest(rows: pa.Table, sizes: Any, most: int) -> list[Row]:
    order = np.lexsort([-sizes])[: min(most, int(np.count_nonzero(sizes)))]
    return list(rows_of(rows.take(pa.array(order))))


def worst_partitions(partitions: pa.Table, most: int) -> list[Row]:
    """Return rows of the answer's partitions; those with the most blocked bytes are first."""
    sizes = [partitions[f"{what}_bytes"].to_numpy() for what in ("deletable", "blocked")]
    order = np.lexsort([-size for size in sizes])[:most]
    return list(rows_of(partitions.take(pa.array(order))))


class RecordsToDelete(NamedTuple):
    """What `kafka-delete-records.sh` is to delete, and what is said about it."""

    offsets: dict[str, object]  # the object of --offset-json-file
    warnings: list[str]  # on partitions that are left out

    @property
    def text(self) -> str:
        """Return the object as the content of a file."""
        return json.dumps(self.offsets) + "\n"


def records_to_delete(partitions: pa.Table, doubts: DeletionDoubts) -> RecordsToDelete:
    """Return what brokers can delete: no partition that a plan would not have as a whole.

    `partitions` are those of the answer.
    """
    warnings = [
        *(
            f"{name}-{number} is skipped: {why}"
            for (name, number), why in doubts.partitions.items()
        ),
        *(
            f"{uri} could not be listed; it may have replicas that keep more"
            for uri in doubts.of_any_topic
        ),
    ]
    trust = doubts.basis.trust_last_modified
    rows = rows_of(partitions)
    offsets = delete_records_of(rows, trust_last_modified=trust, left_out=doubts.partitions)
    return RecordsToDelete(offsets, warnings)


class JudgedHere(NamedTuple):
    """What one pass over the partitions of a snapshot left."""

    sums: SnapshotSums
    plan: PlanInProgress | None  # None: not asked for
    doubts: DeletionDoubts | None  # None: nothing is emitted
    broker: "_BrokersView"


def judge_here(  # parameters: each consumer of the pass, and who follows it
    question: RetentionQuestion,
    on_progress: OnProgress = tell_nobody,
    *,
    plan_place: Location | None = None,
    emits: bool = False,
    output: Location | None = None,
    require: Callable[[pa.Table], None] = lambda _: None,
) -> JudgedHere:
    """Judge the snapshot in this process, in one pass for all that is asked of it.

    The tables of `output` are complete before a plan is published. `require` is called with the row
    of each partition; if it raises, no plan is published.
    """
    place, request = (question.catalog, question.snapshot), question.request
    of_files = OF_FILES if plan_place or emits else ()
    columns = SEGMENTS.names if output else [*SUMMED, *of_files]
    broker, parts, done = _BrokersView(), list[SnapshotSums](), 0
    with planning(question.basis, *place, plan_place) as plan:
        doubts = DeletionDoubts.of(question.basis, *place) if emits else None
        consumers = [one.add for one in (plan, doubts, broker) if one]
        writer = TableWriter(output, "segments") if output else None
        for judged in judged_tables(*place, request, columns):
            parts.append(sums_of(judged, request))
            for consume in consumers:
                consume(judged)
            if writer:
                for rows in segment_rows(judged):
                    writer.add(rows)
            done += judged.columns.size
            on_progress(Progress(Phase.EVALUATING, done, question.snapshot.rows))
        all_sums = sums_of_all(*place, request, parts)
        require(all_sums.partitions)
        if writer and output:
            writer.end()
            write_sums(all_sums.partitions, _freed(question, all_sums), output)
        if doubts:
            doubts.require_policies()
        if plan:
            plan.end()
    return JudgedHere(all_sums, plan, doubts, broker)


def plan_warnings(plan: PlanInProgress, place: Location) -> Iterator[str]:
    """Yield a line on each of the first partitions of which segments are not in a plan."""
    for partition in plan.left_out:
        if rest := partition.left_out:
            yield (
                f"{partition.directory.uri}: {counted(rest.segments, 'deletable segment')} not in "
                f"the plan: {rest.why}"
            )
    if more := plan.totals.left_out_partitions - len(plan.left_out):
        yield (
            f"{counted(more, 'other partition')} with deletable segments that are not in the plan; "
            f"{place.uri} has the reason for each"
        )


def plan_record(plan: PlanInProgress, place: Location) -> Row:
    """Return the part of a summary that is about a plan."""
    totals = plan.totals
    return {
        "file": place.uri,
        "plan_id": plan.plan_id,
        "segments": totals.segments,
        "bytes": totals.size_bytes,
        "log_bytes": totals.log_bytes,
        "left_out_segments": totals.left_out_segments,
        "left_out_bytes": totals.left_out_bytes,
    }


class _BrokersView:
    """What a broker sees of all rows, and the first that it judges or reads differently."""

    def __init__(self) -> None:
        self._seen = [SEEN.empty_table()]
        self._judged_differently: list[Row] = []
        self._misread: list[Row] = []

    def add(self, judged: JudgedRows) -> None:
        if judged.broker:
            self._seen.append(judged.broker.seen)
            differs = judged.broker_differs
            _take(self._judged_differently, judged, differs)
            _take(self._misread, judged, judged.misread & ~differs)

    @property
    def seen(self) -> pa.Table:
        """Return what it sees of each row, as SEEN."""
        return pa.concat_tables(self._seen)

    @property
    def differences(self) -> list[Row]:
        """Return the rows that differ, at most MOST_DIFFERENCES."""
        return [*self._judged_differently, *self._misread][:MOST_DIFFERENCES]


def _take(found: list[Row], judged: JudgedRows, which: Bools) -> None:
    for number in np.flatnonzero(which)[: MOST_DIFFERENCES - len(found)].tolist():
        [row] = rows_of(pa.table(answer_columns(judged, number, number + 1)))
        [values] = judged.rows.slice(number, 1).select(_OF_DIFFERENCES).to_pylist()
        found.append(row | values)


def require_apart(output: Location, question: RetentionQuestion) -> None:
    """Raise LocationError if results are inside the archive or catalog, or the other way round."""
    for place in (Location.of(question.snapshot.source), question.catalog.location):
        if output.contains(place) or place.contains(output):
            raise LocationError(
                f"{output.uri}: --output and {place.uri} overlap; give a separate folder"
            )


class _EnginesDifferError(Kip33Error):
    """Spark and the rule in this process have different totals."""

    exit_code = ExitCode.INCOMPLETE


def require_equal_totals(by_spark: Row, by_rule: Row) -> None:
    """Raise an error that names one total, if the two are not equal."""
    for name, found in by_rule.items():
        if by_spark.get(name) != found:
            raise _EnginesDifferError(
                f"{name}: Spark found {by_spark.get(name)}, the rule in this process {found}; "
                "nothing was planned or printed: report this with the version of kip33"
            )


def local_answer(question: RetentionQuestion, judged: JudgedHere) -> RetentionAnswer:
    """Return the answer of this process."""
    sums = judged.sums
    none = judge_rows(SEGMENTS.empty_table(), question.request)
    return RetentionAnswer(
        question,
        partitions=sums.partitions,
        freed=_freed(question, sums),
        holes=sums.holes,
        columns=[*SEGMENTS.names, *answer_columns(none, 0, 0)],
        segments=partial(_rows_of_segments, question, judged.broker.seen),
        broker_differences=partial(list, judged.broker.differences),
    )


def _freed(question: RetentionQuestion, sums: SnapshotSums) -> pa.Table | None:
    """Return what becomes deletable at the asked times; None if none were asked for."""
    return sums.freed if question.request.moments_ms else None


def _rows_of_segments(question: RetentionQuestion, seen: pa.Table) -> Iterator[Row]:
    """Yield all rows with their decisions; index files are not read again."""
    at, request = 0, question.request
    for rows in partitions(question.catalog, question.snapshot, SEGMENTS.names, request.topics):
        for table in segment_rows(judge_rows(rows, request, seen.slice(at, rows.num_rows))):
            yield from rows_of(table)
        at += rows.num_rows


def write_sums(partitions: pa.Table, freed: pa.Table | None, output: Location) -> None:
    """Write the tables of --output that have sums."""
    for name, table in (("partitions", partitions), ("freed", freed)):
        if table is not None:
            writer = TableWriter(output, name)
            writer.add(table)
            writer.end()
