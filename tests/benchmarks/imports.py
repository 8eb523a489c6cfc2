"""What the imports of each command cost, against those of numpy and pyarrow.parquet."""

import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from kip33.demo import make_archive, make_sensors
from tests.benchmarks.page import Section, tell
from tests.benchmarks.ratios import Ratio
from tests.cli.test_cli import ALLOWED, lay_out_files
from tests.imported_modules import modules_of

ROUNDS: Final = 15
AT_MOST: Final = 1.5  # times the CPU time of the imports below
LIBRARIES: Final = ("numpy", "pyarrow.parquet")
AGAINST: Final = f"`import {', '.join(LIBRARIES)}`"
SCRIPT: Final = """
import sys
from contextlib import suppress
from importlib import import_module
class NoPandas:  # as in an install, and as commands have it
    def find_spec(self, name, path=None, target=None):
        if name == "pandas":
            raise ImportError(name)
sys.meta_path.insert(0, NoPandas())
for name in sys.argv[1:]:
    with suppress(ImportError):  # some names are no modules, such as those of numpy's C code
        import_module(name)
"""


def sections(data: Path, *, quick: bool) -> list[Section]:
    """Measure and return this part of the page: the CPU time of processes that only import."""
    tell("imports of each command")
    with tempfile.TemporaryDirectory(dir=data, prefix="imports-") as folder:
        modules = {"": list(LIBRARIES), **modules_of_each(Path(folder))}
    rounds = [
        {line: cpu_seconds(names) for line, names in modules.items()}
        for _ in range(1 if quick else ROUNDS)
    ]
    median = {line: statistics.median(taken[line] for taken in rounds) for line in modules}
    libraries = median.pop("")
    rows = sorted(((seconds, line) for line, seconds in median.items()), reverse=True)
    lines = [
        f"| imports of | CPU ms | times {AGAINST} |",
        "|---|---:|---:|",
        *(f"| `kip33 {line}` | {s * 1000:.0f} | {s / libraries:.2f} |" for s, line in rows),
        "",
        f"- {AGAINST} takes {libraries * 1000:.0f} ms with Python's start, as all of these. "
        f"Medians of {len(rounds)}.",
    ]
    largest = rows[0][0] / libraries * 100
    work = "imports of the command with the most"
    ratio = Ratio(work, AGAINST, largest, "% of time", at_least=AT_MOST * 100)
    return [Section("Imports", lines, [ratio])]


def modules_of_each(folder: Path) -> dict[str, list[str]]:
    """Return what each command imports, in order, when it works on the demo archive."""
    built = folder / "built"
    make_archive(built / "archive")
    make_sensors(built / "archive")
    kip33 = Path(sys.executable).with_name("kip33")
    build = (kip33, "build", built / "archive", "--index-dir", built / "indexes")
    subprocess.run(build, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    found = {}
    for number, line in enumerate(ALLOWED):
        place = folder / str(number)
        place.mkdir()
        lay_out_files(built, place)
        found[line] = modules_of(*line.split(), cwd=place)
    return found


def cpu_seconds(modules: Sequence[str]) -> float:
    """Return the CPU time of a process that imports these modules and ends."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", SCRIPT, *modules], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime - before.ru_utime) + (after.ru_stime - before.ru_stime)
