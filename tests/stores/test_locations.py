"""Paths and URIs: which filesystem, what path on it, and which text comes back."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyarrow import fs

from kip33.errors import LocationError
from kip33.stores import settings as store_settings
from kip33.stores.locations import SCHEMES, Location
from tests.cases import each_case

PLACES = [
    ("/archive/orders-0", "file://", "/archive/orders-0", "file:///archive/orders-0"),
    ("/archive/", "file://", "/archive", "file:///archive"),
    ("/", "file://", "/", "file:///"),
    ("file:///archive/a-0/", "file://", "/archive/a-0", "file:///archive/a-0"),
    ("file:///a%20b", "file://", "/a b", "file:///a%20b"),
    ("/a b/ü#1?%", "file://", "/a b/ü#1?%", "file:///a%20b/%C3%BC%231%3F%25"),
    ("/archive/../other/./x", "file://", "/other/x", "file:///other/x"),
    ("s3://bucket/key", "s3a://bucket", "bucket/key", "s3a://bucket/key"),
    ("s3a://bucket/key/", "s3a://bucket", "bucket/key", "s3a://bucket/key"),
    ("s3a://bucket", "s3a://bucket", "bucket", "s3a://bucket"),
    ("s3a://bucket/a b#1?x%20y", "s3a://bucket", "bucket/a b#1?x%20y", "s3a://bucket/a b#1?x%20y"),
    ("hdfs://name:8020/kafka/", "hdfs://name:8020", "/kafka", "hdfs://name:8020/kafka"),
    ("hdfs://name", "hdfs://name", "/", "hdfs://name/"),
    ("hdfs:///kafka", "hdfs://", "/kafka", "hdfs:///kafka"),
    ("gs://bucket/a", "gs://bucket", "bucket/a", "gs://bucket/a"),
]


@each_case(("text", "root", "path", "uri"), PLACES)
def test_of(text: str, root: str, path: str, uri: str) -> None:
    location = Location.of(text)
    assert location == (root, path, "")
    assert location.uri == uri
    assert Location.of(uri) == location


def test_of_a_relative_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert Location.of("archive/x") == ("file://", f"{tmp_path}/archive/x", "")
    assert Location.of(Path("archive")) == Location.of("./archive/")


NO_LOCATIONS = [
    ("", "the path is empty"),
    ("http://host/x", "unknown scheme http"),
    ("c://x", "unknown scheme c"),
]


@each_case(("text", "says"), NO_LOCATIONS)
def test_texts_that_are_not_locations(text: str, says: str) -> None:
    with pytest.raises(LocationError, match=says):
        Location.of(text)


def test_the_message_lists_the_schemes() -> None:
    with pytest.raises(LocationError) as raised:
        Location.of("ftp://x")
    assert all(f"{scheme}://" in str(raised.value) for scheme in SCHEMES)


def test_children_and_parents() -> None:
    archive = Location.of("/archive")
    child = archive.child("b-1/orders-0/0.log")
    assert (child.name, child.parent) == ("0.log", archive.child("b-1/orders-0"))
    assert Location.of("/").child("x") == Location.of("/x")
    assert Location.of("/x").parent == Location.of("/")
    assert Location.of("s3a://b").child("x").uri == "s3a://b/x"


CONTAINS = [
    ("/a", "/a", True),
    ("/a", "/a/b", True),
    ("/a", "/ab", False),
    ("/a/b", "/a", False),
    ("/", "/a", True),
    ("s3a://b/a", "s3://b/a/x", True),
    ("s3a://b/a", "s3a://c/a/x", False),
    ("s3a://b", "s3a://b/x", True),
    ("s3a://b", "/b/x", False),
]


@each_case(("outer", "inner", "expected"), CONTAINS)
def test_contains(outer: str, inner: str, expected: bool) -> None:
    assert Location.of(outer).contains(Location.of(inner)) is expected


def test_contains_resolves_links(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    real, link = Location.of(tmp_path / "real"), Location.of(tmp_path / "link" / "x")
    assert real.contains(link)
    assert not link.contains(real)


def test_filesystem_of_a_local_path_is_opened_once() -> None:
    assert isinstance(Location.of("/x").filesystem(), fs.LocalFileSystem)
    assert Location.of("/x").filesystem() is Location.of("/y").filesystem()
    assert Location.of("/x").is_local
    assert not Location.of("s3a://b/x").is_local


def test_a_remote_filesystem_is_opened_once_by_threads_that_come_at_the_same_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The end of a second client of HDFS would break reads that go through the first one."""
    monkeypatch.setattr(store_settings._Process, "settings", None)
    place, start = Location.of("s3a://bucket/x"), threading.Barrier(16)

    def opened(_: int) -> fs.FileSystem:
        start.wait()
        return place.filesystem()

    with ThreadPoolExecutor(16) as pool:
        for port in range(1, 6):
            store_settings.use_settings({"fs.s3a.endpoint": f"http://127.0.0.1:{port}"})
            first, *others = pool.map(opened, range(16))
            assert all(other is first for other in others)


def test_a_filesystem_that_does_not_open_is_one_line() -> None:
    with pytest.raises(LocationError, match="cannot be opened") as raised:
        Location.of("abfs://x/y").filesystem()
    assert "\n" not in str(raised.value)
