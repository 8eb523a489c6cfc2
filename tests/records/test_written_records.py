"""Records in a folder of Parquet files: each run adds what is new, and no record is there twice."""

import json
import shutil
from collections.abc import Callable
from datetime import date
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import kip33
from kip33.archive.plans import plan_line
from kip33.errors import (
    CatalogError,
    CorruptSegmentError,
    LocationError,
    PublishError,
    UnreadableLogError,
)
from kip33.local.local_engine import LocalEngine
from kip33.records import written_records
from kip33.records.record_dataset import STAGED, DatasetCommit, RecordDataset
from kip33.records.written_records import (
    WriteRequest,
    WrittenRecords,
    _DayFile,
    write_new_records,
)
from tests.builders.log_file import write_log
from tests.builders.record_questions import COLUMNS, plain_rows, random_archive
from tests.builders.segment_builder import (
    Record,
    segment,
    v1_message,
    v2_batch,
    with_broken_crc,
)
from tests.long_forms import seeds, short_and_long
from tests.records.test_levels import build
from tests.records.test_read_committed import committed, random_events, write

T = 1_700_000_000_000
DAY_MS = 86_400_000


def table_of(folder: Path) -> pa.Table:
    """Return what a reader of datasets sees, with the columns `topic` and `day`."""
    return ds.dataset(folder, partitioning="hive", format="parquet").to_table()


def offsets_in(folder: Path) -> list[int]:
    found: list[int] = sorted(table_of(folder)["offset"].to_pylist())
    return found


def log_of(first: int, last: int, *, at: int = T) -> bytes:
    return segment(v2_batch(offset, [Record(at, b"k", b"v")]) for offset in range(first, last + 1))


class Nights:
    """An archive of one partition that grows, its catalog and the folder of its records."""

    def __init__(self, folder: Path) -> None:
        self.source, self.folder, self.to = folder / "archive", folder, folder / "tables"
        self.partition = self.source / "orders-0"
        self.catalog = folder / "indexes/_catalog"

    def write(self, first: int, last: int) -> None:
        write_log(self.partition, first, log_of(first, last))
        build(self.source, self.folder)

    def add(self, **options: Any) -> WrittenRecords:
        return kip33.write_records(self.catalog, self.to, workers=1, **options)


@pytest.fixture
def nights(tmp_path: Path) -> Nights:
    """Ten records are written."""
    found = Nights(tmp_path)
    found.write(0, 9)
    assert found.add().records == 10
    return found


@pytest.mark.parametrize("logs", short_and_long(6, 200, "KIP33_WRITTEN"))
@pytest.mark.filterwarnings("ignore:.*is still open in the catalog")
def test_nights_of_random_transactions_give_what_a_consumer_has_read(
    tmp_path: Path, logs: int
) -> None:
    for seed in seeds(logs):
        random, here = Random(seed), tmp_path / str(seed)
        events = random_events(random, 40)
        isolation = random.choice(("read_committed", "read_uncommitted"))
        for count in sorted(random.sample(range(1, 41), 3)):
            shutil.rmtree(here / "archive", ignore_errors=True)
            cuts = [one for one in (10, 20, 30) if one < count]
            write(here / "archive/orders-0", events[:count], cuts)
            catalog = build(here / "archive", here)
            written = kip33.write_records(catalog, here / "to", isolation=isolation, workers=1)
            expected = committed(events[:count])
            if isolation == "read_uncommitted":
                records = [event for event in events[:count] if not event.marker]
                spans = (range(one.offset, one.offset + one.count) for one in records)
                expected = [offset for span in spans for offset in span]
            there = (here / "to/topic=orders").exists()
            assert (offsets_in(here / "to") if there else []) == expected, (seed, count)
            assert written.damaged == 0


@pytest.mark.filterwarnings("ignore:.*(are missing before it|records are not read)")
@pytest.mark.parametrize("archives", short_and_long(3, 80, "KIP33_WRITTEN_ARCHIVES"))
def test_rows_are_those_of_the_reader_also_of_damaged_logs_and_in_shares(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, archives: int
) -> None:
    monkeypatch.setattr(written_records, "SHARE_RECORDS", 7)
    monkeypatch.setattr(written_records, "_MOST_OPEN", 1)
    for seed in seeds(archives):
        _, catalog = random_archive(Random(seed), tmp_path / str(seed), disorder_ms=500)
        read = kip33.read_arrow(catalog, columns=COLUMNS[:-1], on_error="skip").read_all()
        written = kip33.write_records(catalog, tmp_path / f"{seed}-to", workers=1)
        table = table_of(tmp_path / f"{seed}-to").select(COLUMNS[:-1])
        rows, expected = (
            sorted(map(repr, plain_rows(one.append_column(COLUMNS[-1], pa.nulls(len(one))))))
            for one in (table, read)
        )
        assert rows == expected, f"seed {seed}"
        assert written.records == len(rows)


