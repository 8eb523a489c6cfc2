"""`kip33 restore LOCAL REMOTE`: a replica and the bucket become one log directory."""

import os
import random
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import kip33
from kip33.catalog.catalog import Catalog
from kip33.restore import restore_apply, restore_complete
from kip33.restore.restore_request import RestoreSummary
from kip33.stores.locations import Location
from tests.builders.layouts import WRITERS, Stored, kafka, local_tiered, put, uuid22
from tests.builders.partition_copies import INTERVAL_BYTES, everything_in, files_of
from tests.builders.random_partitions import HOUR_MS, NOW, WrittenBatch, random_partition
from tests.builders.segment_builder import Record, segment, v2_batch
from tests.builders.snapshots import write
from tests.builders.two_tiers import catalogs_of
from tests.cases import each_case
from tests.long_forms import seeds, short_and_long
from tests.restore.test_restore import Killed, T, batch, log_of, time_of

LAYOUTS = ("local-tiered", "aiven raw", "hdfs both", "pinterest")


def restored(source: Any, log_dir: Path, **how: Any) -> RestoreSummary:
    return kip33.restore_archive(
        source, log_dir, index_interval_bytes=INTERVAL_BYTES, workers=1, **how
    )


def bases_in(directory: Path) -> list[int]:
    return sorted(int(log.stem) for log in directory.glob("*.log"))


def without_gaps(number: int) -> list[WrittenBatch]:
    """Return the batches of a random log in which no offset is missing."""
    for attempt in range(100):
        segments = random_partition(seed=f"tiers {number}", number=attempt).segments
        batches = [one for segment in segments.values() for one in segment]
        is_whole = all(a.last_offset + 1 == b.base_offset for a, b in pairwise(batches))
        if len(batches) > 8 and is_whole:
            return batches
    raise AssertionError("no such log")


def split(batches: Sequence[WrittenBatch], rng: random.Random, bases: Sequence[int] = ()) -> Any:
    """Yield the segments of a log, which begin at random batches or at these base offsets."""
    begins = {0, *(n for n, one in enumerate(batches) if one.base_offset in bases)}
    begins |= set() if bases else {rng.randrange(len(batches)) for _ in range(rng.randint(1, 5))}
    for first, end in pairwise([*sorted(begins), len(batches)]):
        data = b"".join(one.data for one in batches[first:end])
        yield Stored("orders", 0, batches[first].base_offset, data)


def tiers_of(
    batches: list[WrittenBatch], rng: random.Random, *, one_leader: bool
) -> Iterator[list[Stored]]:
    """Yield the local segments, then the remote ones: closed ones, some of which both have."""
    first_local = rng.randrange(len(batches))
    local = list(split(batches[first_local:], rng))
    yield local
    uploaded = batches[: rng.randint(max(1, first_local), len(batches))]
    same = [one.base_offset for one in local] if rng.random() < 0.5 else []
    remote = list(split(uploaded, rng, same))
    if not one_leader and min(epoch_of(one.data) for one in batches) >= 0:
        remote += of_other_leaders(batches, len(uploaded), rng)
    yield [one._replace(upload=number) for number, one in enumerate(remote)]


def of_other_leaders(batches: list[WrittenBatch], end: int, rng: random.Random) -> Iterator[Stored]:
    """Yield the segments of the next leader, and one whose end no later leader had."""
    if rng.random() < 0.7:
        yield from split(batches[rng.randrange(end) : rng.randint(end, len(batches))], rng)
    epochs = [epoch_of(one.data) for one in batches]
    changes = [n for n in range(1, len(batches)) if epochs[n] > epochs[n - 1]]
    if changes:
        at = rng.choice(changes)
        first, base = rng.randrange(at), batches[at].base_offset
        lost = v2_batch(base, [Record(T)] * 40, leader_epoch=epochs[at - 1])
        data = segment([*(one.data for one in batches[first:at]), lost])
        yield Stored("orders", 0, batches[first].base_offset, data)


def epoch_of(batch: bytes) -> int:
    """Return the leader epoch of a batch, -1 before v2."""
    return int.from_bytes(batch[12:16]) if batch[16] == 2 else -1


