"""An evaluated catalog as Arrow tables: segments, partitions, and what is freed when.

Names, types and order of the columns are those of `evaluate_retention`, `summarize_partitions` and
`freed_by` in `kip33.spark`.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from kip33.catalog.catalog import Catalog, Snapshot
from kip33.catalog.catalog_columns import matching
from kip33.catalog.schema import SEGMENTS
from kip33.retention.broker_files import SeenByBroker
from kip33.retention.evaluation import EvaluatedCatalog
from kip33.rules.policies import Policy
from kip33.rules.retention import REASONS, Codes, Decisions, Int64Column, Int64s
from kip33.rules.retention_rows import NamedOffsets
from kip33.rules.suspicious_timestamps import SUSPICIONS

ROWS_AT_ONCE: Final = 20_000
_INT64S: Final = pa.list_(pa.field("element", pa.int64()))
_COUNTS: Final = pa.map_(pa.string(), pa.int64())
_REASONS: Final = [reason.value for reason in REASONS]
_SUSPICIONS: Final = [kind.value for kind in SUSPICIONS]
_OF_BROKER: Final = (
    ("broker_largest_timestamp", pa.int64()),
    ("broker_largest_timestamp_source", pa.string()),
    ("broker_index_fault", pa.string()),
)
_PLAIN: Final = ("log_uri", "index_uri", "error")  # texts that rarely repeat


def partitions_table(evaluated: EvaluatedCatalog) -> pa.Table:
    """Return one row per partition, in order."""
    sums, columns = evaluated.sums, evaluated.columns
    table: dict[str, Any] = {
        "log_dir": pa.array([key[0] for key in columns.keys], pa.string()),
        "topic": pa.array([key[1] for key in columns.keys], pa.string()),
        "partition": pa.array([key[2] for key in columns.keys], pa.int32()),
        **_policy_columns(evaluated.policies),
    }
    starts = evaluated.judged.limits_of_rows.log_start_offset.take(columns.starts)
    for name, column in sums.columns.items():
        if name == "first_base_offset":
            table["log_start_offset"] = _int64s(starts)
        table[name] = _column(column)
        if name == "blocking_base_offset":
            table["blocking_reason"] = _blocking_reasons(evaluated)
        elif name == "blocking_offset_of_max_timestamp":
            table["blocking_log_uri"] = _blocking_uris(evaluated)
        elif name == "active_expired_segments":
            table["suspicions"] = _suspicion_maps(sums.suspicions)
    return pa.table(table)


def freed_table(evaluated: EvaluatedCatalog, moments_ms: Sequence[int]) -> pa.Table:
    """Return what becomes deletable up to each time, by topic: at_ms, topic, segments, bytes."""
    topics = evaluated.columns.texts("topic")
    rows = evaluated.freed_by(moments_ms)
    return pa.table(
        {
            "at_ms": pa.array([row.at_ms for row in rows], pa.int64()),
            "topic": pa.array([topics[row.topic] for row in rows], pa.string()),
            "segments": pa.array([row.segments for row in rows], pa.int64()),
            "bytes": pa.array([row.bytes for row in rows], pa.int64()),
        }
    )


def segment_tables(
    evaluated: EvaluatedCatalog, catalog: Catalog, snapshot: Snapshot, topics: Sequence[str]
) -> Iterator[pa.Table]:
    """Yield the rows of the catalog in order with their decisions, some at a time.

    The snapshot and topics must be those that were evaluated. All columns are read again.
    """
    rows = _in_one_chunk(catalog, snapshot, topics)
    order = evaluated.columns.order
    yield from (
        _with_answers(rows.take(pa.array(order[first : first + ROWS_AT_ONCE])), evaluated, first)
        for first in range(0, max(1, order.size), ROWS_AT_ONCE)
    )


def _in_one_chunk(catalog: Catalog, snapshot: Snapshot, topics: Sequence[str]) -> pa.Table:
    """Return all columns of the rows that topics ask for; to take rows of many chunks is slow."""
    pieces = [_encoded(piece) for piece in catalog.read_pieces(snapshot)]
    rows = matching(pa.concat_tables(pieces or [_encoded(SEGMENTS.empty_table())]), topics)
    return rows.unify_dictionaries().combine_chunks()


def _with_answers(rows: pa.Table, evaluated: EvaluatedCatalog, first: int) -> pa.Table:
    plain = rows.cast(SEGMENTS)
    answers = answer_columns(evaluated, first, first + rows.num_rows)
    return pa.table({name: plain[name] for name in plain.column_names} | answers)


def answer_columns(evaluated: EvaluatedCatalog, first: int, end: int) -> dict[str, Any]:
    """Return the columns that are added to some rows of the catalog, by name."""
    part, columns = slice(first, end), evaluated.columns
    partition = np.searchsorted(columns.starts, np.arange(first, end), side="right") - 1
    least, most = (int(partition[0]), int(partition[-1])) if partition.size else (0, -1)
    of_these, numbers = evaluated.policies[least : most + 1], pa.array(partition - least)
    policies = {name: one.take(numbers) for name, one in _policy_columns(of_these).items()}
    start = evaluated.judged.limits_of_rows.log_start_offset.take(part)
    added = {
        **policies,
        "log_start_offset": _int64s(start),
        **decision_columns(evaluated.judged.decisions.part(part)),
        "kept_only_by_blocker": pa.array(evaluated.judged.decisions.kept_only_by_blocker[part]),
        "suspicion": _texts(_SUSPICIONS, evaluated.suspicions[part]),
    }
    if evaluated.what_if:
        what_if = decision_columns(evaluated.what_if.part(part))
        added |= {f"what_if_{name}": what_if[name] for name in ("deletable", "reason")}
    if evaluated.broker:
        added |= _seen_columns(evaluated.broker.seen[part])
        decided = decision_columns(evaluated.broker.decisions.part(part))
        added |= {f"broker_{name}": decided[name] for name in ("deletable", "reason")}
    return added


def decision_columns(decisions: Decisions) -> dict[str, Any]:
    """Return the fields of `retention_rows.Decision` as Arrow columns."""
    return {
        "retention_ms_breached": pa.array(decisions.retention_ms_breached),
        "deletable": pa.array(decisions.deletable),
        "reason": _texts(_REASONS, decisions.reason),
        "expires_at_ms": _int64s(decisions.expires_at_ms),
        "deletable_at_ms": _int64s(decisions.deletable_at_ms),
        "blocked_by_base_offset": _int64s(decisions.blocked_by_base_offset),
        "blocked_by_timestamp": _int64s(decisions.blocked_by_timestamp),
    }


def _policy_columns(policies: Sequence[Policy | None]) -> dict[str, Any]:
    """Return what the policies say of each partition; null where its topic is not known."""
    return {
        "policy": pa.array([one.match if one else None for one in policies], pa.string()),
        "mode": pa.array([one.mode.value if one else "no_policy" for one in policies], pa.string()),
        "retention_ms": pa.array([one and one.retention_ms for one in policies], pa.int64()),
        "retention_bytes": pa.array([one and one.retention_bytes for one in policies], pa.int64()),
    }


def _seen_columns(seen: Sequence[SeenByBroker | None]) -> dict[str, Any]:
    return {
        name: pa.array([one and getattr(one, name) for one in seen], kind)
        for name, kind in _OF_BROKER
    }


def _blocking_reasons(evaluated: EvaluatedCatalog) -> Any:
    rows = evaluated.sums.blocking_rows
    codes = evaluated.judged.decisions.reason[rows.values]
    return _texts(_REASONS, np.where(rows.known, codes, np.int8(-1)))


def _blocking_uris(evaluated: EvaluatedCatalog) -> Any:
    rows = evaluated.sums.blocking_rows
    uris: list[str | None] = [None] * rows.values.size
    found = evaluated.columns.log_uris(rows.values[rows.known])
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
        return _int64s(column)
    if isinstance(column, NamedOffsets):
        return pa.ListArray.from_arrays(
            pa.array(column.starts, pa.int32()), pa.array(column.base_offsets), type=_INT64S
        )
    return pa.array(column)


def _int64s(column: Int64Column) -> Any:
    return pa.array(column.values, pa.int64(), mask=~column.known)


def _texts(texts: Sequence[str], codes: Codes) -> Any:
    """Return the text at each index in `texts`, null for -1."""
    return pa.array([*texts, None], pa.string()).take(
        pa.array(codes.astype(np.int64) % (len(texts) + 1))
    )


def _encoded(rows: pa.Table) -> pa.Table:
    """Return rows of a catalog with repeated texts as dictionaries."""
    for number, field in enumerate(SEGMENTS):
        if field.type == pa.string() and field.name not in _PLAIN:
            rows = rows.set_column(number, field.name, rows[field.name].dictionary_encode())
    return rows
