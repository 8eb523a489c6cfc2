"""FILES.md is executed: its tables have the fields and types that the commands write."""

import json
import os
import re
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import kip33.catalog
from kip33.builds.commit import begin_build
from kip33.builds.leftovers import find_leftovers, plan_leftovers, write_leftover_plan
from kip33.catalog.catalog import Catalog, snapshot_name
from kip33.catalog.segment_order import KEY
from kip33.demo import make_archive
from kip33.restore.truncate_apply import JOURNAL, truncate
from kip33.retention.plan import write_plan
from kip33.rules.segment_notes import SegmentNote
from kip33.stores.locations import Location
from tests.builders.changing_archive import ChangingArchive, batches
from tests.builders.expiring_archive import ExpiringArchive
from tests.cli.conftest import archive, command  # noqa: F401 - fixtures
from tests.cli.console import PROJECT, Command

PAGE = Path(kip33.catalog.__file__).with_name("FILES.md").read_text(encoding="utf-8")
TABLE = re.compile(
    r"^<!-- (?P<kind>fields|columns): (?P<name>[a-z ]+) -->\n(?P<rows>(?:\|.*\n)+)", re.MULTILINE
)
ROW = re.compile(r"^\| `(\w+)` \| (.+?) \| (.*) ?\|$", re.MULTILINE)
TABLES = {found["name"]: ROW.findall(found["rows"]) for found in TABLE.finditer(PAGE)}
TYPES: dict[str, Callable[[Any], bool]] = {
    "text": lambda value: isinstance(value, str),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, float),
    "bool": lambda value: isinstance(value, bool),
    "list": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
    "null": lambda value: value is None,
}
ARROW = {
    "string": pa.string(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "bool": pa.bool_(),
    "list of string": pa.list_(pa.string()),
    "list of int32": pa.list_(pa.int32()),
    "list of int64": pa.list_(pa.int64()),
    "time": pa.timestamp("ms", "UTC"),
}
Record = dict[str, Any]
OF_COMMANDS = {
    *("build summary", "verify summary", "quick verify summary"),
    *("retention summary", "plan in a summary"),
    *("apply summary", "undo summary", "repair summary", "restore summary", "run"),
    "finding of a run",
}


def fields_of(name: str) -> list[str]:
    return [field for field, _, _ in TABLES[name]]


def require_fields(name: str, record: Record) -> None:
    """Fail unless a record has the fields of a table, in their order, each of its type."""
    assert list(record) == fields_of(name)
    for field, types, _ in TABLES[name]:
        assert any(TYPES[one](record[field]) for one in types.split(" or ")), (field, record[field])


def require_columns(name: str, schema: pa.Schema) -> None:
    assert schema.names == fields_of(name)
    for column, text, _ in TABLES[name]:
        field = schema.field(column)
        arrow, _, never_null = text.partition(", never null")
        assert field.type == ARROW[arrow], column
        assert field.nullable == (", never null" not in text), column
        assert not never_null


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> ChangingArchive:
    """An archive after two builds; before the second a log was deleted."""
    place = ChangingArchive(tmp_path_factory.mktemp("files"))
    for partition in ("b1/orders-0", "b1/clicks-0"):
        place.write(place.log(partition), batches(0, 20))
    place.build(offset_index=True)
    place.log("b1/clicks-0").unlink()
    place.build(offset_index=True)
    return place


def commits_of(place: ChangingArchive) -> list[Record]:
    return [
        json.loads(path.read_text()) for path in sorted((place.catalog / "commits").glob("*.json"))
    ]


def test_a_commit(built: ChangingArchive) -> None:
    first, second = commits_of(built)

    require_fields("commit", second)
    require_fields("settings", second["settings"])
    require_fields("orphaned", second["orphaned"])
    assert list(first) == fields_of("commit")[:-1], "a commit without orphans"
    said = next(text for field, _, text in TABLES["settings"] if field == "build")
    assert set(re.findall(r"`(\w+)`", said)) | {"dialect"} == set(
        json.loads(second["settings"]["build"])
    )


def require_version(table: str, field: str, record: Record) -> None:
    """Fail unless the page begins its words on a version with the one that is written."""
    meaning = next(text for name, _, text in TABLES[table] if name == field)
    assert re.match(r"\d+", meaning)[0] == str(record[field]), table  # type: ignore[index]


def test_the_page_names_the_version_of_a_commit(built: ChangingArchive) -> None:
    require_version("commit", "schema_version", commits_of(built)[-1])


def test_a_part_is_listed_with_its_rows_size_and_crc(built: ChangingArchive) -> None:
    for commit in commits_of(built):
        folder = built.catalog / "snapshots" / snapshot_name(commit["sequence"], commit["id"])
        for name, rows, size_bytes, *_, first, last, footer_bytes, crc32 in commit["parts"]:
            part = folder / name
            assert part.stat().st_size == size_bytes
            assert zlib.crc32(part.read_bytes()[-footer_bytes:]) == crc32
            table = pq.read_table(part)
            assert table.num_rows == rows
            keys = [list(key) for key in zip(*(table[one].to_pylist() for one in KEY), strict=True)]
            assert keys == sorted(keys) and [first, last] == [keys[0], keys[-1]]
            require_columns("part", table.schema)


def test_the_orphan_list(built: ChangingArchive) -> None:
    (path,) = (built.catalog / "orphaned").iterdir()

    with pa.OSFile(str(path)) as file:
        orphans = pa.ipc.open_stream(file).read_all()

    require_columns("orphans", orphans.schema)
    assert set(orphans["log_uri"].to_pylist()) == {built.log("b1/clicks-0").as_uri()}
    assert orphans.num_rows == commits_of(built)[1]["orphaned"]["rows"] == 2


def test_claims(tmp_path: Path) -> None:
    place = ChangingArchive(tmp_path)
    place.write(place.log("b1/orders-0"), batches(0, 20))

    begin_build(place.plan(offset_index=True))

    (path,) = (place.catalog / "staging").glob("*/claims.arrow")
    with pa.OSFile(str(path)) as file:
        claims = pa.ipc.open_stream(file).read_all()
    require_columns("claims", claims.schema)
    index = place.index("b1/orders-0")
    files = [index.as_uri(), index.with_suffix(".index").as_uri()]
    assert claims["index_uri"].to_pylist() == files


@pytest.fixture(scope="module")
def expiring(tmp_path_factory: pytest.TempPathFactory) -> ExpiringArchive:
    return ExpiringArchive.with_two_partitions(tmp_path_factory.mktemp("expiring"))


def test_a_plan_and_its_journal(expiring: ExpiringArchive) -> None:
    plan = expiring.plan()
    path = expiring.folder / "plan.jsonl"
    write_plan(plan, Location.of(path))
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    tables = {"plan": "plan", "partition": "planned partition", "segment": "planned segment"}
    tables |= {"end": "end of a plan"}

    for line in lines:
        require_fields(tables[line["kind"]], line)
    assert {line["kind"] for line in lines} == set(tables)
    for file in lines[-2]["files"]:
        require_fields("file", file)

    expiring.apply(plan, trash=Location.of(expiring.folder / "trash"))

    journal = expiring.journal(plan)
    for entry in journal:
        record = json.loads(entry.read_text())
        require_fields("journal", record)
        assert entry.stem == "-".join(
            (f"{record['base_offset']:020d}", record["run_id"], record["outcome"] or "intent")
        )
    folders = {path.name for path in (expiring.folder / "trash" / plan.plan_id).iterdir()}
    assert folders == {"plan.jsonl", "segments", "indexes"}


def test_a_plan_of_leftovers(built: ChangingArchive) -> None:
    catalog = Catalog.at(str(built.catalog))
    newest = catalog.require_newest()
    found = find_leftovers(catalog, newest)
    plan, _ = plan_leftovers(catalog, newest, found, now_ms=built.now_ms)
    path = built.folder / "leftovers.jsonl"

    write_leftover_plan(plan, Location.of(path))

    header, *leftovers, end = [json.loads(line) for line in path.read_text().splitlines()]
    require_fields("leftover plan", header)
    require_fields("end of a plan of leftovers", end)
    assert len(leftovers) == end["leftovers"] == 2
    for leftover in leftovers:
        require_fields("planned leftover", leftover)
        for file in leftover["files"]:
            require_fields("leftover file", file)


def test_the_journal_of_a_truncation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = ChangingArchive(tmp_path)
    place.write(place.log("b1/orders-0"), batches(0, 20))
    directory = place.log("b1/orders-0").parent

    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "truncate", fail)
    with pytest.raises(KeyboardInterrupt):
        truncate(Location.of(directory), 20)

    journal = json.loads((directory / JOURNAL).read_text())
    require_fields("truncation journal", journal)
    [journal_id] = directory.parent.glob(".kip33-truncate-*")
    require_fields("truncation id", json.loads(journal_id.read_text()))
    require_version("truncation journal", "format", journal)
    require_version("truncation id", "format", json.loads(journal_id.read_text()))
    for file in journal["files"]:
        require_fields("truncated file", file)


