"""Ten thousand requests over a thousand partitions: one job against one at a time and a scan."""

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
from tests.benchmarks.segments import KINDS, START_MS, STEP_MS

SHAPE: Final = Shape("100,000 segments of 1 MiB", "batches-16k", 1 << 20, 100, 1_000)
REQUESTS: Final = 10_000
DRIVER: Final = "tests.benchmarks.search_driver"
NOW_MS: Final = 1_800_000_000_000
AIM: Final = 20  # times one request at a time
KIB: Final = 1 << 10


def sections(data: Path, **_: object) -> list[Section]:
    """Measure and return this part of the page."""
    tell(f"{REQUESTS:,} requests, {SHAPE.title}")
    scratch = Path(tempfile.mkdtemp(prefix="kip33-bench-", dir=data if data.exists() else None))
    try:
        archive = link_archive(SHAPE, scratch)
        catalog = scratch / "indexes" / "_catalog"
        build(archive, scratch / "indexes")
        requests = write_requests(scratch / "requests.parquet")
        command = [sys.executable, "-m", DRIVER, str(catalog), str(requests)]
        found = json.loads(run_measured(command).output)
    finally:
        shutil.rmtree(scratch)
    return [Section("Search by time", [*lines(found), "", *notes()])]


def build(archive: Path, indexes: Path) -> None:
    """Index the archive, with `.index` files."""
    spark = create_session(master="local[2]")
    begin = time.perf_counter()
    build_index(spark, str(archive), str(indexes), now_ms=NOW_MS, offset_index=True)
    tell(f"built in {time.perf_counter() - begin:.0f} s")
    spark.stop()


def write_requests(path: Path) -> Path:
    """Write requests for times within the partitions', as many for each."""
    chance = random.Random(33)
    [kind] = [kind for kind in KINDS if kind.name == SHAPE.kind]
    batches = SHAPE.files * (SHAPE.segment_bytes // (16 << 10))
    rows: list[dict[str, Any]] = [
        {
            "topic": kind.name,
            "partition": number % SHAPE.partitions,
            "target_ms": START_MS + chance.randrange(1, (batches - 1) * STEP_MS),
        }
        for number in range(REQUESTS)
    ]
    schema = pa.schema(
        [("topic", pa.string()), ("partition", pa.int32()), ("target_ms", pa.int64())]
    )
    pq.write_table(pa.Table.from_pylist(rows, schema), path)
    return path


def lines(found: dict[str, Any]) -> list[str]:
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
        f"{requests:,} requests over {SHAPE.partitions:,} partitions, {SHAPE.title}.",
        "",
        "| | first | again | a request | read for one | against one at a time |",
        "|---|---:|---:|---:|---:|---:|",
        *rows,
        f"| one request at a time | | | {alone * 1000:.0f} ms | | 1 x |",
        f"| the headers of all logs scanned, one core | {found['scan']:.1f} s | | | | |",
    ]


def notes() -> list[str]:
    """Say what the rows mean."""
    return [
        f"- Aim: {AIM} times one request at a time: the catalog's rows read, then searched,",
        "  as `kip33 search` does without the start of Python.",
        "- The scan's time is that of 2,000 segments, taken for all; Spark's start is not counted.",
    ]
