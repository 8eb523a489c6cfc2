"""Judged rows as Arrow tables, and the files that `kip33 retention` makes of them.

Tables: segments, partitions, and what is freed when. Names, types and order of the columns are
those of `evaluate_retention`, `summarize_partitions` and `freed_by` in `kip33.spark`.

Files: the input of `kafka-delete-records.sh --offset-json-file`, and the results of `--output`,
Parquet folders and a `summary.json` that is written last.
"""

import os
import re
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs

from kip33.archive.output_files import (
    MOST_SUMMARY_BYTES,
    is_retention_summary,
    require_replaceable,
)
from kip33.archive.sources import require_outside_brokers
from kip33.catalog.catalog_columns import columns_of, int64_array, int64_column_of, texts_at
from kip33.catalog.schema import with_column
from kip33.catalog.segment_order import order_of
from kip33.errors import LocationError, PublishError
from kip33.formats.kafka_configs import delete_records_object
from kip33.formats.printed_fields import json_text
from kip33.retention.broker_files import SEEN
from kip33.retention.evaluation import BrokerAnswer, JudgedRows, segments_of
from kip33.rules.policies import Policy
from kip33.rules.retention import (
    REASONS,
    Bools,
    Codes,
    Decisions,
    Int64Column,
    Int64s,
    LimitColumns,
    RetentionMode,
)
from kip33.rules.retention_rows import Decision, NamedOffsets, freed_up_to
from kip33.rules.suspicious_timestamps import SUSPICIONS
from kip33.stores.files import entries_of, one_line
from kip33.stores.locations import Location
from kip33.stores.own_files import (
    publish,
    publish_or_raise,
    remove,
    remove_quietly,
    written_name,
)

_ROWS_AT_ONCE: Final = 20_000
_INT64S: Final = pa.list_(pa.field("element", pa.int64()))
_COUNTS: Final = pa.map_(pa.string(), pa.int64())
_REASONS: Final = [reason.value for reason in REASONS]
_SUSPICIONS: Final = [kind.value for kind in SUSPICIONS]
_POLICY: Final = ("policy", "mode", "retention_ms", "retention_bytes")
_START: Final = "log_start_offset"
INTERNAL: Final = (  # topics: Kafka refuses to delete their records
    "__consumer_offsets",
    "__transaction_state",
    "__share_group_state",
)
_FREED_FIELDS: list["pa.Field[Any]"] = [
    pa.field("at_ms", pa.int64()),
    pa.field("topic", pa.string()),
    pa.field("segments", pa.int64()),
    pa.field("bytes", pa.int64()),
]
FREED: Final = pa.schema(_FREED_FIELDS)
RESULT_TABLES: Final = ("segments", "partitions", "freed")  # the folders of --output
SUMMARY_FILE: Final = "summary.json"
UNFINISHED: Final = ".kip33-unfinished"  # in a folder without a summary: the run is not finished
_INCOMPLETE: Final = "the results are incomplete"
RESULT_ROWS_PER_PART: Final = 250_000
_SPARKS: Final = re.compile(  # Spark's names in a table's folder; kip33's have the same form
    r"part-[0-9]{5}-[0-9a-f-]{36}(?:-c[0-9]+)?\.[a-z0-9.]*parquet"
    r"|\.part-[0-9]{5}-[0-9a-f-]{36}(?:-c[0-9]+)?\.[a-z0-9.]*parquet\.crc"
    r"|_SUCCESS|\._SUCCESS\.crc|_temporary"
)


