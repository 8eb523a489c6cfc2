"""What a listing finds: layouts, names, the last segment, and what it passes over."""

import os
from pathlib import Path

import pytest

from kip33.storage.listing import LISTING, MAX_DEPTH, Listing, Segment, list_tree
from kip33.storage.locations import Location

NAME = "00000000000000000042"
MODIFIED_MS = 1_700_000_000_123


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return tmp_path / "archive"


def put(archive: Path, *paths: str, data: bytes = b"seven b") -> None:
    for path in paths:
        file = archive / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
        os.utime(file, ns=(0, MODIFIED_MS * 1_000_000 + 999_999))


def listed(place: Path) -> Listing:
    return list_tree(Location.of(place))


def segments(place: Path) -> list[Segment]:
    return list(listed(place).segments())


LAYOUTS = [
    pytest.param("", "orders-0", "", id="a log directory"),
    pytest.param("", "broker-x/orders-0", "broker-x", id="brokers"),
    pytest.param("", "dc/b/data/orders-0", "dc/b/data", id="deep"),
    pytest.param("orders-0", "", "", id="one partition's directory"),
]


@pytest.mark.parametrize(("source", "below", "log_dir"), LAYOUTS)
def test_layout(archive: Path, source: str, below: str, log_dir: str) -> None:
    path = "/".join(filter(None, [below, f"{NAME}.log"]))
    put(archive / source, path)
    assert segments(archive / source) == [
        Segment(path, log_dir, "orders", 0, 42, 7, MODIFIED_MS, True, None)
    ]


def test_layouts_may_be_mixed(archive: Path) -> None:
    put(
        archive,
        f"a-0/{NAME}.log",
        f"b1/a-0/{NAME}.log",
        f"b1/b-1/{NAME}.log",
        f"b2/x/a-0/{NAME}.log",
    )
    assert [(s.log_dir, s.topic, s.partition) for s in segments(archive)] == [
        ("", "a", 0), ("b1", "a", 0), ("b1", "b", 1), ("b2/x", "a", 0),
    ]  # fmt: skip


TOPICS = [
    ("a.b_c-3-0", "a.b_c-3", 0),
    ("__consumer_offsets-49", "__consumer_offsets", 49),
    ("x-delete-0", "x-delete", 0),
    ("t-2147483647", "t", 2147483647),
]


@pytest.mark.parametrize(("directory", "topic", "partition"), TOPICS)
def test_topics(archive: Path, directory: str, topic: str, partition: int) -> None:
    put(archive, f"{directory}/{NAME}.log")
    assert [(s.topic, s.partition) for s in segments(archive)] == [(topic, partition)]


def test_the_last_segment_of_each_partition_is_the_active_one(archive: Path) -> None:
    put(
        archive,
        *("b/a-0/1.log", "b/a-0/9.log", "b/a-0/10.log", "b/a-1/5.log", "c/a-0/3.log"),
    )
    active = {s.path: s.active_segment for s in segments(archive)}
    assert active == {
        "b/a-0/1.log": False, "b/a-0/9.log": False, "b/a-0/10.log": True, "b/a-1/5.log": True,
        "c/a-0/3.log": True,
    }  # fmt: skip


def test_two_names_of_one_offset_give_one_active_segment(archive: Path) -> None:
    put(archive, f"a-0/{NAME}.log", "a-0/42.log")
    assert [s.active_segment for s in segments(archive)].count(True) == 1


def test_rows_are_sorted_by_path(archive: Path) -> None:
    put(archive, *(f"t{i % 3}-{i}/{i:020d}.log" for i in range(20)))
    paths = [s.path for s in segments(archive)]
    assert paths == sorted(paths)
    assert len(paths) == 20


PASSED_OVER = [
    (f"a-0/{NAME}.log.deleted", ".deleted files"),
    (f"a-0/{NAME}.log.cleaned", ".cleaned files"),
    (f"a-0/{NAME}.log.swap", ".swap files"),
    ("a-0/notes.log", "files not named as segments"),
    ("a-0/99999999999999999999.log", "files not named as segments"),
    (f"a-0/{NAME}.log.bak", "files not named as segments"),
    (f"a-0.{'0f' * 16}-delete/{NAME}.log", "-delete directories"),
    (f"a-0.{'0f' * 16}-future/{NAME}.log", "-future directories"),
    (f"a-0.{'0f' * 16}-stray/{NAME}.log", "-stray directories"),
]


@pytest.mark.parametrize(("path", "kind"), PASSED_OVER)
def test_passed_over_and_counted(archive: Path, path: str, kind: str) -> None:
    put(archive, "z-0/7.log", path)
    listing = listed(archive)
    assert [s.path for s in listing.segments()] == ["z-0/7.log"]
    assert listing.passed_over == {kind: 1}


