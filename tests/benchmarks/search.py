"""Requests over many partitions: one job against single requests."""

import json
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from kip33.spark.build import build_index
from kip33.spark.session import create_session
from tests.benchmarks.archives import Shape, link_archive
from tests.benchmarks.page import Section, tell
from tests.benchmarks.processes import run_measured
from tests.benchmarks.ratios import Ratio
from tests.benchmarks.segments import KINDS, START_MS, STEP_MS

SHAPE: Final = Shape("100,000 segments of 1 MiB", "batches-16k", 1 << 20, 100, 1_000)
QUICK_SHAPE: Final = Shape("2,000 segments of 1 MiB", "batches-16k", 1 << 20, 20, 100)
REQUESTS: Final = 10_000
QUICK_REQUESTS: Final = 1_000
DRIVER: Final = "tests.benchmarks.search_driver"
NOW_MS: Final = 1_800_000_000_000
AIM: Final = 20  # times as fast as one request at a time
KIB: Final = 1 << 10


def sections(data: Path, *, quick: bool) -> list[Section]:
    """Measure and return this part of the page."""
    shape, requests = (QUICK_SHAPE, QUICK_REQUESTS) if quick else (SHAPE, REQUESTS)
    tell(f"{requests:,} requests, {shape.title}")
    scratch = Path(tempfile.mkdtemp(prefix="scratch-", dir=data))
    try:
        archive = link_archive(shape, scratch)
        catalog = scratch / "indexes" / "_catalog"
        build(archive, scratch / "indexes")
        file = write_requests(scratch / "requests.parquet", shape, requests)
        command = [sys.executable, "-m", DRIVER, str(catalog), str(file)]
        found = json.loads(run_measured(command).output)
    finally:
        shutil.rmtree(scratch)
    ratio = Ratio(
        f"search, {requests:,} requests in one job, {shape.title}",
        "one request at a time",
        found["alone"] * requests / found["record"]["again"],
        at_least=None if quick else AIM,  # the time of a few requests is mostly a job's start
    )
    text = [*lines(found, shape), "", *notes()]
    return [Section("Search by time", text, [ratio])]


def build(archive: Path, indexes: Path) -> None:
    """Index the archive, with `.index` files."""
    spark = create_session(master="local[2]")
    begin = time.perf_counter()
    build_index(spark, str(archive), str(indexes), now_ms=NOW_MS, offset_index=True)
    tell(f"built in {time.perf_counter() - begin:.0f} s")
    spark.stop()


def write_requests(path: Path, shape: Shape, count: int) -> Path:
    """Write requests for times in the partitions, the same number for each."""
    chance = random.Random(33)
    [kind] = [kind for kind in KINDS if kind.name == shape.kind]
    batches = shape.files * (shape.segment_bytes // (16 << 10))
    rows: list[dict[str, Any]] = [
        {
            "topic": kind.name,
            "partition": number % shape.partitions,
            "target_ms": START_MS + chance.randrange(1, (batches - 1) * STEP_MS),
        }
        for number in range(count)
    ]
    schema = pa.schema(
        [("topic", pa.string()), ("partition", pa.int32()), ("target_ms", pa.int64())]
    )
    pq.write_table(pa.Table.from_pylist(rows, schema), path)
    return path


def lines(found: dict[str, Any], shape: Shape) -> list[str]:
    """Return the table."""
    requests, alone = found["requests"], found["alone"]
    rows = []
    for name, title in (
        ("record", "one job, exact to the record"),
        ("index", "one job, `--index-only`"),
    ):
        job = found[name]
        each = job["again"] / requests
        rows.append(
            f"| {title} | {job['first']:.1f} s | {job['again']:.1f} s | {each * 1000:.2f} ms "
            f"| {job['bytes_read'] / requests / KIB:.1f} KiB | {alone / each:,.0f} x |"
        )
    return [
        f"{requests:,} requests over {shape.partitions:,} partitions, {shape.title}.",
        "",
        "| | first | again | a request | read for one | against one at a time |",
        "|---|---:|---:|---:|---:|---:|",
        *rows,
        f"| one request at a time | | | {alone * 1000:.0f} ms | | 1 x |",
    ]


def notes() -> list[str]:
    """Return an explanation of the rows."""
    return [
        f"- Aim: {AIM} times one request at a time: the catalog's rows read, then searched,",
        "  as `kip33 search` does without the start of Python.",
        "- Spark's start is not counted.",
    ]
