"""Every option that names an output: what another wrote is never replaced and never deleted."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

from tests.cli.command_lines import commands_and_modes
from tests.cli.console import Command, directory_named, file_named

POLICY = '[defaults]\ncleanup.policy = "delete"\nretention.ms = "7d"\n'
LOG = "00000000000000000000.log"
SEGMENT = f"archive/broker-1/orders-0/{LOG}"
# Every option that takes a place. What is written replaces only files that kip33 wrote.
READS = {
    *("--config", "--from", "--from-offsets", "--kafka-configs", "--log-start-offsets"),
    *("--offsets", "--policy", "--requests", "--to", "--topic-ids"),
}
WRITES = {
    *("--apply", "--catalog", "--index-dir", "--metrics", "--output", "--plan", "--summary"),
    "--trash",
}


def test_the_table_has_every_option_that_names_a_place() -> None:
    found = {
        option.opts[0]
        for _, command in commands_and_modes()
        for option in command.params
        if isinstance(option, click.Option)
        and (option.metavar in ("FILE", "DIR", "CATALOG") or isinstance(option.type, click.Path))
    }

    assert found == READS | WRITES


def tree(folder: Path) -> dict[str, Any]:
    """Return all there is below a folder: files with their bytes, links with their targets."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = path.readlink()
        elif path.is_file():
            found[name] = path.read_bytes()
        else:
            found[name] = None
    return found


@pytest.fixture
def retention(command: Command, built: Path, tmp_path: Path) -> Command:
    """Return a function that runs a command, or `kip33 retention` with options alone."""
    (tmp_path / "policy.toml").write_text(POLICY)
    judged = ("--policy", tmp_path / "policy.toml", "--now", "2023-12-01")

    def run(*arguments: Any) -> Any:
        if not arguments[0].startswith("--"):
            return command(*arguments)
        return command("retention", built / "indexes/_catalog", *judged, *arguments)

    return run


def a_link(name: str) -> None:
    file_named("target", b"bytes of somebody")
    Path(name).symlink_to("target")


FOREIGN_FILES: dict[str, Callable[[str], Any]] = {
    "a segment": lambda name: shutil.copy(SEGMENT, name),
    "text": lambda name: file_named(name, b"precious\n"),
    "a JSON object": lambda name: file_named(name, b'{"kind": "planet", "version": 1}\n'),
    "JSON that nests deep": lambda name: file_named(name, b"[" * 100_000),
    "a snapshot's commit": lambda name: file_named(name, b'{"schema_version": 1, "parts": []}\n'),
    "a directory": directory_named,
    "a link": a_link,
    "a link to nothing": lambda name: Path(name).symlink_to("nothing"),
    "a pipe": os.mkfifo,
}
RESTORE = ["restore", "archive", "--to", "log-dir", "--topic", "orders", "--dry-run"]
FILES: dict[str, list[str]] = {
    "build": ["build", "archive", "--index-dir", "indexes", "--summary", "out/x.json"],
    "verify": ["verify", "archive", "--summary", "out/x.json"],
    "verify of one": ["verify", f"archive/broker-1/orders-0/{LOG}", "--summary", "out/x.json"],
    "retention": ["--summary", "out/x.json"],
    "plan": ["--plan", "out/x.jsonl"],
    "metrics of build": ["build", "archive", "--index-dir", "indexes", "--metrics", "out/x.prom"],
    "metrics of verify": ["verify", "archive", "--metrics", "out/x.prom"],
    "metrics of retention": ["--metrics", "out/x.prom"],
    "restore": [*RESTORE, "--summary", "out/x.json"],
}


def test_a_file_of_another_is_never_replaced(
    retention: Command, new_folder: Callable[[], Path], subtests: pytest.Subtests
) -> None:
    every_kind = [
        (option, there) for option in ("verify of one", "plan") for there in FOREIGN_FILES
    ]
    for option, there in [*((option, "text") for option in FILES), *every_kind]:
        with subtests.test(f"{option}, {there}"):
            new_folder()
            given = FILES[option]
            Path("out").mkdir()
            FOREIGN_FILES[there](given[-1])
            before = tree(Path())

            done = retention(*given)

            assert done.exit_code == 2
            assert f"{given[-1]}: a" in done.stderr and "does not replace" in done.stderr
            assert done.stderr.count("\n") == 1
            assert tree(Path()) == before


def test_an_empty_file_and_one_of_ours_are_replaced(
    retention: Command, subtests: pytest.Subtests
) -> None:
    Path("out").mkdir()
    for option, given in FILES.items():
        with subtests.test(option):
            Path(given[-1]).write_bytes(b"")
            for _ in range(2):
                done = retention(*given)

                assert done.exit_code == 0, done
                assert Path(given[-1]).stat().st_size > 0


SUMMARIZED = (
    "build archive --index-dir again", "verify archive --index-dir indexes",
    "verify quick {built}/archive --index-dir indexes", "repair archive", "roll indexes",
    "count indexes --per 1d", "records indexes --limit 1", "records indexes --output {}.jsonl",
    "records indexes --to folder", "status indexes/_catalog", "timestamps archive",
    "dialects archive", "roll what-if archive", "restore archive --to data --dry-run",
    "retention indexes --policy policy.toml", "retention apply plan.jsonl --dry-run",
)  # fmt: skip


def test_each_command_replaces_its_own_summary(
    built: Path, command: Command, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    """`retention undo` writes that of `retention apply`."""
    shutil.copytree(built / "indexes", "indexes")
    Path("policy.toml").write_text(POLICY)
    plan = command("retention", "indexes", "--policy", "policy.toml", "--plan", "plan.jsonl")
    assert plan.exit_code == 0
    names = [
        name
        for name, one in commands_and_modes()
        if name != "retention undo" and any("--summary" in option.opts for option in one.params)
    ]
    assert [name for name in names if not any(line.startswith(name) for line in SUMMARIZED)] == []
    for line in SUMMARIZED:
        with subtests.test(line):
            for number in range(2):
                done = command(
                    *line.format(number, built=built).split(), "--summary", "summary.json"
                )
                assert done.exit_code in (0, 3, 4), done
            written = json.loads(Path("summary.json").read_text())
            assert written["run"]["command"].split()[1] == line.split()[0]
            Path("summary.json").unlink()


def test_the_summary_of_an_apply_replaces_only_a_summary(
    built: Path, retention: Command, command: Command
) -> None:
    assert retention("--plan", "plan.jsonl").exit_code == 0
    file_named("x.json", b"{}")
    apply = ("retention", "apply", "plan.jsonl", "--dry-run", "--summary")

    refused = command(*apply, "x.json")
    twice = [command(*apply, "y.json").exit_code for _ in range(2)]

    assert (refused.exit_code, twice) == (2, [0, 0])
    assert Path("x.json").read_bytes() == b"{}"


def test_results_go_only_into_a_new_folder_or_into_one_of_results(
    retention: Command, built: Path
) -> None:
    """What else may be in a folder of results: tests/retention/test_output_folder.py."""
    file_named(f"{directory_named('out')}/notes", b"x")
    file_named(f"{directory_named('broker')}/meta.properties", b"")
    before = tree(Path())
    for place, says in (
        ("out", "contains notes, which is not a result of this command"),
        ("broker/new", "log directory"),
        (built / "archive/broker-1/new", "overlap"),
        (built / "indexes/_catalog/out", "overlap"),
    ):
        done = retention("--output", place)

        assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
        assert says in done.stderr
    assert tree(Path()) == before
