"""Logs and indexes inside other files: ranges, chunks, and their damage, byte by byte."""

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kip33.archive.segment_paths import beside, index_path
from kip33.errors import CorruptIndexError, CorruptSegmentError, UnsupportedFormatError
from kip33.formats.byte_sources import read_fully
from kip33.stores.containers.aiven import Decompressed, decode_chunk_sizes, parse_manifest
from kip33.stores.containers.rsm import decode_rsm_header
from kip33.stores.files import opened, read_whole, scanned, size_of
from kip33.stores.locations import Location
from tests.builders.layouts import (
    Stored,
    aiven,
    aiven_stem,
    encoded_sizes,
    manifest,
    put,
    rsm_file,
    segment_id,
    zstd,
)
from tests.cases import each_case
from tests.long_forms import examples

LOG = os.urandom(200) * 100 + bytes(range(256)) * 20
ONE = Stored("t", 0, 7, LOG, timeindex=b"time" * 6, index=b"offs" * 4)

SIZES = [
    ([], "00000000"),
    ([213], "00000001000000d5"),
    ([2**31 - 1], "000000017fffffff"),
    ([10, 12, 7], "00000003 0000000a 01 0002 00000007"),
    ([1, 2, 3, 2**31 - 1], "00000004 00000001 01 000102 7fffffff"),
    ([0, 1000, 2, 44002, 369], "00000005 00000000 02 0000 03e8 0002 abe2 00000171"),
    ([1, 65545, 9], "00000003 00000001 03 000000 010008 00000009"),
    ([1, 2**31 - 1, 9], "00000003 00000001 04 00000000 7ffffffe 00000009"),
]


@each_case(("sizes", "digits"), SIZES)
def test_chunk_sizes(sizes: Any, digits: str) -> None:
    assert encoded_sizes(sizes) == bytes.fromhex(digits)
    assert decode_chunk_sizes(bytes.fromhex(digits)).tolist() == sizes


@given(st.lists(st.integers(0, 2**31 - 1)) | st.lists(st.integers(4_000_000, 4_000_300)))
def test_any_chunk_sizes(sizes: list[int]) -> None:
    assert decode_chunk_sizes(encoded_sizes(sizes)).tolist() == sizes


@given(st.binary(max_size=40), st.lists(st.integers(0, 2**31 - 1), max_size=6), st.data())
def test_bytes_that_are_not_chunk_sizes_raise_corrupt_index_error(
    data: bytes, sizes: list[int], draw: st.DataObject
) -> None:
    whole = encoded_sizes(sizes)
    for damaged in (data, whole + data[:1], whole[: draw.draw(st.integers(0, len(whole)))]):
        try:
            found = decode_chunk_sizes(damaged)
        except CorruptIndexError:
            continue
        assert (found >= 0).all()
        assert (found <= 2**31 - 1).all()


def test_a_count_too_large_for_its_bytes_takes_no_memory() -> None:
    with pytest.raises(CorruptIndexError, match="for 2147483647 chunks"):
        decode_chunk_sizes(bytes.fromhex("7fffffff 00000001 04 00000000"))


WRONG_HEADERS = [
    (b"\x00" * 24, 1000, CorruptSegmentError, "24 bytes"),
    (b"\x01" + rsm_file(ONE)[1:25], 1000, UnsupportedFormatError, "version 1"),
    (rsm_file(ONE)[:25], 60, CorruptSegmentError, "are not possible"),
    (bytes(25), 1000, CorruptSegmentError, "are not possible"),
    (b"\x00" + b"\xff" * 24, 1000, CorruptSegmentError, "are not possible"),
]


@each_case(("data", "size", "error", "says"), WRONG_HEADERS)
def test_bytes_that_are_not_an_rsm_header(data: Any, size: int, error: Any, says: str) -> None:
    with pytest.raises(error, match=says):
        decode_rsm_header(data, size)


def read(place: Location) -> bytes:
    return read_whole(place, most_bytes=1 << 30)


def test_parts_of_an_rsm_file(tmp_path: Path) -> None:
    put(tmp_path / "SEG", rsm_file(ONE))
    log = Location.of((tmp_path / "SEG").as_uri() + "#rsm.log")
    assert (log.path, log.inside) == (str(tmp_path / "SEG"), "rsm.log")
    assert (read(log), size_of(log)) == (ONE.log, len(ONE.log))
    assert read(beside(log, "timeindex")) == ONE.timeindex
    assert read(beside(beside(log, "timeindex"), "index")) == ONE.index
    with opened(beside(log, "index")) as (read_into, size_bytes):
        view = memoryview(bytearray(99))
        assert read_into(size_bytes - 3, view) == 3  # nothing of what comes behind
        assert read_into(size_bytes, view) == read_into(size_bytes + 9, view) == 0