@pytest.mark.parametrize("logs", short_and_long(2, 40, "KIP33_LOGS"))
def test_the_files_are_those_of_the_log_that_was_in_one_place(tmp_path: Path, logs: int) -> None:
    for number in seeds(logs):
        require_files_of_the_whole_log(tmp_path / str(number), number)


def require_files_of_the_whole_log(place: Path, number: int) -> None:
    rng, batches = random.Random(f"tiers {number}"), without_gaps(number)
    layout, write, _ = WRITERS[LAYOUTS[number % len(LAYOUTS)]]
    has_ids = layout != "pinterest"
    local, remote = tiers_of(batches, rng, one_leader=not has_ids)
    kafka(place / "disks/b1", local)
    put(place / "disks/b1/orders-0/leader-epoch-checkpoint", checkpoint_of(batches))
    write(place / "bucket", remote)
    both = catalogs_of(place, layout)[::-1]
    allowed = {"allow_unsure": min(epoch_of(one.data) for one in batches) < 0}
    summary = restored(both, place / "data", **allowed)
    [row] = summary.partitions
    assert (row.problem, row.replica, row.start_offset, row.end_offset) == (
        *(None, "b1", batches[0].base_offset, batches[-1].last_offset + 1),
    )
    bases = bases_in(place / "data/orders-0")
    assert set(bases) <= {one.base_offset for one in batches}
    kafka(place / "whole/b1", split(batches, rng, bases))
    first_ms = NOW - 10 * HOUR_MS
    begin, end = (first_ms + rng.randrange(*part) for part in ((0, 300_000), (300_000, HOUR_MS)))
    ranged = {"from_": begin, "until": end, "truncate": rng.random() < 0.5}
    for how in (allowed, ranged | allowed):
        for source, name in ((both, "data"), (place / "whole/b1", "expected")):
            log_dir = place / f"{name} {len(how)}"
            assert restored(source, log_dir, **how).partitions_restored
            (log_dir / "orders-0/partition.metadata").unlink(missing_ok=True)
        assert everything_in(place / f"data {len(how)}") == everything_in(log_dir), how


def checkpoint_of(batches: Sequence[WrittenBatch]) -> bytes:
    """Return the file that a broker has beside a log of these batches, not only of its end."""
    starts: dict[int, int] = {}
    for one in batches:
        if epoch_of(one.data) >= 0:
            starts.setdefault(epoch_of(one.data), one.base_offset)
    lines = [f"{epoch} {offset}\n" for epoch, offset in starts.items()]
    return f"0\n{len(lines)}\n{''.join(lines)}".encode()


def stored(base: int, batches: int = 3, **how: Any) -> Stored:
    return Stored("orders", 0, base, log_of(base, batches), **how)


def of_two(place: Path, local: dict[str, list[Stored]], remote: list[Stored]) -> tuple[Path, ...]:
    """Return the catalogs of remote segments, and of local ones by broker."""
    for broker, segments in local.items():
        kafka(place / "disks" / broker, segments)
    local_tiered(place / "bucket", remote)
    return catalogs_of(place)[::-1]


BOTH = [stored(0), stored(30), stored(60)]
ANOTHER = segment(v2_batch(base, [Record(T)] * 10) for base in (30, 40, 50))
OTHER = [Stored("others", 0, 0, log_of(0))]
CASES = {
    "apart": ([60], [0, 30], [0, 30, 60], 2, 90),
    "a copy": ([30, 60], [0, 30], [0, 30, 60], 1, 90),
    "the disk is lost": ([], [0, 30], [0, 30], 2, 60),
    "nothing uploaded": ([0, 30, 60], [], [0, 30, 60], 0, 90),
    "a replica that was left behind": ([30], [0, 30, 60], [0, 30, 60], 2, 90),
}


@each_case(("local", "remote", "bases", "of_bucket", "end"), CASES)
def test_each_record_comes_once(
    local: Any, remote: Any, bases: Any, of_bucket: int, end: int, tmp_path: Path
) -> None:
    segments = [[*OTHER, *map(stored, bases)] for bases in (local, remote)]
    both = of_two(tmp_path, {"b1": segments[0]}, segments[1])
    summary = restored(both, tmp_path / "data", topics=["orders"])
    [row] = summary.partitions
    assert (row.problem, row.remote_segments, row.end_offset) == (None, of_bucket, end)
    assert bases_in(tmp_path / "data/orders-0") == bases
    for base in bases:
        assert (tmp_path / f"data/orders-0/{base:020d}.log").read_bytes() == log_of(base)
    assert summary.source == (tmp_path / "disks").as_uri()
    assert summary.remote_source == (tmp_path / "bucket").as_uri()


