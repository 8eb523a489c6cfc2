"""Which segments of a catalog are of an older topic: one that was deleted and created again."""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from kip33.rules.topics_of_a_name import LastChange, TopicsOfName, topics_of_name

OF_A_LOG: Final = ("partition", "base_offset", "batches_crc32")
"""The columns, besides `topic`, that segments with equal batches have in common."""

OF_TOPICS: Final = ("topic_id", "last_modified_ms", "max_timestamp", *OF_A_LOG)
"""The columns, besides `topic`, that tell the topics of a name apart."""

IS_OLDER: Final = "is_older"
"""A column that `with_older_topics` adds: whether a newer topic of this name exists."""

IS_AGE_UNSURE: Final = "is_age_unsure"
"""A column that `with_older_topics` adds: whether file times contradict that."""


def with_older_topics(rows: pa.Table, topics: Mapping[str, TopicsOfName] | None = None) -> pa.Table:
    """Return the rows of all segments of their topics with the columns IS_OLDER, IS_AGE_UNSURE."""
    topics = topics_by_name(rows) if topics is None else topics
    older: Any = pa.repeat(pa.scalar(False), rows.num_rows)
    for name, known in topics.items():
        is_newest = pc.is_in(rows["topic_id"], value_set=pa.array(known.newest_ids, pa.string()))
        is_older = pc.and_(pc.equal(rows["topic"], name).fill_null(False), pc.invert(is_newest))
        older = pc.or_(older, is_older)
    unsure = pa.array([name for name, known in topics.items() if known.is_unsure], pa.string())
    is_unsure = pc.is_in(rows["topic"], value_set=unsure)
    return rows.append_column(IS_OLDER, older).append_column(IS_AGE_UNSURE, is_unsure)


def topics_by_name(rows: pa.Table) -> dict[str, TopicsOfName]:
    """Return the topics of each name that more than one topic has."""
    known = rows.filter(pc.and_(pc.is_valid(rows["topic_id"]), pc.is_valid(rows["topic"])))
    pairs = pc.binary_join_element_wise(known["topic_id"], known["topic"], "/")
    if pc.count_distinct(pairs) == pc.count_distinct(known["topic"]):
        return {}  # the usual case; `group_by` would import Arrow's engine for queries
    each = known.select(["topic", *OF_TOPICS]).group_by(["topic", "topic_id"])
    changes: defaultdict[str, dict[str | None, LastChange]] = defaultdict(dict)
    largest = each.aggregate([("last_modified_ms", "max"), ("max_timestamp", "max")])
    for row in largest.to_pylist():
        record_ms = row["max_timestamp_max"]
        changes[row["topic"]][row["topic_id"]] = LastChange(
            -1 if record_ms is None else record_ms, row["last_modified_ms_max"] or 0
        )
    copies = copies_in(known)
    found = {name: topics_of_name(changes[name], copies.get(name, ())) for name in changes}
    return {name: topics for name, topics in found.items() if topics.newest_ids}


def copies_in(rows: pa.Table) -> dict[str, list[list[str]]]:
    """Return by topic those topic ids whose logs have a segment with equal batches in common."""
    has_batches = pc.not_equal(rows["batches_crc32"], 0).fill_null(False)
    known = rows.filter(pc.and_(has_batches, pc.is_valid(rows["topic_id"])))
    each = known.group_by(["topic", *OF_A_LOG]).aggregate([("topic_id", "distinct")])
    shared = each.filter(pc.greater(pc.list_value_length(each["topic_id_distinct"]), 1))
    copies: defaultdict[str, list[list[str]]] = defaultdict(list)
    for topic, ids in zip(*(shared[name] for name in ("topic", "topic_id_distinct")), strict=True):
        copies[topic.as_py()].append(ids.as_py())
    return dict(copies)
