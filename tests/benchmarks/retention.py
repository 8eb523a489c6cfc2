"""Retention and the roll audit of very many segments: seconds, rows per second, memory."""

import json
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from tests.benchmarks.commands import KIP33
from tests.benchmarks.driver_memory import MIB, mib
from tests.benchmarks.made_catalogs import NOW_MS, make_catalog, write_policy
from tests.benchmarks.page import Section, tell
from tests.benchmarks.processes import Measured, run_measured
from tests.benchmarks.ratios import Ratio
from tests.benchmarks.retention_driver import CORES

SEGMENTS: Final = (10_000, 100_000, 1_000_000)
SEGMENTS_EACH: Final = 200  # per partition
SPARK: Final = "tests.benchmarks.retention_driver"
PLAIN: Final = "tests.benchmarks.retention_plan_driver"
AIM_SECONDS: Final = 15
ON_SPARK: Final = ("--master", f"local[{CORES}]")
ON_LOCAL: Final = ("--engine", "local")


class Row(NamedTuple):
    """One catalog judged in Spark's tasks, by the command on both engines, and for a plan."""

    segments: int
    catalog_bytes: int
    spark: Measured
    command: Measured  # on Spark
    local_command: Measured
    plain: Measured
    roll: Measured  # `kip33 roll` of the same catalog, local engine

    @property
    def seconds(self) -> dict[str, float]:
        """Return the seconds that Spark's driver printed, by step."""
        found: dict[str, float] = json.loads(self.spark.output)
        return found

    @property
    def command_seconds(self) -> float:
        """Return the seconds on Spark minus Spark's start, as the driver measured it."""
        return self.command.seconds - self.seconds["start"]


def sections(data: Path, *, quick: bool) -> list[Section]:
    """Measure catalogs of all sizes and return their part of the page."""
    rows = [measure(segments) for segments in SEGMENTS]
    largest = rows[-1]
    work = f"retention of {largest.segments:,} segments"
    ratios = [
        Ratio(f"{work}, beyond Spark's start", "", largest.seconds["cold"], "s", AIM_SECONDS),
        Ratio(
            f"`kip33 retention` of {largest.segments:,} segments, beyond Spark's start",
            "",
            largest.command_seconds,
            "s",
            AIM_SECONDS,
        ),
        Ratio(
            f"`kip33 retention` of {largest.segments:,} segments, local engine",
            "",
            largest.local_command.seconds,
            "s",
        ),
        Ratio(
            f"`kip33 roll` of {largest.segments:,} segments, local engine",
            "",
            largest.roll.seconds,
            "s",
        ),
        Ratio(f"{work}, again in one session", "", largest.seconds["warm"], "s"),
    ]
    title = "Retention of a catalog that was made"
    return [Section(title, [*lines(rows), "", *notes()], ratios)]


def measure(segments: int) -> Row:
    """Make a catalog and judge it in several drivers, one after another."""
    tell(f"{segments:,} segments: retention")
    scratch = Path(tempfile.mkdtemp(prefix="kip33-bench-"))
    try:
        folder = scratch / "catalog"
        make_catalog(folder, segments=segments, partitions=segments // SEGMENTS_EACH)
        size = sum(path.stat().st_size for path in folder.rglob("*.parquet"))
        policy = write_policy(scratch / "policy.toml")
        spark = [sys.executable, "-m", SPARK, str(folder), str(scratch / "output")]
        commands = [command(folder, policy, engine) for engine in (ON_SPARK, ON_LOCAL)]
        plain = [sys.executable, "-m", PLAIN, str(folder)]
        roll = [str(KIP33), "roll", str(folder), "--segment-ms", "59m", *ON_LOCAL]
        measured = map(run_measured, (spark, *commands, plain, roll))
        return Row(segments, size, *measured)
    finally:
        shutil.rmtree(scratch)


def command(catalog: Path, policy: Path, engine: Sequence[str]) -> list[str]:
    """Return the command line for the same question as the driver's, with a table."""
    how = ["--policy", str(policy), "--now", str(NOW_MS), *engine]
    return [str(KIP33), "retention", str(catalog), *how]


def lines(rows: Sequence[Row]) -> list[str]:
    """Return the table."""
    return [
        "| segments | catalog | first | again | segments/s | 30 days' forecast | as Parquet "
        "| driver, Python | JVM | both at once | the command on Spark | of it, Spark's start "
        "| the command, local engine | its memory | for a plan, Python alone | its memory "
        "| `kip33 roll` | its memory |",
        f"|---:|{'---:|' * 17}",
        *map(row_line, rows),
    ]


def row_line(row: Row) -> str:
    """Return one catalog's line."""
    seconds, peak = row.seconds, row.spark.peak
    times = " | ".join(
        f"{seconds[name]:.1f} s" if name else f"{row.segments / seconds['warm']:,.0f}"
        for name in ("cold", "warm", "", "forecast", "written")
    )
    memory = " | ".join(map(mib, (peak.python, peak.jvm, peak.driver)))
    plain = f"{float(row.plain.output):.1f} s | {mib(row.plain.peak.python)}"
    command = f"{row.command.seconds:.1f} s | {seconds['start']:.1f} s"
    local = f"{row.local_command.seconds:.1f} s | {mib(row.local_command.peak.python)}"
    roll = f"{row.roll.seconds:.1f} s | {mib(row.roll.peak.python)}"
    size = f"{row.catalog_bytes / MIB:.1f} MiB"
    before = f"| {row.segments:,} | {size} | {times} | {memory} | {command}"
    return f"{before} | {local} | {plain} | {roll} |"


def notes() -> list[str]:
    """Return an explanation of the rows."""
    return [
        "- *first* is the first judgement of a session with all sums, as a nightly audit runs it;",
        "  *again* the best of three more. The rule and the sums run in tasks.",
        "- *the command*: `kip33 retention` from its process's start to its end, for a table of up",
        "  to 5,000 partitions and the sums, on each engine; once. *Spark's start* is that of the",
        "  session (the JVM, no job), measured in the driver's process just before; beyond it is",
        "  all else: Python's start and imports, the judgement, what is printed, the JVM's end.",
        "- 200 segments an hour apart in each partition, one in a thousand a year ahead.",
        "- *for a plan*: the same rule in Python on the same rows, as `--plan` and `--apply` do.",
        "- *`kip33 roll`*: why each segment of the same catalog ended, without opening a log.",
    ]
