"""The ranges of a stream: nights of a growing archive, limits, and what is lost or changed."""

from pathlib import Path
from random import Random

import pytest

from kip33.catalog.catalog import Catalog, catalog_at, choose
from kip33.errors import Kip33Error
from kip33.formats.whole_bodies import RecordLimits
from kip33.records.log_ranges import (
    LogOffsets,
    LogRangeError,
    end_offsets,
    first_offsets,
    in_order,
    limited,
    ranges_between,
    require_same_segments,
    shares_of,
)
from kip33.records.partitions import PartitionSegments
from kip33.records.reading import Reading
from kip33.records.record_request import FilterBounds, OnError
from kip33.stores.locations import Location
from tests.builders.log_file import write_log
from tests.builders.segment_builder import Record, v2_batch
from tests.faults.builds import build_here
from tests.long_forms import seeds, short_and_long
from tests.records.test_read_committed import committed, random_events, write

READING = Reading.of(isolation="read_committed", columns=["offset"])._replace(on_error=OnError.FAIL)
T = 1_700_000_000_000
PARTITION = "archive/orders-0"


def listed(place: Path) -> list[PartitionSegments]:
    return in_order(READING.partitions(str(place / "indexes/_catalog")))


def night(place: Path, start: LogOffsets, share: int = 7) -> tuple[list[int], LogOffsets]:
    """Build, read what is new since `start`; return its offsets and where the logs end."""
    build_here(place / "archive", place / "indexes", offset_index=True)
    end = end_offsets(listed(place), start, only_committed=True)
    return read(place, start, end, share), end


def read(place: Path, start: LogOffsets, end: LogOffsets, share: int = 7) -> list[int]:
    found: list[int] = []
    for one in ranges_between(listed(place), start, end, fail_on_data_loss=True):
        for part in shares_of(one, share, only_committed=True):
            assert 0 < part.end_offset - part.first_offset <= share
            part.require_unchanged()
            limits = RecordLimits(first_offset=part.first_offset, last_offset=part.end_offset - 1)
            rows = READING.inside(FilterBounds(limits)).read([part.segments]).read_all()
            found += rows["offset"].to_pylist()
    return found


def write_plain(place: Path, *bases: int, records: int = 4, archive: str = PARTITION) -> None:
    for base in bases:
        write_log(place / archive, base, *(v2_batch(base + i, [Record(T)]) for i in range(records)))


def catalog_of(place: Path) -> Catalog:
    return catalog_at(Location.of(str(place / "indexes/_catalog")))


@pytest.mark.parametrize("logs", short_and_long(3, 300, "KIP33_RECORD_LOGS"))
def test_nights_have_each_committed_record_once(tmp_path: Path, logs: int) -> None:
    for seed in seeds(logs):
        random, place = Random(seed), tmp_path / str(seed)
        events = random_events(random, random.choice((10, 40)))
        cuts = sorted(random.sample(range(1, len(events)), random.randrange(2, 6)))
        write(place / "whole", events, cuts)
        (place / PARTITION).mkdir(parents=True)
        found: list[int] = []
        offsets: LogOffsets = {}
        for log in sorted((place / "whole").iterdir()):
            log.rename(place / PARTITION / log.name)
            more, offsets = night(place, offsets, random.choice((1, 7, 50)))
            found += more
        assert found == committed(events), seed


