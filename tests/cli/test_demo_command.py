"""`kip33 demo`: the same archive each time, and each thing it names is what kip33 then says."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from kip33.demo import ODDITIES
from tests.cli.console import PROJECT, Command


def files_of(folder: Path) -> dict[str, Any]:
    """Return the content of each file, and the modification time of each log."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {
        str(path.relative_to(folder)): (
            path.read_bytes(),
            path.suffix == ".log" and path.stat().st_mtime_ns,
        )
        for path in files
    }


def test_the_table_has_what_is_not_in_order_and_kip33_says_it(
    command: Command, subtests: pytest.Subtests
) -> None:
    for line in ("demo new", "build new --index-dir indexes"):
        assert command(*line.split()).exit_code == 0
    policy = ("--policy", PROJECT / "conf/retention.toml", "--now", "2023-12-01")
    judged = command("retention", "indexes/_catalog", *policy).stdout.splitlines()
    rows = command("verify", "new", "--format", "jsonl").lines

    bad = [row for row in rows if (row["log_status"], row["verdict"]) != ("ok", "missing")]
    assert len(bad) == sum(oddity.shown_by == "verify" for oddity in ODDITIES)
    for oddity in ODDITIES:
        with subtests.test(oddity.path):
            if oddity.shown_by == "verify":
                name = oddity.path.rpartition(".")[0]
                assert [row for row in bad if name in str(row) and oddity.answer in row.values()]
            else:
                partition = oddity.path.rpartition("/")[0]
                assert [line for line in judged if partition in line and oddity.answer in line]


def test_it_says_what_is_wrong_and_what_comes_next(command: Command, tmp_path: Path) -> None:
    done = command("demo", str(tmp_path / "new"))
    assert (done.exit_code, done.stderr) == (0, "")
    assert [one for one in ODDITIES if one.path not in done.stdout] == []
    assert f"25 segments of two brokers written to {tmp_path}/new" in done.stdout
    assert f"next: $ kip33 verify {tmp_path}/new\n" in done.stdout


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


@pytest.mark.integration  # twenty commands
def test_the_story_of_make_demo_needs_no_java_and_is_short(tmp_path: Path) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    for program in {
        p.name: p for folder in ("/bin", "/usr/bin") for p in Path(folder).iterdir()
    }.values():
        if not program.name.startswith("java"):
            (programs / program.name).symlink_to(program)
    done = subprocess.run(
        [".ci/demo", tmp_path / "demo"],
        cwd=PROJECT,
        env={"PATH": str(programs)},
        capture_output=True,
        text=True,
        check=True,
    )
    lines = done.stdout.splitlines()
    assert [line[:26] for line in lines if "Java" in line][-1] == "skipped: Java is missing: "
    assert [line for line in lines if len(line) > 100 and line[0] in "┏┃┡│└"] == []
    assert 150 < len(lines) < 240
    assert done.stderr == ""
