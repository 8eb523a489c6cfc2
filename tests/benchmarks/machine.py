"""The machine and versions of the results."""

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

from tests.integration.kafka.kafka_jars import KAFKA_VERSION

PACKAGES: Final = ("numba", "numpy", "pyarrow", "pyspark", "kafka-python", "aiokafka")


def description() -> list[str]:
    """Return the machine, Python with its packages, Java and Kafka, one line each."""
    packages = ", ".join(f"{name} {installed(name)}" for name in PACKAGES)
    java = subprocess.run(["java", "-version"], capture_output=True, text=True, check=True)
    return [
        f"{os.cpu_count()} x {processor()}, {memory_gib()} GiB, {platform.system()}",
        f"Python {platform.python_version()}, {packages}",
        f"{java.stderr.splitlines()[0]}, Kafka {KAFKA_VERSION}",
    ]


def installed(name: str) -> str:
    """Return a package's version."""
    try:
        return version(name)
    except PackageNotFoundError:
        return "not there"


def processor() -> str:
    """Return the processor's name from Linux, or its architecture."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()


def memory_gib() -> int:
    """Return the machine's memory."""
    return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30))
