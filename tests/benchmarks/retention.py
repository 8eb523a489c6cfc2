"""Retention of a million segments on Spark: seconds in a session, and of the command.

The commands of the local engine on such a catalog are in `whole_commands`.
"""

import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.benchmarks.commands import KIP33
from tests.benchmarks.driver_memory import mib
from tests.benchmarks.made_catalogs import NOW_MS, make_catalog, write_policy
from tests.benchmarks.page import Section, tell
from tests.benchmarks.processes import run_measured
from tests.benchmarks.ratios import Ratio
from tests.benchmarks.retention_driver import CORES

SEGMENTS: Final = 1_000_000
SEGMENTS_EACH: Final = 200  # per partition
SPARK: Final = "tests.benchmarks.retention_driver"
AIM_SECONDS: Final = 15


def sections(data: Path, *, quick: bool) -> list[Section]:
    """Make a catalog, judge it in two drivers, and return this part of the page."""
    tell(f"{SEGMENTS:,} segments: retention")
    scratch = Path(tempfile.mkdtemp(prefix="kip33-bench-"))
    try:
        catalog = scratch / "catalog"
        make_catalog(catalog, segments=SEGMENTS, partitions=SEGMENTS // SEGMENTS_EACH)
        policy = write_policy(scratch / "policy.toml")
        spark = run_measured([sys.executable, "-m", SPARK, str(catalog), str(scratch / "output")])
        how = ["--policy", str(policy), "--now", str(NOW_MS), "--master", f"local[{CORES}]"]
        command = run_measured([str(KIP33), "retention", str(catalog), *how])
    finally:
        shutil.rmtree(scratch)
    seconds: dict[str, float] = json.loads(spark.output)
    work = f"retention of {SEGMENTS:,} segments"
    beyond = command.seconds - seconds["start"]
    ratios = [
        Ratio(f"{work}, beyond Spark's start", "", seconds["cold"], "s", AIM_SECONDS),
        Ratio(
            f"`kip33 retention` of {SEGMENTS:,} segments, beyond Spark's start",
            "",
            beyond,
            "s",
            AIM_SECONDS,
        ),
        Ratio(f"{work}, again in one session", "", seconds["warm"], "s"),
    ]
    lines = [
        f"- 30 days' forecast {seconds['forecast']:.1f} s, as Parquet {seconds['written']:.1f} s.",
        f"- Most that was resident: Python {mib(spark.peak.python)}, JVM {mib(spark.peak.jvm)}.",
        "- In a session: all sums, as a nightly audit runs them. The command prints a table and",
        f"  the sums; Spark's start ({seconds['start']:.1f} s, the JVM without a job) is measured",
        "  in the driver's process just before.",
        "- 200 segments an hour apart in each partition, one in a thousand a year ahead.",
    ]
    return [Section("Retention of a catalog that was made", lines, ratios)]
