"""Topic ids in the catalog: from `partition.metadata`, from names and from manifests.

`t` was deleted and created again in some archives: two topics of one name, OLD and NEW.
"""

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kip33.archive.layouts import layout_of
from kip33.archive.listing import list_tree
from kip33.catalog.catalog import Catalog, choose
from kip33.catalog.holes import read_holes
from kip33.catalog.tiers import CatalogSnapshot
from kip33.catalog.topic_totals import topic_totals
from kip33.cli.main import kip33
from kip33.formats.kafka_configs import GroupOffset
from kip33.formats.partition_metadata import PartitionMetadata
from kip33.records.partitions import Selection, Tell, partitions_of
from kip33.report.facts import FindingLevel
from kip33.report.make_report import ReportRequest, make_report
from kip33.restore.restore_request import RestoreRequest
from kip33.restore.restore_source import find_partitions
from kip33.search.answers import SearchOptions
from kip33.search.catalog_search import by_partition, rows_of, search_rows
from kip33.search.group_lag import group_lags
from kip33.search.replica_search import TimeQuestion
from kip33.stores.locations import Location
from tests.builders.changing_archive import DAY_MS, START_MS, ChangingArchive, batches
from tests.builders.layouts import Stored, aiven, aiven_stem, uuid22

OLD, NEW = "bn9RMmT4REWVDFQzf3IUaQ", "AAAAAAAAAAAAAAAAAAAAAQ"
LATER_MS = START_MS + DAY_MS


def write_id(archive: ChangingArchive, partition: str, topic_id: str, age_ms: int = DAY_MS) -> Path:
    place = archive.source / partition / "partition.metadata"
    archive.write(place, PartitionMetadata(topic_id).to_bytes(), age_ms=age_ms)
    return place


def ids_of(archive: ChangingArchive) -> list[str | None]:
    return [row["topic_id"] for row in archive.rows()]


def test_the_id_is_read_once_for_a_directory_and_again_after_a_change(tmp_path: Path) -> None:
    archive = ChangingArchive(tmp_path)
    for base in (0, 40):
        archive.write(archive.log("t-0", base), batches(base, 4))
    archive.write(archive.log("u-0"), batches(0, 4))
    place = write_id(archive, "t-0", OLD)
    archive.build()
    assert ids_of(archive) == [OLD, OLD, None]
    modified_ms = archive.row("t-0")["partition_metadata_modified_ms"]
    assert modified_ms == place.stat().st_mtime_ns // 1_000_000

    archive.rewrite_unseen(place, PartitionMetadata(NEW).to_bytes())
    assert archive.build().reused == 3
    assert ids_of(archive) == [OLD, OLD, None]  # the file was not read

    archive.touch(place)
    assert archive.build().reused == 3
    assert ids_of(archive) == [NEW, NEW, None]
    assert archive.outcome() == archive.fresh()


def test_a_file_without_an_id_is_a_warning_and_the_id_is_not_known(
    tmp_path: Path, subtests: pytest.Subtests
) -> None:
    archive = ChangingArchive(tmp_path)
    archive.write(archive.log("t-0"), batches(0, 4))
    place = write_id(archive, "t-0", OLD)
    for damage in (b"", b"version: 0\n", bytes(44), b"x" * 5000):
        archive.write(place, damage)
        with subtests.test(repr(damage[:10])):
            (warning,) = archive.build().warnings
            assert warning.startswith("1 partition.metadata file cannot be used, for example")
            assert place.as_uri() in warning and "\n" not in warning
            assert ids_of(archive) == [None]


def tiered(archive: ChangingArchive, topic_id: str, base: int, count: int, age_ms: int) -> None:
    name = f"t-0-{topic_id}"
    log = archive.source / name / f"{base:020d}-{'S' * 22}.log"
    first_ms = START_MS if topic_id == OLD else LATER_MS
    archive.write(log, batches(base, count, first_ms=first_ms), age_ms=age_ms)


