"""Listings: layouts, names, the last segment, and ignored files."""

import os
import threading
from pathlib import Path

import pyarrow as pa
import pytest

from kip33.archive.directory import MAX_DEPTH, Directory, Segment, Visit
from kip33.archive.layouts import KAFKA
from kip33.archive.listing import (
    DIRECTORIES_AT_ONCE,
    LISTED_BEFORE,
    LISTING,
    Listing,
    list_tree,
    log_uris,
)
from kip33.formats.index_kinds import IndexKind
from kip33.stores.locations import Location
from tests.cases import each_case

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


LAYOUTS = {
    "a log directory": ("", "orders-0", ""),
    "brokers": ("", "broker-x/orders-0", "broker-x"),
    "deep": ("", "dc/b/data/orders-0", "dc/b/data"),
    "one partition's directory": ("orders-0", "", ""),
}


@each_case(("source", "below", "log_dir"), LAYOUTS)
def test_layout(tmp_path: Path, source: str, below: str, log_dir: str) -> None:
    path = "/".join(filter(None, [below, f"{NAME}.log"]))
    put(tmp_path / source, path)
    assert segments(tmp_path / source) == [
        Segment(path, log_dir, "orders", 0, 42, 7, MODIFIED_MS, True, None)
    ]


def test_two_names_of_one_offset_give_one_active_segment(archive: Path) -> None:
    put(archive, f"a-0/{NAME}.log", "a-0/42.log")
    assert [s.active_segment for s in segments(archive)].count(True) == 1


PASSED_OVER = [
    (f"a-0/{NAME}.log.deleted", ".deleted files"),
    (f"a-0/{NAME}.log.cleaned", ".cleaned files"),
    ("a-0/notes.log", "files not named as segments"),
    ("a-0/99999999999999999999.log", "files not named as segments"),
    (f"a-0/{NAME}.log.bak", "files not named as segments"),
    (f"a-0.{'0f' * 16}-delete/{NAME}.log", "-delete directories"),
    (f"a-0.{'0f' * 16}-future/{NAME}.log", "-future directories"),
    (f"a-0.{'0f' * 16}-stray/{NAME}.log", "-stray directories"),
]


@each_case(("path", "kind"), PASSED_OVER)
def test_ignored_files_are_counted(tmp_path: Path, path: str, kind: str) -> None:
    put(tmp_path, "z-0/7.log", path)
    listing = listed(tmp_path)
    assert [s.path for s in listing.segments()] == ["z-0/7.log"]
    assert listing.passed_over == {kind: 1}


def test_a_cleaned_log_whose_time_index_was_lost_is_counted_by_name(archive: Path) -> None:
    cleaned = [f"a-0/{NAME}.{kind}.swap" for kind in ("log", "index", "timeindex")]
    put(archive, "z-0/7.log", *cleaned)
    assert listed(archive).passed_over == {".swap files": 1}
    (archive / cleaned[-1]).unlink()
    assert listed(archive).passed_over == {
        ".swap files": 1,
        ".log.swap files without their .timeindex.swap": 1,
    }


SWAPS: dict[str, tuple[list[str], list[int]]] = {
    "beside the logs that it replaces": (["0.log", "5.log", "0.log.swap"], [0]),
    "the logs are gone": (["0.log.deleted", "0.log.swap", "0.index.swap"], [0]),
    "of a split log": (["0.log.swap", "7.log.swap"], [0, 7]),
    "unfinished": (["0.log", "0.log.swap", "0.log.cleaned"], []),
    "unfinished from an offset on": (["0.log.swap", "7.log.swap", "7.index.cleaned"], [0]),
    "only its indexes are left": (["0.log", "0.index.swap", "0.timeindex.swap"], []),
}


@each_case(("names", "offsets"), SWAPS)
def test_a_log_that_a_broker_would_rename_into_place_is_a_row_with_an_error(
    names: list[str], offsets: list[int], tmp_path: Path
) -> None:
    put(tmp_path, *(f"a-0/{name}" for name in names))
    found = [one for one in listed(tmp_path).segments() if one.error]
    assert [(one.path, one.base_offset) for one in found] == [
        (f"a-0/{offset}.log.swap", offset) for offset in offsets
    ]
    assert all("a broker that starts renames this file" in str(one.error) for one in found)


NOT_COUNTED = [
    *(f"a-0/{NAME}.{kind}" for kind in ("index", "timeindex", "txnindex", "snapshot")),
    *("a-0/leader-epoch-checkpoint", "a-0/partition.metadata", "meta.properties", "loose.log"),
    f"{NAME}.log",
    f"no_partition/{NAME}.log",
]


@each_case("path", NOT_COUNTED)
def test_unrelated_files_are_not_counted(tmp_path: Path, path: str) -> None:
    put(tmp_path, "z-0/7.log", path)
    listing = listed(tmp_path)
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


def test_a_link_to_a_directory_above_is_a_row(archive: Path) -> None:
    put(archive, f"a-0/{NAME}.log")
    (archive / "again").symlink_to(archive)
    assert [(row.path, row.error) for row in segments(archive)] == [
        (f"a-0/{NAME}.log", None),
        ("again", "a link to a directory above itself"),
    ]


