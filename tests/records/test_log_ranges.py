"""The ranges of a stream: nights of a growing archive, limits, and what is lost or changed."""

from pathlib import Path
from random import Random

import pytest

from kip33.archive.log_slice import LogSlice
from kip33.catalog.catalog import Catalog, catalog_at, choose
from kip33.errors import Kip33Error
from kip33.formats.whole_bodies import RecordLimits
from kip33.records.log_ranges import (
    LogOffsets,
    LogRange,
    LogRangeError,
    end_offsets,
    first_offsets,
    in_order,
    limited,
    ranges_between,
    require_same_segments,
    shares_of,
    sparse_cuts,
    stream_shares,
    with_transactions,
)
from kip33.records.partitions import HeaderFigures, PartitionSegments, ReadSegment
from kip33.records.reading import Reading
from kip33.records.record_request import FilterBounds, OnError, RecordRequest
from kip33.stores.locations import Location
from tests.builders.log_file import write_log
from tests.builders.segment_builder import Record, v2_batch
from tests.faults.builds import build_here
from tests.long_forms import seeds, short_and_long
from tests.records.test_read_committed import committed, random_events, write

READING = Reading.of(isolation="read_committed", columns=["offset"])._replace(on_error=OnError.FAIL)
T = 1_700_000_000_000
PARTITION = "archive/orders-0"


def listed(place: Path, start: LogOffsets | None = None) -> list[PartitionSegments]:
    partitions = in_order(READING.partitions(str(place / "indexes/_catalog")))
    return with_transactions(partitions, start or {})


def night(
    place: Path, start: LogOffsets, share: int = 7, *, offset_index: bool = True
) -> tuple[list[int], LogOffsets]:
    """Build, read what is new since `start`; its offsets and where the logs end."""
    build_here(place / "archive", place / "indexes", offset_index=offset_index)
    end = end_offsets(listed(place, start), start, only_committed=True)
    return read(place, start, end, share), end


def read(place: Path, start: LogOffsets, end: LogOffsets, share: int = 7) -> list[int]:
    found: list[int] = []
    for one in ranges_between(listed(place, start), start, end, fail_on_data_loss=True):
        reached = one.first_offset
        for part in shares_of(one, share, only_committed=True):
            assert reached <= part.first_offset < part.end_offset <= one.end_offset
            reached = part.end_offset
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
@pytest.mark.parametrize("offset_index", [True, False])
def test_nights_have_each_committed_record_once(
    tmp_path: Path, logs: int, offset_index: bool
) -> None:
    """With a catalog that knows no transactions, too: then the headers of logs are read."""
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
            share = random.choice((1, 7, 50))
            more, offsets = night(place, offsets, share, offset_index=offset_index)
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
    with pytest.warns(UserWarning, match="orders-0: of offsets 2 to 11 offsets 4 to 11 found"):
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
    with pytest.warns(UserWarning, match=r"topic orders: the topic ids .* expected one"):
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


def segments_of(*figures: tuple[int, int | None, int]) -> PartitionSegments:
    """Segments of (base offset, last offset, records)."""
    bases = [*(base for base, _, _ in figures), None]
    return [
        ReadSegment(
            *(LogSlice(Location.of(f"/c-0/{base:020d}.log")), None, "c", 0, base, following),
            HeaderFigures(9, 9, records, records, last, T),
        )
        for (base, last, records), following in zip(figures, bases[1:], strict=True)
    ]


def shares(
    partition: PartitionSegments, first: int, end: int, records: int
) -> list[tuple[int, int, list[int | None]]]:
    cut = shares_of(LogRange(partition, first, end), records, only_committed=False)
    return [
        (one.first_offset, one.end_offset, [segment.base_offset for segment in one.segments])
        for one in cut
    ]


GIGA = 10**9
SPARSE = segments_of((0, GIGA - 1, 2), (GIGA, 2 * GIGA - 1, 2))
APART = segments_of((0, 9, 10), (GIGA, GIGA + 9, 10))
DENSE = segments_of((0, 9, 10), (10, 19, 10), (20, 29, 10))


@pytest.mark.parametrize(
    ("partition", "asked", "expected"),
    [
        (SPARSE, (0, 2 * GIGA, 100), [(0, 2 * GIGA, [0, GIGA])]),
        (SPARSE, (0, 2 * GIGA, 2), [(0, GIGA, [0]), (GIGA, 2 * GIGA, [GIGA])]),
        (SPARSE, (0, GIGA, 1), [(0, GIGA // 2, [0]), (GIGA // 2, GIGA, [0])]),
        (DENSE, (0, 30, 30), [(0, 30, [0, 10, 20])]),
        (DENSE, (5, 30, 10), [(5, 15, [0, 10]), (15, 25, [10, 20]), (25, 30, [20])]),
        (DENSE, (12, 15, 10), [(12, 15, [10])]),
        (APART, (0, GIGA + 10, 10), [(0, GIGA, [0]), (GIGA, GIGA + 10, [GIGA])]),
        (
            APART,
            (20, GIGA + 10, 3),
            [
                (20, GIGA + 3, [GIGA]),
                (GIGA + 3, GIGA + 6, [GIGA]),
                (GIGA + 6, GIGA + 9, [GIGA]),
                (GIGA + 9, GIGA + 10, [GIGA]),
            ],
        ),
        (APART, (20, 30, 3), []),
    ],
)
def test_shares_go_by_records(
    partition: PartitionSegments,
    asked: tuple[int, int, int],
    expected: list[tuple[int, int, list[int]]],
) -> None:
    assert shares(partition, *asked) == expected


@pytest.mark.parametrize("seed", range(50))
def test_a_share_has_the_segments_that_may_have_its_offsets(seed: int) -> None:
    random, base, figures = Random(seed), 0, []
    for _ in range(random.randrange(1, 9)):
        last = random.choice((None, base + random.randrange(0, 12)))
        figures.append((base, last, 1))
        base += random.randrange(1, 10)
    partition = [
        one._replace(damage=random.choice((None, None, "cut"))) for one in segments_of(*figures)
    ]
    first, end = sorted(random.sample(range(25), 2))
    asked = RecordRequest(RecordLimits(first_offset=first, last_offset=end - 1))
    numbers = [number for number, one in enumerate(partition) if asked.needs(one)]
    expected = partition[numbers[0] : numbers[-1] + 1] if numbers else []
    assert LogRange(partition, first, end).needed() == expected


def test_a_stream_notes_the_cuts_of_a_range_with_few_records() -> None:
    """So the shares are the same when the catalog knows more, or nothing, of its segments."""
    ends = {"c": {"0": 2 * GIGA}}
    assert sparse_cuts([DENSE], {}, {"c": {"0": 30}}, 10) == {}
    cuts = sparse_cuts([SPARSE], {}, ends, 1)
    assert cuts == {"c-0": [GIGA // 2, GIGA, 3 * GIGA // 2]}
    others = [one._replace(figures=None) for one in SPARSE]
    for partition in (SPARSE, others):
        found = LogRange(partition, 0, 2 * GIGA)
        again = stream_shares(found, cuts, 1, only_committed=False)
        assert [one.first_offset for one in again] == [0, *cuts["c-0"]]
    even = stream_shares(LogRange(DENSE, 0, 30), cuts | {"c-0": []}, 10, only_committed=False)
    assert [one.end_offset for one in even] == [30]