@pytest.fixture
def created_again(tmp_path: Path) -> ChangingArchive:
    """Two topics beside each other in tiered storage: OLD to offset 80, NEW to offset 40."""
    archive = ChangingArchive(tmp_path)
    for base in (0, 40):
        tiered(archive, OLD, base, 20, age_ms=9 * DAY_MS)
    tiered(archive, NEW, 0, 20, age_ms=DAY_MS)
    return archive


def columns_of(archive: ChangingArchive, *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in names) for row in archive.rows()]


def test_segments_are_read_again_when_a_second_topic_of_their_name_appears(
    tmp_path: Path,
) -> None:
    """Then the two topics have two log_dirs."""
    archive = ChangingArchive(tmp_path)
    for base in (0, 40):
        tiered(archive, OLD, base, 20, age_ms=9 * DAY_MS)
    archive.build(layout="local-tiered")
    assert columns_of(archive, "log_dir", "topic_id") == [("", OLD), ("", OLD)]
    tiered(archive, NEW, 0, 20, age_ms=DAY_MS)
    assert archive.build(layout="local-tiered").reused == 0
    assert columns_of(archive, "log_dir", "topic", "topic_id", "active_segment") == [
        (NEW, "t", NEW, True),
        (OLD, "t", OLD, False),
        (OLD, "t", OLD, True),
    ]
    assert archive.build(layout="local-tiered").reused == 3
    assert archive.outcome() == archive.fresh(layout="local-tiered")


@pytest.fixture
def two_brokers(tmp_path: Path) -> ChangingArchive:
    """`b1` has a topic to offset 80 that was deleted while it was down, `b2` the new one to 40."""
    archive = ChangingArchive(tmp_path)
    for base in (0, 40):
        archive.write(archive.log("b1/t-0", base), batches(base, 20), age_ms=9 * DAY_MS)
    archive.write(archive.log("b1/t-1"), batches(0, 20), age_ms=9 * DAY_MS)
    archive.write(archive.log("b2/t-0"), batches(0, 20, first_ms=LATER_MS), age_ms=DAY_MS)
    for partition, topic_id in (("b1/t-0", OLD), ("b1/t-1", OLD), ("b2/t-0", NEW)):
        write_id(archive, partition, topic_id)
    return archive


def rows_of_t(archive: ChangingArchive) -> list[Any]:
    catalog = Catalog.at(str(archive.catalog))
    return rows_of(CatalogSnapshot(catalog, catalog.require_newest()), ["t"])


def answers(archive: ChangingArchive, *questions: TimeQuestion, **how: Any) -> list[Any]:
    found = search_rows(rows_of_t(archive), questions, SearchOptions(**how))
    return [(one.partition, one.located.log_dir, one.located.answer) for one in found]


@pytest.mark.parametrize("kind", ["created_again", "two_brokers"])
def test_the_newest_topic_answers_by_the_name(kind: str, request: pytest.FixtureRequest) -> None:
    archive: ChangingArchive = request.getfixturevalue(kind)
    layout = {"layout": "local-tiered"} if kind == "created_again" else {}
    archive.build(**layout)
    newest, older = (NEW, OLD) if layout else ("b2", "b1")

    ((_, log_dir, answer),) = answers(archive, TimeQuestion("t", 0, 0))
    assert (log_dir, answer.offset, answer.timestamp) == (newest, 0, LATER_MS)
    assert f"log_dir {older!r}: an older topic of this name" in answer.note

    assert [found[1] for found in answers(archive, TimeQuestion("t", 0, 0), all_replicas=True)] == [
        newest
    ]
    ((_, log_dir, answer),) = answers(archive, TimeQuestion("t", 0, 0, older))
    assert (log_dir, answer.offset, answer.timestamp, answer.note) == (older, 0, START_MS, None)


