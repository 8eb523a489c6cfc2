"""`kip33 demo`: the same archive each time, and each thing it names is what kip33 then says."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from kip33.cli.main import get_command
from kip33.demo import ODDITIES
from tests.cli.console import PROJECT, Command


def files_of(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Return content and modification time of each log, content of each index file."""
    return {
        str(path.relative_to(folder)): (
            path.read_bytes(),
            path.stat().st_mtime_ns if path.suffix == ".log" else 0,
        )
        for path in folder.rglob("*")
        if path.is_file()
    }


def kip33(name: str, *arguments: str | Path) -> list[str]:
    words = [str(one) for one in arguments]
    done = CliRunner().invoke(get_command(name), words, env={"KIP33_ENGINE": "local"})
    assert done.exit_code == 0, done.output
    return done.stdout.splitlines()


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """Return the lines that each command of ODDITIES prints on a new archive."""
    root = tmp_path_factory.mktemp("demo")
    archive, indexes = root / "archive", root / "indexes"
    kip33("demo", archive)
    kip33("build", archive, "--index-dir", indexes)
    policy = ("--policy", PROJECT / "conf/retention.toml", "--now", "2023-12-01")
    return {
        "verify": kip33("verify", archive, "--format", "jsonl"),
        "retention": kip33("retention", indexes / "_catalog", *policy),
    }


def test_kip33_says_what_the_table_promises(
    answers: dict[str, list[str]], subtests: pytest.Subtests
) -> None:
    for oddity in ODDITIES:
        with subtests.test(oddity.path):
            lines = answers[oddity.shown_by]
            if oddity.shown_by == "verify":
                name = oddity.path.rpartition(".")[0]
                rows = [row for row in map(json.loads, lines) if name in str(row)]
                assert [row for row in rows if oddity.answer in row.values()]
            else:
                partition = oddity.path.rpartition("/")[0]
                assert [line for line in lines if partition in line and oddity.answer in line]


def test_everything_that_is_not_in_order_is_in_the_table(answers: dict[str, list[str]]) -> None:
    rows = [json.loads(line) for line in answers["verify"]]
    bad = [row for row in rows if (row["log_status"], row["verdict"]) != ("ok", "missing")]
    assert len(bad) == sum(oddity.shown_by == "verify" for oddity in ODDITIES)


def test_it_says_what_is_wrong_and_what_comes_next(command: Command, tmp_path: Path) -> None:
    done = command("demo", str(tmp_path / "new"))
    assert (done.exit_code, done.stderr) == (0, "")
    assert [one for one in ODDITIES if one.path not in done.stdout] == []
    assert f"25 segments of two brokers written to {tmp_path}/new" in done.stdout
    assert f"Next: kip33 verify {tmp_path}/new" in done.stdout


def test_the_bytes_are_always_the_same(command: Command, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for name in ("empty", "a/new/one"):
        assert command("demo", str(tmp_path / name)).exit_code == 0
    assert files_of(tmp_path / "empty") == files_of(tmp_path / "a/new/one")


def test_it_writes_only_into_a_new_or_empty_directory(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("full").mkdir()
    Path("full/mine.txt").touch()
    Path("a-file").touch()
    before = files_of(tmp_path)

    for name in ["full", "a-file", "s3://bucket"]:
        with subtests.test(name):
            done = command("demo", name)

            assert done.exit_code == 2
            assert name.replace("//", "/") in done.stderr
            assert files_of(tmp_path) == before