def test_a_file_has_the_records_of_one_topic_and_day_and_hidden_folders_hold_the_rest(
    tmp_path: Path,
) -> None:
    times = {0: 0, 1: DAY_MS - 1, 2: DAY_MS, 3: -1, 4: -DAY_MS, 5: T * 1000}
    for topic in ("a.b", "c"):
        batches = [v2_batch(offset, [Record(ms)]) for offset, ms in times.items()]
        write_log(tmp_path / f"archive/{topic}-3", 0, *batches)
    kip33.write_records(build(tmp_path / "archive", tmp_path), tmp_path / "to", workers=1)
    found = {
        str(path.parent.relative_to(tmp_path / "to")): pq.read_table(path)["offset"].to_pylist()
        for path in (tmp_path / "to").glob("topic=*/*/*.parquet")
    }
    days = {"1970-01-01": [0, 1], "1970-01-02": [2], "none": [3, 5], "1969-12-31": [4]}
    assert found == {
        f"topic={topic}/{day}": offsets for topic in ("a.b", "c") for day, offsets in days.items()
    }
    names = ["partition", "offset", "timestamp", "timestampType", "key", "value", "headers"]
    assert table_of(tmp_path / "to").schema.names == [*names, "day", "topic"]


READ = ["topic", "day", "offset"]
PATTERN = "topic=*/*/*.parquet"


def read_by_pandas(folder: str, **options: Any) -> list[Any]:
    return pd.read_parquet(folder, **options)[READ].astype({"topic": str}).to_dict("records")


def read_by_polars(folder: str, **options: Any) -> list[Any]:
    return pl.scan_parquet(f"{folder}/{PATTERN}", **options).select(READ).collect().to_dicts()


def read_by_duckdb(folder: str, pattern: str) -> list[Any]:
    table: pa.Table = duckdb.sql(f"FROM '{folder}/{pattern}'").to_arrow_table()
    return table.select(READ).to_pylist()


READERS: dict[str, Callable[[str], list[Any]]] = {
    "pandas": read_by_pandas,
    "pandas with a filter": lambda to: read_by_pandas(to, filters=[("topic", "!=", "")]),
    "pandas, topic by topic": lambda to: [
        row for topic in Path(to).glob("topic=[0-9a-z]*") for row in read_by_pandas(str(topic))
    ],
    "Arrow": lambda to: table_of(Path(to)).select(READ).to_pylist(),
    "Polars": read_by_polars,
    "Polars by folders": lambda to: read_by_polars(to, hive_partitioning=True),
    "DuckDB": lambda to: read_by_duckdb(to, PATTERN),
    "DuckDB, all files": lambda to: read_by_duckdb(to, "**/*.parquet"),
}


@pytest.mark.parametrize("topics", [("007", "42"), ("7", "orders"), ("orders",)])
def test_all_readers_take_topic_as_a_text_and_day_as_a_date(
    tmp_path: Path, topics: tuple[str, ...], subtests: pytest.Subtests
) -> None:
    times = (T, -1, T * 1000, -DAY_MS)  # microseconds are no day of this era
    days = (date(2023, 11, 14), None, None, date(1969, 12, 31))
    for topic in topics:
        batches = [v2_batch(offset, [Record(ms)]) for offset, ms in enumerate(times)]
        write_log(tmp_path / f"archive/{topic}-0", 0, *batches)
    to = tmp_path / "to"
    kip33.write_records(build(tmp_path / "archive", tmp_path), to, workers=1, columns=["offset"])
    expected = [(topic, day, at) for topic in topics for at, day in enumerate(days)]
    for name, read in READERS.items():
        with subtests.test(name):
            found = [tuple(map(row.get, READ)) for row in read(str(to))]
            assert sorted(found, key=str) == sorted(expected, key=str)


