"""Options of earlier versions that are commands now: they do the same, and a line says so."""

import pytest

from tests.cli.console import Command

EARLIER = {
    "verify archive --index-dir indexes --quick": "verify quick archive --index-dir indexes",
    "retention --apply plan.jsonl --dry-run": "retention apply plan.jsonl --dry-run",
}


def test_an_earlier_option_does_what_its_command_does(
    command: Command, subtests: pytest.Subtests
) -> None:
    command("build", "archive", "--index-dir", "indexes")
    for earlier, now in EARLIER.items():
        with subtests.test(earlier):
            old, new = (command(*line.split(), "--format", "jsonl") for line in (earlier, now))
            assert (old.exit_code, old.stdout) == (new.exit_code, new.stdout)
            name = " ".join(now.split()[:2])
            [said] = set(old.stderr.splitlines()) - set(new.stderr.splitlines())
            assert said.startswith("Warning: --")
            assert f"is now a command: kip33 {name};" in said