def partitions_table(judged: JudgedRows) -> pa.Table:
    """Return one row per partition, in order."""
    sums, columns = judged.sums, judged.columns
    table: dict[str, Any] = {
        "log_dir": pa.array([key[0] for key in columns.keys], pa.string()),
        "topic": pa.array([key[1] for key in columns.keys], pa.string()),
        "partition": pa.array([key[2] for key in columns.keys], pa.int32()),
        **_policy_columns(judged.policies),
    }
    starts = judged.limits_of_rows.log_start_offset.take(columns.starts)
    for name, column in sums.columns.items():
        if name == "first_base_offset":
            table[_START] = int64_array(starts)
        table[name] = _column(column)
        if name == "blocking_base_offset":
            table["blocking_reason"] = _blocking_reasons(judged)
        elif name == "blocking_offset_of_max_timestamp":
            table["blocking_log_uri"] = _blocking_uris(judged)
        elif name == "active_expired_segments":
            table["suspicions"] = _suspicion_maps(sums.suspicions)
    return pa.table(table)


def sum_answers(rows: pa.Table, answers: pa.Table, *, now_ms: int) -> pa.Table:
    """Return `partitions_table` of rows that were judged for `now_ms`, in any order.

    `rows` have the columns of SEGMENTS, `answers` those of `answer_columns`, for whole partitions.
    """
    order = pa.array(order_of(rows))
    rows, answers = rows.take(order), answers.take(order)
    columns = columns_of(rows)
    none, nothing = np.zeros(columns.size, np.int8), np.zeros(columns.size, np.int64)
    starts, never = int64_column_of(answers[_START]), none > 0
    decisions = _decisions_of(answers)
    by_view = {
        view: decisions._replace(deletable=_flags(answers, f"{view}_deletable"))
        for view in ("what_if", "broker")
        if f"{view}_deletable" in answers.column_names
    }
    judged = JudgedRows(
        rows=rows,
        columns=columns,
        now_ms=now_ms,
        policies=[None] * columns.starts.size,
        limits=(),
        segments=segments_of(columns),
        limits_of_rows=LimitColumns(none, nothing, nothing, starts, never, never, *(nothing,) * 4),
        decisions=decisions,
        suspicions=_codes_of(answers["suspicion"], _SUSPICIONS),
        what_if=by_view.get("what_if"),
        broker=BrokerAnswer(answers, by_view["broker"]) if "broker" in by_view else None,
    )
    table, firsts = partitions_table(judged), answers.take(pa.array(columns.starts))
    for name in _POLICY:
        table = with_column(table, name, firsts[name].cast(table[name].type))
    return table


def _decisions_of(answers: pa.Table) -> Decisions:
    return Decisions(
        _flags(answers, "retention_ms_breached"),
        _flags(answers, "deletable"),
        _codes_of(answers["reason"], _REASONS),
        int64_column_of(answers["expires_at_ms"]),
        int64_column_of(answers["deletable_at_ms"]),
        int64_column_of(answers["blocked_by_base_offset"]),
        int64_column_of(answers["blocked_by_timestamp"]),
        _flags(answers, "kept_only_by_blocker"),
        int64_column_of(answers["upload_before_ms"]),
    )


def _flags(rows: pa.Table, name: str) -> Bools:
    return np.asarray(pc.fill_null(rows[name], False).to_numpy(), bool)


def _codes_of(texts: Any, of: Sequence[str]) -> Codes:
    """Return each text's index, -1 for null: the reverse of `texts_at`."""
    codes = pc.index_in(texts, value_set=pa.array(of, pa.string()))
    return np.asarray(pc.fill_null(codes, -1).to_numpy(), np.int8)


def totals_of(partitions: pa.Table) -> dict[str, int | dict[str, int]]:
    """Return the sums over the rows of `partitions_table`, under their names in the summary."""
    blocked = partitions["blocked_segments"].to_numpy()
    totals: dict[str, int | dict[str, int]] = {
        "partitions": partitions.num_rows,
        "blocked_partitions": int(np.count_nonzero(blocked)),
    }
    for name in partitions.column_names:
        if name.endswith(("segments", "bytes")) and name != "retention_bytes":
            totals[name] = sum(partitions[name].to_numpy().tolist())
    counts = dict.fromkeys(_SUSPICIONS, 0)
    suspicions: list[Any] = partitions["suspicions"].to_pylist()
    for kinds in suspicions:
        for kind, count in kinds:
            counts[kind] += count
    totals["suspicions"] = {kind: count for kind, count in counts.items() if count}
    return totals


