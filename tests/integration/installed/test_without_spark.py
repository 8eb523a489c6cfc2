"""The page for packagers in a new environment: kip33 without pyspark, and what packages cost."""

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from kip33.demo import make_archive
from tests.integration.installed.stranger import COMPILED, Stranger
from tests.pages import blocks_of
from tests.test_packaging import KIP33, PAGE, costs

pytestmark = pytest.mark.integration
LARGEST_MB = 290
SIZES = """
import json
from importlib.metadata import distributions

def size_of(found):
    places = [file.locate() for file in found.files]
    return sum(place.stat().st_size for place in places if place.is_file())

print(json.dumps({found.metadata["Name"].lower(): size_of(found) for found in distributions()}))
"""


@pytest.fixture(scope="module")
def stranger(wheel: Path) -> Iterator[Stranger]:
    """Return a stranger who has followed the page, in an environment of its own."""
    with tempfile.TemporaryDirectory(prefix="kip33-packager-") as folder:
        found = Stranger(Path(folder))
        shutil.copy(wheel, found.folder)
        make_archive(found.folder / "archive")
        [block] = [block for block in blocks_of(PAGE) if "--no-deps" in block.code]
        script = (
            f"python3 -m venv kip33-environment\n. kip33-environment/bin/activate\n{block.code}"
        )
        # The sizes of the page include compiled modules.
        done = found.run("bash", "-euc", script, PIP_NO_COMPILE=COMPILED)
        assert done.exit_code == 0, done.stderr
        yield found


def test_only_pyspark_is_missing(stranger: Stranger) -> None:
    done = stranger.run(stranger.installed / "pip", "check")
    [line] = done.stdout.splitlines()
    assert line.endswith("requires pyspark, which is not installed.")


def test_sizes_are_those_of_the_page(stranger: Stranger) -> None:
    found = json.loads(stranger.run(stranger.installed / "python", "-c", SIZES).stdout)
    assert not {"numba", "llvmlite", "pyspark"} & found.keys()
    for tool in ("pip", "setuptools"):  # what an environment begins with
        found.pop(tool, None)
    sizes = {names: size for names, (size, _) in costs().items() if "pyspark" not in names}
    assert {name for names in sizes for name in names} == found.keys()
    for names, size in sizes.items():
        assert sum(found[name] for name in names) / 1e6 == pytest.approx(size, rel=0.05, abs=1)
    assert sum(found.values()) / 1e6 <= LARGEST_MB


def test_the_local_engine_works_and_spark_is_one_line(stranger: Stranger) -> None:
    kip33 = stranger.installed / KIP33
    assert "kernels: shared library" in stranger.run(kip33, "--version", "-v").stdout
    build = (kip33, "build", "archive", "--index-dir", "indexes")
    done = stranger.run(*build)
    assert (done.exit_code, done.stderr) == (0, "")
    with_spark = stranger.run(*build, "--engine", "spark")
    assert with_spark.exit_code == 2
    [line] = with_spark.stderr.splitlines()
    assert "pip install pyspark" in line
