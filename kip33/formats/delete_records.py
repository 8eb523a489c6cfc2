"""The JSON of `kafka-delete-records.sh --offset-json-file`: it deletes records before offsets."""

from collections.abc import Iterable
from typing import Any, Final

DELETE_RECORDS_VERSION: Final = 1


def delete_records_object(offsets: Iterable[tuple[str, int, int]]) -> dict[str, Any]:
    """Return the JSON object of (topic, partition, offset), in the given order.

    Source: `DeleteRecordsCommand`, version 1.

    >>> delete_records_object([("orders", 0, 42)])
    {'partitions': [{'topic': 'orders', 'partition': 0, 'offset': 42}], 'version': 1}
    """
    partitions = [
        {"topic": topic, "partition": partition, "offset": offset}
        for topic, partition, offset in offsets
    ]
    return {"partitions": partitions, "version": DELETE_RECORDS_VERSION}
