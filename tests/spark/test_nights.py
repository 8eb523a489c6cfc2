"""Nights of an archive, through `write_records` and through the stream as each PySpark drives it.

The calls are those that Spark 4.1.4 and 4.3.0 make of a data source, in their order; no JVM runs.
"""

import json
import pickle
import re
import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import Any, NamedTuple

import pyarrow.dataset as ds
import pyspark
import pytest

import kip33
from kip33.errors import Kip33Error
from kip33.records.record_dataset import RecordDataset
from tests.builders.log_file import write_log
from tests.builders.record_questions import random_archive
from tests.builders.segment_builder import Record, end_txn_marker, v2_batch
from tests.long_forms import seeds, short_and_long

pytestmark = [
    pytest.mark.skipif(pyspark.__version__ < "4", reason="PySpark 3.5 has no Python sources"),
    pytest.mark.filterwarnings("ignore:.*is still open in the catalog"),
]
T = 1_700_000_000_000
SPARSE = (0, 1_000, 2_000, 3_000)
GROWN = (*SPARSE, *range(3_001, 3_009))
Rows = list[tuple[str, int]]
IDS = ("AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg")
OPEN = v2_batch(1, [Record(T)], transactional=True, producer_id=5, producer_epoch=0)


def record(offset: int) -> bytes:
    return v2_batch(offset, [Record(T + offset)])


