"""`kip33 verify quick`: index files compared with their CRCs in the catalog."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.builders.changing_archive import CLICKS, ORDERS, ChangingArchive, batches, built_archive
from tests.builders.segment_builder import Record, end_txn_marker, segment, v2_batch
from tests.cli.console import Command, Finished

OF_THE_RUN = {"workers": 0, "seconds": 0}


@pytest.fixture
def changing(tmp_path: Path) -> ChangingArchive:
    """Two partitions, built with all kinds of index files."""
    return built_archive(tmp_path)


@pytest.fixture
def quick(command: Command, changing: ChangingArchive) -> Callable[..., Finished]:
    """Return a function that runs the command on the archive, whose logs it cannot read."""

    def run(*options: Any) -> Finished:
        place = changing.source.rename(changing.source.with_name("elsewhere"))
        try:
            return command(
                *("verify", "quick", changing.source, "--catalog", changing.catalog), *options
            )
        finally:
            place.rename(changing.source)

    return run


def zeros_unseen(path: Path) -> None:
    """Replace a file's bytes by zeros, at the same size and modification time."""
    modified_ns = path.stat().st_mtime_ns
    path.write_bytes(bytes(path.stat().st_size))
    os.utime(path, ns=(0, modified_ns))


def files_of(done: Finished) -> list[tuple[str, str]]:
    return [(Path(file["uri"]).name, file["verdict"]) for file in done.lines]


def test_everything_is_as_built(quick: Callable[..., Finished], changing: ChangingArchive) -> None:
    done = quick("--format", "json", "--fail-on", "changed", "--fail-on", "missing")
    [found] = done.lines
    sizes = [path.stat().st_size for path in changing.index_root.rglob("*index")]
    assert done.exit_code == 0
    assert found["by_verdict"] == found["by_offset_index_verdict"] == {"identical": 4}
    assert found["by_transaction_index_verdict"] == {}
    assert found["bytes_read"] == sum(sizes) > 0
    assert found["not_identical"] == []


def test_zeros_of_the_same_size_and_time_are_seen(
    quick: Callable[..., Finished], changing: ChangingArchive
) -> None:
    for suffix in (".timeindex", ".index"):
        zeros_unseen(changing.index(ORDERS).with_suffix(suffix))

    unseen = changing.build(offset_index=True)
    done = quick("--format", "jsonl", "--fail-on", "changed")

    assert (unseen.indexed, unseen.reused) == (0, 4), "a build reads no index file"
    assert done.exit_code == 3
    assert files_of(done) == [(f"{0:020d}.index", "changed"), (f"{0:020d}.timeindex", "changed")]
    assert {file["problem"] for file in done.lines} == {"the CRC differs from the catalog's"}


def test_what_is_missing_cut_or_unreadable(
    quick: Callable[..., Finished], changing: ChangingArchive
) -> None:
    changing.index(CLICKS).unlink()
    cut = changing.index(ORDERS)
    cut.write_bytes(cut.read_bytes()[:-12])
    folder = changing.index(ORDERS, 40)
    folder.unlink()
    folder.mkdir()

    done = quick("--format", "json", "--fail-on", "missing")

    [found] = done.lines
    verdicts = {"identical": 1, "changed": 1, "missing": 1, "unreadable": 1}
    assert (done.exit_code, found["by_verdict"]) == (3, verdicts)
    assert quick("--fail-on", "unknown").exit_code == 0
    problems = {file["verdict"]: file["problem"] for file in found["not_identical"]}
    size = cut.stat().st_size
    assert problems["changed"] == f"{size:,} bytes found, the catalog says {size + 12:,}"


def test_a_file_that_no_build_has_read_is_unknown(
    quick: Callable[..., Finished], changing: ChangingArchive
) -> None:
    changing.write(changing.log(ORDERS, 80), batches(80, 20))
    foreign = changing.index(ORDERS, 80)
    foreign.write_bytes(b"of another program")
    changing.build(offset_index=True)

    done = quick("--format", "jsonl", "--fail-on", "unknown")

    assert (done.exit_code, files_of(done)) == (3, [(foreign.name, "unknown")])
    foreign.write_bytes(b"another size")
    assert files_of(quick("--format", "jsonl")) == [(foreign.name, "changed")]


def test_txnindexes_are_compared_too(
    quick: Callable[..., Finished], changing: ChangingArchive
) -> None:
    begun = {"transactional": True, "producer_id": 5, "producer_epoch": 0, "base_sequence": 0}
    aborted = end_txn_marker(1, 1001, producer_id=5, commit=False)
    paid = segment([v2_batch(0, [Record(1000)], **begun), aborted])
    changing.write(changing.log("b1/paid-0"), paid)
    changing.build(offset_index=True)
    [before] = quick("--format", "json").lines
    assert before["by_transaction_index_verdict"] == {"identical": 1}

    place = changing.index("b1/paid-0").with_suffix(".txnindex")
    zeros_unseen(place)

    assert files_of(quick("--format", "jsonl")) == [(place.name, "changed")]


def test_a_catalog_of_another_source_is_refused(
    command: Command, changing: ChangingArchive
) -> None:
    done = command("verify", "quick", "archive", "--catalog", changing.catalog)
    assert done.exit_code == 2
    assert "describes" in done.stderr


@pytest.mark.spark
def test_spark_finds_the_same(spark_command: Command, changing: ChangingArchive) -> None:
    zeros_unseen(changing.index(ORDERS))
    changing.index(CLICKS).unlink()
    options = ("verify", "quick", changing.source, "--catalog", changing.catalog)
    answers = []
    for engine in ("local", "spark"):
        done = spark_command(*options, "--engine", engine, "--format", "json")
        answers += done.lines
    local, spark = answers
    assert (local.pop("engine"), spark.pop("engine")) == ("local", "spark")
    assert local | OF_THE_RUN == spark | OF_THE_RUN
    assert len(local["not_identical"]) == 2


def test_segments_of_a_build_without_index_files_are_counted_in_a_line(
    command: Command, tmp_path: Path
) -> None:
    archive = ChangingArchive(tmp_path)
    archive.write(archive.log("orders-0"), batches(0, 5))
    archive.build(index_files=False)
    done = command(
        *("verify", "quick", archive.source, "--catalog", archive.catalog, "--format", "json")
    )
    assert done.exit_code == 0
    assert "1 segment without index files: built with --no-index-files" in done.stderr
    assert (done.lines[0]["segments"], done.lines[0]["without_index_files"]) == (0, 1)
