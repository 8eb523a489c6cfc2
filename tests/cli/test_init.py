"""`kip33 init`, and the wheel that has what it writes."""

import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.console import PROJECT, Command, subprocess_of

PACKAGE = PROJECT / "kip33"
FOLDERS = ("conf", "jobs")
RECORD = ".kip33-init.json"


def files_of(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.name != RECORD
    }


def starter_files() -> dict[str, bytes]:
    return {
        f"{name}/{path}": content
        for name in FOLDERS
        for path, content in files_of(PROJECT / name).items()
    }


def test_init_writes_the_files_of_this_version(command: Command, tmp_path: Path) -> None:
    done = command("init", str(tmp_path / "new"))
    assert (done.exit_code, done.stderr) == (0, "")
    assert files_of(tmp_path / "new") == starter_files()
    assert f"{len(starter_files())} files written" in done.stdout


TOML = "conf/kip33.toml"


@pytest.fixture
def upgrade(monkeypatch: pytest.MonkeyPatch) -> Callable[[], dict[str, bytes]]:
    """A function that makes this a version in which each file has another first line."""

    def to_the_next() -> dict[str, bytes]:
        later = {path: b"# later\n" + content for path, content in starter_files().items()}
        monkeypatch.setattr(sys.modules["kip33.cli.init"], "starter_files", lambda: later)
        return later

    return to_the_next


def test_an_upgrade_leaves_what_is_edited_and_shows_the_difference(
    command: Command, tmp_path: Path, upgrade: Callable[[], dict[str, bytes]]
) -> None:
    place = tmp_path / "new"
    command("init", str(place))
    (place / TOML).write_bytes(edited := b"mine = 1\n" + starter_files()[TOML])
    again = command("init", str(place))
    assert (again.exit_code, again.stderr) == (0, "")  # this version has nothing new for it
    assert "1 edited and left" in again.stdout and "-mine" not in again.stdout
    later = upgrade()
    for _ in range(2):  # each time until the file is as kip33 has it
        done = command("init", str(place))
        assert done.exit_code == 0
        assert f"{place}/{TOML}: edited, so it is left" in done.stderr
        assert f"--- {place}/{TOML}\n+++ {TOML} of kip33 " in done.stdout
        assert "\n-mine = 1\n+# later\n" in done.stdout
        assert files_of(place) == later | {TOML: edited}
    (place / "notes.txt").write_text("mine, too")
    command("init", str(place), "--overwrite")
    assert files_of(place) == later | {"notes.txt": b"mine, too"}


def test_without_a_record_what_differs_is_edited(command: Command, tmp_path: Path) -> None:
    for number, record in enumerate((None, b"", b"[]", b'{"sha256": 3}')):
        place = tmp_path / str(number)
        (place / "conf").mkdir(parents=True)
        (place / TOML).write_text("mine")
        if record is not None:
            (place / RECORD).write_bytes(record)

        done = command("init", place)

        assert done.exit_code == 0
        assert f"{place}/{TOML}: edited, so it is left" in done.stderr
        assert files_of(place) == starter_files() | {TOML: b"mine"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder],
        cwd=PROJECT,
        check=True,
        capture_output=True,
    )
    [found] = folder.glob("kip33-*.whl")
    yield found


@pytest.mark.slow
def test_the_wheel_has_the_package_its_pages_and_what_init_writes(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as packed:
        found = {name: packed.read(name) for name in packed.namelist()}
    package = {
        f"kip33/{path}": content
        for path, content in files_of(PACKAGE).items()
        if path.endswith((".py", ".md", ".html", ".css", ".png", ".svg", "py.typed"))
    }
    # Spark looks for it beside other packages.
    package["pyspark_kip33/__init__.py"] = package.pop("kip33/spark/default_source.py")
    starter = {f"kip33/starter/{path}": content for path, content in starter_files().items()}
    others = {name for name in found if ".dist-info/" not in name} - package.keys()
    assert package.items() <= found.items()
    assert starter.items() <= found.items()
    kernels = {name for name in others if name.startswith("kip33/formats/native/kernels/")}
    assert others - kernels <= starter.keys()


@pytest.mark.slow
def test_an_installed_wheel_needs_no_checkout(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(tmp_path / "installed")
    code = (
        "import kip33, runpy; print(kip33.__file__); runpy.run_module('kip33', run_name='__main__')"
    )
    done = subprocess_of(
        *(sys.executable, "-c", code, "init", "deployment"),
        cwd=tmp_path,
        PYTHONPATH=str(tmp_path / "installed"),
    )
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.startswith(str(tmp_path / "installed/kip33"))
    assert files_of(tmp_path / "deployment") == starter_files()
