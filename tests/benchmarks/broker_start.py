"""How long a broker takes to start on a restored log directory, and on one that it has to recover.

The same logs each time: as `kip33 restore` left them, then with nothing beside them, as a copy of
the logs alone is. The clock runs from the start of the process until the broker listens; the
broker's own figure for loading its logs is taken from its log. Kafka's recovery reads with one
thread per log directory, the default before 4.0, and with two, the default since.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final, NamedTuple

from tests.benchmarks.archives import BROKER, Shape, link_archive
from tests.benchmarks.page import Section, tell
from tests.benchmarks.ratios import Ratio
from tests.integration.kafka.nodes import Nodes

KIP33: Final = Path(sys.executable).with_name("kip33")
SHAPE: Final = Shape("20 segments of 1 GiB", "batches-16k", 1 << 30, 2, 10)
QUICK_SHAPE: Final = Shape("8 segments of 128 MiB", "batches-16k", 1 << 27, 2, 4)
AIM: Final = 10.0
RECOVERIES: Final = {1: "logs alone, one thread", 2: "logs alone, two threads"}
LOADED: Final = re.compile(r"Loaded \d+ logs in (\d+)\s?ms")


class Started(NamedTuple):
    """One start: seconds until the broker listens, and seconds of loading by the broker's log."""

    seconds: float
    loading: float


def sections(data: Path, *, quick: bool) -> list[Section]:
    """Measure the starts and return their part of the page."""
    shape = QUICK_SHAPE if quick else SHAPE
    archive = link_archive(shape, data / f"starts-{shape.segments}-{shape.segment_bytes}")
    with tempfile.TemporaryDirectory(prefix="starts-", dir=data) as folder:
        starts = measure(archive, shape, Path(folder))
    size = sum(log.stat().st_size for log in archive.glob(f"{BROKER}/*/*.log"))
    lines = [
        f"{shape.title} ({size / 1e9:.1f} GB) in {shape.partitions} partitions, "
        "one broker of Kafka 4.1:",
        "",
        "| log directory | until it listens | loading of logs |",
        "|---|---:|---:|",
        *(
            f"| {name} | {one.seconds:.1f} s | {one.loading:.2f} s |"
            for name, one in starts.items()
        ),
    ]
    restored = starts["restored"]
    ratios = []
    for threads, name in RECOVERIES.items():
        with_recovery = f"with recovery by {threads} thread{'s' * (threads > 1)}"
        whole = starts[name].seconds / restored.seconds
        loading = starts[name].loading / max(restored.loading, 0.001)
        ratios += [
            Ratio("start on restored logs", with_recovery, whole, aim=AIM),
            Ratio("loading of restored logs", with_recovery, loading),
        ]
    return [Section("A broker's start on restored logs", lines, ratios)]


def measure(archive: Path, shape: Shape, folder: Path) -> dict[str, Started]:
    """Return the starts by what the log directory is."""
    nodes = Nodes(folder)
    with nodes.running():
        nodes.run_steps([f"create {shape.kind} {shape.partitions} 1 retention.ms=-1"])
    started = {"empty partitions": start(nodes)}
    tell(f"restore of {shape.title}")
    command = [KIP33, "restore", archive / BROKER, "--to", nodes.log_dir()]
    subprocess.run(command, check=True, stdout=sys.stderr)
    started["restored"] = start(nodes)
    for threads, name in RECOVERIES.items():
        keep_logs_alone(nodes.log_dir())
        started[name] = start(nodes, num_recovery_threads_per_data_dir=str(threads))
    return started


def start(nodes: Nodes, **settings: str) -> Started:
    """Start the broker and stop it again."""
    os.sync()
    begin = time.perf_counter()
    nodes.start(**settings)
    seconds = time.perf_counter() - begin
    nodes.stop()
    loaded = [found[1] for line in nodes.logged() if (found := LOADED.search(line))]
    tell(f"  {seconds:.1f} s, of these {loaded} ms for loading")
    return Started(seconds, int(loaded[0]) / 1000 if loaded else 0.0)


def keep_logs_alone(log_dir: Path) -> None:
    """Remove all from a log directory but the logs and the topics' ids."""
    for path in log_dir.iterdir():
        if path.is_dir():
            for file in path.iterdir():
                if file.suffix != ".log" and file.name != "partition.metadata":
                    shutil.rmtree(file) if file.is_dir() else file.unlink()
        elif "checkpoint" in path.name or path.name == ".kafka_cleanshutdown":
            path.unlink()
