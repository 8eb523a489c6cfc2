"""Measure kip33 and write the results: ratios, tables, curves.

    python -m tests.benchmarks.bench [--quick] [--only GROUP] [--data DIR]

    kafka      races against Kafka's recovery, kafka-python and aiokafka; needs Maven, for its jars
    engines    complete commands on the local engine, and unchanged builds by spark-submit
    small      builds of 20,000 small segments against plain loops of the same files
    jobs       builds on both engines against bare processes and Kafka
    commands   how long small commands take
    nightly    unchanged and `--read tail` builds against full ones, on large and many segments
    restores   restores into a log directory against `cp -r` of the same logs
    memory     the memory of the driver and of a worker
    retention  retention of a synthetic catalog of a million segments on Spark
    search     requests for times in one job, and one at a time
    records    records a second into Arrow, against Kafka's `FileRecords`; needs Maven
    parquet    records to Parquet files by the tasks of Spark, and by its own writer
    streams    records by a stream of Spark against the batch reader
    remote     builds over S3 and HDFS against reading alone; needs Go and Maven for the servers
    growth     how cost grows with segments, on both engines, and from which size on a cluster pays

kip33 uses the shared library, as an installed wheel does. Needs Java 17, 12 GiB of disk and an idle
machine. The complete run takes about an hour, `--quick` three minutes. With --only the other
sections of the results stay. Figures that fell by more than a quarter since the committed results
are printed.
"""

import argparse
import os
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Final

from tests.benchmarks import results
from tests.benchmarks.kernels import use_kernels
from tests.benchmarks.page import tell

# Imported on demand: the races need packages that the others do not need.
GROUPS: Final = {
    "kafka": ["races"],
    "engines": ["whole_commands", "submitted_builds"],
    "small": ["small_files"],
    "jobs": ["large_jobs"],
    "commands": ["commands"],
    "nightly": ["nightly"],
    "restores": ["restores"],
    "memory": ["driver_memory", "worker_memory"],
    "retention": ["retention"],
    "search": ["search"],
    "records": ["records"],
    "parquet": ["record_files"],
    "streams": ["streams"],
    "remote": ["remote"],
    "growth": ["growth", "cluster_sizes"],
}
QUICK_GROUPS: Final = ("kafka", "engines", "jobs", "commands", "nightly", "search")


def main() -> None:
    """Run the selected benchmarks and write the results."""
    options = parse_options()
    options.data.mkdir(parents=True, exist_ok=True)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # else each command compiles numba's modules
    tell("the shared library, as a wheel has it")
    use_kernels(options.data / "kernels")
    file = results.FOLDER / ("quick.json" if options.quick else "full.json")
    before = results.committed(file)
    found = results.read(file) if options.only else {}
    groups = options.only or (QUICK_GROUPS if options.quick else GROUPS)
    for name in (module for group in groups for module in GROUPS[group]):
        module = import_module(f"tests.benchmarks.{name}")
        found = results.merged(found, module.sections(options.data, quick=options.quick))
        write(file, found, before)  # immediately, so that results of an hour are not lost
    print(file.with_suffix(".md").read_text())
    for line in results.worse(found, before):
        tell(f"FELL by more than a quarter: {line}")


def write(file: Path, found: results.Results, before: results.Results) -> None:
    """Write JSON, page and drawing."""
    file.parent.mkdir(exist_ok=True)
    file.write_text(results.to_json(found))
    curves = results.curves_of(found)
    drawing = file.with_suffix(".svg")
    if curves:
        from tests.benchmarks.drawing import draw

        draw(curves, drawing)
    page = results.page(found, before, drawing.name if curves else None)
    file.with_suffix(".md").write_text(page)


def parse_options() -> argparse.Namespace:
    """Return the command line's options."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--only", action="append", choices=list(GROUPS), help="one group; may be repeated"
    )
    parser.add_argument("--quick", action="store_true", help="less of everything, in 3 minutes")
    parser.add_argument(
        "--data",
        type=Path,
        default=Path(tempfile.gettempdir()) / "kip33-bench",
        help="where the segments lie, or are made",
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