class Archive:
    """An archive, whose catalog is built with the defaults, unless a night says otherwise."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.source = folder, folder / "archive"
        self.catalog = folder / "indexes/_catalog"
        self.source.mkdir(parents=True, exist_ok=True)
        self.knows_transactions = False

    def build(self) -> None:
        indexes = self.folder / "indexes"
        kip33.build_index(self.source, indexes, offset_index=self.knows_transactions)

    def put(self, topic: str, first: int, *batches: bytes) -> None:
        write_log(self.source / f"{topic}-0", first, *batches)

    def grow(self, topic: str, first: int, end: int) -> None:
        self.put(topic, first, *map(record, range(first, end)))

    def vanish(self, topic: str) -> None:
        (self.source / f"{topic}-0").rename(self.folder / topic)

    def come_back(self, topic: str) -> None:
        (self.folder / topic).rename(self.source / f"{topic}-0")

    def create(self, topic: str, topic_id: str) -> None:
        shutil.rmtree(self.source / f"{topic}-0", ignore_errors=True)
        self.grow(topic, 0, 3)
        metadata = self.source / f"{topic}-0/partition.metadata"
        metadata.write_text(f"version: 0\ntopic_id: {topic_id}\n")


class Folder:
    """The folder of `write_records`."""

    def __init__(self, archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
        self._archive, self._to = archive, archive.folder / "to"
        self._monkeypatch = monkeypatch

    def night(self, *, is_killed: bool, **options: Any) -> None:
        def kill(*_: object) -> None:
            raise KeyboardInterrupt

        asked = {"isolation": "read_committed", "workers": 1, **options}
        with self._monkeypatch.context() as patch:
            if is_killed:
                patch.setattr(RecordDataset, "commit", kill)
            try:
                kip33.write_records(self._archive.catalog, self._to, **asked)
            except KeyboardInterrupt:
                assert is_killed

    def rows(self) -> Rows:
        found: Rows = []
        for path in self._to.glob("topic=*/*/*.parquet"):
            topic = path.parts[-3].removeprefix("topic=")
            offsets = ds.dataset(path).to_table()["offset"].to_pylist()
            found += [(topic, offset) for offset in offsets]
        return sorted(found)


class Stream:
    """A table of a stream, with its checkpoint, as PySpark 4.0 and 4.1 write it."""

    gives_start = False

    def __init__(self, archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
        self._archive = archive
        self._offsets: list[Any] = []  # of planned batches
        self._batches: list[Rows] = []  # that are committed
        self._written: dict[int, list[Rows]] = {}  # by batch: the rows of each share

    def reader(self, options: dict[str, Any]) -> Any:
        from kip33.spark.segment_source import SegmentSource

        shares = {"maxRecordsPerPartition": 2}
        texts = {name: str(value) for name, value in (shares | options).items()}
        source = SegmentSource({"path": str(self._archive.catalog), **texts})
        return source.streamReader(source.schema())

    def night(self, *, is_killed: bool, **options: Any) -> None:
        reader = self.reader(options)
        if self._offsets:
            newest = self._sent(self._offsets[-1])
            reader.partitions(newest, newest)
        is_planned = len(self._offsets) > len(self._batches)
        if is_planned:
            self._run(reader, is_killed, options)
        if self.gives_start:
            reader.prepareForTriggerAvailableNow()
        elif is_planned:
            return
        while True:
            start = self._sent(self._offsets[-1]) if self._offsets else None
            if self.gives_start:
                limit = reader.getDefaultReadLimit()
                end = reader.latestOffset(start or self._sent(reader.initialOffset()), limit)
            else:
                end = reader.latestOffset()
            if self._sent(end) == start:
                return
            self._offsets.append(self._sent(end))
            self._run(reader, is_killed, options)

    def _sent(self, offset: Any) -> Any:
        return json.loads(json.dumps(offset))

    def _run(self, reader: Any, is_killed: bool, options: dict[str, Any]) -> None:
        number = len(self._batches)
        start = self._offsets[number - 1] if number else reader.initialOffset()
        parts = reader.partitions(self._sent(start), self._sent(self._offsets[number]))
        tasks = [self.reader(options).read(pickle.loads(pickle.dumps(part))) for part in parts]
        shares = [
            [(row["topic"], row["offset"]) for batch in task for row in batch.to_pylist()]
            for task in tasks
        ]
        assert self._written.setdefault(number, shares) == shares
        if is_killed:
            raise KeyboardInterrupt
        self._batches.append([row for share in shares for row in share])

    def rows(self) -> Rows:
        return sorted(row for batch in self._batches for row in batch)


class StreamOf42(Stream):
    """As PySpark 4.2 and 4.3 write it."""

    gives_start = True


class Night(NamedTuple):
    """What happens before a night, what it is to say, and how it ends."""

    changes: Callable[[Archive], object]
    then: Callable[[Archive], object] = lambda _: None  # between the build and the reading
    error: str | None = None
    options: Mapping[str, Any] = MappingProxyType({})
    is_killed: bool = False


def both(first: int, end: int) -> Callable[[Archive], None]:
    def grow(archive: Archive) -> None:
        archive.grow("a", first, end)
        archive.grow("b", first, end)

    return grow


def each(**offsets: Iterable[int]) -> Rows:
    return [(topic, offset) for topic, of_topic in offsets.items() for offset in of_topic]


def with_transactions(archive: Archive) -> None:
    """So a stream plans a batch without a look at the logs."""
    archive.knows_transactions = True
    both(0, 3)(archive)


def lose_newest(archive: Archive) -> None:
    newest = archive.source / f"a-0/{3:020d}.log"
    newest.rename(archive.folder / "lost.log")


def find_newest(archive: Archive) -> None:
    (archive.folder / "lost.log").rename(archive.source / f"a-0/{3:020d}.log")


NOTHING = Night(lambda _: None)
NIGHTS: dict[str, tuple[list[Night], Rows]] = {
    "a topic is away for a night": (
        [
            Night(both(0, 3)),
            Night(lambda it: (it.vanish("a"), it.grow("b", 3, 4))),
            Night(lambda it: (it.come_back("a"), it.grow("a", 3, 5), it.grow("b", 4, 5))),
        ],
        each(a=range(5), b=range(5)),
    ),
    "all topics but a new one are away": (
        [Night(both(0, 3)), Night(lambda it: (it.vanish("a"), it.vanish("b"), it.grow("c", 0, 1)))],
        each(a=range(3), b=range(3), c=range(1)),
    ),
    "a topic is created again": (
        [
            Night(lambda it: it.create("a", IDS[0])),
            Night(lambda it: it.create("a", IDS[1]), error="it was deleted and created again"),
        ],
        each(a=range(3)),
    ),
    "a topic is created again while it is away": (
        [
            Night(lambda it: (it.create("a", IDS[0]), it.grow("b", 0, 1))),
            Night(lambda it: (it.vanish("a"), it.grow("b", 1, 2))),
            Night(lambda it: it.create("a", IDS[1]), error="it was deleted and created again"),
        ],
        each(a=range(3), b=range(2)),
    ),
    "a log is out of reach": (
        [
            Night(both(0, 3)),
            Night(both(3, 5), lose_newest, error=r"0003\.log: cannot be read: "),
            Night(find_newest),
            NOTHING,
        ],
        each(a=range(5), b=range(5)),
    ),
    "a log is out of reach, and damage is skipped": (
        [
            Night(with_transactions, options={"on_error": "skip"}),
            Night(both(3, 5), lose_newest, r"0003\.log: cannot be read: ", {"on_error": "skip"}),
            Night(find_newest, options={"on_error": "skip"}),
            NOTHING,
        ],
        each(a=range(5), b=range(5)),
    ),
    "options choose other records": (
        [
            Night(both(0, 3), options={"end_offset": 2}),
            Night(both(3, 5), error="end_offset"),
            Night(both(5, 6), options={"end_offset": 2}),
            Night(both(6, 7), options={"end_offset": 2, "start_time": T}, error="start_time"),
            Night(
                *(both(7, 8), lambda _: None, "isolation"),
                {"end_offset": 2, "isolation": "read_uncommitted"},
            ),
        ],
        each(a=range(2), b=range(2)),
    ),
    "a run is killed": (
        [Night(both(0, 3)), Night(both(3, 5), is_killed=True), Night(both(5, 6)), NOTHING],
        each(a=range(6), b=range(6)),
    ),
    "the first run is killed twice": (
        [Night(both(0, 3), is_killed=True), Night(both(3, 5), is_killed=True), NOTHING, NOTHING],
        each(a=range(5), b=range(5)),
    ),
    "a run is killed before a topic is away": (
        [
            Night(both(0, 3)),
            Night(lambda it: it.grow("b", 3, 5), is_killed=True),
            Night(lambda it: (it.vanish("a"), it.grow("b", 5, 6))),
            Night(lambda it: (it.come_back("a"), it.grow("a", 3, 4))),
            NOTHING,
        ],
        each(a=range(4), b=range(6)),
    ),
    "a compacted log has grown when a killed run is repeated": (
        [
            Night(lambda it: it.put("a", 0, *map(record, SPARSE)), is_killed=True),
            Night(lambda it: it.put("a", 0, *map(record, GROWN))),
            NOTHING,
        ],
        each(a=GROWN),
    ),
    "a transaction is open for a night": (
        [
            Night(lambda it: it.put("a", 0, record(0), OPEN)),
            Night(lambda it: it.grow("a", 2, 4)),
            Night(lambda it: it.put("a", 4, end_txn_marker(4, T, producer_id=5, commit=False))),
        ],
        each(a=(0, 2, 3)),
    ),
}


STREAMS = (Stream,) if pyspark.__version__ < "4.2" else (Stream, StreamOf42)


@pytest.mark.parametrize("door", [Folder, *STREAMS])
@pytest.mark.parametrize("name", NIGHTS)
def test_each_record_is_in_the_table_once_or_a_line_says_why_not(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    door: Callable[[Archive, pytest.MonkeyPatch], Folder | Stream],
) -> None:
    archive = Archive(tmp_path)
    table = door(archive, monkeypatch)
    nights, expected = NIGHTS[name]
    for night in nights:
        night.changes(archive)
        archive.build()
        night.then(archive)
        before = table.rows()
        try:
            table.night(is_killed=night.is_killed, **night.options)
        except KeyboardInterrupt:
            assert night.is_killed
        except (Kip33Error, ValueError) as error:
            assert night.error, error
            assert re.search(night.error, str(error)), error
            assert table.rows() == before
        else:
            assert night.error is None
    assert table.rows() == expected


WAITS: dict[str, tuple[Callable[[Archive], object], str]] = {
    "a replica is behind": (
        lambda it: it.put("a", 0, record(0)),
        "a-0: ends at offset 1, expected 3 or more: it is of a replica that is behind",
    ),
    "the last log has the offsets of another": (
        lambda it: it.put("a", 3, record(0)),
        r"0003\.log: .*; its records are not read",
    ),
    "a transaction is open": (
        lambda it: it.put(
            *("a", 3),
            v2_batch(3, [Record(T)], transactional=True, producer_id=5, producer_epoch=0),
        ),
        "a-0: the transaction that begins at offset 3 is still open in the catalog",
    ),
}


@pytest.mark.parametrize("door", [Folder, *STREAMS])
@pytest.mark.parametrize("name", WAITS)
def test_a_night_without_a_new_record_says_what_it_waits_for(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    door: Callable[[Archive, pytest.MonkeyPatch], Folder | Stream],
) -> None:
    archive = Archive(tmp_path)
    table = door(archive, monkeypatch)
    archive.grow("a", 0, 3)
    archive.build()
    table.night(is_killed=False)
    change, line = WAITS[name]
    change(archive)
    archive.build()
    with pytest.warns(UserWarning, match=line):
        table.night(is_killed=False)
    assert table.rows() == each(a=range(3))


@pytest.mark.filterwarnings("ignore::UserWarning")  # of what is missing
@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
@pytest.mark.parametrize("archives", short_and_long(2, 100, "KIP33_STREAMS"))
def test_rows_of_a_stream_are_those_of_the_reader_also_of_damaged_logs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, archives: int, isolation: str
) -> None:
    for seed in seeds(archives):
        random, archive = Random(seed), Archive(tmp_path / str(seed))
        random_archive(random, archive.folder, disorder_ms=500)
        table = random.choice(STREAMS)(archive, monkeypatch)
        options = {"isolation": isolation, "on_error": "skip", "columns": "topic,offset"}
        of_stream = {"failOnDataLoss": False, "maxRecordsPerPartition": random.choice((1, 7, 50))}
        table.night(is_killed=False, **options, **of_stream)
        rows = kip33.read_arrow(archive.catalog, isolation=isolation, on_error="skip").read_all()
        read = zip(rows["topic"].to_pylist(), rows["offset"].to_pylist(), strict=True)
        assert table.rows() == sorted(read), seed
