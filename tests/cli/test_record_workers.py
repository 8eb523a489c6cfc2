"""`kip33 records` and `count` with `--workers`: byte for byte the answer of one process."""

import io
import json
import multiprocessing
import pickle
import re
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import kip33
from kip33.records import (
    parallel_reading,
    parquet_records,
    record_selection,
    segment_reader,
)
from kip33.records.parquet_records import ParquetRecords
from kip33.records.record_selection import ValueDecoding
from tests.builders.log_file import write_log
from tests.builders.record_questions import random_archive
from tests.builders.schema_values import (
    NEW,
    OLD,
    V1,
    V2,
    framed,
    put_log,
    put_schemas,
    registered,
    table_of,
)
from tests.builders.segment_builder import Record, v2_batch
from tests.cli.console import KIP33, Command
from tests.faults.processes import of_session
from tests.long_forms import seeds, short_and_long

T = 1_700_000_000_000
ANSWERS = ("jsonl", "json", "csv", "table", "o.jsonl", "o.csv", "o.json", "o.parquet")
OPTIONS = (
    (),
    ("--from", T + 300),
    ("--until", T + 3000, "--disorder", "500ms"),
    ("--isolation", "read_committed"),
    ("--on-error", "row"),
    ("--on-error", "fail"),
)
SELECTIONS: tuple[tuple[Any, ...], ...] = (
    (),
    ("--limit", 1),
    ("--limit", 17),
    ("--grep", "1"),
    ("--grep", "1", "--limit", 5),
    ("--where-key", ""),
    ("--decode",),
    ("--decode", "--limit", 30),
    ("--columns", "value,headers,offset"),
)


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel_reading, "PART_BYTES", 150)
    monkeypatch.setattr(parallel_reading, "FILE_COST_BYTES", 16)
    monkeypatch.setattr(parallel_reading, "LEAST_BIN_COST", 200)
    monkeypatch.setattr(segment_reader, "_SMALL_LOG_BYTES", 0)
    monkeypatch.setattr(record_selection, "_TEXT_ROWS", 3)
    monkeypatch.setattr(parquet_records, "_GROUP_ROWS", 50)
    monkeypatch.setattr(parquet_records, "_GROUP_BYTES", 400)


@pytest.fixture
def answer(command: Command, tmp_path: Path) -> Callable[..., tuple[Any, ...]]:
    """What a command leaves: exit code, both outputs, the summary and the file, without times."""

    def of(workers: int, *arguments: Any) -> tuple[Any, ...]:
        Path("s.json").unlink(missing_ok=True)
        done = command(*arguments, "--workers", workers, "--summary", "s.json")
        found = Path("s.json")
        summary = json.loads(found.read_text()) if found.exists() else {}
        for of_this_run in ("seconds", "run"):
            summary.pop(of_this_run, None)
        output = next((one for one in map(Path, ANSWERS) if one.exists()), None)
        data = output.read_bytes() if output else b""
        if output:
            output.unlink()
        texts = (data, done.stdout.encode(), done.stderr.encode())
        plain = [re.sub(rb"read in [0-9.]+ s|\"seconds\": [0-9.]+", b"", text) for text in texts]
        return (done.exit_code, *plain, summary)

    return of


def framed_archive(random: Random, archive: Path) -> None:
    """Add values with schemas to an archive, some of which cannot be decoded."""
    put_log(
        *(archive, "_schemas-0", registered("orders-value", 1, 1, V1)),
        registered("orders-value", 2, 2, V2),
    )
    values = (OLD, NEW, None, framed(2, b"\x02"), b"plain 1", framed(9, b"x"))
    for base in range(0, 60, 20):
        records = [
            Record(T + base, random.choice((b"", b"k", None)), random.choice(values))
            for _ in range(20)
        ]
        write_log(archive / "orders-2", base, v2_batch(base, records[:9], codec="zstd"))
        log = archive / "orders-2" / f"{base:020d}.log"
        log.write_bytes(log.read_bytes() + v2_batch(base + 9, records[9:]))


def made_archive(random: Random, root: Path) -> tuple[Path, ...]:
    """An archive of two brokers, with damage, offsets in two segments, and an unreadable log."""
    archive, catalog = random_archive(random, root, disorder_ms=500)
    framed_archive(random, archive)
    log = random.choice(sorted(archive.glob("clicks-0/*.log")))
    again = log.with_name(f"{int(log.stem) + random.choice((1, 5)):020d}.log")
    again.write_bytes(log.read_bytes())
    gone = random.choice(sorted(archive.glob("orders-1/*.log")))
    gone.unlink()
    gone.symlink_to("nothing")
    brokers = root / "brokers"
    for name in ("broker-1", "broker-2"):
        shutil.copytree(archive, brokers / name, symlinks=True)
    random.choice(sorted(brokers.rglob("orders-0/*.log"))).unlink()
    return archive, catalog, brokers


