"""Files that each layout finds, ignores, or cannot read: a row or a count, never a crash."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from kip33.archive.directory import Segment
from kip33.archive.layouts import LAYOUTS, layout_of
from kip33.archive.layouts.kafka import hash_bits
from kip33.archive.listing import Listing, list_tree
from kip33.archive.sources import require_segments
from kip33.builds.commit import begin_build
from kip33.errors import CatalogError, LocationError
from kip33.stores.locations import Location
from tests.builders import layouts as archives
from tests.builders.layout_segments import DAY_MS, made_segments
from tests.builders.layouts import (
    MODIFIED_MS,
    PATTERN,
    WRITERS,
    Stored,
    aiven_stem,
    put,
    segment_id,
    uuid22,
)
from tests.builders.plans import plan_build
from tests.cases import each_case
from tests.faults.builds import build_here, outcome

NOW_MS = MODIFIED_MS + DAY_MS
LOG = made_segments()[0].log
ONE = Stored("orders", 0, 0, LOG, timeindex=bytes(24), index=bytes(16))
NEXT = made_segments()[1]


def listed(root: Path, layout: str, index_dir: Path | None = None) -> Listing:
    return list_tree(
        Location.of(root), Location.of(index_dir) if index_dir else None, layout=layout_of(layout)
    )


def rows(root: Path, layout: str) -> list[Segment]:
    return list(listed(root, layout).segments())


@each_case("name", [*WRITERS])
def test_what_is_known_before_a_log_is_read(tmp_path: Path, name: str) -> None:
    layout, write, log_dir = WRITERS[name]
    write(tmp_path / "a", [ONE, NEXT])
    first, last = sorted(rows(tmp_path / "a", layout), key=lambda row: row.base_offset or 0)
    assert (first.log_dir, first.topic, first.partition) == (log_dir, "orders", 0)
    assert (first.base_offset, first.next_base_offset, last.base_offset) == (0, 600, 600)
    assert (first.active_segment, last.active_segment) == (False, True)
    assert (first.size_bytes, first.last_modified_ms) == (len(ONE.log), MODIFIED_MS)
    sizes = (first.beside_time_index_bytes, first.beside_offset_index_bytes)
    assert sizes == ((None, None) if name == "pattern" else (24, 16))
    assert (first.error, last.error) == (None, None)


@each_case("name", [*WRITERS])
def test_index_files_are_seen_where_a_build_puts_them(tmp_path: Path, name: str) -> None:
    layout, write, _ = WRITERS[name]
    write(tmp_path / "a", [ONE])
    (before,) = listed(tmp_path / "a", layout, tmp_path / "i").segments()
    assert (before.target_time_index_bytes, before.target_offset_index_bytes) == (None, None)
    build_here(tmp_path / "a", tmp_path / "i", now_ms=NOW_MS, layout=layout, offset_index=True)
    (row,) = outcome(tmp_path / "i").rows
    (after,) = listed(tmp_path / "a", layout, tmp_path / "i").segments()
    sizes = (after.target_time_index_bytes, after.target_offset_index_bytes)
    assert sizes == (row["time_index_bytes"], row["offset_index_bytes"])
    index = Path(row["index_uri"].removeprefix("file://"))
    killed = index.with_name(f".{index.name}.{'0a' * 16}.tmp")
    put(killed, b"")
    unfinished = listed(tmp_path / "a", layout, tmp_path / "i").unfinished
    assert [Path(place.path) for place, _ in unfinished] == [killed]


@each_case("name", [name for name in WRITERS if name not in ("kafka", "pinterest")])
def test_a_segment_uploaded_twice_is_two_rows(tmp_path: Path, name: str) -> None:
    layout, write, _ = WRITERS[name]
    write(tmp_path / "a", [ONE, ONE._replace(upload=1)])
    build_here(tmp_path / "a", tmp_path / "i", now_ms=NOW_MS, layout=layout)
    found = outcome(tmp_path / "i").rows
    assert [row["base_offset"] for row in found] == [0, 0]
    assert len({row["log_uri"] for row in found}) == len({row["index_uri"] for row in found}) == 2
    assert [row["status"] for row in found] == ["ok", "ok"]


@each_case("layout", [*LAYOUTS])
def test_a_directory_that_is_not_an_archive(tmp_path: Path, layout: str) -> None:
    put(tmp_path / "photos" / "0001.jpg", b"x")
    put(tmp_path / "orders-0" / "README", b"x")
    put(tmp_path / "orders-0-1" / "7" / "x.log", b"x")
    with pytest.raises(LocationError, match=r"no segments found; expected '.*'") as raised:
        require_segments(Location.of(tmp_path), layout=layout_of(layout))
    assert "\n" not in str(raised.value)


def test_an_archive_of_another_layout_reports_the_ignored_files(tmp_path: Path) -> None:
    archives.kafka(tmp_path, [ONE])
    with pytest.raises(LocationError, match=r"\(skipped: 3 files not named as segments\)"):
        require_segments(Location.of(tmp_path), layout=layout_of("hdfs-rsm"))


def test_an_encrypted_segment_is_a_row_that_says_so(tmp_path: Path) -> None:
    archives.aiven(tmp_path / "a", [ONE], encrypted=True)
    archives.aiven(tmp_path / "a", [NEXT])
    build_here(tmp_path / "a", tmp_path / "i", now_ms=NOW_MS, layout="aiven")
    encrypted, plain = outcome(tmp_path / "i").rows
    assert (encrypted["status"], plain["status"]) == ("unreadable", "ok")
    assert re.search(r"encrypted \(AES-GCM\).*archive it unencrypted", encrypted["error"])
    assert "\n" not in encrypted["error"]
    assert (encrypted["base_offset"], encrypted["size_bytes"]) == (0, len(LOG))
    assert encrypted["index_uri"] is None


def test_a_log_without_its_manifest_is_ignored_and_counted(tmp_path: Path) -> None:
    archives.aiven(tmp_path, [ONE, NEXT, ONE._replace(upload=1)])
    stems = {one: aiven_stem(tmp_path, one) for one in (ONE, NEXT)}
    stems[ONE].with_name(f"{stems[ONE].name}.rsm-manifest").unlink()
    stems[NEXT].with_name(f"{stems[NEXT].name}.log").unlink()
    found = listed(tmp_path, "aiven")
    assert [row.base_offset for row in found.segments()] == [0]
    assert found.passed_over == {
        "logs without .rsm-manifest: not wholly uploaded": 1,
        ".rsm-manifest files without a log": 1,
    }


def other_offset(text: str) -> str:
    return text.replace('"startOffset": 0', '"startOffset": 3')


def cut(text: str) -> str:
    return text[:50]


@each_case(
    ("change", "says"),
    [
        (cut, "cannot be read"),
        (other_offset, "it describes orders-0 from offset 3 on, but its key names another segment"),
    ],
)
def test_a_wrong_manifest_is_a_row(tmp_path: Path, change: Callable[[str], str], says: str) -> None:
    archives.aiven(tmp_path / "a", [ONE, NEXT])
    stem = aiven_stem(tmp_path / "a", ONE)
    path = stem.with_name(f"{stem.name}.rsm-manifest")
    good = path.read_text()
    put(path, change(good).encode())
    build_here(tmp_path / "a", tmp_path / "i", now_ms=NOW_MS, layout="aiven")
    bad, sound = outcome(tmp_path / "i").rows
    assert (bad["status"], sound["status"]) == ("unreadable", "ok")
    assert says in bad["error"]
    assert (bad["base_offset"], bad["topic"]) == (0, "orders")
    put(path, good.encode())
    build_here(tmp_path / "a", tmp_path / "i", now_ms=NOW_MS + DAY_MS, layout="aiven")
    assert [row["status"] for row in outcome(tmp_path / "i").rows] == ["ok", "ok"]


@each_case("name", ["hdfs files", "hdfs directories"])
def test_our_index_stays_ours_while_its_hdfs_segment_is_unreadable(
    tmp_path: Path, name: str
) -> None:
    _, write, _ = WRITERS[name]
    write(tmp_path / "a", [ONE, NEXT])
    build_here(tmp_path / "a", tmp_path / "i", now_ms=NOW_MS, layout="hdfs-rsm")
    before = outcome(tmp_path / "i")
    directory = tmp_path / "a" / f"orders-0-{uuid22('orders')}" / segment_id(ONE)
    file = directory if name == "hdfs files" else directory / "log"
    good = file.read_bytes()
    put(file, b"\x00garbage")
    summary = build_here(tmp_path / "a", tmp_path / "i", now_ms=NOW_MS + DAY_MS, layout="hdfs-rsm")
    assert (summary.indexed, summary.reused, summary.dropped) == (1, 1, 0)
    bad, sound = sorted(outcome(tmp_path / "i").rows, key=lambda row: row["status"] == "ok")
    assert (bad["status"], bad["base_offset"], bad["index_file"]) == ("unreadable", None, "written")
    assert bad["error"]
    assert sound["status"] == "ok"
    assert outcome(tmp_path / "i").files == before.files
    put(file, good)
    build_here(tmp_path / "a", tmp_path / "i", now_ms=NOW_MS + 2 * DAY_MS, layout="hdfs-rsm")
    assert outcome(tmp_path / "i") == before


NO_LOGS = [b"", b"\x00" * 25, archives.rsm_file(ONE._replace(log=b"")), b"x" * 4000]


@each_case("data", NO_LOGS)
def test_an_hdfs_file_without_a_batch_is_a_row(tmp_path: Path, data: bytes) -> None:
    put(tmp_path / f"orders-0-{uuid22('orders')}" / segment_id(ONE), data)
    (row,) = rows(tmp_path, "hdfs-rsm")
    assert (row.topic, row.partition, row.base_offset) == ("orders", 0, None)
    assert row.error


def test_the_oldest_hdfs_directories_say_their_offsets(tmp_path: Path) -> None:
    put(tmp_path / "orders-0" / f"{7:020d}-{99:020d}" / "log", b"")
    (row,) = rows(tmp_path, "hdfs-rsm")
    assert (row.base_offset, row.size_bytes, row.error) == (7, 0, None)


def test_a_prefix_before_the_topic_belongs_to_the_log_dir(tmp_path: Path) -> None:
    archives.aiven(tmp_path / "x", [ONE], prefix="prod-")
    archives.aiven(tmp_path / "x", [ONE], prefix="test-")
    archives.aiven(tmp_path, [ONE])
    found = sorted((row.log_dir, row.topic) for row in rows(tmp_path, "aiven"))
    assert found == [("", "orders"), ("x/prod", "orders"), ("x/test", "orders")]


def test_bits_of_a_hash_are_no_part_of_the_log_dir(tmp_path: Path) -> None:
    archives.pinterest(tmp_path, [ONE], cluster="c1", bits=3)
    archives.pinterest(tmp_path / "base", [ONE], cluster="c2", bits=0)
    bits = hash_bits("c1", "orders", 1)[:4]
    wrong = "".join("10"[int(bit)] for bit in bits)
    for entropy in (bits, wrong):  # the second one is a directory of that name
        archives.beside(tmp_path / entropy / "c1" / "orders-1" / f"{0:020d}", ONE)
    found = sorted((row.log_dir, row.partition) for row in rows(tmp_path, "pinterest"))
    assert found == sorted([("base/c2", 0), ("c1", 0), ("c1", 1), (f"{wrong}/c1", 1)])


TOPICS = ["a", "-a-10-", "a-0-x", "a.b-c-0", "a_1_x_0", "x" * 200]


@each_case("name", [*WRITERS])
@each_case("topic", TOPICS)
def test_topics_with_dashes_and_digits(tmp_path: Path, name: str, topic: str) -> None:
    layout, write, _ = WRITERS[name]
    write(tmp_path, [ONE._replace(topic=topic, partition=12)])
    (row,) = rows(tmp_path, layout)
    assert (row.topic, row.partition, row.error) == (topic, 12, None)


SOURCES = [
    ("aiven raw", f"orders-{uuid22('orders')}"),
    ("aiven raw", f"orders-{uuid22('orders')}/0"),
    ("local-tiered", f"orders-0-{uuid22('orders')}"),
    ("hdfs files", f"orders-0-{uuid22('orders')}"),
    ("hdfs directories", f"orders-0-{uuid22('orders')}"),
    ("hdfs directories", f"orders-0-{uuid22('orders')}/{segment_id(ONE)}"),
]


@each_case(("name", "below"), SOURCES)
def test_source_may_be_one_partitions_directory(tmp_path: Path, name: str, below: str) -> None:
    layout, write, _ = WRITERS[name]
    write(tmp_path, [ONE])
    (row,) = rows(tmp_path / below, layout)
    assert (row.log_dir, row.topic, row.partition, row.base_offset) == ("", "orders", 0, 0)


PATTERNS = [
    ("{log_dir}/{topic}-{partition}/{base_offset}.log", "orders-0/7.log", ""),
    ("{log_dir}/{topic}-{partition}/{base_offset}.log", "b/x/orders-0/7.log", "b/x"),
    ("{cluster}/{topic}/{partition}/{base_offset}.log", "c/orders/0/7.log", "c"),
    ("{broker}-{entropy}/{topic}.{partition}.{base_offset}", "b1-00ff/orders.0.7", "b1"),
    ("{cluster}/b{broker}/{topic}-{partition}-{base_offset}", "c/b12/orders-0-7", "c/12"),
    ("x/{topic}-{topic_id}/{partition}_{base_offset}.log", f"x/orders-{uuid22(1)}/0_7.log", ""),
    ("{topic}/p{partition}/{base_offset}.log+", "orders/p0/0007.log+", ""),
]


@each_case(("pattern", "path", "log_dir"), PATTERNS)
def test_patterns(tmp_path: Path, pattern: str, path: str, log_dir: str) -> None:
    put(tmp_path / path, LOG)
    put(tmp_path / f"{path}.old", LOG)
    put(tmp_path / "deeper" / "than" / "that" / "is" / f"{path}x", LOG)
    (row,) = rows(tmp_path, pattern)
    key = (row.path, row.log_dir, row.topic, row.partition, row.base_offset)
    assert key == (path, log_dir, "orders", 0, 7)


WRONG = [
    ("{topic}-{partition}/0.log", r"field \{base_offset\} is missing"),
    ("{topic}/{base_offset}/{part}", r"unknown field \{part\}"),
    ("{topic}-{partition}/{base_offset}{entropy}", "two fields have no text between"),
    ("{topic}-{partition}/{base_offset}/{topic}", "a field appears twice"),
    ("{topic}-{partition}/{base_offset}}", "a brace"),
    ("x/{log_dir}/{topic}-{partition}/{base_offset}", "is not at the start"),
    ("/{topic}-{partition}/{base_offset}", "not a path below SOURCE"),
    ("../{topic}-{partition}/{base_offset}", "not a path below SOURCE"),
    ("{}/{topic}-{partition}/{base_offset}", "unknown field"),
    ("tiered", "expected kafka, pinterest, aiven, local-tiered, hdfs-rsm, or a pattern"),
    ("", "kafka, pinterest, aiven"),
]


@each_case(("layout", "says"), WRONG)
def test_texts_that_are_not_layouts(layout: str, says: str) -> None:
    with pytest.raises(ValueError, match=says) as raised:
        layout_of(layout)
    assert "\n" not in str(raised.value)


@each_case("name", ["aiven raw", "hdfs files", "hdfs directories", "pattern"])
def test_in_place_is_refused_for_layouts_without_indexes_beside_logs(
    tmp_path: Path, name: str
) -> None:
    layout, write, _ = WRITERS[name]
    write(tmp_path / "a", [ONE])
    catalog = str(tmp_path / "c")
    with pytest.raises(ValueError, match="give --index-dir"):
        plan_build(
            str(tmp_path / "a"), now_ms=NOW_MS, in_place=True, layout=layout, catalog=catalog
        )


def test_another_layout_on_the_same_catalog_is_refused(tmp_path: Path) -> None:
    archives.local_tiered(tmp_path / "a", [ONE])
    build_here(tmp_path / "a", tmp_path / "i", now_ms=NOW_MS, layout="local-tiered")
    commit = next((tmp_path / "i" / "_catalog" / "commits").iterdir())
    assert json.loads(commit.read_text())["settings"]["layout"] == "local-tiered"
    with pytest.raises(CatalogError, match="built with --layout 'local-tiered', not 'kafka'"):
        plan_build(str(tmp_path / "a"), str(tmp_path / "i"), now_ms=NOW_MS)


def test_a_concurrent_build_of_another_layout_is_detected(tmp_path: Path) -> None:
    archives.kafka(tmp_path / "a", [ONE])
    late = plan_build(str(tmp_path / "a"), str(tmp_path / "i"), now_ms=NOW_MS)
    pattern = "{log_dir}/{topic}-{partition}/{base_offset}.log"
    build_here(tmp_path / "a", tmp_path / "i", now_ms=NOW_MS, layout=pattern)
    with pytest.raises(CatalogError, match="a catalog has one layout"):
        begin_build(late)


@each_case("name", ["pinterest", "local-tiered"])
def test_in_place(tmp_path: Path, name: str) -> None:
    layout, write, _ = WRITERS[name]
    write(tmp_path / "a", [ONE._replace(timeindex=b"", index=b"")])
    how = {"now_ms": NOW_MS, "in_place": True, "catalog": str(tmp_path / "c"), "overwrite": True}
    build_here(tmp_path / "a", None, layout=layout, **how)
    (row,) = outcome(tmp_path / "a", tmp_path / "c").rows
    assert row["index_uri"] == row["log_uri"].removesuffix(".log") + ".timeindex"
    assert row["index_file"] == "written"
    again = build_here(tmp_path / "a", None, layout=layout, **how)
    assert (again.indexed, again.reused) == (0, 1)


def test_a_catalog_from_before_there_were_layouts_is_kafkas(tmp_path: Path) -> None:
    archives.kafka(tmp_path / "a", [ONE])
    build_here(tmp_path / "a", tmp_path / "i", now_ms=NOW_MS)
    commit = next((tmp_path / "i" / "_catalog" / "commits").iterdir())
    record = json.loads(commit.read_text())
    del record["settings"]["layout"]
    commit.write_text(json.dumps(record))
    assert build_here(tmp_path / "a", tmp_path / "i", now_ms=NOW_MS).reused == 1
    with pytest.raises(CatalogError, match="'kafka'"):
        plan_build(str(tmp_path / "a"), str(tmp_path / "i"), now_ms=NOW_MS, layout=PATTERN)


def test_two_topics_with_one_name_differ_only_in_their_ids(tmp_path: Path) -> None:
    archives.local_tiered(tmp_path, [ONE])
    stem = f"orders-0-{uuid22('another')}/{0:020d}-{uuid22(1)}"
    archives.beside(tmp_path / stem, ONE)
    assert [(row.topic, row.base_offset) for row in rows(tmp_path, "local-tiered")] == [
        ("orders", 0), ("orders", 0),
    ]  # fmt: skip
