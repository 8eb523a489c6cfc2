"""The records of a local and a remote tier are those of the whole log, each once."""

import re
from itertools import pairwise
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

import kip33
from kip33.catalog.catalog import Catalog
from kip33.errors import CatalogError, LocationError
from kip33.records.partitions import Selection, Tell, partitions_of
from kip33.records.reading import Reading
from tests.builders import layouts
from tests.builders.layouts import Stored
from tests.builders.segment_builder import Record, v1_message, v2_batch, wrapper
from tests.builders.snapshots import row, write
from tests.builders.two_tiers import built
from tests.faults.builds import build_here
from tests.long_forms import seeds, short_and_long
from tests.records.test_read_committed import Event, committed, offsets, random_events

T = 1_700_000_000_000
COLUMNS = ["topic", "partition", "offset", "timestamp", "value"]

Segment = list[Event]


def stored(events: Segment, upload: int = 0) -> Stored:
    log = b"".join(event.wire for event in events)
    return Stored("orders", 0, events[0].offset, log, upload=upload)


def pieces(random: Random, events: list[Event], upload: int = 0) -> list[Stored]:
    """Return the events as segments that begin anywhere."""
    inner = random.sample(range(len(events) + 1), min(len(events) + 1, random.randrange(5)))
    cuts = sorted({0, len(events), *inner})
    return [stored(events[low:high], upload) for low, high in pairwise(cuts)]


def opened(place: Path, local: list[Stored], remote: list[Stored]) -> Any:
    return kip33.open_catalog(list(built(place, local, remote)))


def rows_of(source: Any, **options: Any) -> list[dict[str, Any]]:
    how = {"columns": COLUMNS, "on_error": "fail"} | options
    found: list[dict[str, Any]] = kip33.read_arrow(source, **how).read_all().to_pylist()
    return found


@pytest.mark.filterwarnings("ignore:.*still open at the end of the log")
@pytest.mark.parametrize("logs", short_and_long(3, 60, "KIP33_LOGS"))
def test_the_records_are_those_of_the_whole_log(tmp_path: Path, logs: int) -> None:
    for seed in seeds(logs):
        require_the_whole_log(tmp_path / str(seed), Random(seed))


def require_the_whole_log(place: Path, random: Random) -> None:
    """Segments begin anywhere, and some were uploaded twice, as after a change of leaders."""
    events = random_events(random, random.choice((3, 10, 40)))
    local_from = random.randrange(len(events))
    remote_to = random.randint(max(local_from, 1), len(events))
    again = sorted(random.choices(range(remote_to + 1), k=2))
    remote = pieces(random, events[:remote_to])
    if again[0] < again[1]:
        remote += pieces(random, events[slice(*again)], upload=1)
    tiers = opened(place / "tiers", pieces(random, events[local_from:]), remote)
    layouts.kafka(place / "whole", [stored(events)])

    start, end = sorted(random.choices(range(events[0].offset, events[-1].offset + 3), k=2))
    for options in ({}, {"start_offset": start, "end_offset": end}, {"disorder": 0}):
        assert rows_of(tiers, **options) == rows_of(place / "whole", **options)
    assert offsets(tiers) == committed(events)
    alone = Reading.of(columns=COLUMNS, on_error="fail")
    parts = alone.parts(alone.partitions(tiers))  # as a task of Spark reads them
    read = [row for part in parts for row in alone.read([part]).read_all().to_pylist()]
    assert read == rows_of(place / "whole")


def batches(base: int, *times: int, size: int = 1, name: str = "") -> list[bytes]:
    """Return batches of `size` records from an offset on."""
    return [
        v2_batch(
            base + at, [Record(T + time, None, name.encode()) for time in times[at : at + size]]
        )
        for at in range(0, len(times), size)
    ]


def segment(base: int, *times: int, size: int = 1, name: str = "", upload: int = 0) -> Stored:
    return Stored(
        "orders", 0, base, b"".join(batches(base, *times, size=size, name=name)), upload=upload
    )