@each_case("chunk_bytes", (1, 999, 5000, len(LOG), 1 << 22))
@each_case("compressed", (False, True))
def test_an_aiven_segment(chunk_bytes: Any, compressed: bool, tmp_path: Path) -> None:
    one = ONE if chunk_bytes > 1 else ONE._replace(log=LOG[:300])
    aiven(tmp_path, [one], compressed=compressed, chunk_bytes=chunk_bytes)
    log = Location.of(f"{aiven_stem(tmp_path, one).as_uri()}.log#aiven.log")
    assert (read(log), size_of(log)) == (one.log, len(one.log))
    assert read(beside(log, "timeindex")) == one.timeindex
    assert read(beside(beside(log, "timeindex"), "index")) == one.index
    with scanned(log) as (read_into, size_bytes, _):
        assert read_fully(read_into, 5, size_bytes) == one.log[5:]


@each_case("compressed", (False, True))
def test_an_empty_aiven_segment(compressed: bool, tmp_path: Path) -> None:
    aiven(tmp_path, [ONE._replace(log=b"")], compressed=compressed)
    log = Location.of(f"{aiven_stem(tmp_path, ONE).as_uri()}.log#aiven.log")
    assert (read(log), size_of(log)) == (b"", 0)


@settings(max_examples=examples(60))
@given(
    log=st.binary(min_size=1, max_size=200),
    chunk_bytes=st.integers(1, 100),
    asked=st.lists(st.tuples(st.integers(0, 450), st.integers(0, 450)), max_size=8),
)
def test_chunks_read_as_plain_bytes(
    log: bytes, chunk_bytes: int, asked: list[tuple[int, int]]
) -> None:
    chunks = [zstd(log[at : at + chunk_bytes]) for at in range(0, len(log), chunk_bytes)]
    one = ONE._replace(log=log)
    record = manifest(one, chunk_bytes, [len(chunk) for chunk in chunks], compression=True)
    stored = b"".join(chunks)

    def read_stored(position: int, view: memoryview) -> int:
        data = stored[position : position + len(view)]
        view[: len(data)] = data
        return len(data)

    parsed = parse_manifest(json.dumps(record).encode())
    assert (parsed.log_bytes, parsed.stored_bytes) == (len(log), len(stored))
    plain = Decompressed(read_stored, parsed)
    for position, count in asked:
        view = memoryview(bytearray(count))
        expected = log[position : position + count]
        assert plain.read_into(position, view) == len(expected)
        assert view[: len(expected)] == expected