def freed_table(judged: JudgedRows, moments_ms: Sequence[int]) -> pa.Table:
    """Return the sums that become deletable up to each time: at_ms, topic, segments, bytes."""
    columns, topics = judged.columns, judged.columns.texts("topic")
    sizes, at_ms = judged.segments.size_bytes, judged.decisions.deletable_at_ms
    freed = freed_up_to(at_ms, columns.codes("topic"), sizes, moments_ms)
    rows = [row._asdict() | {"topic": topics[row.topic]} for row in freed]
    return pa.Table.from_pylist(rows, FREED)


def segment_rows(judged: JudgedRows) -> Iterator[pa.Table]:
    """Yield the rows, which have all columns of SEGMENTS, with their decisions, some at a time."""
    for first in range(0, max(1, judged.rows.num_rows), _ROWS_AT_ONCE):
        some = judged.rows.slice(first, _ROWS_AT_ONCE)
        answers = answer_columns(judged, first, first + some.num_rows)
        yield pa.table({name: some[name] for name in some.column_names} | answers)


def answer_columns(judged: JudgedRows, first: int, end: int) -> dict[str, Any]:
    """Return the columns that are added to some rows of the catalog, by name."""
    part, columns = slice(first, end), judged.columns
    partition = columns.partition_numbers[part]
    least, most = (int(partition[0]), int(partition[-1])) if partition.size else (0, -1)
    of_these, numbers = judged.policies[least : most + 1], pa.array(partition - least)
    policies = {name: one.take(numbers) for name, one in _policy_columns(of_these).items()}
    start = judged.limits_of_rows.log_start_offset.take(part)
    added = {
        **policies,
        _START: int64_array(start),
        **_decision_columns(judged.decisions.part(part)),
        "kept_only_by_blocker": pa.array(judged.decisions.kept_only_by_blocker[part]),
        "suspicion": texts_at(judged.suspicions[part], _SUSPICIONS),
    }
    if judged.what_if:
        what_if = _decision_columns(judged.what_if.part(part))
        added |= {f"what_if_{name}": what_if[name] for name in ("deletable", "reason")}
    if judged.broker:
        seen = judged.broker.seen.slice(first, end - first)
        added |= {name: seen[name] for name in SEEN.names}
        decided = _decision_columns(judged.broker.decisions.part(part))
        added |= {f"broker_{name}": decided[name] for name in ("deletable", "reason")}
    return added


def _decision_columns(decisions: Decisions) -> dict[str, Any]:
    """Return the fields of `retention_rows.Decision` as Arrow columns."""
    return {
        name: texts_at(decisions.reason, _REASONS)
        if name == "reason"
        else _column(getattr(decisions, name))
        for name in Decision._fields
    }


def _policy_columns(policies: Sequence[Policy | None]) -> dict[str, Any]:
    """Return the policy of each partition; null if its topic is not known."""
    return {
        "policy": pa.array([one.match if one else None for one in policies], pa.string()),
        "mode": pa.array([one.mode.value if one else "no_policy" for one in policies], pa.string()),
        "retention_ms": pa.array([one and one.retention_ms for one in policies], pa.int64()),
        "retention_bytes": pa.array([one and one.retention_bytes for one in policies], pa.int64()),
    }


def _blocking_reasons(judged: JudgedRows) -> Any:
    rows = judged.sums.blocking_rows
    codes = judged.decisions.reason[rows.values]
    return texts_at(np.where(rows.known, codes, np.int8(-1)), _REASONS)


