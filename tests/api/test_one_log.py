"""Every user of an archive reads the log of the rule: worlds of `small_kafka` as files."""

import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest

import kip33
from kip33.rules.which_log import Certainty, ChosenLog, Kind
from tests.builders.small_kafka import Made, records_of, worlds
from tests.builders.written_worlds import (
    TOPIC,
    T,
    catalogs,
    common_log_start,
    expected,
    is_written,
    written,
)
from tests.long_forms import seeds, short_and_long

Records = list[tuple[int, int]]  # offset, timestamp
ALLOWED = {"allow_unsure": True, "allow_holes": True, "allow_cut": True}


@pytest.mark.parametrize("many", short_and_long(6, 300, "KIP33_WORLDS"))
def test_all_users_read_the_log_of_the_rule(many: int, tmp_path: Path) -> None:
    found = []
    for made in filter(is_written, worlds(seeds(many), hide=0)):
        place = tmp_path / str(made.seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found += [(made.seed, *one) for one in differences(made, place)]
        shutil.rmtree(place)
    assert not found


def differences(made: Made, place: Path) -> Iterator[tuple[str, Any, Any]]:
    """Each user whose answer is not that of the rule, both answers."""
    log = expected(made)
    records = [(one.offset, T + one.uid) for one, _ in records_of(made.archive, log)]
    places = written(made, place)
    built = catalogs(places)
    opened = kip33.open_catalog(built if len(built) > 1 else built[0])
    answers = [("catalog", opened), *(("directory", one) for one in places if len(places) == 1)]
    kinds = made.world.kinds
    # Restore refuses damage before the end, and a log start within a batch.
    may_refuse = kinds.damage > 0 or kinds.deletes_records
    for name, source in answers:
        folder = place / name
        folder.mkdir()
        yield from readers(name, source, records)
        if name == "catalog":
            yield from writer(built, records, folder / "written")
        if records:
            restored_from = built if name == "catalog" else places
            kept = [one for one in records if one[0] >= common_log_start(made)]
            yield from restores(name, log, kept, restored_from, folder, may_refuse)
    if records and not kinds.damage:
        yield from searches(opened, log, records, compacts=kinds.compacts)
        yield from replicas(opened, made)


def readers(name: str, source: Any, records: Records) -> Iterator[tuple[str, Any, Any]]:
    read = kip33.read_arrow(source, columns=["offset", "timestamp"], on_error="skip")
    yield from unless_equal(f"{name}: read_arrow", pairs_of(read.read_all()), records)
    counted = kip33.count_records(source, "1d")
    yield from unless_equal(f"{name}: count", sum(counted["records"].to_pylist()), len(records))


def writer(built: Any, records: Records, to: Path) -> Iterator[tuple[str, Any, Any]]:
    kip33.write_records(built, to, columns=["offset", "timestamp"])
    files = [*to.glob("topic=*/*/*.parquet")]
    written = pairs_of(ds.dataset(files).to_table()) if files else []
    yield from unless_equal("write_records", sorted(written), sorted(records))


def restores(
    name: str, log: ChosenLog, records: Records, source: Any, place: Path, may_refuse: bool
) -> Iterator[tuple[str, Any, Any]]:
    is_sure = all(one.certainty <= Certainty.COMPACTED for one in log.slices)
    is_whole = is_sure and Kind.HOLE not in {one.kind for one in log.notes}
    [strict] = kip33.restore_archive(source, place / "strict", workers=1).partitions
    if not (may_refuse and is_sure):
        yield from unless_equal(f"{name}: restore refuses", strict.problem is None, is_whole)
    [row] = kip33.restore_archive(source, place / "all", workers=1, **ALLOWED).partitions
    if row.problem:  # perhaps a later leader's log begins within a batch of an earlier one's
        is_right = may_refuse or (not is_sure and "goes beyond offset" in row.problem)
        yield from unless_equal(f"{name}: restore", row.problem, row.problem * is_right)
        return
    read = kip33.read_arrow(place / "all", columns=["offset", "timestamp"])
    found = [one for one in pairs_of(read.read_all()) if one[0] >= (row.start_offset or 0)]
    yield from unless_equal(f"{name}: restore", found, records)


def searches(
    opened: Any, log: ChosenLog, records: Records, *, compacts: bool
) -> Iterator[tuple[str, Any, Any]]:
    end, (last, newest) = log.slices[-1].until_offset, records[-1]
    asked: dict[Any, int] = {"latest": end}
    if not compacts:  # compaction may leave a segment without records at the start
        asked["earliest"] = log.slices[0].from_offset
    for number in (0, len(records) // 2, -1):
        moment = records[number][1]
        asked[moment] = first_at(records, moment)
    requests = [(TOPIC, 0, moment) for moment in asked]
    answers = opened.offsets_for_times(requests).to_pylist()
    found = [row["offset"] for row in answers]
    yield from unless_equal("search", found, [*asked.values()])
    is_sure = answers[-1]["exactness"] != "unsure"
    emitted = opened.offsets_to_emit(requests[-1:]).text
    yield from unless_equal("--emit", emitted, f"{TOPIC},0,{found[-1]}\n" * is_sure)
    if isinstance(opened, kip33.OpenedCatalog):
        [lag] = opened.group_lags([("group", TOPIC, 0, end)])
        yield from unless_equal("lag", lag.log_end_offset, end)
        [point] = opened.resume_points(opened, [("group", TOPIC, 0, last + 1)], buffer_ms=0)
        yield from unless_equal("failover", point.resume_offset, first_at(records, newest))


def replicas(opened: Any, made: Made) -> Iterator[tuple[str, Any, Any]]:
    """Each log directory alone: what it has of the log, then its dead branch."""
    copies = {row.copy for row in made.archive.rows}
    for name in [one.name for at, one in enumerate(made.archive.copies) if at in copies]:
        log = expected(made, name)
        records = [(one.offset, T + one.uid) for one, _ in records_of(made.archive, log)]
        if records and name != "remote":
            last = records[-1][1]
            requests = [(TOPIC, 0, moment, name) for moment in ("latest", last)]
            found = [row["offset"] for row in opened.offsets_for_times(requests).to_pylist()]
            right = [log.slices[-1].until_offset, first_at(records, last)]
            yield from unless_equal("search of a replica", found, right)


def first_at(records: Records, moment: int) -> int:
    return next(offset for offset, time in records if time >= moment)


def pairs_of(table: Any) -> Records:
    times = table["timestamp"].cast("int64").to_pylist()
    return [*zip(table["offset"].to_pylist(), times, strict=True)]


def unless_equal(name: str, found: Any, right: Any) -> Iterator[tuple[str, Any, Any]]:
    if found != right:
        yield name, found, right
