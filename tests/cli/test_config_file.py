"""The configuration file that is found by itself; what any such file says: test_cli.py."""

import os
from pathlib import Path

import pytest

from tests.cli.console import Command, Finished, file_named

PLACES = """
source = "archive"
index-dir = "indexes"
[verify]
fail-on = ["missing"]
"""


@pytest.fixture
def finding(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Return `command` in `here/below`, where it looks up to the test's folder for a file."""
    monkeypatch.delenv("KIP33_CONFIG")
    monkeypatch.setenv("HOME", str(tmp_path))
    archive = (tmp_path / "archive").resolve()
    (tmp_path / "here/below").mkdir(parents=True)
    (tmp_path / "here/archive").symlink_to(archive)
    file_named("here/kip33.toml", PLACES.encode())
    monkeypatch.chdir(tmp_path / "here/below")
    assert command("build").exit_code == 0
    return command


def rows_of(done: Finished) -> int:
    return len(done.lines[0]["verdicts"])


def test_a_command_alone_takes_its_places_from_the_nearest_file(
    finding: Command, subtests: pytest.Subtests
) -> None:
    assert [path.name for path in Path("../indexes").iterdir()] != [], "places are beside the file"
    assert list(Path.cwd().iterdir()) == []
    for line in (
        "verify --format json",
        "verify quick",
        "search --time 2023-11-15 --topic orders",
        "catalog",
        "catalog segments",
        "retention --retention-ms 7d",
        "records --limit 1",
        "count --per 1d",
        "timestamps --catalog-only",
        "roll",
    ):
        with subtests.test(line):
            done = finding(*line.split())
            assert done.exit_code in (0, 3), done.stderr
            assert done.stdout


def test_the_command_line_wins_and_verbose_names_the_file(finding: Command, tmp_path: Path) -> None:
    found = finding("verify", "--verbose", "--format", "json")
    assert f"Config: {tmp_path}/here/kip33.toml, found\n" in found.stderr
    source = tmp_path / "archive/broker-1"
    one = finding(
        "verify",
        source,
        "--index-dir",
        tmp_path / "here/indexes/broker-1",
        "--fail-on",
        "wrong",
        "--format",
        "json",
    )
    assert one.exit_code == 0
    assert 0 < rows_of(one) < rows_of(found)


def test_a_file_that_is_named_is_the_only_one(
    finding: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = file_named("named.toml", f'source = "{tmp_path}/archive/broker-1"\n'.encode())
    by_option = finding("verify", "--config", named, "-v", "--format", "json")
    monkeypatch.setenv("KIP33_CONFIG", named)
    by_variable = finding("verify", "-v", "--format", "json")
    assert "Config: named.toml, named by --config or KIP33_CONFIG" in by_variable.stderr
    assert by_option.stderr == by_variable.stderr
    assert rows_of(by_option) == rows_of(by_variable)
    monkeypatch.setenv("KIP33_CONFIG", "")
    assert "Missing argument 'SOURCE'" in finding("verify").stderr


def test_a_file_that_was_found_names_nothing_that_a_command_changes(
    finding: Command, subtests: pytest.Subtests
) -> None:
    Path("data").mkdir()
    named = file_named("named.toml", b'source = "../archive"\ncatalog = "../indexes"\n')
    for line, missing in {
        "catalog prune --keep 1": "CATALOG",
        "catalog orphans": "CATALOG",
        "restore --to data --topic orders --dry-run": "SOURCE",
    }.items():
        with subtests.test(line):
            assert f"Missing argument '{missing}'" in finding(*line.split()).stderr
            done = finding(*line.split(), "--config", named)
            assert done.exit_code == 0, done.stderr
    for text, line in {
        "[repair]\napply = true\n": "repair ../archive/broker-2",
        '[restore]\nto = "data"\n': "restore ../archive",
        "[build]\nin-place = true\n": "build",
    }.items():
        with subtests.test(text):
            file_named("kip33.toml", text.encode())
            done = finding(*line.split())
            assert done.exit_code == 2
            assert "is not taken from a file that was found" in done.stderr


def test_what_is_not_looked_at(
    finding: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "here/below"))
    assert "Missing argument 'SOURCE'" in finding("verify").stderr, "above the home directory"
    monkeypatch.setenv("HOME", str(tmp_path))
    file_named("kip33.toml", b"fial-on = 1\n")
    unknown = finding("verify")
    assert (unknown.exit_code, unknown.stderr.count("\n")) == (2, 1)
    assert "below/kip33.toml: unknown option 'fial-on'; did you mean fail-on?" in unknown.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_of_another_user_is_not_read(finding: Command) -> None:
    os.chown("../kip33.toml", 12345, -1)
    done = finding("verify")
    assert "kip33.toml: belongs to another user, so it is not read" in done.stderr
    assert "Missing argument 'SOURCE'" in done.stderr
