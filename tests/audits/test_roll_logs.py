"""What the header of a segment's first batch tells, and how many bytes are read for it."""

import pytest

from kip33.audits.audited_logs import logs_below
from kip33.audits.roll_audit import audit_columns, roll_table
from kip33.audits.roll_logs import FirstBatch, first_batch_of, read_source
from kip33.audits.roll_what_if import replay_partitions
from kip33.formats.scan import read_header_at
from kip33.local.local_engine import LocalEngine
from kip33.rules.rolling import GivenSettings, RollReading, TopicRollSettings
from tests.builders.replayed_logs import scanned_columns
from tests.builders.segment_builder import Record, v1_message, v2_batch, wrapper
from tests.cases import each_case
from tests.formats.real_segments import FOLDER, needs_real_segments

TWO = [Record(timestamp=1000), Record(timestamp=900)]
FIRST = {
    "the base timestamp of a batch is that of its first message": (v2_batch(5, TWO), 1000, 6),
    "with LogAppendTime it is the batch's": (v2_batch(5, TWO, log_append_time=7000), 7000, 6),
    "a delete horizon hides it": (v2_batch(5, TWO, delete_horizon=77), None, 6),
    "but not that of an only message": (
        *(v2_batch(5, TWO[:1], delete_horizon=77, base_timestamp=77), 1000, 5),
    ),
    "without any timestamp it is -1": (v2_batch(5, [Record(), Record()]), -1, 6),
    "of a v1 message": (v1_message(5, timestamp=800), 800, 5),
    "a v1 wrapper hides it": (
        wrapper(6, [v1_message(0, timestamp=1), v1_message(1, timestamp=2)], codec="gzip"),
        None,
        6,
    ),
}


@each_case(("log", "timestamp", "last_offset"), FIRST)
def test_the_first_messages_timestamp(log: bytes, timestamp: int, last_offset: int) -> None:
    batches, read_into = scanned_columns(log)
    header = read_header_at(read_into, int(batches[0]["position"]))
    assert first_batch_of(header) == FirstBatch(len(log), last_offset, timestamp)


@needs_real_segments
@pytest.mark.parametrize(
    ("topic", "partitions"),
    [("timeindex_test", 3), pytest.param("test_topic_a", 30, marks=pytest.mark.integration)],
)
def test_what_explains_the_ends_of_real_segments_gives_them_again(
    topic: str, partitions: int
) -> None:
    """A replay with the settings that were found has the bounds that the broker left."""
    engine = LocalEngine(1)
    logs = logs_below(str(FOLDER), topics=[topic])
    columns, facts, bytes_read, _ = read_source(logs, TopicRollSettings().of, engine)
    audit = audit_columns(columns, TopicRollSettings().of, facts=facts)
    assert bytes_read > 0
    [least], [most] = (one.to_list() for one in audit.explaining[:2])
    assert least is not None and most is not None
    bounds = roll_table(audit)["base_offset"].to_pylist()
    assert len(bounds) == partitions + 1
    for segment_bytes, is_same in ((least, True), (most, True), (most + 1, False)):
        given = GivenSettings(segment_bytes=segment_bytes)
        [found] = replay_partitions(logs, TopicRollSettings(given=given).of, engine)
        replay = dict(zip(RollReading, found.replays, strict=True))[RollReading.KAFKA]
        assert (replay.segments["base_offset"].tolist() == bounds) == is_same
