"""`kip33 restore` of an archive that has a partition several times: the log, and nothing else.

`rules.which_log` says which copy is read where. Here it is what a restore makes of that: a
directory and its catalog give the same files.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from kip33 import build_index, restore_archive
from kip33.formats.partition_metadata import PartitionMetadata
from tests.builders.partition_copies import everything_in
from tests.builders.segment_builder import Record, v2_batch
from tests.cases import each_case
from tests.restore.test_restore import TOPIC_ID, T

Logs = Mapping[int, bytes]
"""The logs of a log directory by their base offsets."""

NOTHING: Final[Mapping[Any, Any]] = {}


def log(begin: int, end: int, *, epoch: int = 0, batch: int = 5, value: bytes = b"v") -> bytes:
    """A log of batches of some records each."""
    return b"".join(
        v2_batch(
            base,
            [Record(T + offset, value=value) for offset in range(base, min(base + batch, end))],
            leader_epoch=epoch,
        )
        for base in range(begin, end, batch)
    )


def broken(data: bytes, batches: int, of: int) -> bytes:
    """The log with a changed byte after some of its batches."""
    at = len(data) * batches // of + 70
    return data[:at] + b"?" + data[at + 1 :]


class Case(NamedTuple):
    """Log directories, and what is restored of them: logs, or a problem."""

    replicas: Mapping[str, Logs]
    restored: Logs = NOTHING
    replica: str = ""  # that has the log's end
    said: Iterable[str] = ()
    problem: str = ""
    how: Mapping[str, Any] = NOTHING
    epochs: Mapping[str, str] = NOTHING  # the leader-epoch-checkpoint of log directories


WHOLE = {0: log(0, 20), 20: log(20, 40), 40: log(40, 60)}
LEADER = {0: log(0, 20) + log(20, 30, epoch=2)}
DEPOSED = {0: log(0, 60)}
UNSURE = {"b1": {0: log(0, 40, epoch=3)}, "b2": {40: log(40, 60, epoch=4)}}
OTHER_BATCHES = log(15, 45, batch=10)

CASES: dict[str, Case] = {
    "the same log twice": Case({"b1": WHOLE, "b2": WHOLE}, WHOLE, "b1"),
    "a deposed leader has more bytes": Case(
        {"b1": DEPOSED, "b2": LEADER},
        LEADER,
        "b2",
        ["replica 'b1' differs from the log from offset 20"],
    ),
    "it was asked for": Case(
        {"b1": DEPOSED, "b2": LEADER},
        problem="a later leader never had the records from offset 20 on; give --allow-unsure",
        how={"replica": "b1"},
    ),
    "and allowed": Case(
        {"b1": DEPOSED, "b2": LEADER},
        DEPOSED,
        "b1",
        ["a later leader never had the records from offset 20 on"],
        how={"replica": "b1", "allow_unsure": True},
    ),
    "one begins earlier": Case(
        {"b1": {0: WHOLE[0], 20: WHOLE[20]}, "b2": {20: WHOLE[20], 40: WHOLE[40]}},
        WHOLE,
        "b2",
        ["offsets 0 to 19 are read from replica 'b1', because replica 'b2' begins later"],
    ),
    "one begins earlier, inside of a segment": Case(
        {"b1": {0: log(0, 40)}, "b2": {30: log(30, 60)}}, {0: log(0, 30), 30: log(30, 60)}, "b2"
    ),
    "another has what is damaged": Case(
        {
            "b1": {0: log(0, 20), 20: broken(log(20, 40), 2, 4), 40: log(40, 65)},
            "b2": {0: log(0, 60)},
        },
        {0: log(0, 20), 20: log(20, 30), 30: log(30, 40), 40: log(40, 65)},
        "b1",
        ["offsets 30 to 39 are read from replica 'b2', because replica 'b1' lacks them"],
    ),
    "another has what is missing": Case(
        {"b1": {0: log(0, 20), 40: log(40, 65)}, "b2": {10: log(10, 60)}},
        {0: log(0, 20), 20: log(20, 40), 40: log(40, 65)},
        "b1",
    ),
    "its batches are others": Case(
        {"b1": {0: log(0, 20), 40: log(40, 65)}, "b2": {15: OTHER_BATCHES}},
        problem="the batch of offsets 15 to 24 begins before; expected a batch that begins at "
        "offset 20, where the segment before ends",
    ),
    "no leader epoch is in both": Case(
        UNSURE, problem="no copy shows whether the log's leader had the records from offset 0 on"
    ),
    "they are allowed": Case(
        UNSURE,
        {0: log(0, 40, epoch=3), 40: log(40, 60, epoch=4)},
        "b2",
        ["no copy shows whether the log's leader had the records from offset 0 on"],
        how={"allow_unsure": True},
    ),
    "a checkpoint shows it": Case(
        UNSURE,
        {0: log(0, 40, epoch=3), 40: log(40, 60, epoch=4)},
        "b2",
        epochs={"b2": "0\n2\n3 0\n4 40\n"},
    ),
}


@each_case("case", CASES)
def test_the_log_of_several_replicas(case: Case, tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    for broker, logs in case.replicas.items():
        folder = archive / broker / "orders-0"
        folder.mkdir(parents=True)
        (folder / "partition.metadata").write_bytes(PartitionMetadata(TOPIC_ID).to_bytes())
        if broker in case.epochs:
            (folder / "leader-epoch-checkpoint").write_text(case.epochs[broker])
        for base, data in logs.items():
            (folder / f"{base:020d}.log").write_bytes(data)
    build_index(archive, tmp_path / "indexes")
    found = []
    for name, source in (("directory", archive), ("catalog", tmp_path / "indexes" / "_catalog")):
        log_dir = tmp_path / name
        summary = restore_archive(source, log_dir, workers=1, **case.how)
        [row] = summary.partitions
        assert case.problem in (row.problem or ""), name
        assert (row.problem is None) == (not case.problem), row.problem
        logs = {int(path.stem): path.read_bytes() for path in log_dir.rglob("*.log")}
        assert logs == case.restored
        if case.restored:
            assert (row.replica, row.replicas) == (case.replica, len(case.replicas))
        lines = [*summary.notes, *row.notes]
        assert all(any(text in line for line in lines) for text in case.said), lines
        found.append(everything_in(log_dir) if case.restored else {})
    assert found[0] == found[1]