def test_the_newest_topic_is_that_of_the_newest_records_whatever_a_copy_did_to_the_files(
    two_brokers: ChangingArchive,
) -> None:
    for log in (two_brokers.source / "b1").rglob("*.log"):
        two_brokers.touch(log)
    two_brokers.build()

    ((_, log_dir, answer),) = answers(two_brokers, TimeQuestion("t", 0, 0))
    assert (log_dir, answer.offset, answer.exactness) == ("b2", 0, "unsure")
    assert "by its records it is older, by the times of its files it is newer" in answer.note

    lines: list[str] = []
    read = partitions_of(str(two_brokers.catalog), Selection(), tell=Tell(lines.append))
    assert [(one.log_dir, one.partition) for [one] in read] == [("b2", 0)]
    assert [line.split(":")[0] for line in lines] == ["topic t"]
    catalog = Catalog.at(str(two_brokers.catalog))
    [total] = topic_totals(catalog, catalog.require_newest())
    assert [one["topic_id"] for one in total.topic_ids if one["newest"]] == [NEW]


def test_every_reader_takes_the_newest_topic_and_names_the_older_one(
    two_brokers: ChangingArchive,
) -> None:
    two_brokers.build()
    found = answers(two_brokers, TimeQuestion("t", None, 0))
    assert [(partition, log_dir) for partition, log_dir, _ in found] == [(0, "b2"), (1, None)]
    assert "log_dir 'b1'" in found[1][2].note, "only the older topic has partition 1"

    at_ms, rows = two_brokers.now_ms, by_partition(rows_of_t(two_brokers))
    (lag,) = group_lags(rows, [GroupOffset("g", "t", 0, 40)], now_ms=at_ms)
    assert (lag.log_dir, lag.log_end_offset, lag.lag_records) == ("b2", 40, 0)

    for source in (str(two_brokers.source), str(two_brokers.catalog)):
        lines: list[str] = []
        read = partitions_of(source, Selection(), tell=Tell(lines.append))
        assert [(one.log_dir, one.partition) for [one] in read] == [("b2", 0)], source
        by_files = [
            "that with the newest files is read, because no catalog" in one for one in lines
        ]
        assert by_files == [True] * (source == str(two_brokers.source))
        older = partitions_of(source, Selection(log_dir="b1"))
        assert [len(segments) for segments in older] == [2, 1]

    shown = CliRunner().invoke(kip33, ["catalog", str(two_brokers.catalog)])
    assert f"t: 2 topic ids of this name: {NEW} (newest; 1 segment," in shown.stdout
    assert f"{OLD} (3 segments" in shown.stdout

    catalog = Catalog.at(str(two_brokers.catalog))
    asked = ReportRequest(None, (), at_ms, at_ms, 0)
    report = make_report(catalog, choose(catalog, None), asked)
    (named,) = [one for one in report.findings if "older topic" in one.text]
    assert (named.level, named.count) == (FindingLevel.NOTE, 1)
    assert named.examples[0].startswith(f"t: 3 segments of the topic id {OLD}, ")


def holes(archive: ChangingArchive) -> list[tuple[Any, ...]]:
    catalog = Catalog.at(str(archive.catalog))
    found = read_holes(catalog, catalog.require_newest()).to_pylist()
    return [(hole["log_dir"], hole["first_offset"], hole["hole"]) for hole in found]


def test_a_hole_is_filled_only_by_the_same_topic(tmp_path: Path) -> None:
    archive = ChangingArchive(tmp_path)
    for base in (0, 80):
        archive.write(archive.log("b1/t-0", base), batches(base, 20))
    for base in (0, 40, 80):
        archive.write(archive.log("b2/t-0", base), batches(base, 20, first_ms=LATER_MS))
    write_id(archive, "b1/t-0", OLD)
    for second_id, hole in ((NEW, "certain"), (OLD, "filled")):
        archive.touch(write_id(archive, "b2/t-0", second_id))
        archive.build()
        assert holes(archive) == [("b1", 40, hole)]