def test_the_summaries_of_the_commands(command: Command) -> None:  # noqa: F811
    def summary_of(*arguments: object) -> Record:
        done = command(*arguments, "--summary", "summary.json")
        assert done.exit_code == 0, done.stderr
        found: Record = json.loads(Path("summary.json").read_text())
        Path("summary.json").unlink()
        run = found.pop("run")
        require_fields("run", run)
        for one in run["findings"]:
            require_fields("finding of a run", one)
        return found

    Path("archive").unlink()  # a link to what other tests read
    make_archive(Path("archive"))
    policy = PROJECT / "conf/retention.toml"
    catalog = "indexes/_catalog"

    require_fields("build summary", summary_of("build", "archive", "--index-dir", "indexes"))
    require_fields("verify summary", summary_of("verify", "archive", "--index-dir", "indexes"))
    quick = summary_of("verify", "quick", "archive", "--index-dir", "indexes")
    require_fields("quick verify summary", quick)
    judged = ("retention", catalog, "--policy", policy, "--now", "2023-12-01")
    audit = summary_of(*judged, "--plan", "plan.jsonl", "--output", "audit")
    require_fields("retention summary", audit)
    require_fields("plan in a summary", audit["plan"])
    assert json.loads(Path("audit/summary.json").read_text()) == audit
    applied = summary_of("retention", "apply", "plan.jsonl", "--trash", "trash")
    require_fields("apply summary", applied)
    undone = summary_of("retention", "undo", "plan.jsonl", "--trash", "trash")
    require_fields("undo summary", undone)
    require_fields("repair summary", summary_of("repair", "archive/broker-2"))
    restored = summary_of("restore", "archive", "--to", "data", "--topic", "payments")
    require_fields("restore summary", restored)
    require_fields("restored partition", restored["partitions"][0])


def test_the_notes_of_a_row() -> None:
    assert fields_of("note") == list(SegmentNote)


def test_each_table_of_the_page_is_compared() -> None:
    compared = re.findall(
        r'(?:require_fields|require_columns)\(\s*"([a-z ]+)"', Path(__file__).read_text()
    )
    planned = {"plan", "planned partition", "planned segment", "end of a plan"}
    assert set(compared) | planned | {"note"} == set(TABLES)
    assert set(compared) >= OF_COMMANDS
    assert len(TABLES) == PAGE.count("<!-- ")
    assert all(TABLES.values())
