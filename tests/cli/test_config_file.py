"""The configuration file that is found by itself; what any such file says: test_cli.py."""

import os
import re
from pathlib import Path

import pytest

from tests.cli.console import PROJECT, Command, Finished, file_named

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


ANOTHER = "../archive/broker-1"


def test_the_places_of_a_file_are_not_those_of_another_archive(
    finding: Command, subtests: pytest.Subtests
) -> None:
    files = {path: path.read_bytes() for path in Path("../indexes").rglob("*.timeindex")}
    of_source = "../kip33.toml: --index-dir is not used: SOURCE is not that of the file"
    places = 'index-dir = "../indexes"\n'
    for text, how in {
        places: (),
        f'source = "../archive"\n{places}[build]\noverwrite = true\n': (),
        f'source = "{Path("../archive").absolute()}"\n{places}': ("--config", "../kip33.toml"),
    }.items():
        with subtests.test(text):
            file_named("../kip33.toml", text.replace("../", "" if not how else "../").encode())
            found = finding("verify", ANOTHER, "--format", "json", *how)
            assert of_source.removeprefix("../") in found.stderr
            indexes = {row["index_uri"] for row in found.lines[0]["verdicts"]}
            assert not any("here/indexes" in uri for uri in indexes)
            refused = finding("build", ANOTHER, *how)
            assert "expected --index-dir" in refused.stderr or "--in-place" in refused.stderr
            assert {path: path.read_bytes() for path in files} == files


def test_where_a_build_writes_is_as_the_command_line_says(
    finding: Command, subtests: pytest.Subtests
) -> None:
    for line, unused in {
        f"build {ANOTHER} --no-index-files --catalog rows": "--index-dir",
        f"build {ANOTHER} --index-dir own": "",
        "build ../archive --no-index-files --catalog rows-2": "--index-dir",
        "build --index-dir own-2": "",
    }.items():
        with subtests.test(line):
            file_named("../kip33.toml", f'catalog = "indexes/_catalog"\n{PLACES}'.encode())
            done = finding(*line.split())
            assert done.exit_code == 0, done.stderr
            assert f"{unused or '--catalog'} is not used" in done.stderr
    refused = finding("build", "--no-index-files")
    assert "--catalog is not used: it is of the file's --index-dir" in refused.stderr
    assert "requires a catalog" in refused.stderr


def test_no_found_file_makes_a_build_replace_files(finding: Command) -> None:
    written = next(Path("../indexes").rglob("*.timeindex"))
    foreign = Path("fresh") / written.relative_to("../indexes")
    foreign.parent.mkdir(parents=True)
    foreign.write_bytes(b"")
    places = 'source = "../archive"\nindex-dir = "fresh"\n[build]\nfull = true\n'
    file_named("kip33.toml", f"{places}overwrite = true\n".encode())

    assert "--overwrite is not used: it is taken from the command" in finding("build").stderr
    assert foreign.read_bytes() == b""
    assert finding("build", "--overwrite").stderr == ""
    assert foreign.read_bytes() == written.read_bytes()

    file_named("kip33.toml", f"{places}in-place = true\n".encode())
    assert "--in-place is not used" in finding("build").stderr


def test_a_command_that_changes_files_uses_no_found_file(
    finding: Command, subtests: pytest.Subtests
) -> None:
    """Nothing of it: a file that is not even TOML is no error, and a named one counts."""
    Path("data").mkdir()
    named = file_named("named.toml", b'source = "../archive"\ncatalog = "../indexes"\n')
    for line, says in {
        "catalog prune --keep 1": "Missing argument 'CATALOG'",
        "catalog orphans": "Missing argument 'CATALOG'",
        "restore --to data --topic orders --dry-run": "Missing argument 'SOURCE'",
        "restore ../archive": "Missing option '--to'",
        f"repair {ANOTHER} --topic orders": "writes the index files",
        "truncate data/orders-0": "Missing option '--to'",
        "retention apply none.jsonl": "none.jsonl",
        "retention undo none.jsonl": "Missing option '--trash'",
    }.items():
        with subtests.test(line):
            file_named("kip33.toml", b"[not TOML")
            done = finding(*line.split())
            assert says in done.stderr
            words = " ".join(word for word in line.split()[:2] if word.isalpha())
            what = f"kip33.toml: not used, because kip33 {words} changes files; --config"
            assert done.stderr.count(what) == 1, done.stderr
            assert "not valid TOML" in finding(*line.split(), "--config", "kip33.toml").stderr
            if "CATALOG" in says or "SOURCE" in says:
                done = finding(*line.split(), "--config", named)
                assert done.exit_code == 0, done.stderr


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


def test_a_wrong_file_is_told_by_its_name(
    finding: Command, subtests: pytest.Subtests, monkeypatch: pytest.MonkeyPatch
) -> None:
    for text, says in {
        "source = 5\n": "kip33.toml: source: expected a path or URI in quotes, found 5",
        'source = ""\n': "kip33.toml: source: expected a path or URI in quotes, found ''",
        '[verify]\nsource = "a"\n': "[verify] has no option 'source': it stands above the tables",
        'sourc = "a"\n': "kip33.toml: unknown option 'sourc'; did you mean source?",
        'source = "nowhere"\n': "does not exist; SOURCE is from ",
        'source = "../archive"\nindex-dir = "none"\n': "; --index-dir is from ",
        'source = "../archive"\nworkers = "x"\n': "'x' is not a valid integer range (from ",
    }.items():
        with subtests.test(text):
            path = Path(file_named("kip33.toml", text.encode())).absolute()
            done = finding("verify")
            assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
            assert says in done.stderr
            assert str(path) in done.stderr
            assert "--config" not in done.stderr
    monkeypatch.setenv("KIP33_CONFIG", "/nix")
    done = finding("status")
    assert done.stderr.startswith("Error: Invalid value for KIP33_CONFIG: /nix: No such file")


def test_names_have_commas_between_them_or_are_a_list(
    finding: Command, subtests: pytest.Subtests
) -> None:
    def shown(*given: str) -> list[str]:
        done = finding("catalog", "segments", *given, "--format", "json")
        return [row["status"] for row in done.lines[0]["segments"]]

    listed = shown("--status", "truncated, invalid")
    assert {*listed} == {"truncated", "invalid"}
    places = 'source = "../archive"\nindex-dir = "../indexes"\n'
    for names in ('"truncated,invalid"', '["truncated, invalid"]', '["truncated", "invalid"]'):
        with subtests.test(names):
            text = f"{places}[build]\nfail-on = {names}\n[catalog.segments]\nstatus = {names}\n"
            file_named("kip33.toml", text.encode())
            assert shown() == listed
            assert re.search("--fail-on truncated: .*, invalid: ", finding("build").stderr)
    file_named("kip33.toml", f'{places}[build]\nfail-on = "truncated"\n'.encode())
    assert re.search("--fail-on truncated: [0-9]+ segments\n", finding("build").stderr)


def test_the_places_of_the_project_s_file_are_absolute() -> None:
    """So they are the same whether it is named or found."""
    lines = (PROJECT / "conf/kip33.toml").read_text()
    places = re.findall(r'^# (?:source|index-dir|catalog|policy) = "(.*?)"', lines, re.MULTILINE)
    assert len(places) == 4
    assert [place for place in places if not place.startswith("/")] == []