def test_readers_with_a_pattern_see_each_record_once_beside_what_a_killed_run_left(
    nights: Nights,
) -> None:
    (file,) = nights.to.glob("topic=*/*/*.parquet")
    staged = nights.to / f"_kip33/staging/0-1/{file.relative_to(nights.to)}{STAGED}"
    staged.parent.mkdir(parents=True)
    shutil.copy(file, staged)
    pattern = f"{nights.to}/topic=*/*/*.parquet"
    by_duckdb = f"SELECT topic, \"offset\" FROM '{pattern}'"
    by_polars = pl.scan_parquet(pattern).select("topic", "offset").collect()
    expected = [("orders", offset) for offset in range(10)]
    assert sorted(duckdb.sql(by_duckdb).fetchall()) == sorted(by_polars.rows()) == expected
    assert len(table_of(nights.to)) == len(duckdb.sql(f"FROM '{nights.to}/**/*.parquet'")) == 10


def test_columns_are_those_asked_for(tmp_path: Path) -> None:
    nights = Nights(tmp_path)
    nights.write(0, 9)
    nights.add(columns=["value", "offset"])
    assert table_of(nights.to).schema.names == ["value", "offset", "day", "topic"]


def test_a_list_may_be_an_iterator(nights: Nights, tmp_path: Path) -> None:
    to = tmp_path / "again"
    written = kip33.write_records(
        iter([nights.catalog]),
        to,
        columns=iter(["offset"]),  # type: ignore[arg-type]
        topic=iter(["orders"]),  # type: ignore[arg-type]
        partition=iter([0]),  # type: ignore[arg-type]
        workers=1,
    )
    assert (written.records, table_of(to).schema.names) == (10, ["offset", "day", "topic"])
    reader = kip33.read_arrow(nights.catalog, columns=iter(["offset"]), partition=iter([0]))
    assert reader.read_all().shape == (10, 1)


def test_the_next_run_begins_where_the_last_one_ended(nights: Nights) -> None:
    assert nights.add().commit is None
    nights.write(10, 14)
    (nights.partition / f"{0:020d}.log").write_bytes(b"not read")
    assert nights.add().records == 5
    assert offsets_in(nights.to) == [*range(15)]


def make_unreadable(nights: Nights) -> None:
    nights.write(10, 14)
    (nights.partition / f"{10:020d}.log").unlink()


def break_commit(nights: Nights) -> None:
    (commit,) = (nights.to / "_kip33/commits").iterdir()
    commit.write_text(commit.read_text().replace('"0": 10', '"0": 8'))


def recreate(nights: Nights) -> None:
    (commit,) = (nights.to / "_kip33/commits").iterdir()
    commit.unlink()  # as the first run of a topic with an id
    shutil.rmtree(nights.to)
    metadata = nights.partition / "partition.metadata"
    metadata.write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ")
    build(nights.source, nights.folder)
    nights.add()
    metadata.write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAg")
    build(nights.source, nights.folder)


