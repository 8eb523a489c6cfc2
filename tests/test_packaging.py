"""The page for packagers names what `pyproject.toml` says, and what pip installs for it.

Also what `make` does where the library of kernels cannot be made.
"""

import re
import shlex
import subprocess
import tomllib
from importlib.metadata import requires
from pathlib import Path

from packaging.requirements import Requirement

from tests.pages import blocks_of

PROJECT = Path(__file__).parents[1]
PAGE = PROJECT / "kip33" / "docs" / "how-to" / "packaging.md"
COSTS = re.compile(r"^\| (?P<names>[^|`]+) \| (?P<size>\d+) \| (?P<why>[^|]*) \|$", re.MULTILINE)
KIP33 = "kip33"


def dependencies() -> list[str]:
    """Return the requirements that an installation without extras has."""
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found: list[str] = project["dependencies"]
    return found


def packages_without_spark() -> list[str]:
    """Return the requirements that the page has installed beside `pip install --no-deps`."""
    [block] = [block for block in blocks_of(PAGE) if "--no-deps" in block.code]
    commands = [shlex.split(line) for line in block.code.replace("\\\n", "").splitlines()]
    assert [command[:2] for command in commands] == [["pip", "install"]] * 2
    return commands[0][2:]


def costs() -> dict[tuple[str, ...], tuple[int, str]]:
    """Return the MB of the packages in each row of the page's table, and why they are there."""
    rows = COSTS.finditer(PAGE.read_text(encoding="utf-8"))
    return {tuple(row["names"].split(", ")): (int(row["size"]), row["why"]) for row in rows}


def installed_with(requirement: str, known: frozenset[str] = frozenset()) -> set[str]:
    """Return the names of a package and of all that it needs, as they are installed here."""
    name = Requirement(requirement).name
    needed = [Requirement(text) for text in requires(name) or []]
    found = {name.lower()}
    for other in needed:
        if other.name not in known and (not other.marker or other.marker.evaluate({"extra": ""})):
            found |= installed_with(other.name, known | found)
    return found


def test_without_spark_all_other_dependencies_are_installed() -> None:
    assert sorted(packages_without_spark()) == sorted(
        text for text in dependencies() if Requirement(text).name != "pyspark"
    )


def test_the_table_has_every_package_that_pip_installs_once() -> None:
    named = [name for names in costs() for name in names]
    installed = set().union(*map(installed_with, dependencies()))
    assert sorted(named) == sorted({KIP33, *installed})


def test_the_table_says_why_each_dependency_is_there() -> None:
    reasons = {name: why for names, (_, why) in costs().items() for name in names}
    direct = {Requirement(text).name for text in dependencies()}
    assert [name for name in direct if not reasons[name].strip()] == []


def test_the_sum_of_the_page_is_that_of_its_rows() -> None:
    total = sum(size for names, (size, _) in costs().items() if "pyspark" not in names)
    assert f"All but pyspark are {total} MB" in PAGE.read_text(encoding="utf-8")


def make_with(venv: Path, target: str, *variables: str, **programs: str) -> str:
    """Run `make` with an environment of such programs; return what it prints."""
    (venv / "bin").mkdir(exist_ok=True, parents=True)
    for name, script in programs.items():
        (venv / "bin" / name).write_text(f"#!/bin/sh\n{script}\n")
        (venv / "bin" / name).chmod(0o755)
    if not (venv / ".runs").exists():
        (venv / ".runs").touch()
    command = ["make", "--silent", f"VENV={venv}", *variables, target]
    made = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=True)
    return made.stdout


def test_a_library_of_kernels_that_was_not_made_is_tried_again(tmp_path: Path) -> None:
    def make_kernels(python: str) -> str:
        return make_with(tmp_path / "venv", f"{tmp_path}/venv/.kernels", python=python)

    for _ in range(2):
        assert make_kernels("echo tried; exit 1") == "tried\nnumba compiles at the first use\n"
    assert make_kernels("echo made") == "made\n"
    assert make_kernels("echo tried; exit 1") == ""


def test_a_wheel_whose_kernels_cannot_be_made_is_left_out_with_a_line(tmp_path: Path) -> None:
    made = make_with(
        tmp_path / "venv",
        "wheel",
        f"DIST={tmp_path}/dist",
        python='case "$*" in *aarch64*) echo install a linker >&2; exit 1; esac',
        pip=f"touch {tmp_path}/dist/kip33-$KIP33_WHEEL.whl",
    )
    assert made.startswith("left out: the wheel for Linux on aarch64. install a linker\n")
    assert sorted(one.stem for one in (tmp_path / "dist").iterdir()) == [
        "kip33-pure",
        "kip33-x86_64",
    ]
