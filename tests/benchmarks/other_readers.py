"""Other readers of the same bytes in memory: kafka-python, and aiokafka's C extension.

Each raises if it does not see every batch: a contestant that skips work is not timed.
"""

from aiokafka.record.memory_records import MemoryRecords as AiokafkaRecords
from aiokafka.util import NO_EXTENSIONS
from kafka.record import MemoryRecords as KafkaPythonRecords

if NO_EXTENSIONS:
    raise ImportError("aiokafka without its C extension: not whom we are measured against")


def check_with_kafka_python(data: bytes, batches: int) -> None:
    """Check every batch and find its max timestamp.

    For v1 it has neither for a batch, so the one message inside is read.
    """
    found, largest = 0, -1
    for batch in KafkaPythonRecords(data):
        if not batch.validate_crc():
            raise ValueError(f"kafka-python: the CRC of batch {found} is wrong")
        if batch.magic < 2:
            largest = max(largest, *(record.timestamp for record in batch))
        else:
            largest = max(largest, batch.max_timestamp)
        found += 1
    require_all(found, batches)


def headers_with_kafka_python(data: bytes, batches: int) -> None:
    """Read the headers of v2 batches, without checksums and records."""
    found, largest = 0, -1
    for batch in KafkaPythonRecords(data):
        largest = max(largest, batch.max_timestamp)
        found += 1
    require_all(found, batches)


def headers_with_aiokafka(data: bytes, batches: int) -> None:
    """Do the same in C."""
    records = AiokafkaRecords(data)
    found, largest = 0, -1
    while records.has_next():
        largest = max(largest, records.next_batch().max_timestamp)
        found += 1
    require_all(found, batches)


def records_with_aiokafka(data: bytes, batches: int) -> None:
    """Decode every record in C, as a consumer does, and find the first with the max timestamp."""
    records = AiokafkaRecords(data)
    found = 0
    while records.has_next():
        batch = records.next_batch()
        largest, offset = batch.max_timestamp, -1
        for record in batch:
            if record.timestamp == largest and offset < 0:
                offset = record.offset
        if offset < 0:
            raise ValueError(f"aiokafka: no record of batch {found} has the max timestamp")
        found += 1
    require_all(found, batches)


def require_all(found: int, batches: int) -> None:
    """Raise if a contestant did not see every batch."""
    if found != batches:
        raise ValueError(f"{found} batches found, {batches} are there")