def test_limits_are_kept_until_the_end(tmp_path: Path) -> None:
    write_plain(tmp_path, 0, 4, 8)
    write_plain(tmp_path, 0, archive="archive/clicks-1")
    _, end = night(tmp_path, {})
    assert end == {"orders": {"0": 12}, "clicks": {"1": 4}}
    size = sum(log.stat().st_size for log in (tmp_path / "archive").rglob("*.log"))
    for limits in ((4, None), (None, size // 4), (1, 1)):
        at, steps = first_offsets(listed(tmp_path)), []
        while at != end:
            before = at
            offsets, most_bytes = limits
            at = limited(listed(tmp_path), at, end, max_offsets=offsets, max_bytes=most_bytes)
            steps.append(len(read(tmp_path, before, at)))
        assert sum(steps) == 16
        assert max(steps) <= 4


def test_records_that_retention_removed_are_an_error(tmp_path: Path) -> None:
    write_plain(tmp_path, 0, 4, 8)
    night(tmp_path, {})
    (tmp_path / PARTITION / f"{0:020d}.log").unlink()
    build_here(tmp_path / "archive", tmp_path / "indexes", offset_index=True)
    start, end = {"orders": {"0": 2}}, {"orders": {"0": 12}}
    with pytest.raises(LogRangeError, match="orders-0: of offsets 2 to 11 offsets 4 to 11 found"):
        ranges_between(listed(tmp_path), start, end, fail_on_data_loss=True)
    [left] = ranges_between(listed(tmp_path), start, end, fail_on_data_loss=False)
    assert (left.first_offset, left.end_offset) == (4, 12)
    with pytest.raises(LogRangeError, match="orders-1: of offsets 0 to 4 none found"):
        ranges_between(listed(tmp_path), {}, {"orders": {"1": 5}}, fail_on_data_loss=True)


def test_a_segment_that_is_missing_is_an_error(tmp_path: Path) -> None:
    write_plain(tmp_path, 0, 8)
    with pytest.raises(Kip33Error, match="offsets 4 to 7 are missing before it"):
        night(tmp_path, {})


def test_a_topic_that_was_created_again_is_an_error(tmp_path: Path) -> None:
    metadata = tmp_path / PARTITION / "partition.metadata"
    write_plain(tmp_path, 0)
    metadata.write_text("version: 0\ntopic_id: bn9RMmT4REWVDFQzf3IUaQ\n")
    found, start = night(tmp_path, {"orders": {"0": 1}})  # its id was not known
    assert (found, start) == ([1, 2, 3], {"orders:bn9RMmT4REWVDFQzf3IUaQ": {"0": 4}})
    write_plain(tmp_path, 0, records=9)
    metadata.write_text("version: 0\ntopic_id: AAAAAAAAQACIAAAAAAAAAQ\n")
    with pytest.raises(LogRangeError, match=r"topic orders: the topic ids .* expected one"):
        night(tmp_path, start)
    end = end_offsets(listed(tmp_path), start, only_committed=True)
    [anew] = ranges_between(listed(tmp_path), start, end, fail_on_data_loss=False)
    assert (anew.first_offset, anew.end_offset) == (0, 9)


def test_an_id_that_one_partition_has_is_that_of_its_topic(tmp_path: Path) -> None:
    """So a topic that was created again is another log in all of its partitions."""
    for number in range(2):
        write_log(tmp_path / f"archive/orders-{number}", 0, v2_batch(0, [Record(0), Record(0)]))
    metadata = tmp_path / "archive/orders-0/partition.metadata"
    metadata.write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ")
    build_here(tmp_path / "archive", tmp_path / "indexes")
    before = {"orders:AAAAAAAAAAAAAAAAAAAAAg": {"0": 9, "1": 9}}
    ends = end_offsets(listed(tmp_path), before, only_committed=False)
    assert ends == before | {"orders:AAAAAAAAAAAAAAAAAAAAAQ": {"0": 2, "1": 2}}


def test_a_segment_that_was_compacted_is_an_error(tmp_path: Path) -> None:
    write_plain(tmp_path, 0, 4)
    _, end = night(tmp_path, {})
    planned = choose(catalog_of(tmp_path), None).snapshot.name
    write_plain(tmp_path, 8)
    night(tmp_path, end)
    ranges = ranges_between(listed(tmp_path), {}, end, fail_on_data_loss=True)
    require_same_segments(ranges, catalog_of(tmp_path), planned)  # the log only grew

    write_log(tmp_path / PARTITION, 4, v2_batch(7, [Record(T)]))
    with pytest.raises(LogRangeError, match=r"4\.log: .* bytes found, expected .* or more"):
        read(tmp_path, {}, end)
    build_here(tmp_path / "archive", tmp_path / "indexes", offset_index=True)
    ranges = ranges_between(listed(tmp_path), {}, end, fail_on_data_loss=True)
    with pytest.raises(LogRangeError, match=r"4\.log: other records found than in snapshot"):
        require_same_segments(ranges, catalog_of(tmp_path), planned)


def test_a_catalog_without_transactions_cannot_be_read_committed(tmp_path: Path) -> None:
    write_plain(tmp_path, 0)
    build_here(tmp_path / "archive", tmp_path / "indexes")
    with pytest.raises(
        LogRangeError, match=r"build it with --offset-index .*, or read with isolation"
    ):
        end_offsets(listed(tmp_path), {}, only_committed=True)
    assert end_offsets(listed(tmp_path), {}, only_committed=False) == {"orders": {"0": 4}}