def test_the_newest_topic_of_a_name_is_restored(tmp_path: Path) -> None:
    """A broker deletes the segments of a deleted topic from the bucket later, if at all."""
    both = of_two(tmp_path, {"b1": OTHER}, BOTH[:1])
    older = tmp_path / "bucket" / f"orders-0-{'B' * 21}A"
    for one in BOTH:
        log = older / f"{one.base_offset:020d}-{uuid22(one)}.log"
        batches = (one.base_offset + 10 * number for number in range(3))
        put(log, segment(v2_batch(base, [Record(T - HOUR_MS)] * 10) for base in batches))
        os.utime(log, (0, 0))
    catalogs_of(tmp_path)
    for source in (both, both[0]):
        summary = restored(source, tmp_path / f"data {len(str(source))}", topics=["orders"])
        assert [row.end_offset for row in summary.partitions] == [30]
    summary = restored(both, tmp_path / "older", topics=["orders"], replica=f"{'B' * 21}A")
    assert [row.end_offset for row in summary.partitions] == [90]

    kafka(tmp_path / "disks/b1", BOTH[2:])  # no partition.metadata
    catalogs_of(tmp_path)
    [row] = restored(both, tmp_path / "none", topics=["orders"]).partitions
    assert "/disks/b1/orders-0: its topic id is not known, and there are several" in row.problem


@each_case("damage", ("truncated", "unreadable"))
def test_a_damaged_local_log_is_read_from_the_bucket(damage: str, tmp_path: Path) -> None:
    log = log_of(30)[:-7] if damage == "truncated" else b"x" * 500
    local = [Stored("orders", 0, 30, log), stored(60)]
    both = of_two(tmp_path, {"b1": local}, BOTH[:2])
    [row] = restored(both, tmp_path / "data").partitions
    assert (row.problem, row.remote_segments) == (None, 2)
    bases = bases_in(tmp_path / "data/orders-0")
    assert bases == ([0, 30, 50, 60] if damage == "truncated" else [0, 30, 60])
    logs = [(tmp_path / f"data/orders-0/{base:020d}.log").read_bytes() for base in bases]
    assert b"".join(logs) == log_of(0, 9)


REFUSED = {
    "a hole": ([BOTH[2]], [BOTH[0]], "offsets 30 to 59 are missing"),
    "within a batch": (
        [Stored("orders", 0, 15, batch(15))],
        [Stored("orders", 0, 0, log_of(0, 2))],
        "the batch of offsets 10 to 19 goes beyond offset 15, where the next segment begins",
    ),
    "a damaged upload": (
        [stored(60)],
        [BOTH[0], Stored("orders", 0, 30, log_of(30)[:-7])],
        "only the end of a partition's last segment can be cut",
    ),
    "another log": (
        [stored(30), stored(60)],
        [BOTH[0], Stored("orders", 0, 30, ANOTHER)],
        "no copy shows whether the log's leader had the records from offset 30 on",
    ),
}


@each_case(("local", "remote", "problem"), REFUSED)
def test_what_is_not_one_log_is_refused_in_one_line(
    local: Any, remote: Any, problem: str, tmp_path: Path
) -> None:
    both = of_two(tmp_path, {"b1": local}, remote)
    for how in ({"dry_run": True}, {}):
        [row] = restored(both, tmp_path / "data", **how).partitions
        is_of_a_batch = problem.startswith("the batch")  # no catalog has these
        if not (how and is_of_a_batch):
            assert problem in str(row.problem)
            assert "\n" not in str(row.problem)
    assert not (tmp_path / "data/orders-0").exists()


def test_an_archived_upload_is_named(tmp_path: Path) -> None:
    both = of_two(tmp_path, {"b1": BOTH[2:]}, BOTH[:2])
    remote = Catalog.at(str(both[0]))
    unread = dict.fromkeys(("last_offset", "record_count", "valid_bytes", "max_timestamp"))
    archived = {"status": "archived", "error": "archived: restore it first"} | unread
    rows = remote.read(remote.require_newest()).to_pylist()
    rows = [row | archived for row in rows]
    write(remote, rows, source=Location.of(tmp_path / "bucket"), layout="local-tiered")
    [refused] = restored(both, tmp_path / "data").partitions
    assert re.fullmatch(r"file:.*/bucket/.*\.log: archived: restore it first", str(refused.problem))


