"""Names and times that no text or clock has: a row or one line, never a trace, never a secret."""

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

import kip33
from kip33.archive.listing import list_tree
from kip33.archive.segment_paths import list_partition
from kip33.errors import (
    CorruptSegmentError,
    LocationError,
    UnreadableLogError,
    without_secrets,
)
from kip33.stores.containers.aiven import parse_manifest
from kip33.stores.locations import Location
from tests.cli.console import subprocess_of
from tests.faults.forks import Forks

LOG = f"{0:020d}.log"
NO_TEXT = b"\xff\xfe-0"
CATALOG_FOLDERS = ("commits", "snapshots", "staging")


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """A partition with a file, and a broker with a directory, whose names are not UTF-8.

    Folders of indexes and of a catalog have one, too.
    """
    for folder in ("broker-1/orders-0", *(f"_catalog/{n}" for n in CATALOG_FOLDERS)):
        (tmp_path / "indexes" / folder / os.fsdecode(NO_TEXT)).mkdir(parents=True)
    partition = tmp_path / "archive/broker-1/orders-0"
    partition.mkdir(parents=True)
    (partition / LOG).touch()
    for name in (b"\xe9t\xe9.log", b"\xff.timeindex"):
        os.close(os.open(os.fsencode(partition) + b"/" + name, os.O_CREAT))
    other = os.fsencode(partition.parent) + b"/" + NO_TEXT
    Path(os.fsdecode(other)).mkdir()
    os.close(os.open(other + b"/" + LOG.encode(), os.O_CREAT))
    return tmp_path / "archive"


def test_a_directory_whose_name_is_no_text_is_a_row_and_a_file_is_counted(archive: Path) -> None:
    listing = list_tree(Location.of(archive))

    rows = {row.path: row.error for row in listing.segments()}
    assert rows == {
        "broker-1/\\xff\\xfe-0": "the name is not UTF-8: rename it",
        f"broker-1/orders-0/{LOG}": None,
    }
    assert listing.passed_over == {"files whose names are not UTF-8": 2}
    assert list_partition(Location.of(archive / "broker-1/orders-0")).logs() == [0]


def test_a_place_that_is_no_text_is_refused(subtests: pytest.Subtests) -> None:
    for text in (os.fsdecode(NO_TEXT), "file:///a%ff", "a\0b", "file:///a%00b"):
        with subtests.test(repr(text)), pytest.raises(LocationError, match=r"UTF-8|NUL"):
            Location.of(text)


def test_verify_says_why_a_directory_could_not_be_listed(archive: Path, forks: Forks) -> None:
    done = forks.run("console", "verify", archive)
    assert "1 of 2 logs could not be read, the first is " in done.stderr
    assert done.stderr.endswith(
        "-0: the directory cannot be listed: the name is not UTF-8: rename it\n"
    )


def test_reading_a_catalog_says_it_as_reading_the_archive_does(
    archive: Path, subtests: pytest.Subtests
) -> None:
    indexes = archive.parent / "indexes"
    with pytest.warns(UserWarning, match="1 of 2 logs could not be read"):
        kip33.build_index(archive, indexes)

    for level in ("records", "batches", "segments"):
        for source in (archive, indexes / "_catalog"):
            reader = kip33.read_arrow(source, level=level, on_error="skip")
            why = "-0: cannot be read: the name is not UTF-8"
            with (
                subtests.test(f"{level} of {source}"),
                pytest.raises(UnreadableLogError, match=why),
            ):
                reader.read_all()


def test_a_command_line_that_is_no_text_is_one_line(
    forks: Forks, subtests: pytest.Subtests
) -> None:
    for command in ("build", "dump", "catalog"):
        with subtests.test(command):
            assert forks.run("console", command, os.fsdecode(NO_TEXT)) == (
                2,
                "",
                "Error: '\\udcff\\udcfe-0': the argument is not UTF-8; "
                "give names and values in UTF-8\n",
            )


SECRET = "s3cr3t/+="
WITH_SECRETS = [
    f"s3a://AKIAKEY:{SECRET}@bucket/x",
    f"s3://AKIAKEY:{SECRET}@bucket",
    "s3a://AKIAKEY@bucket/s3cr3t",
    f"gs://AKIAKEY:{SECRET}@bucket/x.log",
    f"S3A://AKIAKEY:{SECRET}@bucket/x",
    f"s3n://AKIAKEY:{SECRET}@bucket/x",
    f"hdfs://user:{SECRET}@host:8020/x",
    "hdfs://user:s3cr3t@host:8020/x",
    f"ftp://user:{SECRET}@host/x",
    f"s3a://AKIAKEY:{SECRET}",
]


def test_a_secret_in_a_uri_is_refused_and_not_shown(subtests: pytest.Subtests) -> None:
    for uri in WITH_SECRETS:
        with subtests.test(uri):
            with pytest.raises(LocationError) as refused:
                Location.of(uri).filesystem()
            assert "s3cr3t" not in str(refused.value)
            assert "AKIAKEY" not in str(refused.value)


