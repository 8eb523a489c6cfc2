"""Two tables, of valid and invalid names; formatted names parse back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kip33.formats.names import (
    DIRECTORY_KINDS,
    FILE_SUFFIXES,
    SEGMENT_KINDS,
    CheckpointFile,
    PartitionDir,
    SegmentFile,
    parse_checkpoint_file,
    parse_partition_dir,
    parse_segment_file,
    partition_dir_name,
    segment_file_name,
)
from tests.cases import each_case

LONG_MAX = 2**63 - 1
HEX = "0123456789abcdef0123456789abcdef"


@each_case(
    ("name", "value"),
    [
        ("00000000000000000000.log", SegmentFile(0, "log")),
        ("00000000000000000042.index", SegmentFile(42, "index")),
        ("00000000000000000042.timeindex", SegmentFile(42, "timeindex")),
        ("00000000000000000042.txnindex", SegmentFile(42, "txnindex")),
        ("00000000000000000042.snapshot", SegmentFile(42, "snapshot")),
        ("00000000000000000042.log.deleted", SegmentFile(42, "log", "deleted")),
        ("00000000000000000042.timeindex.cleaned", SegmentFile(42, "timeindex", "cleaned")),
        ("00000000000000000042.index.swap", SegmentFile(42, "index", "swap")),
        ("7.log", SegmentFile(7, "log")),
        ("000000000000000000000000007.log", SegmentFile(7, "log")),
        ("09223372036854775807.log", SegmentFile(LONG_MAX, "log")),
    ],
)
def test_segment_files(name: str, value: SegmentFile) -> None:
    assert parse_segment_file(name) == value


@each_case(
    "name",
    [
        "",
        ".log",
        "x.log",
        "-7.log",
        "+7.log",
        "7.LOG",
        "7.log.",
        "7.log.bak",
        "7.log.swap.deleted",
        "7.log\n",
        " 7.log",
        "٧.log",  # an Arabic-Indic digit
        "9223372036854775808.log",
        "7_af3c.timeindex",
        "leader-epoch-checkpoint",
        "partition.metadata",
        "meta.properties",
        ".kafka_cleanshutdown",
        ".00000000000000000042.timeindex.tmp",
        "00000000000000000042-0000000003.checkpoint",
    ],
)
def test_no_segment_files(name: str) -> None:
    assert parse_segment_file(name) is None


@each_case(
    ("name", "value"),
    [
        ("00000000000000000042-0000000003.checkpoint", CheckpointFile(42, 3)),
        ("00000000000000000042-0000000003.checkpoint.deleted", CheckpointFile(42, 3, "deleted")),
        ("00000000000000000042-0000000003-81923.checkpoint.part", CheckpointFile(42, 3, "part")),
        ("42-3.checkpoint", None),
        ("00000000000000000042.checkpoint", None),
        ("99999999999999999999-0000000003.checkpoint", None),
        ("00000000000000000042-9999999999.checkpoint", None),
        ("00000000000000000042-0000000003.checkpoint.swap", None),
        ("00000000000000000042-0000000003-81923.part", None),
        ("recovery-point-offset-checkpoint", None),
    ],
)
def test_checkpoint_files(name: str, value: CheckpointFile | None) -> None:
    assert parse_checkpoint_file(name) == value


@each_case(
    ("name", "value"),
    [
        ("orders-0", PartitionDir("orders", 0)),
        ("my-topic-12", PartitionDir("my-topic", 12)),
        ("x.y-3-0", PartitionDir("x.y-3", 0)),
        ("a--1", PartitionDir("a-", 1)),
        ("-1-2", PartitionDir("-1", 2)),
        ("a-delete-0", PartitionDir("a-delete", 0)),
        ("a.b-future-0", PartitionDir("a.b-future", 0)),
        ("__cluster_metadata-0", PartitionDir("__cluster_metadata", 0)),
        ("__consumer_offsets-49", PartitionDir("__consumer_offsets", 49)),
        ("t-007", PartitionDir("t", 7)),
        ("t-2147483647", PartitionDir("t", 2**31 - 1)),
        ("t" * 249 + "-0", PartitionDir("t" * 249, 0)),
        (f"orders-0.{HEX}-delete", PartitionDir("orders", 0, "delete")),
        (f"x.y-3-0.{HEX}-future", PartitionDir("x.y-3", 0, "future")),
        (f"x-1.y-0.{HEX}-stray", PartitionDir("x-1.y", 0, "stray")),
        ("orders-0.b-c-delete", PartitionDir("orders", 0, "delete")),
    ],
)
def test_partition_directories(name: str, value: PartitionDir) -> None:
    assert parse_partition_dir(name) == value


@each_case(
    "name",
    [
        "",
        "-",
        "orders",
        "orders-",
        "-0",
        "orders-x",
        "orders--",
        "orders-+1",
        "orders-2147483648",
        "or ders-0",
        "ördere-0",
        "orders-0\n",
        ".-0",
        "..-0",
        "t" * 250 + "-0",
        "orders-delete",
        "orders-0-delete",
        "orders-0.-delete",
        f"orders.{HEX}-delete",
        f"orders-0.a.{HEX}-delete",
        f"orders-0.{HEX}-gone",
        "_catalog",
    ],
)
def test_no_partition_directories(name: str) -> None:
    assert parse_partition_dir(name) is None


@given(
    st.integers(0, LONG_MAX), st.sampled_from(SEGMENT_KINDS), st.sampled_from(["", *FILE_SUFFIXES])
)
def test_segment_file_names_parse_back(base_offset: int, kind: str, suffix: str) -> None:
    name = segment_file_name(base_offset, kind, suffix)
    assert parse_segment_file(name) == (base_offset, kind, suffix)


@given(
    st.from_regex(r"[a-zA-Z0-9._-]{1,249}", fullmatch=True).filter(lambda t: t not in (".", "..")),
    st.integers(0, 2**31 - 1),
    st.sampled_from(DIRECTORY_KINDS),
)
def test_partition_dir_names_parse_back(topic: str, partition: int, kind: str) -> None:
    name = partition_dir_name(topic, partition)
    assert parse_partition_dir(name) == (topic, partition, "")
    assert parse_partition_dir(f"{name}.{HEX}-{kind}") == (topic, partition, kind)


@each_case(
    ("base_offset", "kind", "suffix"),
    [(-1, "log", ""), (LONG_MAX + 1, "log", ""), (0, "checkpoint", ""), (0, "log", "bak")],
)
def test_names_unknown_to_kafka_are_refused(base_offset: int, kind: str, suffix: str) -> None:
    with pytest.raises(ValueError):
        segment_file_name(base_offset, kind, suffix)