def test_links_to_each_other_end(archive: Path) -> None:
    put(archive, f"one/a-0/{NAME}.log", f"two/b-0/{NAME}.log")
    (archive / "one" / "x").symlink_to(archive / "two")
    (archive / "two" / "y").symlink_to(archive / "one")
    found = listed(archive)
    assert [row.path for row in found.segments()] == [f"one/a-0/{NAME}.log", f"two/b-0/{NAME}.log"]
    assert found.passed_over[LISTED_BEFORE] == 2


@each_case(
    ("links", "paths", "followed"),
    {
        "to a directory of the archive": ({"archive/current": "archive/b1"}, ["b1/a-0"], []),
        "to a directory outside": (
            {"archive/b1/hot-0": "out/keep-0"},
            ["b1/a-0", "b1/hot-0"],
            ["b1/hot-0"],
        ),
        "twice to a directory outside": (
            {"archive/x": "out", "archive/b1/hot-0": "out/keep-0"},
            ["b1/a-0", "b1/hot-0"],
            ["b1/hot-0", "x"],
        ),
        "out and back": ({"archive/x": "out", "out/y": "archive"}, ["b1/a-0", "x/keep-0"], ["x"]),
        "to what contains SOURCE": ({"archive/x": "."}, ["b1/a-0", "x/out/keep-0"], ["x"]),
    },
)
def test_a_directory_behind_links_is_listed_once(
    tmp_path: Path, links: dict[str, str], paths: list[str], followed: list[str]
) -> None:
    put(tmp_path, f"archive/b1/a-0/{NAME}.log", f"out/keep-0/{NAME}.log")
    for link, target in links.items():
        (tmp_path / link).symlink_to(tmp_path / target)
    found = listed(tmp_path / "archive")
    logs = [row.path for row in found.segments() if not row.error]
    assert logs == [f"{path}/{NAME}.log" for path in paths]
    assert [line.partition(": a link to ")[0] for line in found.links] == [
        (tmp_path / "archive" / path).as_uri() for path in followed
    ]


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


def test_an_empty_source_is_an_empty_table(archive: Path) -> None:
    archive.mkdir()
    assert listed(archive).table.schema == LISTING
    assert segments(archive) == []


def test_a_missing_source_is_a_row(archive: Path) -> None:
    (row,) = segments(archive)
    assert (row.path, row.topic) == ("", None)
    assert row.error


def by_path(source: Path, index_dir: Path | None) -> dict[str, Segment]:
    listing = list_tree(Location.of(source), Location.of(index_dir) if index_dir else None)
    return {segment.path: segment for segment in listing.segments()}


def index_sizes(segment: Segment) -> tuple[int | None, ...]:
    """Return the sizes beside the log, then at the target; of each the `.timeindex` first."""
    both = (IndexKind.TIME, IndexKind.OFFSET)
    files = [segment.index_file(kind, where) for where in ("beside", "target") for kind in both]
    return tuple(file.size_bytes if file else None for file in files)


def test_index_sizes_beside_the_log_and_where_a_build_puts_them(
    archive: Path, tmp_path: Path
) -> None:
    put(archive, "b 1/a-0/1.log", "b 1/a-0/2.log", "b 1/a-0/3.log", "b 1/a-1/1.log")
    put(archive, "b 1/a-0/1.timeindex", data=bytes(12))
    put(archive, "b 1/a-0/1.index", data=bytes(8))
    put(archive, "b 1/a-0/2.timeindex", data=b"")
    target = tmp_path / "indexes"
    put(target, "b 1/a-0/1.timeindex", data=bytes(24))
    put(target, "b 1/a-0/3.timeindex", "b 1/a-0/3.index", data=bytes(36))
    put(target, "elsewhere/a-0/2.timeindex", "b 1/a-0/02.timeindex", data=bytes(99))
    (target / "b 1/a-1/1.timeindex").mkdir(parents=True)
    found = by_path(archive, target)
    assert {path: index_sizes(segment) for path, segment in found.items()} == {
        "b 1/a-0/1.log": (12, 8, 24, None),
        "b 1/a-0/2.log": (0, None, None, None),
        "b 1/a-0/3.log": (None, None, 36, 36),
        "b 1/a-1/1.log": (None, None, None, None),
    }


def test_in_place_both_are_the_same_files(archive: Path) -> None:
    put(archive, "a-0/1.log")
    put(archive, "a-0/1.timeindex", data=bytes(12))
    assert index_sizes(by_path(archive, archive)["a-0/1.log"]) == (12, None, 12, None)
    assert index_sizes(by_path(archive, None)["a-0/1.log"]) == (12, None, None, None)


NEXT = [
    (["1.log", "5.log", "40.log"], [5, 40, None]),
    (["7.log"], [None]),
    (["0.log", f"{2**63 - 1}.log"], [2**63 - 1, None]),
    (["00005.log", "5.log", "9.log"], [None, 9, None]),
]