NOT_COUNTED = [
    *(f"a-0/{NAME}.{kind}" for kind in ("index", "timeindex", "txnindex", "snapshot")),
    *("a-0/leader-epoch-checkpoint", "a-0/partition.metadata", "meta.properties", "loose.log"),
    f"{NAME}.log",
    f"no_partition/{NAME}.log",
]


@pytest.mark.parametrize("path", NOT_COUNTED)
def test_no_business_of_ours(archive: Path, path: str) -> None:
    put(archive, "z-0/7.log", path)
    listing = listed(archive)
    assert [s.path for s in listing.segments()] == ["z-0/7.log"]
    assert listing.passed_over == {}


def test_a_directory_that_cannot_be_listed_is_a_row(
    archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root may read everything, so the refusal comes from a name that is too long to open."""
    put(archive, f"good-0/{NAME}.log", "deep/x")
    deep = archive / "deep"
    here = Path.cwd()
    try:
        os.chdir(deep)  # a tree deeper than any path may be long
        while len(str(deep)) < 4200:
            (Path("d" * 200)).mkdir()
            os.chdir("d" * 200)
            deep = deep / ("d" * 200)
    finally:
        os.chdir(here)
    rows = segments(archive)
    unlistable = [row for row in rows if row.error]
    assert [row.path for row in rows if not row.error] == [f"good-0/{NAME}.log"]
    assert len(unlistable) == 1
    assert unlistable[0].path.startswith("deep/ddd")
    assert "too long" in unlistable[0].error
    assert unlistable[0][2:8] == (None,) * 6


@pytest.mark.skipif(os.geteuid() == 0, reason="root may list a directory without permissions")
def test_a_directory_without_permission_is_a_row(archive: Path) -> None:
    put(archive, f"good-0/{NAME}.log", f"shut-1/{NAME}.log")
    (archive / "shut-1").chmod(0)
    try:
        shut, good = sorted(segments(archive), key=lambda row: row.error is None)
    finally:
        (archive / "shut-1").chmod(0o700)
    assert (good.path, good.error) == (f"good-0/{NAME}.log", None)
    assert (shut.path, shut.topic, shut.partition) == ("shut-1", "shut", 1)
    assert "ermission" in (shut.error or "")


def test_a_link_to_a_directory_above_is_a_row(archive: Path) -> None:
    put(archive, f"a-0/{NAME}.log")
    (archive / "again").symlink_to(archive)
    assert [(row.path, row.error) for row in segments(archive)] == [
        (f"a-0/{NAME}.log", None),
        ("again", "a link back to a directory above it"),
    ]


def test_links_to_each_other_end(archive: Path) -> None:
    put(archive, f"one/a-0/{NAME}.log", f"two/b-0/{NAME}.log")
    (archive / "one" / "x").symlink_to(archive / "two")
    (archive / "two" / "y").symlink_to(archive / "one")
    rows = segments(archive)
    assert [row.path for row in rows if not row.error] == [
        f"one/a-0/{NAME}.log", f"one/x/b-0/{NAME}.log",
        f"two/b-0/{NAME}.log", f"two/y/a-0/{NAME}.log",
    ]  # fmt: skip
    assert [row.path for row in rows if row.error] == ["one/x/y", "two/y/x"]


def test_too_deep_is_a_row(archive: Path) -> None:
    put(archive, "/".join(["d"] * MAX_DEPTH) + f"/a-0/{NAME}.log", f"a-0/{NAME}.log")
    good, deep = segments(archive)
    assert good.path == f"a-0/{NAME}.log"
    assert deep.path == "/".join(["d"] * MAX_DEPTH) + "/a-0"
    assert deep.error == f"more than {MAX_DEPTH} directories deep"


def test_links_to_segments_are_followed(archive: Path, tmp_path: Path) -> None:
    put(tmp_path, f"real/{NAME}.log")
    (archive / "a-0").mkdir(parents=True)
    (archive / "a-0" / "7.log").symlink_to(tmp_path / "real" / f"{NAME}.log")
    (archive / "a-0" / "8.log").symlink_to(tmp_path / "nowhere")
    assert [(s.path, s.size_bytes) for s in segments(archive)] == [("a-0/7.log", 7)]


def test_nothing_there_is_an_empty_table(archive: Path) -> None:
    archive.mkdir()
    assert listed(archive).table.schema == LISTING
    assert segments(archive) == []


def test_a_missing_source_is_a_row(archive: Path) -> None:
    (row,) = segments(archive)
    assert (row.path, row.topic) == ("", None)
    assert row.error
