"""The incarnations of topics in a catalog's rows: which rows are not of the newest one."""

from collections import defaultdict
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from kip33.rules.offset_holes import newest_topic_id

OF_INCARNATIONS: Final = ("topic_id", "last_modified_ms")
"""The columns, besides `topic`, that tell incarnations apart."""

IS_OLDER: Final = "is_older"
"""A column that `with_incarnations` adds: whether a newer topic of this name exists."""


def newest_ids(rows: pa.Table) -> dict[str, str]:
    """Return the id of the newest incarnation of each topic that has several."""
    each = rows.select(["topic", *OF_INCARNATIONS]).group_by(["topic", "topic_id"])
    seen: defaultdict[str, dict[str | None, int]] = defaultdict(dict)
    for row in each.aggregate([("last_modified_ms", "max")]).to_pylist():
        if row["topic"] is not None:
            seen[row["topic"]][row["topic_id"]] = row["last_modified_ms_max"] or 0
    newest = {topic: newest_topic_id(changed) for topic, changed in seen.items()}
    return {topic: topic_id for topic, topic_id in newest.items() if topic_id is not None}


def with_incarnations(rows: pa.Table) -> pa.Table:
    """Return rows with all segments of their topics, and the column IS_OLDER."""
    newest = newest_ids(rows)
    if not newest:
        older: Any = pa.repeat(pa.scalar(False), rows.num_rows)
    else:
        at = pc.index_in(rows["topic"], value_set=pa.array(list(newest), pa.string()))
        expected = pa.array(list(newest.values()), pa.string()).take(at.combine_chunks())
        is_newest = pc.equal(rows["topic_id"].combine_chunks(), expected).fill_null(False)
        older = pc.and_(pc.is_valid(expected), pc.invert(is_newest))
    return rows.append_column(IS_OLDER, older)