REFUSED: dict[str, tuple[Callable[[Nights], object], dict[str, Any], type[Exception], str]] = {
    "log gone": (make_unreadable, {}, UnreadableLogError, r"0010\.log: cannot be read: "),
    "topic of another id": (
        recreate,
        {},
        LocationError,
        "ids AAAAAAAAAAAAAAAAAAAAAQ and AAAAAAAAAAAAAAAAAAAAAg found",
    ),
    "commit edited": (break_commit, {}, CatalogError, "the checksum is wrong"),
    "other times": (
        *(lambda _: None, {"start_time": T}, CatalogError),
        f"with start_time None, not {T}",
    ),
    "other columns": (
        *(lambda _: None, {"columns": ["offset"]}, CatalogError),
        "with columns",
    ),
    "other isolation": (
        *(lambda _: None, {"isolation": "read_committed"}, CatalogError),
        "with isolation read_uncommitted, not read_committed",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_nothing_is_added_to_what_cannot_be_continued(nights: Nights, name: str) -> None:
    change, options, kind, why = REFUSED[name]
    change(nights)
    before = offsets_in(nights.to)
    with pytest.raises(kind, match=why):
        nights.add(**options)
    assert offsets_in(nights.to) == before
    assert not [*nights.to.glob("_kip33/staging/*")]


def in_epochs(*epochs: tuple[int, int, int]) -> bytes:
    """Batches of one record each: (leader epoch, first offset, end)."""
    return b"".join(
        v2_batch(at, [Record(T)], leader_epoch=epoch)
        for epoch, first, end in epochs
        for at in range(first, end)
    )


LOST = "read up to offset 10, the last in leader epoch 3; from offset "
SECOND_NIGHTS: dict[str, tuple[tuple[tuple[int, int, int], ...], bool | str]] = {
    "the log goes on": (((2, 0, 5), (3, 5, 12)), True),
    "and has a new leader": (((2, 0, 5), (3, 5, 10), (4, 10, 12)), True),
    "a replica is behind": (((2, 0, 5), (3, 5, 8)), False),
    "a replica is behind and has no record of the epoch": (((2, 0, 5),), False),
    "a later leader wrote less": (((2, 0, 5), (3, 5, 7), (4, 7, 9)), f"{LOST}7"),
    "a later leader wrote more": (((2, 0, 5), (4, 5, 12)), f"{LOST}5"),
    "a deposed leader wrote more": (((2, 0, 12),), f"{LOST}9"),
    "a deposed leader is elected again": (((2, 0, 12), (4, 12, 14)), f"{LOST}9"),
}


@pytest.mark.parametrize("name", SECOND_NIGHTS)
def test_a_folder_goes_on_only_with_the_log_that_it_has(tmp_path: Path, name: str) -> None:
    second, expected = SECOND_NIGHTS[name]
    nights = Nights(tmp_path)
    for epochs in (((2, 0, 5), (3, 5, 10)), second):
        before = offsets_in(nights.to) if nights.to.exists() else []
        write_log(nights.partition, 0, in_epochs(*epochs))
        build(nights.source, nights.folder)
        if isinstance(expected, str) and before:
            for on_error in ("skip", "fail"):
                with pytest.raises(LocationError, match=expected):
                    nights.add(on_error=on_error)
        elif before and not expected:
            with pytest.warns(UserWarning, match="orders-0: ends at offset .*, expected 10 or mor"):
                assert nights.add(on_error="fail").commit is None
        else:
            nights.add()
    assert offsets_in(nights.to) == [*range(12 if expected is True else 10)]


def test_a_shorter_log_without_leader_epochs_may_be_another_one(tmp_path: Path) -> None:
    nights = Nights(tmp_path)
    for end in (10, 5):
        write_log(nights.partition, 0, *(v1_message(at, T) for at in range(end)))
        build(nights.source, nights.folder)
        if end == 10:
            nights.add()
    with pytest.raises(LocationError, match="orders-0: ends at offset 5, expected 10 or more"):
        nights.add()


def test_another_source_or_another_programs_files_are_refused(
    nights: Nights, tmp_path: Path
) -> None:
    other = shutil.copytree(nights.catalog, tmp_path / "other")
    with pytest.raises(CatalogError, match=r"was written from .*_catalog, not from"):
        kip33.write_records(other, nights.to)
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs/notes.txt").write_text("mine")
    with pytest.raises(LocationError, match=r"notes\.txt found, expected an empty folder"):
        kip33.write_records(nights.catalog, tmp_path / "theirs")
    with pytest.raises(LocationError, match="is not known, expected a catalog whose build has"):
        kip33.write_records(nights.source, tmp_path / "of an archive")
    with pytest.raises(LocationError, match="expected another place"):
        kip33.write_records(nights.source, nights.source / "to")
    with pytest.raises(ValueError, match="on_error 'row' found, expected 'skip' or 'fail'"):
        nights.add(on_error="row")
    with pytest.raises(ValueError, match="level 'batches' found"):
        nights.add(level="batches")


def test_offsets_that_were_deleted_meanwhile_are_a_warning_or_an_error(nights: Nights) -> None:
    (nights.partition / f"{0:020d}.log").unlink()
    nights.write(15, 19)
    with pytest.raises(LocationError, match="orders-0: of offsets 10 to 19 offsets 15 to 19 found"):
        nights.add(on_error="fail")
    with pytest.warns(UserWarning, match="of offsets 10 to 19 offsets 15 to 19 found"):
        assert nights.add().records == 5
    assert offsets_in(nights.to) == [*range(10), *range(15, 20)]


def test_a_segment_that_is_missing_in_the_middle_is_a_warning_or_an_error(tmp_path: Path) -> None:
    nights = Nights(tmp_path)
    write_log(nights.partition, 0, log_of(0, 9))
    nights.write(20, 29)
    with pytest.raises(LocationError, match="offsets 10 to 19 are missing before it"):
        nights.add(on_error="fail")
    with pytest.warns(UserWarning, match="offsets 10 to 19 are missing before it"):
        assert nights.add().records == 20


def test_a_last_log_that_cannot_be_read_is_said_and_read_later(nights: Nights) -> None:
    write_log(nights.partition, 10, b"\xff" * 100)
    build(nights.source, nights.folder)
    with pytest.raises(LocationError, match="its records are not read"):
        nights.add(on_error="fail")
    with pytest.warns(UserWarning, match="its records are not read"):
        assert nights.add().records == 0
    nights.write(10, 14)
    assert nights.add().records == 5


def test_compaction_before_an_empty_segment_is_no_cut(nights: Nights) -> None:
    write_log(nights.partition, 10)
    build(nights.source, nights.folder)
    nights.add()
    write_log(nights.partition, 0, log_of(0, 8))
    build(nights.source, nights.folder)
    assert nights.add().records == 0


IDS = ("AAAAAAAAAAAAAAAAAAAAAQ", None)


@pytest.mark.parametrize("nights_ids", [[0b01, 0b11], [0b11, 0b10], [0, 0b01, 0b11], [0b10, 0]])
def test_ids_that_only_some_partitions_have_write_no_record_twice(
    tmp_path: Path, nights_ids: list[int]
) -> None:
    """A bit says whether a partition has its `partition.metadata` in a night."""
    for night, ids in enumerate(nights_ids):
        for number in range(2):
            partition = tmp_path / f"archive/orders-{number}"
            write_log(partition, 4 * night, log_of(4 * night, 4 * night + 3))
            metadata = partition / "partition.metadata"
            metadata.unlink(missing_ok=True)
            if ids & (1 << number):
                metadata.write_text(f"version: 0\ntopic_id: {IDS[0]}")
        kip33.write_records(build(tmp_path / "archive", tmp_path), tmp_path / "to", workers=1)
        rows = table_of(tmp_path / "to").select(["partition", "offset"]).to_pylist()
        found = sorted((row["partition"], row["offset"]) for row in rows)
        assert found == [(number, at) for number in range(2) for at in range(4 * night + 4)]


def test_read_committed_goes_on_behind_a_lost_marker_and_says_where_one_waits(
    tmp_path: Path,
) -> None:
    """A consumer does so, too: after a gap nobody knows what became of the transaction."""
    nights, how = Nights(tmp_path), {"transactional": True, "producer_id": 7, "producer_epoch": 0}
    begun = v2_batch(4, [Record(T)], **how)  # type: ignore[arg-type]
    write_log(nights.partition, 0, log_of(0, 3), begun)
    build(nights.source, nights.folder)
    with pytest.warns(
        UserWarning, match="orders-0: the transaction that begins at offset 4 is still open"
    ):
        assert nights.add(isolation="read_committed").records == 4
    nights.write(10, 14)  # the marker was in the segment between
    with pytest.warns(UserWarning, match="offsets 5 to 9 are missing before it"):
        nights.add(isolation="read_committed")
    reader = kip33.read_arrow(nights.catalog, isolation="read_committed", on_error="skip")
    assert (
        offsets_in(nights.to)
        == reader.read_all()["offset"].to_pylist()
        == [*range(5), *range(10, 15)]
    )


def test_what_is_behind_a_wrong_crc_is_written_with_a_later_segment(nights: Nights) -> None:
    """A broker that repairs the log gives its offsets to other records, until a segment follows."""
    first, second, lost = (v2_batch(offset, [Record(T)]) for offset in (10, 12, 11))
    write_log(nights.partition, 10, first, with_broken_crc(lost), second)
    build(nights.source, nights.folder)
    nights.add()
    assert offsets_in(nights.to) == [*range(11)]
    write_log(nights.partition, 13, v2_batch(13, [Record(T)]))
    build(nights.source, nights.folder)
    written = nights.add()
    assert offsets_in(nights.to) == [*range(11), 12, 13]
    assert "left out" in written.problems[0]


def test_damage_is_counted_or_an_error(nights: Nights) -> None:
    good = [v2_batch(offset, [Record(T)]) for offset in (10, 12)]
    write_log(nights.partition, 10, good[0], v2_batch(11, [Record(T)], body=b"\xff"), good[1])
    build(nights.source, nights.folder)
    with pytest.raises(CorruptSegmentError):
        nights.add(on_error="fail")
    written = nights.add()
    assert (written.damaged, offsets_in(nights.to)) == (1, [*range(11), 12])
    assert "000010.log" in written.problems[0]


def test_files_that_cannot_be_moved_after_the_commit_are_moved_by_the_next_run(
    tmp_path: Path,
) -> None:
    nights = Nights(tmp_path)
    nights.write(0, 9)
    stage = _DayFile.finish

    def finish(file: _DayFile) -> Any:
        (nights.to / "topic=orders").write_text("in the way")
        return stage(file)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(_DayFile, "finish", finish)
        with pytest.raises(PublishError, match="the records are committed: fix it and run"):
            nights.add()
    (nights.to / "topic=orders").unlink()

    again = nights.add()

    assert (again.records, offsets_in(nights.to)) == (0, [*range(10)])
    assert not [*nights.to.glob("_kip33/staging/*")]


class FastEngine(LocalEngine):
    """Lets something happen between the work of this run and its commit."""

    def __init__(self, happens: Callable[[], object]) -> None:
        super().__init__(1)
        self._happens = happens

    def run_on_bins(self, *arguments: Any, **how: Any) -> list[Any]:
        done = super().run_on_bins(*arguments, **how)
        self._happens()
        return done


class SlowEngine(LocalEngine):
    """Lets another run begin and end while this one works."""

    def __init__(self, other_run: Callable[[], object]) -> None:
        super().__init__(1)
        self._other_run = other_run

    def run_on_bins(self, *arguments: Any, **how: Any) -> list[Any]:
        self._other_run()
        return super().run_on_bins(*arguments, **how)


def test_of_two_runs_at_once_one_adds_its_records(nights: Nights) -> None:
    nights.write(10, 14)
    request = WriteRequest.of([str(nights.catalog)], str(nights.to))
    engine = SlowEngine(nights.add)
    with pytest.raises(PublishError, match="another run wrote at the same time"):
        write_new_records(request, engine, now_ms=T, warn=print)
    assert offsets_in(nights.to) == [*range(15)]
    assert nights.add().commit is None


def test_a_run_that_removes_old_staging_leaves_that_of_one_that_still_writes_or_fails_it(
    nights: Nights,
) -> None:
    """The clock of the second run is weeks ahead, as a logical date may be."""
    nights.write(10, 14)
    request = WriteRequest.of([str(nights.catalog)], str(nights.to))
    later = T + 30 * DAY_MS

    def remove_staging(*_: object) -> None:
        RecordDataset(request.to).begin(later)

    with pytest.raises(PublishError, match="was removed while the run wrote; no record is added"):
        write_new_records(request, FastEngine(remove_staging), now_ms=T, warn=print)
    assert nights.add().records == 5
    assert offsets_in(nights.to) == [*range(15)]


@pytest.mark.parametrize("first_has_moved", [True, False])
def test_of_two_commits_with_one_number_that_of_a_killed_run_adds_nothing(
    nights: Nights, *, first_has_moved: bool
) -> None:
    """It was killed between its commit and the listing by which it takes the commit back."""
    nights.write(10, 14)
    nights.add()
    (newest,) = (nights.to / "_kip33/commits").glob("*02-*.json")
    commit = DatasetCommit.of_record(json.loads(newest.read_text()))
    (file,) = commit.files
    twin = commit._replace(commit_id="0" * 12, files=(file._replace(path=f"{file.path}.parquet"),))
    for one in (twin,) if first_has_moved else (twin, commit):
        path = f"{one.files[0].path}{STAGED}"
        staged = nights.to / f"_kip33/staging/{one.commit_id}-1" / path
        staged.parent.mkdir(parents=True)
        shutil.copy(nights.to / file.path, staged)
    if not first_has_moved:
        (nights.to / file.path).unlink()
    newest.with_name(f"{twin.name}.json").write_bytes(plan_line(twin.as_record()))

    if first_has_moved:
        assert nights.add().records == 0
        assert offsets_in(nights.to) == [*range(15)]
    else:  # both may go on
        with pytest.raises(PublishError, match="two runs write at the same time; run the command"):
            nights.add()
        assert offsets_in(nights.to) == [*range(10)]
