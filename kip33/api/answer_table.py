"""The table of `OpenedCatalog.offsets_for_times`: one row per answer, the command's columns."""

from collections.abc import Iterable
from typing import Any, Final

import pyarrow as pa

from kip33.search.catalog_search import Found

_FIELDS: list["pa.Field[Any]"] = [
    pa.field("log_dir", pa.string()),  # null: no such partition
    pa.field("topic", pa.string(), nullable=False),
    pa.field("partition", pa.int32()),  # null: no such topic
    pa.field("target_ms", pa.int64(), nullable=False),
    pa.field("offset", pa.int64()),
    pa.field("timestamp", pa.int64()),
    pa.field("result", pa.string(), nullable=False),
    pa.field("exactness", pa.string(), nullable=False),
    pa.field("bytes_read", pa.int64(), nullable=False),
    pa.field("note", pa.string()),
    pa.field("passed_over", pa.bool_(), nullable=False),
]
ANSWERS: Final = pa.schema(_FIELDS)


def answer_table(answers: Iterable[Found]) -> pa.Table:
    """Return answers as a table of ANSWERS, in their order."""
    rows = [(one.located.log_dir, one.topic, one.partition, *one.located.answer) for one in answers]
    names = ANSWERS.names
    return pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows], ANSWERS)