def _blocking_uris(judged: JudgedRows) -> Any:
    rows = judged.sums.blocking_rows
    uris: list[str | None] = [None] * rows.values.size
    found = judged.columns.log_uris(rows.values[rows.known])
    for number, uri in zip(np.flatnonzero(rows.known).tolist(), found, strict=True):
        uris[number] = uri
    return pa.array(uris, pa.string())


def _suspicion_maps(counts: Sequence[Int64s]) -> Any:
    each = zip(*(one.tolist() for one in counts), strict=True)
    maps = [
        [(kind, count) for kind, count in zip(_SUSPICIONS, row, strict=True) if count]
        for row in each
    ]
    return pa.array(maps, _COUNTS)


def _column(column: Int64s | Int64Column | NamedOffsets) -> Any:
    if isinstance(column, Int64Column):
        return int64_array(column)
    if isinstance(column, NamedOffsets):
        return pa.ListArray.from_arrays(
            pa.array(column.starts, pa.int32()), pa.array(column.base_offsets), type=_INT64S
        )
    return pa.array(column)


def delete_records_of(
    partitions: Iterable[Mapping[str, Any]],
    *,
    trust_last_modified: bool = False,
    left_out: Collection[tuple[str, int]] = (),
) -> dict[str, Any]:
    """Return the file's JSON (`DeleteRecordsCommand`, version 1) for the rows of partitions.

    It has the offset of the first kept record of each partition; a broker deletes the records
    before it. With replicas in several log directories, the one that keeps most is used.

    Left out are partitions without deletable segments; partitions with an unverified deletable
    segment, or with one judged by its file's time (unless `trust_last_modified`); those in
    `left_out` (`kip33.retention.make_plan`); and compacted and internal topics, whose records
    Kafka does not delete.
    """
    replicas: dict[tuple[str, int], list[int | None]] = {}
    for row in partitions:
        if row["mode"] == RetentionMode.DELETE and row["topic"] not in INTERNAL:
            key = (row["topic"], row["partition"])
            first = _first_kept(row, trust_last_modified=trust_last_modified)
            replicas.setdefault(key, []).append(first)
    offsets = []
    for (topic, partition), offsets_kept in sorted(replicas.items()):
        known = [offset for offset in offsets_kept if offset is not None]
        if len(known) == len(offsets_kept) and (topic, partition) not in left_out:
            offsets.append((topic, partition, min(known)))
    return delete_records_object(offsets)


def _first_kept(row: Mapping[str, Any], *, trust_last_modified: bool) -> int | None:
    """Return the offset of the first record that is kept; None: the replica keeps everything."""
    doubted = row["deletable_unverified_segments"]
    if not trust_last_modified:
        doubted += row["deletable_last_modified_segments"]
    if not row["deletable_segments"] or doubted:
        return None
    kept: int | None = row["first_kept_base_offset"]
    return row["log_end_offset"] if kept is None else kept


def require_results_place(folder: Location) -> None:
    """Raise LocationError unless `folder` is empty, new, or has results of an earlier run.

    The summary of `kip33 retention`, or the mark of an interrupted run, shows whose results they
    are. A broker would not start if the folder were in its log directory, so that is refused. The
    mark is written, so the folder can be written to; earlier results stay.
    """
    require_outside_brokers(folder, "the folder of --output")
    try:
        infos = entries_of(folder)
        entries = {written_name(info.base_name): info.type for info in infos}
        if not entries.keys() <= {UNFINISHED}:
            _require_ours(folder, entries)
        publish(folder.child(UNFINISHED), b"kip33 retention --output\n")
    except OSError as error:
        raise _unwritable(folder, error) from error


def remove_results(folder: Location) -> None:
    """Remove earlier results, the summary first: only a folder with a summary is complete.

    Call `require_results_place` before. Raises LocationError if a file cannot be removed.
    """
    try:
        remove(folder.child(SUMMARY_FILE))
        for name in sorted(info.base_name for info in entries_of(folder)):
            if name in RESULT_TABLES:
                folder.filesystem().delete_dir(folder.child(name).path)
            elif written_name(name) != name:  # of a run that was killed
                remove(folder.child(name))
    except OSError as error:
        raise _unwritable(folder, error) from error


