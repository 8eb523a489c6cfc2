"""`kip33 completion`, asked by the shells themselves, at a terminal."""

import os
import shutil
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pexpect
import pytest

from kip33.cli.main import COMMANDS, main
from tests.cli.command_lines import commands_and_modes
from tests.cli.console import VENV_BIN, subprocess_of

SHELLS = {
    "bash": ["--norc", "--noprofile", "-i"],
    "zsh": ["-f", "-i"],
    "fish": ["--no-config", "-i"],
}
DELETE_THE_LINE = "\x15"  # Ctrl-U
SOURCED = {
    "bash": 'eval "$(kip33 completion bash)"',
    "zsh": 'autoload -Uz compinit; compinit -u; eval "$(kip33 completion zsh)"',
    "fish": "kip33 completion fish | source",
}
COMPLETED = {  # what is typed before the Tab key, and the line that it makes
    "a command": ("kip33 bui", "kip33 build "),
    "an option": ("kip33 build archive --overw", "kip33 build archive --overwrite "),
    "a choice": ("kip33 build archive --engine sp", "kip33 build archive --engine spark "),
    "a path": ("kip33 build archive --index-dir inde", "kip33 build archive --index-dir indexes/"),
    "a catalog": ("kip33 search indexes/_cat", "kip33 search indexes/_catalog/"),
    "a topic": ("kip33 search indexes --topic or", "kip33 search indexes --topic orders "),
    "a folder": ("kip33 records indexes --to arch", "kip33 records indexes --to archive/"),
    "another": ("kip33 lag indexes --offsets offs", "kip33 lag indexes --offsets offsets.csv "),
}


def require_completions(shell: str, folder: Path, subtests: pytest.Subtests) -> None:
    """Type each line and a Tab into a shell; fail unless it becomes the other line."""
    path = shutil.which(shell)
    assert path, f"{shell} is not installed"
    home = folder / "home"
    home.mkdir()
    environment = os.environ | {
        **{"PATH": f"{VENV_BIN}:{os.environ['PATH']}", "HOME": str(home), "TERM": "dumb"},
        **{"INPUTRC": "/dev/null", "fish_features": "no-query-term"},
    }
    terminal = pexpect.spawn(
        path, SHELLS[shell], cwd=str(folder), env=environment, dimensions=(24, 200), timeout=600
    )
    terminal.sendline(f"{SOURCED[shell]}; echo rea''dy")
    terminal.expect_exact("ready\r\n")
    for name, (typed, line) in COMPLETED.items():
        with subtests.test(name):
            terminal.send(f"{typed}\t")
            terminal.expect_exact(line[len(typed) :].strip())
            terminal.send(DELETE_THE_LINE)
    terminal.close(force=True)


@pytest.fixture
def place(tmp_path: Path, built: Path) -> Path:
    """A directory with `archive`, `indexes` and `offsets.csv`."""
    for name in ("archive", "indexes"):
        (tmp_path / name).symlink_to(built / name)
    (tmp_path / "offsets.csv").write_text("topic,partition,offset\n")
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize(
    "shell",
    ["bash", *(pytest.param(name, marks=pytest.mark.integration) for name in ("zsh", "fish"))],
)
def test_a_shell_completes(shell: str, place: Path, subtests: pytest.Subtests) -> None:
    require_completions(shell, place, subtests)


Complete = Callable[[str], list[str]]


@pytest.fixture
def complete(
    place: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Complete:
    """What bash is told of a line, whose last word is completed."""
    monkeypatch.chdir(place)
    monkeypatch.setattr(sys, "argv", ["kip33"])
    monkeypatch.setenv("_KIP33_COMPLETE", "bash_complete")

    def told(line: str) -> list[str]:
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", str(line.count(" ")))
        with suppress(SystemExit):
            main()
        stdout, stderr = capfd.readouterr()
        assert stderr == ""
        return stdout.split()

    return told


def test_topics_are_those_of_the_catalog_on_the_line(complete: Complete) -> None:
    every = ["audit.v1", "clicks", "metrics", "orders", "payments", "sensors"]
    assert complete("kip33 search indexes/_catalog --topic ") == [f"plain,{one}" for one in every]
    assert complete("kip33 search --topic orders indexes --topic !o") == ["plain,!orders"]
    assert complete("kip33 build archive --index-dir indexes --topic cl") == ["plain,clicks"]
    assert complete("kip33 build archive --topic cl") == []  # names no catalog


def test_modes_complete_beside_paths(complete: Complete) -> None:
    assert complete("kip33 catalog di") == ["dir,di", "plain,diff"]
    assert complete("kip33 verify qu") == ["file,qu", "plain,quick"]
    assert complete("kip33 catalog holes indexes --topic cl") == ["plain,clicks"]
    assert complete("kip33 catalog diff di") == ["dir,di"]


def test_what_cannot_be_completed_is_silent(complete: Complete) -> None:
    Path("damaged/commits").mkdir(parents=True)
    Path("damaged/commits/00000000000000000001-abc.json").write_text("{")
    assert complete("kip33 search damaged --topic ") == []
    assert complete("kip33 search nowhere --topic ") == []
    assert complete("kip33 frobnicate ") == []
    assert complete("kip33 search indexes --time ") == []
    assert complete("kip33 verify logs --quick --no-c") == ["plain,--no-check-crc"]


@pytest.mark.slow
def test_commands_complete_without_an_import_of_any(place: Path) -> None:
    done = subprocess_of(
        *("python", "-X", "importtime", "-m", "kip33"),
        cwd=place,
        _KIP33_COMPLETE="bash_complete",
        COMP_WORDS="kip33 ",
        COMP_CWORD="1",
    )
    assert done.stdout.splitlines() == [f"plain,{name}" for name in COMMANDS]
    assert "click" in done.stderr
    assert not {"pyarrow", "pandas", "pyspark", "numpy"} & {
        line.split("|")[-1].strip() for line in done.stderr.splitlines()
    }


def test_every_argument_is_a_place_or_a_choice() -> None:
    """An argument without a known placeholder would complete as nothing."""
    from kip33.cli.completion import completing

    for name, command in commands_and_modes():
        for param in completing(command).params:
            if param.param_type_name == "argument" and param.name not in ("a", "b"):  # snapshots
                assert type(param.type).__name__ in ("Path", "Choice"), (name, param.name)
