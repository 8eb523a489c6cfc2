"""Options of earlier versions that are commands now: they do the same, and a line says so."""

import pytest

from tests.cli.command_lines import CATALOG
from tests.cli.console import Command

EARLIER = {
    "roll archive --what-if --segment-ms 1h": "roll what-if archive --segment-ms 1h",
    "verify --quick archive --index-dir=indexes --quick": (
        "verify quick archive --index-dir=indexes"
    ),
    "retention --apply plan.jsonl --dry-run": "retention apply plan.jsonl --dry-run",
    f"catalog {CATALOG} --path --snapshot 1": f"catalog snapshots {CATALOG} --path --snapshot 1",
    f"catalog --diff 1 2 {CATALOG}": f"catalog diff {CATALOG} 1 2",
    f"catalog {CATALOG} --diff=2 1": f"catalog diff {CATALOG} 2 1",
    f"catalog {CATALOG} --holes --topic orders": f"catalog holes {CATALOG} --topic orders",
    f"catalog {CATALOG} --segments --status ok": f"catalog segments {CATALOG} --status ok",
    f"catalog {CATALOG} --orphans": f"catalog orphans {CATALOG}",
    f"catalog {CATALOG} --keep=2": f"catalog prune {CATALOG} --keep=2",
}


def test_an_earlier_option_does_what_its_command_does(
    command: Command, subtests: pytest.Subtests
) -> None:
    for options in (("--topic", "orders"), ()):
        command("build", "archive", "--index-dir", "indexes", *options)
    for earlier, now in EARLIER.items():
        with subtests.test(earlier):
            old, new = (command(*line.split(), "--format", "csv") for line in (earlier, now))
            assert (old.exit_code, old.stdout) == (new.exit_code, new.stdout)
            name = " ".join(now.split()[:2])
            [said] = set(old.stderr.splitlines()) - set(new.stderr.splitlines())
            assert said.startswith("Warning: --")
            assert f"is now a command: kip33 {name};" in said


def test_an_earlier_option_without_its_values_is_refused(
    command: Command, subtests: pytest.Subtests
) -> None:
    for line, said in {
        "retention plan.jsonl --apply": "--apply requires 1 argument",
        "retention --apply -- plan.jsonl": "--apply requires 1 argument",
        "catalog C --diff=1": "--diff requires 2 arguments",
    }.items():
        with subtests.test(line):
            done = command(*line.split())
            assert (done.exit_code, done.stdout) == (2, "")
            assert said in done.stderr
