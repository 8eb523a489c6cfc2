"""`kip33 retention` by both engines: the same standard output, files and exit codes."""

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kip33.catalog.catalog import Catalog
from kip33.catalog.draft import Draft, PartWriter
from kip33.stores.locations import Location
from tests.builders.broker_archive import rows_with_files
from tests.builders.random_catalogs import NOW_MS, random_catalogs
from tests.builders.snapshots import place_of_row
from tests.cli.console import Command, Finished, file_named
from tests.long_forms import one_in

pytestmark = pytest.mark.spark

SEED = 16
LOG_DIRECTORIES = 60
POLICY = """
[defaults]
cleanup.policy = "delete"
retention.ms = "1d"

[topics]
hourly = { "retention.ms" = "1h" }
sized = { "retention.ms" = -1, "retention.bytes" = 2500 }
compacted = { "cleanup.policy" = "compact" }
"at-*" = { "retention.ms" = 0 }
tiered = { "remote.storage.enable" = true }
"""
HOSTILE = [
    '=SUM("a",1)', "-1", "-1.5", "+a", "@x", "\tx", "\rx", "a\nb", "a\r", " a ", "", "a,b", "é☃𝄞",
    "\x01\x1f\x7f\x80\u2028", "back\\slash", "\\u001f", '"', "'", "</script>", "#", "\x00x",
]  # fmt: skip
QUESTIONS: dict[str, list[str]] = {
    "table with a forecast": ["--forecast", "40d", "--fail-on", "blocked"],
    "json": ["--format", "json", "--forecast", "3d", "--topic", "*e*", "--topic", "!*r*"],
    "jsonl": ["--format", "jsonl", "--at", f"{NOW_MS - 5},{NOW_MS}", "--retention-ms", "2h"],
    "csv": ["--format", "csv", "--active-segment", "kafka", "--boundary", "remote"],
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


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random catalog with hostile texts, and its logs and index files."""
    root = tmp_path_factory.mktemp("engines")
    rows, starts = random_catalogs(LOG_DIRECTORIES, SEED, doubled=0.01)
    rows = [numbered(row) for row in rows]
    rows = rows_with_files(rows, root / "archive", SEED)
    for number, row in enumerate(rows):
        row["error"] = HOSTILE[number % len(HOSTILE)]
        row["codecs"] = [[], ["lz4"], ["=a", "b,c"], None][number % 4]
        row["magics"] = [[2], [1, 2], None][number % 3]
        row["active_segment"] = [True, False, None][number % 3]
        if row["base_offset"] is not None:
            row["last_offset"] = row["base_offset"] + 9
    unknown = dict.fromkeys(rows[0]) | {"status": "unreadable", "log_uri": "file:///no/such"}
    found = Catalog.at(str(root / "catalog"))
    draft = Draft.begin(found, Location.of(root / "archive"))
    writer = PartWriter(draft.staging, 0)
    for row in sorted([*rows, unknown], key=place_of_row):
        writer.append(row)
    draft.commit([writer.publish()], settings={"build": "{}"}, now_ms=NOW_MS)
    lines = [f"{topic},{number_in(place)},{at},{place}" for (place, topic, _), at in starts.items()]
    (root / "starts.csv").write_text("\n".join(["topic,partition,offset,log_dir", *lines]))
    return root


def numbered(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row as one of a partition of which at most two log directories have replicas."""
    number, topic = number_in(row["log_dir"]), row["topic"]
    uri = re.sub(rf"/{topic}-(0?)0(?=/|$)", rf"/{topic}-\g<1>{number}", row["log_uri"])
    return row | {"partition": number, "log_uri": uri}


def number_in(log_dir: str) -> int:
    return int(log_dir.removeprefix("broker-")) // 2


@pytest.mark.parametrize("options", one_in(8, QUESTIONS.values()), ids=QUESTIONS)
def test_both_engines_print_and_write_the_same(
    options: list[str], catalog: Path, spark_command: Command
) -> None:
    policy = file_named("policy.toml", POLICY.encode())
    given = ["--policy", policy, "--log-start-offsets", str(catalog / "starts.csv")]
    if "--now" not in options:
        given += ["--now", str(NOW_MS)]

    found = {
        engine: run(spark_command, catalog, [*given, *options], engine)
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
    done: Finished = command("retention", catalog / "catalog", *options, "--engine", engine)
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
