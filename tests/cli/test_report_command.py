"""`kip33 report`: the files it writes, and the commands that its findings name."""

import json
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.builders.report_catalog import POLICY, make_catalog
from tests.cli.console import PROJECT, Command, file_named

NOW = ("--now", "2023-12-01")
RETENTION = ("--policy", PROJECT / "conf/retention.toml", *NOW)


@pytest.fixture
def demo(built: Path) -> Path:
    return built / "indexes/_catalog"


def facts_in(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(name).read_text())
    return found


def test_a_report_is_a_page_and_its_facts(command: Command, demo: Path) -> None:
    done = command("report", demo, *RETENTION, "--output", "out/night.html", "--format", "json")

    assert (done.exit_code, done.stderr) == (0, "")
    assert sorted(path.name for path in Path("out").iterdir()) == ["night.html", "night.json"]
    [printed] = done.lines
    assert printed.pop("seconds") > 0
    facts = facts_in("out/night.json")
    assert [one["level"] for one in printed.pop("details")] == [
        *(["problem"] * 2 + ["warning"] * 4 + ["note"] * 2)
    ]
    assert printed == {
        "snapshot": facts["evidence"]["snapshot"],
        "report": Path("out/night.html").absolute().as_uri(),
        "facts": Path("out/night.json").absolute().as_uri(),
        "findings": {"problem": 2, "warning": 4, "note": 2},
    }
    assert Path("out/night.html").read_text().startswith("<!doctype html>\n<!-- kip33 report, ")


def test_every_command_of_a_finding_runs(command: Command, demo: Path) -> None:
    command("report", demo, *RETENTION, "--output", "r.html")
    commands = [one["command"] for one in facts_in("r.json")["findings"]]
    assert len(set(commands)) >= 4

    for line in dict.fromkeys(commands):
        program, *arguments = shlex.split(line)
        assert program == "kip33"
        assert command(*arguments).exit_code == 0, line


def test_the_commands_of_a_catalog_with_a_hostile_path(command: Command, tmp_path: Path) -> None:
    folder = tmp_path / "a b; touch x $(touch y) 'c"
    make_catalog(folder, partitions=10, segments=8)
    policy = file_named(f"{folder}/p.toml", POLICY.encode())
    given = ("report", folder / "catalog", "--policy", policy, "--now", "2023-11-14T22:13:20Z")
    assert command(*given, "--output", "r.html").exit_code == 0

    lines = {one["command"] for one in facts_in("r.json")["findings"]}
    for line in sorted(line for line in lines if "dump" not in line):  # there are no logs
        assert command(*shlex.split(line)[1:]).exit_code == 0, line


def test_a_file_of_another_stays(command: Command, demo: Path, subtests: pytest.Subtests) -> None:
    for there in ["r.html", "r.json"]:
        with subtests.test(f"{there}"):
            file_named(there, b'{"kind": "mine"}')
            done = command("report", demo, "--output", "r.html")
            assert done.exit_code == 2
            assert f"/{there}: a file that --output did not write is there" in done.stderr
            assert Path(there).read_bytes() == b'{"kind": "mine"}'
            assert not {"r.html", "r.json"} - {there} & {path.name for path in Path().iterdir()}
            Path(there).unlink()


def test_both_tiers_are_on_one_page(command: Command, demo: Path) -> None:
    """What goes remotely is what `kip33 retention REMOTE LOCAL` says, at each time."""
    bucket = Path("bucket/orders-0")
    bucket.mkdir(parents=True)
    logs = sorted((demo.parents[1] / "archive/broker-1/orders-0").glob("*.log"))
    shutil.copy2(logs[0], bucket)
    layout = "{topic}-{partition}/{base_offset}.log"
    assert command("build", "bucket", "--index-dir", "remote", "--layout", layout).exit_code == 0
    tiered = "[topics.orders]\nremote.storage.enable=true\nretention.ms='30d'\n"
    file_named("tiered.toml", tiered.encode())

    given = ("--policy", "tiered.toml", "--now", "2023-12-15")
    given = (*given, "--broker-version", "4.2", "--output")
    done = command("report", demo, "remote/_catalog", *given, "r.html")
    other_order = command("report", "remote/_catalog", demo, *given, "other.html")

    assert (done.exit_code, done.stderr) == (other_order.exit_code, other_order.stderr) == (0, "")
    facts, of_other = facts_in("r.json"), facts_in("other.json")
    assert of_other | {"made_ms": 0} == facts | {"made_ms": 0}
    remote, page = facts_in("r.json")["remote"], Path("r.html").read_text()
    words = shlex.split(remote["command"])
    assert (words[:2], words[-2:]) == (["kip33", "retention"], ["--broker-version", "4.2"])
    judged = command(*words[1:], "--forecast", "30d", "--format", "json").lines[0]
    assert remote["segments"] == 1
    assert remote["bytes"] == judged["summary"]["bytes"] == logs[0].stat().st_size
    assert remote["only_local_bytes"] == sum(log.stat().st_size for log in logs[1:])
    found = {row["at_ms"]: row["segments"] for row in judged["freed"]}
    assert {row["at_ms"]: row["segments"] for row in remote["forecast"] if row["segments"]} == found
    assert list(found.values()) == [1]
    assert "What retention frees in the remote tier" in page
    assert remote["timelines"]["partitions"][0]["name"] == "orders-0"
