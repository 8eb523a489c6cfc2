"""Small files that are expensive to read, with time and memory for each.

Each is read by its own process. Its cost must be proportional to its size: at most 400 MiB in
addition to one decompressed batch. More of them: `tests/search/test_hostile_input.py`.
"""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from tests.benchmarks.page import Section, tell
from tests.benchmarks.ratios import Ratio
from tests.builders.hostile_input import large_bomb, log_path, many_records
from tests.measured_command import Measured, measured

MIB: Final = 1 << 20
MOST_MIB: Final = 400


class Input(NamedTuple):
    """A hostile file, the arguments of a process that reads it, and the size of its batch."""

    title: str
    size_bytes: int
    arguments: list[str]
    batch_bytes: int = 0


def sections(data: Path, *, quick: bool) -> list[Section]:
    """Measure all inputs and return their part of the page."""
    tell("hostile inputs")
    scratch = Path(tempfile.mkdtemp(prefix="scratch-", dir=data))
    found: list[tuple[Input, Measured]] = []
    try:
        for hostile in inputs(scratch, 16 if quick else 1):
            measure = measured(*hostile.arguments)
            if measure.exit_code:
                raise ValueError(f"{hostile.title}: {measure.error}")
            tell(f"  {hostile.title}: {measure.seconds:.1f} s, {measure.peak_bytes // MIB} MiB")
            found.append((hostile, measure))
    finally:
        shutil.rmtree(scratch)
    beside = max((m.peak_bytes - one.batch_bytes) / MIB for one, m in found)
    work = "memory for hostile inputs, beside one decompressed batch"
    ratios = [Ratio(work, "", beside, "MiB", at_least=MOST_MIB)]
    return [Section("Hostile input", [*lines(found), "", *notes()], ratios)]


def inputs(folder: Path, divisor: int) -> Iterator[Input]:
    """Yield the inputs, one file at a time; all are smaller by `divisor`."""
    size = (1 << 30) // divisor - MIB
    log = write(folder, large_bomb(size, "zstd"))
    how = ["dump", "--records", str(log)]
    yield Input("a zstd batch of 1 GiB, `dump --records`", log.stat().st_size, how, size)
    records, size = 20_000_000 // divisor, 900 * MIB // divisor
    for title, log_bytes, batch_bytes in (
        (f"{records:,} records in one batch", many_records(records), 7 * records),
        ("one record of 900 MiB", large_bomb(size, "zstd"), size),
    ):
        log = write(folder, log_bytes)
        call = f"import kip33; print(sum(b.num_rows for b in kip33.read_arrow({str(log)!r})))"
        yield Input(f"{title}, `read_arrow`", len(log_bytes), ["-c", call], batch_bytes)


def write(folder: Path, log_bytes: bytes) -> Path:
    """Write a log without other files."""
    log = log_path(folder)
    for file in log.parent.iterdir():
        file.unlink()
    log.write_bytes(log_bytes)
    return log


def lines(found: list[tuple[Input, Measured]]) -> list[str]:
    """Return the table."""
    rows = ["| input | size | time | peak | beside its batch |", "|---|---:|---:|---:|---:|"]
    for one, measure in found:
        kib, peak = one.size_bytes / 1024, measure.peak_bytes / MIB
        beside = peak - one.batch_bytes / MIB
        figures = f"{kib:,.0f} KiB | {measure.seconds:.1f} s | {peak:.0f} MiB | {beside:.0f} MiB"
        rows.append(f"| {one.title} | {figures} |")
    return rows


def notes() -> list[str]:
    """Return an explanation of the rows."""
    return [
        "- Each in a fresh process, its start (about a second) included; the peak is `VmHWM`.",
        "- The machine was in use by other work: times are no more than an order of magnitude.",
    ]
