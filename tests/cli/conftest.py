"""The command, in this process and on the tests' Spark session, beside the demo archive."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kip33.cli.main import main
from kip33.demo import COPIED_MS, make_archive, make_sensors
from tests.cli.console import Command, Finished, of_any_machine
from tests.faults.builds import build_here


@pytest.fixture(scope="package")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("demo") / "archive"
    make_archive(root)
    return root


@pytest.fixture(scope="package")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo archive with its sensors, indexed by a build a day after it was copied."""
    root = tmp_path_factory.mktemp("built")
    make_archive(root / "archive")
    make_sensors(root / "archive")
    now_ms = COPIED_MS + 86_400_000
    build_here(root / "archive", root / "indexes", now_ms=now_ms)
    return root


@pytest.fixture
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a test fail that starts a session for what threads should answer."""

    def refuse(**_: object) -> None:
        raise AssertionError("a Spark session for a few questions")

    for name in ("create_session", "create_context"):
        monkeypatch.setattr(f"kip33.spark.session.{name}", refuse)


@pytest.fixture
def command(
    tmp_path: Path,
    archive: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Command:
    """Return a function that runs the console script in a folder with ./archive."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KIP33_ENGINE", "local")  # whatever session other tests have started
    main_module = sys.modules["__main__"]  # click names a program by it: not `python -m pytest`
    monkeypatch.setattr(main_module, "__package__", None, raising=False)
    (tmp_path / "archive").symlink_to(archive)

    def run(*arguments: Any) -> Finished:
        monkeypatch.setattr(sys, "argv", ["kip33", *map(str, arguments)])
        capfd.readouterr()
        with pytest.raises(SystemExit) as exit_:
            main()
        stdout, stderr = capfd.readouterr()
        return Finished(exit_.value.code or 0, stdout, of_any_machine(stderr))

    return run


@pytest.fixture
def new_folder(
    tmp_path: Path, archive: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> Callable[[], Path]:
    """Return a function that changes into a new folder with ./archive, for the next case."""

    def enter() -> Path:
        folder = tmp_path / f"case-{len([*tmp_path.glob('case-*')])}"
        folder.mkdir()
        (folder / "archive").symlink_to(archive)
        monkeypatch.chdir(folder)
        return folder

    return enter


@pytest.fixture
def spark_command(command: Command, spark: Any, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Return `command` with the tests' session in place of a new one."""
    for name in ("create_session", "create_context"):
        monkeypatch.setattr(f"kip33.spark.session.{name}", lambda **_: spark)
    monkeypatch.setenv("KIP33_ENGINE", "spark")
    return command