def _unwritable(folder: Location, error: OSError) -> LocationError | PublishError:
    kind = LocationError if isinstance(error, NotADirectoryError) else PublishError
    return kind(f"{folder.uri}: cannot be written: {one_line(error)}; fix it or choose another")


def _require_ours(folder: Location, entries: Mapping[str, fs.FileType]) -> None:
    """Raise LocationError for a folder with anything that this command did not write."""
    others = sorted(entries.keys() - {SUMMARY_FILE, UNFINISHED, *RESULT_TABLES})
    for name in sorted(entries.keys() & set(RESULT_TABLES)):
        others += [f"{name}/{one}" for one in _foreign(folder.child(name))]
    if others:
        raise LocationError(
            f"{folder.uri}: contains {others[0]}, which is not a result of this "
            "command; give a separate folder"
        )
    if SUMMARY_FILE in entries:
        summary = folder.child(SUMMARY_FILE)
        require_replaceable(summary, "--output", is_retention_summary, MOST_SUMMARY_BYTES)
    elif UNFINISHED not in entries:
        raise LocationError(
            f"{folder.uri}: contains {min(entries)} but no {SUMMARY_FILE}, so kip33 cannot "
            "tell whether it wrote this; give a separate folder"
        )


def _foreign(table: Location) -> list[str]:
    """Return foreign files in a table's folder: an archive may also be named `segments`."""
    if table.is_local and os.path.islink(table.path):  # noqa: PTH114
        return ["., a link"]
    infos = table.filesystem().get_file_info(fs.FileSelector(table.path))
    names = (info.base_name for info in infos)
    return sorted(name for name in names if not _SPARKS.fullmatch(written_name(name)))


def write_summary(folder: Location, summary: Mapping[str, Any]) -> None:
    """Publish `summary.json`: now the results are complete. PublishError if that fails."""
    data = (json_text(summary, indent=1) + "\n").encode()
    publish_or_raise(folder.child(SUMMARY_FILE), data, "the results have no summary")
    remove_quietly(folder.child(UNFINISHED))


class TableWriter:
    """Writes tables with one schema as one table to a folder, in the form that Spark uses.

    Its methods raise PublishError if that fails.
    """

    def __init__(self, folder: Location, name: str) -> None:
        """Write to `folder/name`."""
        self._place, self._parts, self._rows = folder.child(name), 0, 0
        self._sink = pa.BufferOutputStream()
        self._writer: pq.ParquetWriter | None = None

    def add(self, table: pa.Table) -> None:
        """Write a table; only its compressed pages are held until a part is complete."""
        for start in range(0, max(1, table.num_rows), RESULT_ROWS_PER_PART):
            piece = table.slice(start, RESULT_ROWS_PER_PART)
            if self._rows and self._rows + piece.num_rows > RESULT_ROWS_PER_PART:
                self._publish_part()
            if self._writer is None:
                self._sink = pa.BufferOutputStream()
                self._writer = pq.ParquetWriter(self._sink, piece.schema, compression="snappy")
            self._writer.write_table(piece)
            self._rows += piece.num_rows

    def end(self) -> None:
        """Write what is left, and then the mark of a complete table."""
        self._publish_part()
        publish_or_raise(self._place.child("_SUCCESS"), b"", _INCOMPLETE)

    def _publish_part(self) -> None:
        if self._writer is None:
            return
        self._writer.close()
        name = f"part-{self._parts:05d}-{uuid.uuid4()}-c000.snappy.parquet"
        publish_or_raise(self._place.child(name), self._sink.getvalue().to_pybytes(), _INCOMPLETE)
        self._writer, self._parts, self._rows = None, self._parts + 1, 0