def test_an_upload_that_changed_after_its_build_is_refused(tmp_path: Path) -> None:
    both = of_two(tmp_path, {"b1": BOTH[2:]}, BOTH[:2])
    [log] = (tmp_path / "bucket").rglob(f"{30:020d}*.log")
    log.write_bytes(log_of(30, leader_epoch=1))
    [row] = restored(both, tmp_path / "data").partitions
    assert "the log changed after it was listed" in str(row.problem)


def test_only_whole_logs_are_links(tmp_path: Path) -> None:
    local = [Stored("orders", 0, 20, log_of(20, 4)), stored(60)]
    both = of_two(tmp_path, {"b1": local}, BOTH[:2])
    restored(both, tmp_path / "data", link=True)
    links = {log.name: log.stat().st_nlink for log in (tmp_path / "data").rglob("*.log")}
    assert links == {f"{base:020d}.log": count for base, count in ((0, 1), (20, 2), (60, 1))}


def test_the_log_start_is_that_of_the_whole_log(tmp_path: Path) -> None:
    """A broker with tiered storage writes it there also where its disk begins later."""
    both = of_two(tmp_path, {"b1": BOTH[2:]}, BOTH[:2])
    (tmp_path / "disks/b1/log-start-offset-checkpoint").write_text("0\n1\norders 0 13\n")
    [row] = restored(both, tmp_path / "data").partitions
    assert (row.start_offset, row.end_offset) == (13, 90)
    text = (tmp_path / "data/log-start-offset-checkpoint").read_text()
    assert text == "0\n1\norders 0 13\n"


