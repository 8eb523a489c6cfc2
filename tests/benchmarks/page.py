"""The page of results: what it was measured on, then sections that groups of benchmarks replace."""

import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Final, NamedTuple

PACKAGES: Final = ("numba", "numpy", "pyarrow", "pyspark")
HEADING: Final = "\n## "


class Section(NamedTuple):
    """A heading and the Markdown below it."""

    title: str
    lines: Sequence[str]


def page_with(before: str, sections: Sequence[Section]) -> str:
    """Return the page `before` with these sections in place of those of the same titles.

    New ones go to its end; what it says of the machine is written anew.
    """
    _, *kept = before.split(HEADING)
    texts = {text.partition("\n")[0]: text.strip() for text in kept}
    texts |= {
        section.title: "\n".join((section.title, "", *section.lines)).strip()
        for section in sections
    }
    return HEADING.join(("\n".join(preamble()), *(text + "\n" for text in texts.values())))


def preamble() -> list[str]:
    """Return the title, and what was measured on."""
    packages = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    java = subprocess.run(["java", "-version"], capture_output=True, text=True, check=True)
    return [
        "# Measured",
        "",
        "Written by `make bench`. Read the ratios: both sides of one were timed within seconds of",
        "each other, and medians of rounds in which all contestants take turns are shown.",
        "",
        f"- {os.cpu_count()} x {processor()}, {memory_gib()} GiB, {platform.system()}",
        f"- Python {platform.python_version()}, {packages}",
        f"- {java.stderr.splitlines()[0]}",
        "",
    ]


def processor() -> str:
    """Return the processor's name as Linux tells it, else its architecture."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()


def memory_gib() -> int:
    """Return the machine's memory."""
    return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30))


def tell(what: str) -> None:
    """Say on standard error what is measured now."""
    print(what, file=sys.stderr, flush=True)