@each_case(("names", "following"), NEXT)
def test_the_next_base_offset_of_each_segment(
    tmp_path: Path, names: list[str], following: list[int | None]
) -> None:
    put(tmp_path, *(f"b/a-0/{name}" for name in names), "b/a-1/2.log", "c/a-0/3.log", "b/b-0/4.log")
    found = by_path(tmp_path, None)
    assert [found[f"b/a-0/{name}"].next_base_offset for name in names] == following
    others = ("b/a-1/2.log", "c/a-0/3.log", "b/b-0/4.log")
    assert [found[path].next_base_offset for path in others] == [None] * 3


UNFINISHED = f".{NAME}.timeindex.{'0a' * 16}.tmp"


def test_directories_are_listed_side_by_side(archive: Path) -> None:
    put(archive, *(f"a-{n}/1.log" for n in range(2 * DIRECTORIES_AT_ONCE)))
    all_at_once = threading.Barrier(DIRECTORIES_AT_ONCE, timeout=300)  # one alone waits in vain

    def list_together(visit: Visit) -> Directory:
        if visit.below:
            all_at_once.wait()
        return KAFKA.list_directory(visit)

    together = KAFKA._replace(list_directory=list_together)
    found = list_tree(Location.of(archive), layout=together)
    assert found.table.num_rows == 2 * DIRECTORIES_AT_ONCE


@each_case("in_place", [False, True])
def test_unfinished_index_files_are_found_where_a_build_puts_them(
    tmp_path: Path, in_place: bool
) -> None:
    archive = tmp_path / "archive"
    target = archive if in_place else tmp_path / "indexes"
    put(archive, f"a-0/{NAME}.log")
    put(target, f"a-0/{UNFINISHED}", f"a-0/{UNFINISHED.replace('timeindex', 'index')}")
    not_ours = (
        f"{NAME}.timeindex.tmp", f".{NAME}.timeindex.tmp", f".{NAME}.log.{'0a' * 16}.tmp",
        f".x.timeindex.{'0a' * 16}.tmp", f"{UNFINISHED}.old", UNFINISHED.removesuffix(".tmp"),
        f".{NAME}.timeindex.{'0A' * 16}.tmp", f".{NAME}.timeindex.{'0a' * 15}.tmp",
    )  # fmt: skip
    put(target, *(f"a-0/{name}" for name in not_ours), f"no partition/{UNFINISHED}")
    listing = list_tree(Location.of(archive), Location.of(target))
    assert {Path(place.path) for place, _ in listing.unfinished} == {
        target / "a-0" / UNFINISHED,
        target / "a-0" / UNFINISHED.replace("timeindex", "index"),
    }
    assert {time for _, time in listing.unfinished} == {MODIFIED_MS}
    assert not list_tree(Location.of(archive)).unfinished


def test_sixty_directories_side_by_side(archive: Path, tmp_path: Path) -> None:
    paths = [f"b{n % 5}/x{n % 3}/t{n % 11}-{n}/{n * 10 + i}.log" for n in range(60) for i in (0, 1)]
    put(archive, *paths)
    put(tmp_path / "indexes", *(path.replace(".log", ".timeindex") for path in paths[::2]))
    first = list_tree(Location.of(archive), Location.of(tmp_path / "indexes"))
    assert [segment.path for segment in first.segments()] == sorted(paths)
    assert first.log_dirs == {f"b{n % 5}/x{n % 3}" for n in range(60)}
    for segment in first.segments():
        is_first = segment.base_offset is not None and segment.base_offset % 10 == 0
        assert segment.active_segment is not is_first
        assert segment.next_base_offset == ((segment.base_offset or 0) + 1 if is_first else None)
        assert segment.target_time_index_bytes == (7 if is_first else None)
    for _ in range(3):
        again = list_tree(Location.of(archive), Location.of(tmp_path / "indexes"))
        assert again.table.equals(first.table)


# The URIs of a column of paths are those of its locations.

PLAIN = ["b1/orders-0/00000000000000000000.log", "orders_1-2/~a.log", ""]


@each_case("source", ["/archive", "/an archive/é", "/", "s3://bucket/a b"])
@each_case("others", [[], ["a b/%20.log"], ["line\n"], ["é#.log"]])
def test_log_uris_are_those_of_the_locations(source: str, others: list[str]) -> None:
    place, paths = Location.of(source), [*PLAIN, *others]
    found = log_uris(place, pa.chunked_array([paths]), pa.chunked_array([pa.nulls(len(paths))]))
    assert found.to_pylist() == [place.child(path).uri for path in paths]
    assert [Location.of(uri).uri for uri in found.to_pylist()[:2]] == found.to_pylist()[:2]


def test_an_index_directory_that_is_a_file_has_no_indexes(archive: Path, tmp_path: Path) -> None:
    put(archive, "a-0/1.log")
    put(tmp_path / "indexes", "a-0")
    assert index_sizes(by_path(archive, tmp_path / "indexes")["a-0/1.log"]) == (None,) * 4