def test_a_scan_reads_each_chunk_once_and_keeps_a_few(tmp_path: Path) -> None:
    log = os.urandom(64) * (1 << 15)  # 2 MiB
    chunk_bytes = 1 << 12
    chunks = [zstd(log[at : at + chunk_bytes]) for at in range(0, len(log), chunk_bytes)]
    record = manifest(
        ONE._replace(log=log), chunk_bytes, [len(chunk) for chunk in chunks], compression=True
    )
    stored, reads = b"".join(chunks), []

    def read_stored(position: int, view: memoryview) -> int:
        reads.append(position)
        view[:] = stored[position : position + len(view)]
        return len(view)

    plain = Decompressed(read_stored, parse_manifest(json.dumps(record).encode()))
    plain._most = 4

    def read_part(number: int) -> bool:
        view = memoryview(bytearray(10_000))
        count = plain.read_into(number * 10_000, view)
        return bytes(view[:count]) == log[number * 10_000 : number * 10_000 + 10_000]

    assert all(map(read_part, range(-(-len(log) // 10_000))))
    assert len(reads) == len(chunks)
    assert len(plain._held) <= 4
    with ThreadPoolExecutor(8) as pool:  # as ranges are read ahead
        assert all(pool.map(read_part, range(-(-len(log) // 10_000))))


def test_an_encrypted_segment_says_so_and_what_to_do(tmp_path: Path) -> None:
    aiven(tmp_path, [ONE], encrypted=True)
    log = Location.of(f"{aiven_stem(tmp_path, ONE).as_uri()}.log#aiven.log")
    for place in (log, beside(log, "timeindex"), beside(log, "index")):
        with pytest.raises(
            OSError, match=r"encrypted \(AES-GCM\).*archive it unencrypted"
        ) as found:
            read(place)
        assert "\n" not in str(found.value)


CHANGED: list[tuple[str, bytes | None, str]] = [
    ("log", LOG[:-1], "its .rsm-manifest says 25120"),
    ("log", LOG + b"x", "its .rsm-manifest says 25120"),
    ("rsm-manifest", b"{", "cannot be read"),
    ("rsm-manifest", b"", "cannot be read"),
    ("rsm-manifest", b"[]", "cannot be read"),
    ("rsm-manifest", b'{"version": "2"}', "version '2'"),
    ("rsm-manifest", b'{"version": "1"}', "'chunkIndex' is missing"),
    ("rsm-manifest", b"\xff\xfe", "cannot be read"),
    ("rsm-manifest", b"[" * 100_000, "cannot be read"),
]


@each_case(("suffix", "data", "says"), CHANGED)
def test_a_segment_that_does_not_match_its_manifest(
    suffix: str, data: Any, says: str, tmp_path: Path
) -> None:
    assert len(LOG) == 25120
    aiven(tmp_path, [ONE])
    stem = aiven_stem(tmp_path, ONE)
    put(stem.with_name(f"{stem.name}.{suffix}"), data)
    with pytest.raises(OSError, match=says) as found:
        read(Location.of(f"{stem.as_uri()}.log#aiven.log"))
    assert "\n" not in str(found.value)


INDEXES = [
    {"type": "variable", "transformedChunks": "!"},
    {"type": "variable", "transformedChunks": "AAAA"},
    {"type": "other"},
    {"originalFileSize": -1},
    {"originalFileSize": 1.5},
    {"originalChunkSize": 0},
    {"originalChunkSize": 1 << 31},
    {"transformedChunkSize": "7"},
    {"transformedChunkSize": None},
]


@each_case("changes", INDEXES)
def test_a_wrong_chunk_index(changes: Any) -> None:
    record = manifest(ONE, 5000, [5000, 120])
    record["chunkIndex"] |= changes
    with pytest.raises((CorruptSegmentError, UnsupportedFormatError), match="rsm-manifest"):
        parse_manifest(json.dumps(record).encode())


def test_chunks_that_are_not_zstd_are_an_error(tmp_path: Path) -> None:
    aiven(tmp_path, [ONE], compressed=True)
    log = aiven_stem(tmp_path, ONE).with_name(f"{aiven_stem(tmp_path, ONE).name}.log")
    damaged = bytearray(log.read_bytes())
    damaged[:4] = b"nope"
    put(log, bytes(damaged))
    with pytest.raises(OSError, match="chunk 0: not valid zstd data of 5000 bytes"):
        read(Location.of(f"{log.as_uri()}#aiven.log"))


def test_a_missing_part_has_no_size(tmp_path: Path) -> None:
    aiven(tmp_path, [ONE])
    stem = aiven_stem(tmp_path, ONE)
    index = Location.of(f"{stem.as_uri()}.indexes#aiven.timeindex")
    (stem.with_name(f"{stem.name}.indexes")).unlink()
    assert size_of(index) is None
    record = manifest(ONE, 5000, [5000, 120])
    del record["segmentIndexes"], record["remoteLogSegmentMetadata"]  # as older versions wrote
    put(stem.with_name(f"{stem.name}.rsm-manifest"), json.dumps(record).encode())
    put(stem.with_name(f"{stem.name}.indexes"), b"x")
    assert size_of(index) is None
    assert size_of(Location.of(f"{tmp_path.as_uri()}/nothing#rsm.log")) is None


PLACES = [
    ("s3://b/x/SEG#rsm.log", "b/x/SEG", "rsm.log", "s3a://b/x/SEG#rsm.log"),
    ("hdfs:///x/SEG#rsm.index", "/x/SEG", "rsm.index", "hdfs:///x/SEG#rsm.index"),
    ("file:///a%23b/0.log#aiven.log", "/a#b/0.log", "aiven.log", "file:///a%23b/0.log#aiven.log"),
    ("/a/0.log#aiven.log", "/a/0.log#aiven.log", "", "file:///a/0.log%23aiven.log"),
    ("s3a://b/x#1", "b/x#1", "", "s3a://b/x#1"),
    ("s3a://b/x#log", "b/x#log", "", "s3a://b/x#log"),
    ("s3a://b/x#rsm.log/y", "b/x#rsm.log/y", "", "s3a://b/x#rsm.log/y"),
]


@each_case(("text", "path", "inside", "uri"), PLACES)
def test_a_place_inside_a_file_as_uri(text: str, path: str, inside: str, uri: str) -> None:
    place = Location.of(text)
    assert (place.path, place.inside, place.uri) == (path, inside, uri)
    assert Location.of(uri) == place
    assert (place.parent.inside, place.child("y").inside) == ("", "")


def test_index_files_have_kafkas_suffixes() -> None:
    assert index_path(f"t-0/{segment_id(ONE)}", "index") == f"t-0/{segment_id(ONE)}.index"
    assert index_path("t/0/7-x.log", "timeindex") == "t/0/7-x.timeindex"
    assert index_path("t/x/log", "timeindex") == "t/x/log.timeindex"