def test_leader_epochs_are_those_of_the_batches(tmp_path: Path) -> None:
    logs = [Stored("orders", 0, base, log_of(base, leader_epoch=base // 30)) for base in (0, 30)]
    (tmp_path / "disks/b1/orders-0").mkdir(parents=True)
    (tmp_path / "disks/b1/orders-0/leader-epoch-checkpoint").write_text("0\n3\n0 0\n1 30\n5 60\n")
    both = of_two(tmp_path, {"b1": logs[1:]}, logs[:1])
    restored(both, tmp_path / "data")
    found = files_of(tmp_path / "data/orders-0")["leader-epoch-checkpoint"]
    assert found == b"0\n2\n0 0\n1 30\n"


def test_a_directory_that_could_not_be_listed_is_named(tmp_path: Path) -> None:
    both = of_two(tmp_path, {"b1": BOTH[2:]}, BOTH[:2])
    local = Catalog.at(str(both[1]))
    rows = local.read(local.require_newest()).to_pylist()
    unlisted = dict.fromkeys(rows[0]) | {
        "log_uri": (tmp_path / "disks/b2").as_uri(),
        **{"error": "cannot be listed", "status": "unreadable", "active_segment": False},
        **{"bytes_version": 1, "kip33_version": "0.2.0"},
    }
    write(local, [*rows, unlisted], source=Location.of(tmp_path / "disks"))
    summary = restored(both, tmp_path / "data")
    assert (summary.partitions_restored, summary.partitions_refused) == (1, 1)
    assert "b2: cannot be listed; its segments are not restored" in summary.problems[0]


def test_the_same_two_catalogs_continue_a_restore_in_any_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = [Stored("orders", 0, 50, log_of(50, 4))]
    both = of_two(tmp_path / "one", {"b1": local}, BOTH[:2])
    others = of_two(tmp_path / "two", {"b1": local}, BOTH[:2])

    def kill(*_: object) -> None:
        raise Killed

    for module, moment in ((restore_apply, "begin_restore_journal"), (restore_complete, "_place")):
        with monkeypatch.context() as context, pytest.raises(Killed):
            context.setattr(module, moment, kill)
            restored(both, tmp_path / "data")
    for source in (both[0], [both[0], others[1]]):
        with pytest.raises(kip33.RestoreError, match=r"a restore with SOURCE .* was begun"):
            restored(source, tmp_path / "data")
    summary = restored(reversed(both), tmp_path / "data")
    assert "continues the restore that was begun with SOURCE" in summary.notes[0]
    assert (summary.bytes_copied, summary.bytes_there) == (0, len(log_of(0, 9)))
    assert bases_in(tmp_path / "data/orders-0") == [0, 30, 50]


def test_a_time_after_the_cut_is_found_in_the_next_segment(tmp_path: Path) -> None:
    both = of_two(tmp_path, {"b1": [Stored("orders", 0, 20, log_of(20, 7))]}, BOTH[:1])
    [row] = restored(both, tmp_path / "data", from_=time_of(25)).partitions
    assert (row.start_offset, row.remote_segments, row.segments) == (25, 0, 1)


def test_wrong_sources_are_one_line(tmp_path: Path) -> None:
    both = of_two(tmp_path, {"b1": BOTH[2:]}, BOTH[:2])
    wrong: list[tuple[type[Exception], list[Path], dict[str, Any], str]] = [
        (ValueError, [], {}, "0 sources found, expected one, or a catalog of each of two tiers"),
        (ValueError, [*both, both[0]], {}, "3 sources found"),
        (ValueError, both, {"snapshot": "1"}, "snapshot requires one SOURCE, two found"),
        (kip33.CatalogError, [both[1], both[1]], {}, "two catalogs of the local tier found"),
        (kip33.CatalogError, [both[1], tmp_path / "bucket"], {}, "no committed snapshot found"),
        (kip33.LocationError, [both[1], tmp_path / "none"], {}, "none: the catalog does not exist"),
    ]
    for failure, sources, how, text in wrong:
        with pytest.raises(failure, match=text):
            restored(sources, tmp_path / "data", **how)


def test_of_two_uploads_the_complete_one_is_restored(tmp_path: Path) -> None:
    cut = Stored("orders", 0, 30, log_of(30, 1), upload=1)
    local_tiered(tmp_path / "archive", [*BOTH, cut])
    summary = restored(tmp_path / "archive", tmp_path / "data", layout="local-tiered")
    assert summary.partitions_refused == 0
    assert files_of(tmp_path / "data/orders-0")[f"{30:020d}.log"] == log_of(30)


def test_a_log_whose_leader_epochs_fall_is_refused(tmp_path: Path) -> None:
    # Rows of before schema 4 do not say of which leader an upload is.
    local = [Stored("orders", 0, 0, log_of(0, 3, leader_epoch=2))]
    upload = Stored("orders", 0, 30, log_of(30, 3, leader_epoch=1))
    both = of_two(tmp_path, {"b1": local}, [upload])
    for place in both:
        catalog = Catalog.at(str(place))
        rows = catalog.read(catalog.require_newest()).to_pylist()
        for row in rows:
            row |= {"leader_epochs": None, "leader_epoch_offsets": None}
        names = [name for name in rows[0] if not name.endswith("_time")]
        newest = catalog.require_newest()
        source = Location.of(newest.source)
        known = [{name: row[name] for name in names} for row in rows]
        write(catalog, known, layout=newest.layout, source=source)
    [refused] = restored(both, tmp_path / "data").partitions
    assert "leader epochs are not known" in str(refused.problem)
    assert "give --allow-unsure" in str(refused.problem)
    for how in ({}, {"leader_epoch": 0}):
        [row] = restored(both, tmp_path / "data", allow_unsure=True, **how).partitions
        assert row.problem is not None
        assert "the batch at offset 30 has leader epoch 1, and one before it has 2" in row.problem
        assert "leader epochs are not known" in " ".join(row.notes)


def test_a_log_that_went_on_in_a_new_cluster_is_restored_with_one_epoch(tmp_path: Path) -> None:
    log = log_of(0, 3, leader_epoch=2) + log_of(30, 3, leader_epoch=1)
    kafka(tmp_path / "disks", [Stored("orders", 0, 0, log)])
    for leader_epoch, is_restored in ((None, False), (2, False), (1, True)):
        place = tmp_path / str(leader_epoch)
        [row] = restored(tmp_path / "disks", place, leader_epoch=leader_epoch).partitions
        assert (row.problem is None) == is_restored
        assert is_restored or str(row.problem).endswith(", give --leader-epoch 1")