def random_question(random: Random, sources: tuple[Path, ...]) -> tuple[Any, ...]:
    source, options = random.choice(sources), random.choice(OPTIONS)
    if random.random() < 0.3 and "row" not in options:
        form = random.choice(("jsonl", "table"))
        return ("count", source, *options, "--per", "1s", "--format", form)
    form = random.choice(ANSWERS)
    output = ("--output", form) if form.startswith("o.") else ("--format", form)
    return ("records", source, *options, *random.choice(SELECTIONS), *output)


@pytest.mark.parametrize("archives", short_and_long(1, 60, "KIP33_PARALLEL"))
def test_answers_of_random_archives(
    answer: Callable[..., tuple[Any, ...]], tmp_path: Path, archives: int
) -> None:
    for seed in seeds(archives):
        random = Random(seed)
        sources = made_archive(random, tmp_path / str(seed))
        for _ in range(12):
            arguments = random_question(random, sources)
            expected = answer(1, *arguments)
            assert answer(random.choice((2, 3)), *arguments) == expected, (seed, arguments)
    assert multiprocessing.active_children() == []


def test_row_groups_are_of_the_rows_not_of_the_batches() -> None:
    random = Random(4)
    rows = [
        {
            "value": random.choice((None, b"v" * random.randrange(90))),
            "headers": random.choice((None, [], [{"key": "k", "value": b"h" * 9}] * 3)),
            "decoded": random.choice((None, {"id": 5, "names": [("a", "b"), ("c", "d")]})),
        }
        for _ in range(400)
    ]
    header = pa.struct({"key": pa.string(), "value": pa.binary()})
    decoded = pa.struct({"id": pa.int64(), "names": pa.map_(pa.string(), pa.string())})
    columns = {"value": pa.binary(), "headers": pa.list_(header), "decoded": decoded}
    schema = pa.schema(columns | {"nothing": pa.null()})
    table = pa.Table.from_pylist(rows, schema)
    files = []
    for size in (400, 1, 7, 83):
        file = io.BytesIO()
        writer = ParquetRecords(schema, file)
        for batch in table.to_batches(size):
            writer.write(batch)
        writer.finish({})
        files.append(file.getvalue())

    assert pq.read_table(io.BytesIO(files[0])) == table
    assert 20 < pq.ParquetFile(io.BytesIO(files[0])).num_row_groups < 200
    assert files[1:] == files[:1] * 3


@pytest.mark.parametrize("place", ["archive", "directory", "registry"])
def test_a_decoding_is_sent_to_a_worker_that_is_no_fork(tmp_path: Path, place: str) -> None:
    """As for workers that read a remote store; a registry is asked by each worker."""
    put_log(tmp_path / "a", "_schemas-0", registered("orders-value", 1, 1, V1))
    places = {
        "archive": str(tmp_path / "a"),
        "directory": str(put_schemas(tmp_path / "schemas", avsc_1=V1)),
        "registry": "http://user:secret@localhost:1",
    }
    given = places[place]
    schemas = kip33.Schemas.from_archive("a") if given is None else kip33.Schemas.of(given)
    decoding = ValueDecoding(schemas, {"orders"}, to_columns=False)

    sent: ValueDecoding = pickle.loads(pickle.dumps(decoding))

    [batch] = table_of(OLD).to_batches()
    if place == "registry":
        assert sent.schema(batch.schema) == decoding.schema(batch.schema)
    else:
        assert sent.decoded(batch) == decoding.decoded(batch)
        assert sent.decoded(batch)[0]["value"].to_pylist() == [b'{"id":5}']


def test_a_signal_ends_the_command_and_its_workers(
    archive: Path, subtests: pytest.Subtests
) -> None:
    """The reader of standard output takes one line, so the workers have more to read."""
    for number in [signal.SIGINT, signal.SIGTERM]:
        with subtests.test(f"{number}"):
            with subprocess.Popen(
                [KIP33, "records", archive, "--format", "jsonl", "--workers", "2"],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                start_new_session=True,
            ) as process:
                assert process.stdout and process.stderr
                process.stdout.readline()
                assert len(of_session(process.pid)) >= 3
                process.send_signal(number)
                process.stdout.read()
                said = process.stderr.read().splitlines()[-1]

            assert process.returncode == 128 + number
            assert said.startswith(f"Error: interrupted by {number.name}; no file is half-written")
            assert of_session(process.pid) == []