def test_replicas_with_different_ids_and_equal_batches_are_of_one_topic(tmp_path: Path) -> None:
    """A controller may give replicas different ids (KAFKA-12835)."""
    archive = ChangingArchive(tmp_path)
    for base in (0, 80):
        archive.write(archive.log("b1/t-0", base), batches(base, 20))
    for base in (0, 40, 80):
        archive.write(archive.log("b2/t-0", base), batches(base, 20), age_ms=9 * DAY_MS)
    for broker, topic_id in (("b1", OLD), ("b2", NEW)):
        write_id(archive, f"{broker}/t-0", topic_id)
    archive.build()

    assert holes(archive) == [("b1", 40, "filled")]
    ((_, log_dir, answer),) = answers(archive, TimeQuestion("t", 0, 0))
    assert (log_dir, answer.exactness, answer.note) == ("b2", "record", None)
    lines: list[str] = []
    read = partitions_of(str(archive.catalog), Selection(), tell=Tell(lines.append))
    assert [[one.log_dir for one in segments] for segments in read] == [["b2"] * 3]
    catalog = Catalog.at(str(archive.catalog))
    snapshot = catalog.require_newest()
    [total] = topic_totals(catalog, snapshot)
    assert [one["newest"] for one in total.topic_ids] == [True, True]
    source, nowhere = Location.of(str(archive.source)), Location.of(str(tmp_path / "restored"))
    held = CatalogSnapshot(catalog, snapshot)
    request = RestoreRequest(source=source, log_dir=nowhere, catalog=held)
    found = find_partitions(request)
    assert [(one.replica, one.replicas) for one in found.partitions] == [("b2", 2)]
    assert (lines, found.notes) == ([], ())


def test_replicas_without_an_id_are_of_the_only_topic_there_is(tmp_path: Path) -> None:
    archive = ChangingArchive(tmp_path)
    archive.write(archive.log("b1/t-0"), batches(0, 20))
    archive.write(archive.log("b2/t-0"), batches(0, 10))
    write_id(archive, "b2/t-0", OLD)
    archive.build()
    ((_, log_dir, answer),) = answers(archive, TimeQuestion("t", 0, 0))
    assert (log_dir, answer.note) == ("b1", None)


def test_a_pattern_may_name_the_id_or_leave_it_to_the_file(tmp_path: Path) -> None:
    archive = ChangingArchive(tmp_path)
    dashed = "6e7f5132-64f8-4445-950c-54337f721469"
    archive.write(archive.log(f"{dashed}/t/0"), batches(0, 4))
    archive.write(archive.log("x1/u/0"), batches(0, 4))
    archive.write(archive.log("x2/u/0"), batches(0, 4))
    source = Location.of(str(archive.source))
    named = layout_of("{topic_id}/{topic}/{partition}/{base_offset}.log")
    assert [one.topic_id for one in list_tree(source, layout=named).segments()] == [OLD]

    write_id(archive, "x1/u/0", OLD)
    write_id(archive, "x2/u/0", NEW)
    archive.build(layout="{entropy}/{topic}/{partition}/{base_offset}.log")
    assert columns_of(archive, "topic", "log_dir", "topic_id") == [
        ("t", "", None),
        ("u", OLD, OLD),
        ("u", NEW, NEW),
    ]


def test_an_aiven_manifest_with_another_id_than_its_key_is_an_error(tmp_path: Path) -> None:
    stored = Stored("orders", 0, 0, batches(0, 4), timeindex=b"", index=b"")
    aiven(tmp_path, [stored])
    stem = aiven_stem(tmp_path, stored)
    manifest = stem.with_name(f"{stem.name}.rsm-manifest")
    for found_id, is_right in ((uuid22("orders"), True), (NEW, False)):
        manifest.write_text(manifest.read_text().replace(uuid22("orders"), found_id))
        (segment,) = list_tree(Location.of(tmp_path), layout=layout_of("aiven")).segments()
        assert segment.topic_id == uuid22("orders")
        assert (segment.error is None) == is_right