def test_a_remote_segment_is_read_up_to_the_local_log(tmp_path: Path) -> None:
    # What follows in its file is neither read nor counted; damage there is none of the log.
    remote = segment(0, *range(10), name="remote")
    tiers = opened(tmp_path, [segment(4, *range(4, 12), name="local")], [remote])
    [log] = (tmp_path / "bucket").rglob("*.log")
    log.write_bytes(remote.log[:-1] + b"?")

    values = [(row["offset"], row["value"]) for row in rows_of(tiers)]
    assert values == [(n, b"remote" if n < 4 else b"local") for n in range(12)]
    [cut, local] = rows_of(tiers, level="segments", columns=None, on_error="row")
    names = ("batch_count", "record_count", "last_offset", "_corrupt")
    assert [cut[name] for name in names] == [4, 4, 3, None]
    assert (cut["size_bytes"], cut["valid_bytes"]) == (len(remote.log), len(remote.log) * 4 // 10)
    assert local["record_count"] == 8
    assert kip33.scan_polars(tiers, on_error="row").select("offset").collect()[
        "offset"
    ].to_list() == [*range(12)]
    of_batches = rows_of(tiers, level="batches", columns=["first_offset"])
    assert [row["first_offset"] for row in of_batches] == list(range(12))


def segment_with(base: int, *parts: bytes) -> Stored:
    return Stored("orders", 0, base, b"".join(parts))


def test_a_batch_on_both_sides_of_a_cut_is_read_up_to_it(tmp_path: Path) -> None:
    # No healthy log has one. The header of an old wrapper does not say where it begins.
    old = wrapper(3, [v1_message(n, T + n) for n in range(4)])
    for name, log in (("v2", batches(0, *range(6), size=3)), ("v1", [old, *batches(4, 4, 5)])):
        local = segment(2, *range(2, 9), size=2)
        tiers = opened(tmp_path / name, [local], [segment_with(0, *log)])
        assert [row["offset"] for row in rows_of(tiers)] == list(range(9))


def test_a_promise_of_order_does_not_end_before_the_local_log(tmp_path: Path) -> None:
    # The largest time of the remote file is behind the cut.
    tiers = opened(tmp_path, [segment(2, 20, 30, 500)], [segment(0, 0, 10, 20, 30, 500)])
    for start in (0, T + 25):
        found = rows_of(tiers, start_time=start, end_time=T + 100, disorder="50ms")
        assert [row["offset"] for row in found] == [n for n in range(4) if start == 0 or n == 3]


def test_a_transaction_of_a_leader_that_lost_it_hides_nothing(tmp_path: Path) -> None:
    """The remote segment ends in epoch 1, with an open transaction; the log has epoch 2 there."""
    first = [v2_batch(n, [Record(T)], leader_epoch=0) for n in range(5)]
    lost = v2_batch(
        5, [Record(T)] * 4, leader_epoch=1, transactional=True, producer_id=7, producer_epoch=0
    )
    kept = [v2_batch(n, [Record(T)], leader_epoch=2) for n in range(5, 12)]
    tiers = opened(tmp_path, [segment_with(5, *kept)], [segment_with(0, *first, lost)])
    (tmp_path / "disks/orders-0/leader-epoch-checkpoint").write_text("0\n2\n0 0\n2 5\n")
    places = (("disks", "local", "kafka"), ("bucket", "remote", "local-tiered"))
    for is_known in (False, True):  # what is open at the end of each file
        for source, index_dir, layout in places:
            settings = {"layout": layout, "offset_index": is_known}
            build_here(tmp_path / source, tmp_path / index_dir, **settings)
        assert offsets(tiers) == list(range(12))
        assert offsets(tiers, start_offset=6) == list(range(6, 12))


@pytest.fixture
def different(tmp_path: Path) -> Any:
    """Return two tiers whose segments at offset 3 have other records, and the next one is fine."""
    local = [segment(3, 4, 5, name="local"), segment(5, 6, name="local")]
    remote = [segment(0, 1, 2, 3, name="remote"), segment(3, 4, 6, name="remote")]
    return opened(tmp_path, local, remote)


def test_where_both_tiers_have_other_records_none_is_sure(different: Any) -> None:
    with pytest.warns(UserWarning) as told:
        found = rows_of(different, on_error="skip")
    lines = [str(one.message) for one in told]
    assert [re.sub(r"(offset \d+ on).*", r"\1", line) for line in lines] == [
        "orders-0: two copies have other bytes in the same leader epoch from offset 3 on",
        "orders-0: no copy shows whether the log's leader had the records from offset 3 on",
    ]
    values = [(row["offset"], row["value"]) for row in found]
    assert values == [(n, b"remote" if n < 3 else b"local") for n in range(6)]
    with pytest.warns(UserWarning), pytest.raises(CatalogError, match="from offset 3 on"):
        rows_of(different)


def test_one_replica_is_read_and_another_one_by_its_name(tmp_path: Path) -> None:
    for name, first in (("broker-1", 2), ("broker-2", 4)):
        layouts.kafka(tmp_path / "disks" / name, [segment(first, *range(first, 8), name=name)])
    tiers = opened(tmp_path, [], [segment(0, *range(6), name="remote")])
    for options, name, first in (
        ({}, "broker-1", 2),
        ({"log_dir": "broker-2"}, "broker-2", 4),
    ):
        found = rows_of(tiers, columns=["log_dir", "offset", "value"], **options)
        assert {row["log_dir"] for row in found} == {name}
        values = [(row["offset"], row["value"].decode()) for row in found]
        assert values == [(n, "remote" if n < first else name) for n in range(8)]


def test_a_directory_that_was_not_listed_is_a_fault_of_the_replica_that_is_read(
    tmp_path: Path,
) -> None:
    known = {"topic": "orders", "partition": 0, "topic_id": None}
    of_disk = row(0, **known, log_dir="b2", base_offset=5, last_offset=9)
    not_listed = dict.fromkeys(row(0)) | {"status": "unreadable", "error": "no permission"}
    in_bucket = not_listed | known | {"log_uri": "file:///bucket/orders-0-A", "log_dir": ""}
    of_nothing = not_listed | {"log_uri": "file:///disks/b3", "log_dir": ""}
    catalogs = tuple(Catalog.at(str(tmp_path / name)) for name in ("local", "remote"))
    for catalog, layout, rows in zip(
        catalogs, ("kafka", "aiven"), ([of_disk, of_nothing], [in_bucket]), strict=True
    ):
        write(catalog, rows, layout=layout)
    found = partitions_of(SimpleNamespace(catalogs=catalogs), Selection())
    by_topic = {segments[0].topic: segments for segments in found}
    assert [one.error for one in by_topic["orders"]] == [None, "no permission"]
    assert [one.log_dir for one in by_topic["orders"]] == ["b2", "b2"]
    assert [one.log.name for one in by_topic[None]] == ["b3"]


def test_a_log_without_topic_id_that_is_left_out_is_named(tmp_path: Path) -> None:
    of_topic = {"topic": "orders", "partition": 0, "base_offset": 0, "last_offset": 9}
    catalogs = tuple(Catalog.at(str(tmp_path / name)) for name in ("local", "remote"))
    of_disk = row(0, **of_topic, topic_id=None, log_dir="b2")
    in_bucket = [
        row(n, **of_topic, topic_id=letter * 22, log_dir=letter, batches_crc32=n)
        | {"last_modified_ms": n}
        for n, letter in enumerate("AB")
    ]
    write(catalogs[0], [of_disk])
    write(catalogs[1], in_bucket, layout="aiven")
    lines: list[str] = []
    tell = Tell(left_out=lines.append)
    found = partitions_of(SimpleNamespace(catalogs=catalogs), Selection(), tell=tell)
    assert [one.log_dir for segments in found for one in segments] == ["B"]
    assert [line.partition(" is not read")[0] for line in lines] == ["topic orders: 'b2'"]
    with pytest.raises(LocationError, match=r"'b2' is not read: .*; give the log_dir to read it$"):
        kip33.read_arrow(SimpleNamespace(catalogs=catalogs), on_error="fail")


def without_epochs(base: int, end: int) -> Stored:
    wire = (v2_batch(n, [Record(T + n)], leader_epoch=-1) for n in range(base, end))
    return segment_with(base, *wire)


def test_a_line_names_the_records_of_which_leader_epochs_are_not_known(
    tmp_path: Path,
) -> None:
    tiers = opened(tmp_path, [without_epochs(0, 8)], [without_epochs(0, 5), without_epochs(8, 13)])
    line = r"^orders-0: leader epochs are not known, .* from offset 0 on; [^\n]*$"
    with pytest.warns(UserWarning, match=line):
        assert len(rows_of(tiers, on_error="skip")) == 13
    with pytest.raises(CatalogError, match=line):
        rows_of(tiers)