IN_EVERY_PLACE = (
    ("build", "URI", "--index-dir", "i"),
    ("build", "archive", "--index-dir", "URI"),
    ("verify", "archive", "--summary", "URI"),
    ("verify", "archive", "URI"),
    ("retention", "apply", "URI"),
)


def test_no_command_shows_a_secret(archive: Path, forks: Forks, subtests: pytest.Subtests) -> None:
    values = {"URI": WITH_SECRETS[0], "archive": archive, "i": archive.parent / "i"}
    for arguments in IN_EVERY_PLACE:
        with subtests.test(" ".join(arguments)):
            done = forks.run("console", *(values.get(one, one) for one in arguments))
            assert done.exit_code == 2
            assert done.stderr.startswith("Error: ")
            assert done.stderr.count("\n") == 1
            assert "s3cr3t" not in done.stderr + done.stdout


BUG = """
import sys
from kip33.cli import main
from kip33.stores.locations import Location

def broken(place):
    try:
        raise KeyError(f"no filesystem of {place}")
    except KeyError as error:
        raise RuntimeError(f"a bug at s3a://AKIAKEY:s3cr3t/+=@bucket/x and {place}") from error

Location.of = broken
sys.argv = ["kip33", "catalog", "s3a://AKIAKEY:s3cr3t/+=@bucket"]
main.main()
"""


def test_the_trace_of_a_bug_shows_no_secret(tmp_path: Path) -> None:
    """It is in a file, or is printed if none can be written."""
    done = subprocess_of(sys.executable, "-c", BUG, cwd=tmp_path, TMPDIR=str(tmp_path))

    [file] = tmp_path.glob("kip33-trace-*.txt")
    assert done.exit_code == 1
    assert re.fullmatch(
        r"Error: kip33 itself failed: RuntimeError: a bug at s3a://\*\*\*@bucket/x and "
        r"s3a://\*\*\*@bucket \([a-z_]+\.py:[0-9]+\); nothing of it is an answer; please report it "
        rf"with the trace in {re.escape(str(file))}\n",
        done.stderr,
    )
    assert done.stdout == ""

    no_folder = f"import tempfile; tempfile.tempdir = {str(tmp_path / 'none')!r}\n"
    printed = subprocess_of(sys.executable, "-c", no_folder + BUG, cwd=tmp_path)
    assert (printed.exit_code, printed.stdout) == (1, "")
    for trace in (file.read_text(), printed.stderr):
        assert "s3cr3t" not in trace
        assert "AKIAKEY" not in trace
        assert "KeyError: 'no filesystem of s3a://***@bucket'" in trace  # what led to it, too
        assert trace.endswith("RuntimeError: a bug at s3a://***@bucket/x and s3a://***@bucket\n")
        assert ", in broken\n" in trace

    plain = "s3a://bucket/a@b: no key; hdfs://host:8020/x and me@example.org: none"
    assert without_secrets(plain) == plain


def test_a_file_time_beyond_2262_is_the_files_own(
    tmp_path: Path, subtests: pytest.Subtests
) -> None:
    log = tmp_path / "orders-0" / LOG
    log.parent.mkdir()
    log.touch()
    for seconds in (10**10, 9_223_372_037, 15_000_000_000, -(2**31), 0):
        os.utime(log, (seconds, seconds))
        as_kept = log.stat().st_mtime_ns

        [row] = list_tree(Location.of(tmp_path)).segments()
        [file] = list_partition(Location.of(log.parent)).segments[0]

        with subtests.test(f"{seconds} s"):
            assert row.last_modified_ms == as_kept // 1_000_000
            assert file.last_modified_ns == as_kept


HOSTILE: list[tuple[str, Any]] = [
    *(("topic", value) for value in (5, 1.5, True, [], {}, "", "\ud800", "a\0b", "..", "x" * 250)),
    *(("partition", value) for value in (-1, 1 << 31, "0", 1.0, True, [])),
    *(("startOffset", value) for value in (-1, 1 << 63, "0", 1.0, {})),
]


def test_a_manifest_names_a_topic_of_kafka_or_is_no_manifest(subtests: pytest.Subtests) -> None:
    for name, value in HOSTILE:
        with subtests.test(f"{name} {value!a}"[:40]):
            with pytest.raises(CorruptSegmentError) as refused:
                parse_manifest(manifest(name, value))
            str(refused.value).encode()


def manifest(name: str, value: Any) -> bytes:
    """Return a manifest in which one name has this value."""
    partition: dict[str, Any] = {"topic": "orders", "partition": 0}
    metadata: dict[str, Any] = {"startOffset": 0}
    (metadata if name == "startOffset" else partition)[name] = value
    sizes = ("originalChunkSize", "transformedChunkSize", "finalTransformedChunkSize")
    record = {
        "version": "1",
        "chunkIndex": {"type": "fixed", "originalFileSize": 9, **dict.fromkeys(sizes, 9)},
        "remoteLogSegmentMetadata": metadata
        | {"remoteLogSegmentId": {"topicIdPartition": {"topicPartition": partition}}},
    }
    return json.dumps(record).encode()
