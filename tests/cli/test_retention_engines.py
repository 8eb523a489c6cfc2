"""`kip33 retention` by both engines: the same standard output, files and exit codes.

tests/spark/retention shows that rows and sums of random catalogs are the same.
"""

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cli.console import Command, Finished, file_named
from tests.long_forms import one_in

pytestmark = pytest.mark.spark

NOW_MS = 1_701_388_800_000  # seventeen days after the demo archive's first record
POLICY = """
[defaults]
cleanup.policy = "delete"
retention.ms = "1d"

[topics]
clicks = { "retention.ms" = -1, "retention.bytes" = 2500 }
"audit*" = { "cleanup.policy" = "compact" }
payments = { "remote.storage.enable" = true }
"""
QUESTIONS: dict[str, list[str]] = {
    "table with a forecast": ["--forecast", "40d", "--fail-on", "blocked"],
    "json": ["--format", "json", "--forecast", "3d", "--topic", "*e*", "--topic", "!*r*"],
    "jsonl": ["--format", "jsonl", "--at", f"{NOW_MS - 5},{NOW_MS}", "--retention-ms", "2h"],
    "csv": ["--format", "csv", "--active-segment", "kafka", "--broker-version", "4.2"],
    "files": ["--output", "OUT", "--at", str(NOW_MS), "--ignore-future", "1h"],
    "a broker's view as csv": ["--show-broker-view", "--format", "csv"],
    "a plan beside a broker's view": ["--plan", "OUT/plan.jsonl", "--show-broker-view"],
    "for brokers, trusting": ["--emit", "delete-records", "--trust-last-modified"],
    "nothing matches": ["--topic", "nothing"],
    "a plan of what will expire": ["--plan", "OUT/plan.jsonl", "--now", "now+1d"],
}


class Done(NamedTuple):
    """What a command printed and wrote, without what differs from run to run."""

    exit_code: int
    stdout: str
    stderr: str
    files: dict[str, Any]


@pytest.mark.parametrize("options", one_in(8, QUESTIONS.values()), ids=QUESTIONS)
def test_both_engines_print_and_write_the_same(
    options: list[str], built: Path, spark_command: Command
) -> None:
    policy = file_named("policy.toml", POLICY.encode())
    starts = file_named("starts.csv", b"topic,partition,offset,log_dir\nsensors,1,100,broker-1\n")
    given = ["--policy", policy, "--log-start-offsets", starts]
    if "--now" not in options:
        given += ["--now", str(NOW_MS)]

    found = {
        engine: run(spark_command, built / "indexes/_catalog", [*given, *options], engine)
        for engine in ("local", "spark")
    }

    local, spark = found["local"], found["spark"]
    assert local.exit_code == spark.exit_code
    assert local.stdout.splitlines() == spark.stdout.splitlines()
    assert local.stderr.splitlines() == spark.stderr.splitlines()
    assert local.files == spark.files
    assert local.stdout or local.exit_code
    if "--emit" in options:
        assert len(json.loads(local.stdout)["partitions"]) > 2
    elif "--plan" in options and not local.exit_code:
        assert local.files["plan.jsonl"].count('"base_offset"') > 2


def run(command: Command, catalog: Path, options: list[str], engine: str) -> Done:
    """Run the command by an engine; files go to a folder of that name."""
    folder = Path(engine)
    folder.mkdir()
    options = [one.replace("OUT", str(folder)) for one in options]
    done: Finished = command("retention", catalog, *options, "--engine", engine)
    files = {str(path.relative_to(folder)): content(path) for path in sorted(folder.iterdir())}
    texts = (steady(one, folder) for one in (done.stdout, done.stderr))
    return Done(done.exit_code, *texts, files)


def content(path: Path) -> Any:
    """Return a Parquet folder as its schema and rows, a file as its text."""
    if path.is_file():
        return steady(path.read_text(), path.parent)
    table = pq.read_table(path)
    rows = sorted(table.to_pylist(), key=lambda row: json.dumps(row, sort_keys=True))
    return [(field.name, kind_of(field.type)) for field in table.schema], rows


def kind_of(kind: Any) -> str:
    """Return a type without the names that Parquet gives to what lists and maps are made of."""
    if pa.types.is_map(kind):
        return f"map of {kind.key_type} to {kind.item_type}"
    return f"list of {kind.value_type}" if pa.types.is_list(kind) else str(kind)


def steady(text: str, folder: Path) -> str:
    """Return a text without what the clock and the folder's name make of it."""
    text = re.sub(r'"engine": "[a-z]+", "workers": \d+', "", text)
    text = re.sub(r'"engine": "[a-z]+",\n "workers": \d+', "", text)
    text = re.sub(r'"(seconds|created_ms)": [0-9.]+', r'"\1": 0', text)
    text = re.sub(r"(│ seconds +│ )[0-9. ]+│", r"\1│", text)
    text = re.sub(r'"plan_id": "[0-9a-f]+"', '"plan_id": ""', text)
    text = re.sub(r"--now is \d+, \d+ ms", "--now is later", text)
    return re.sub(rf"\b{folder.name}/", "OUT/", text)
