"""From which size on a cluster pays: the local engine against standalone clusters, by size.

Each figure is one `kip33 build` into a new directory, from the start of its process to its end; on
a cluster that includes the driver's JVM and the executors, as for a nightly job. The clusters have
workers of one core on this machine, which has two: a cluster of two workers has as many cores as
the local engine. What more workers would give is computed from the first one's figures.
"""

import itertools
import json
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from tests.benchmarks.archives import Shape, link_archive
from tests.benchmarks.commands import KIP33
from tests.benchmarks.local_builds import build_locally
from tests.benchmarks.page import Curves, Section, tell
from tests.benchmarks.timing import Contestant, Times, clocked, take_turns
from tests.integration.servers.spark import SparkCluster

MIB: Final = 1 << 20
CORES: Final = 2
ROUNDS: Final = 2
SIZES_GIB: Final = (1, 4, 16, 64)
SEGMENT_BYTES: Final = 256 * MIB
FILES: Final = 4  # per partition: a GiB
HOSTS: Final = ("127.0.0.1", "127.0.0.2")
LOCAL: Final = f"local engine, {CORES} cores"
ONE_WORKER: Final = "cluster, 1 worker"
CLUSTERS: Final = {ONE_WORKER: 1, "cluster, 2 workers": 2}
WORKERS_ASKED: Final = (4, 8, 32)


class Line(NamedTuple):
    """Seconds as a line: those of an empty archive, and those of a GiB more."""

    start: float
    each_gib: float

    @classmethod
    def through(cls, curve: Sequence[tuple[float, float]]) -> "Line":
        """Return the line through the first and the last point of a curve by GiB."""
        (least, first), *_, (most, last) = curve
        each_gib = (last - first) / (most - least)
        return cls(first - least * each_gib, each_gib)

    def with_workers(self, workers: int) -> "Line":
        """Return the line of so many workers, if this is the line of one."""
        return self._replace(each_gib=self.each_gib / workers)

    def pays_from(self, other: "Line") -> float | None:
        """Return from how many GiB on this one is faster than the other; None: at no size."""
        gained = other.each_gib - self.each_gib
        return max(0.0, (self.start - other.start) / gained) if gained > 0 else None


def sections(data: Path, *, quick: bool) -> list[Section]:
    """Measure all sizes and return their part of the page."""
    folder = data / "clusters"
    folder.mkdir(exist_ok=True)
    points: dict[str, list[tuple[float, float]]] = {}
    used: dict[str, int] = {}  # tasks at once, as the builds' summaries say
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(TemporaryDirectory(prefix="scratch-", dir=folder)))
        masters = {
            name: stack.enter_context(
                SparkCluster(scratch / name, hosts=HOSTS[:workers], cores=1, has_kip33=True)
            ).master
            for name, workers in CLUSTERS.items()
        }
        for gib in SIZES_GIB:
            for name, times in race(folder, scratch, gib, masters, used).items():
                points.setdefault(name, []).append((gib, times.median))
    curves = Curves("where a cluster pays", "GiB", "seconds", points)
    return [Section("Where a cluster pays", [*lines(points, used), "", *notes()], [], [curves])]


def race(
    folder: Path, scratch: Path, gib: int, masters: Mapping[str, str], used: dict[str, int]
) -> dict[str, Times]:
    """Time the builds of one archive in turns."""
    tell(f"where a cluster pays: {gib} GiB")
    shape = Shape(f"{gib} GiB", "batches-16k", SEGMENT_BYTES, FILES, gib)
    archive = link_archive(shape, folder / f"{gib}-gib")
    places = (scratch / f"indexes-{gib}-{number}" for number in itertools.count())

    def locally() -> None:
        build_locally(archive, next(places), shape.segments, workers=CORES)

    def on(name: str, master: str) -> Callable[[], None]:
        def build() -> None:
            used[name] = max(used.get(name, 0), build_on(master, archive, next(places)))

        return build

    runs = {LOCAL: locally} | {name: on(name, master) for name, master in masters.items()}
    total = shape.segments * shape.segment_bytes, shape.segments
    return take_turns(
        {name: Contestant(clocked(run), *total) for name, run in runs.items()}, rounds=ROUNDS
    )


def build_on(master: str, archive: Path, target: Path) -> int:
    """Build on a cluster; return how many tasks ran at once. Raises if a segment is not built."""
    how = ["--master", master, "--conf", "spark.driver.host=127.0.0.1", "--fail-on", "unreadable"]
    where: list[str | Path] = [archive, "--index-dir", target]
    command = [KIP33, "build", *where, "--format", "json", *how]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    workers: int = json.loads(done.stdout)["workers"]
    return workers


def lines(
    points: Mapping[str, Sequence[tuple[float, float]]], used: Mapping[str, int]
) -> list[str]:
    """Return the measured table, the lines through it, and where the lines meet."""
    heads = [f"{name} ({used[name]} used)" if name in used else name for name in points]
    rows = [f"| GiB | {' | '.join(heads)} |", f"|---:|{'---:|' * len(points)}"]
    for size in zip(*points.values(), strict=True):
        rows.append(f"| {size[0][0]:,.0f} | {' | '.join(f'{y:.1f} s' for _, y in size)} |")
    found = {name: Line.through(curve) for name, curve in points.items()}
    rows += ["", "| engine | start | seconds a GiB | pays from |", "|---|---:|---:|---:|"]
    local = found[LOCAL]
    rows += [line_row(name, line, local) for name, line in found.items()]
    for workers in WORKERS_ASKED:
        title = f"cluster, {workers} workers (computed)"
        rows.append(line_row(title, found[ONE_WORKER].with_workers(workers), local))
    return rows


def line_row(name: str, line: Line, local: Line) -> str:
    """Return the row of a line."""
    gib = line.pays_from(local)
    pays = "" if name == LOCAL else "never" if gib is None else f"{gib:,.0f} GiB"
    return f"| {name} | {line.start:.1f} s | {line.each_gib:.3f} | {pays} |"


def notes() -> list[str]:
    """Return an explanation of the rows."""
    return [
        "- `kip33 build` of segments of 256 MiB with 16 KiB batches into a new directory, from the",
        f"  start of the process to its end, the cluster running; medians of {ROUNDS} rounds in",
        "  turns. Warm page cache, a worker has one core, all on the same two cores as the driver.",
        "- *start* and *seconds a GiB* are the line through the smallest and the largest archive.",
        "  *computed*: the line of one worker with its seconds a GiB divided by the workers.",
    ]
