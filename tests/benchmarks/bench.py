"""Measure kip33 and write a page: against Kafka, night after night, and what memory it takes.

    python -m tests.benchmarks.bench [--only GROUP] [--size 1GiB] [--data DIR] [--output FILE]

    kafka      races against Kafka's recovery and kafka-python; needs Maven, for Kafka's own jars
    nightly    unchanged and `--read tail` builds against full ones, on large and many segments
    memory     what the driver and a worker take
    retention  a made catalog of up to a million segments, judged
    search     10,000 requests for times in one job, and one at a time
    remote     builds over S3 and HDFS against reading alone; needs Go and Maven for the servers

Segments are made once, 3 GiB of them, and reused from then on. Needs Java 17 and a machine with
little else to do; takes about ten minutes. With --only the page's other sections stay.
"""

import argparse
import re
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Final

from tests.benchmarks.page import Section, page_with

RESULTS: Final = Path(__file__).with_name("RESULTS.md")
UNITS: Final = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
# Imported when asked for: the races need packages that the others do not.
GROUPS: Final = {
    "kafka": ["races"],
    "nightly": ["nightly"],
    "memory": ["driver_memory", "worker_memory"],
    "retention": ["retention"],
    "search": ["search"],
    "remote": ["remote"],
}


def main() -> None:
    """Run what is asked for and write the page."""
    options = parse_options()
    groups = options.only or list(GROUPS)
    sections: list[Section] = []
    for name in (module for group in groups for module in GROUPS[group]):
        module = import_module(f"tests.benchmarks.{name}")
        sections += module.sections(options.data, size_bytes=options.size, rounds=options.rounds)
    before = options.output.read_text() if options.only and options.output.exists() else ""
    page = page_with(before, sections)
    options.output.write_text(page)
    print(page)


def parse_options() -> argparse.Namespace:
    """Return the command line's options."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--only", action="append", choices=list(GROUPS), help="one group; may be repeated"
    )
    parser.add_argument(
        "--size",
        type=size_bytes,
        help="of every segment in the races; 1 GiB or 256 MiB by kind unless given",
    )
    parser.add_argument(
        "--data",
        type=Path,
        default=Path(tempfile.gettempdir()) / "kip33-bench",
        help="where the segments lie, or are made",
    )
    parser.add_argument("--output", type=Path, default=RESULTS, help="the Markdown page")
    parser.add_argument("--rounds", type=int, default=5, help="of the races against Kafka")
    return parser.parse_args()


def size_bytes(text: str) -> int:
    """Return bytes of `256MiB`, `1GiB` or a plain number."""
    match = re.fullmatch(r"(\d+)([KMG]iB)?", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r}: a size such as 256MiB or 1GiB expected")
    return int(match[1]) * UNITS.get(match[2], 1)


if __name__ == "__main__":
    main()
