"""`kip33 restore` of an archive that has a partition several times: the log, and nothing else.

`rules.which_log` says which copy is read where. Here it is what a restore makes of that: a
directory and its catalog give the same files.
"""

import random
from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from kip33 import build_index, restore_archive
from kip33.formats.partition_metadata import PartitionMetadata
from tests.builders.layouts import kafka, put
from tests.builders.partition_copies import everything_in
from tests.builders.segment_builder import Record, v2_batch
from tests.cases import each_case
from tests.long_forms import seeds, short_and_long
from tests.restore.test_restore import TOPIC_ID, T
from tests.restore.test_restored_tiers import (
    bases_in,
    checkpoint_of,
    epoch_of,
    restored,
    split,
    without_gaps,
)

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
    at = len(data) * batches // of + 65
    return data[:at] + b"?" + data[at + 1 :]


class Case(NamedTuple):
    """Log directories, and what is restored of them: logs, or a problem."""

    replicas: Mapping[str, Logs]
    restored: Logs = NOTHING
    replica: str = ""  # that has the log's end
    said: Iterable[str] = ()
    problem: str = ""
    how: Mapping[str, Any] = NOTHING
    starts: Mapping[str, int] = NOTHING  # the log start offsets in log directories
    start_offset: int = 0
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
    "the last log of the one that goes farthest is damaged": Case(
        {"b1": {0: log(0, 30)}, "b2": {0: log(0, 20), 20: broken(log(20, 60), 1, 8)}},
        problem="the last log of replica 'b2' is damaged from offset 25 on; if it had records "
        "after the end of the other copies, they are lost; give --allow-cut",
    ),
    "and cut": Case(
        {"b1": {0: log(0, 30)}, "b2": {0: log(0, 20), 20: broken(log(20, 60), 1, 8)}},
        {0: log(0, 30)},
        "b1",
        ["the last log of replica 'b2' is damaged from offset 25 on"],
        how={"allow_cut": True},
    ),
    "the last log of another one has a torn end": Case(
        {"b1": {0: log(0, 60)}, "b2": {0: log(0, 60)[:-7]}}, {0: log(0, 60)}, "b1"
    ),
    "the log starts inside a batch": Case(
        {"b1": WHOLE, "b2": WHOLE}, WHOLE, "b1", starts={"b1": 13, "b2": 13}, start_offset=13
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
        if broker in case.starts:
            start = f"0\n1\norders 0 {case.starts[broker]}\n"
            (archive / broker / "log-start-offset-checkpoint").write_text(start)
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
            assert row.start_offset == case.start_offset
        lines = [*summary.notes, *row.notes]
        assert all(any(text in line for line in lines) for text in case.said), lines
        found.append(everything_in(log_dir) if case.restored else {})
    assert found[0] == found[1]


@pytest.mark.parametrize("archives", short_and_long(3, 100, "KIP33_ARCHIVES"))
def test_the_files_are_those_of_the_log_that_was_in_one_place(
    tmp_path: Path, archives: int
) -> None:
    for number in seeds(archives):
        require_files_of_the_whole_log(tmp_path / str(number), number)


def require_files_of_the_whole_log(place: Path, number: int) -> None:
    """One replica has the begin of a random log, one its end; a batch that both have is damaged."""
    rng, batches = random.Random(f"replicas {number}"), without_gaps(number)
    end = rng.randrange(1, len(batches) + 1)
    begin = rng.randrange(end)
    for broker, some in (("b1", batches[:end]), ("b2", batches[begin:])):
        segments = list(split(some, rng))
        kafka(place / "archive" / broker, segments)
        known = batches[:end] if broker == "b1" else batches
        put(place / f"archive/{broker}/orders-0/leader-epoch-checkpoint", checkpoint_of(known))
    in_both = [
        one
        for one, following in pairwise(segments)
        if following.base_offset <= batches[end - 1].last_offset + 1
    ]
    if in_both:
        base = rng.choice(in_both).base_offset
        file = place / f"archive/b2/orders-0/{base:020d}.log"
        file.write_bytes(broken(file.read_bytes(), 0, 1))
    build_index(place / "archive", place / "indexes")
    allowed = {"allow_unsure": min(epoch_of(one.data) for one in batches) < 0}
    for source in ("archive", "indexes/_catalog", "whole"):
        if source == "whole":
            bases = bases_in(place / "data archive/orders-0")
            kafka(place / "whole", split(batches, rng, bases))
            put(place / "whole/orders-0/leader-epoch-checkpoint", checkpoint_of(batches))
        [row] = restored(place / source, place / f"data {source[:7]}", **allowed).partitions
        assert row.problem is None
        assert row.end_offset == batches[-1].last_offset + 1
    expected = everything_in(place / "data whole")
    assert everything_in(place / "data archive") == expected
    assert everything_in(place / "data indexes") == expected
