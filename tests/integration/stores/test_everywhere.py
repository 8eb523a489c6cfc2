"""The same nights on a disk, in a bucket and in HDFS: the same bytes, the same rows.

Each place gets the demo archive; every command runs as a user's would, in a process of its own.
"""

import io
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from kip33.demo import make_archive, make_sensors
from kip33.stores.locations import Location
from tests.integration.stores.places import Place, Ran

pytestmark = pytest.mark.integration
SCHEMES = ("file", "s3a", "hdfs")
OF_THE_COPY = (
    "time_index_modified_ms",
    "offset_index_modified_ms",
    "transaction_index_modified_ms",
    "last_modified_ms",
    "last_modified_time",
    "log_uri",
    "index_uri",
)
POLICY = '[defaults]\n"cleanup.policy" = "delete"\n"retention.ms" = "7d"\n'


class Nights:
    """What the commands said and left at one place."""

    def __init__(self, place: Place, archive: Path) -> None:
        self.place = place
        place.put(archive, "logs")
        time.sleep(2.5)  # a file younger than 2 s may still change, so it would be read again
        self.source, self.catalog = f"{place.uri}/logs", f"{place.uri}/indexes/_catalog"
        indexes = f"{place.uri}/indexes"
        policy = place.folder / "policy.toml"
        policy.write_text(POLICY)
        self.plan = f"{place.uri}/plans/plan.jsonl"
        self.trash = f"{place.uri}/trash"
        self.before = place.files("logs")
        build = ("build", self.source, "--index-dir", indexes, "--offset-index", "--format", "json")
        judge = ("retention", self.catalog, "--policy", policy, "--format", "jsonl")
        self.ran: dict[str, Ran] = {
            "unindexed": place.run("verify", self.source, "--format", "jsonl"),
            "built": place.run(*build),
            "rebuilt": place.run(*build),
            "rows only": place.run(
                *("build", self.source, "--no-index-files", "--catalog", f"{place.uri}/audit")
            ),
            "verified": place.run(
                *("verify", self.source, "--index-dir", indexes, "--format", "jsonl"),
                *("--engine", "spark"),
            ),
            "found": place.run(
                *("search", self.catalog, "--time", "2023-11-14T22:14Z", "--format", "jsonl")
            ),
            "judged": place.run(*judge, "--trust-last-modified", "--plan", self.plan),
        }
        self.tables = f"{place.uri}/tables"
        write = ("records", self.catalog, "--to", self.tables, "--format", "json")
        self.ran["written"] = place.run(*write)
        self.ran["written again"] = place.run(*write)
        log_dir = place.folder / "log-dir"
        self.ran["restored"] = place.run("restore", f"{self.source}/broker-1", "--to", log_dir)
        self.restored = {
            str(path.relative_to(log_dir)): path.read_bytes()
            for path in log_dir.rglob("*")
            if path.is_file()
        }
        self.rows = self._rows()
        self.indexed = {
            path: data
            for path, data in place.files("indexes").items()
            if not path.startswith("_catalog")
        }
        apply = ("retention", "apply", self.plan, "--max-age", "100000d", "--format", "jsonl")
        self.ran["tried"] = place.run(*apply, "--dry-run")
        self.ran["applied"] = place.run(*apply, "--trash", self.trash)
        self.ran["applied again"] = place.run(*apply, "--trash", self.trash)
        self.after = place.files("logs")
        self.ran["rebuilt after"] = place.run(*build)
        self.trashed = place.files("trash")
        undo = ("retention", "undo", self.plan, "--trash", self.trash, "--format", "json")
        self.ran["undone"], self.ran["undone again"] = place.run(*undo), place.run(*undo)
        self.back = place.files("logs")

    def written(self) -> list[tuple[str, int, int]]:
        """Return the folder of each record in the tables, its partition and its offset."""
        found = []
        for path, data in self.place.files("tables").items():
            if path.endswith(".parquet"):
                rows = pq.read_table(io.BytesIO(data), columns=["partition", "offset"]).to_pylist()
                folder = path.rpartition("/")[0]
                found += [(folder, row["partition"], row["offset"]) for row in rows]
        return sorted(found)

    def _rows(self) -> list[dict[str, Any]]:
        """Return the newest snapshot's rows but for what a copy changes."""
        path = self.place.run("catalog", "snapshots", self.catalog, "--path").out.strip()
        below = Location.of(path).path.removeprefix(self.place.path)
        files = self.place.files(below.strip("/"))
        local = self.place.folder / "rows"
        local.mkdir()
        for name, data in files.items():
            (local / name).write_bytes(data)
        rows: list[dict[str, Any]] = pq.read_table(local).to_pylist()
        for row in rows:
            if row["largest_timestamp_source"] == "last_modified":
                row["largest_timestamp"] = row["largest_time"] = None
            for column in OF_THE_COPY:
                row.pop(column)
        rows = self.place.neutral(rows)
        return sorted(
            rows,
            key=lambda row: json.dumps(
                [row[k] for k in ("log_dir", "topic")] + [row["partition"], row["base_offset"]]
            ),
        )


@pytest.fixture(scope="module")
def nights(
    new_place: Callable[[str], Place], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Nights]:
    """Return what a scheme's place has been through; each is made once."""
    archive = tmp_path_factory.mktemp("demo")
    make_archive(archive)
    make_sensors(archive)
    made: dict[str, Nights] = {}

    def of(scheme: str) -> Nights:
        if scheme not in made:
            made[scheme] = Nights(new_place(scheme), archive)
        return made[scheme]

    return of


def without(records: list[dict[str, Any]], *keys: str) -> list[str]:
    """Return records in an order of their own, without what differs from run to run."""
    dropped = {"seconds", "snapshot", "created_ms", *keys}
    kept = [{key: value for key, value in one.items() if key not in dropped} for one in records]
    return sorted(json.dumps(one, sort_keys=True) for one in kept)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_command_succeeds(scheme: str, nights: Callable[[str], Nights]) -> None:
    for name, ran in nights(scheme).ran.items():
        assert ran.code == 0, f"{name}: {ran.err}"


@pytest.mark.parametrize("scheme", SCHEMES[1:])
def test_index_files_are_the_same_bytes(scheme: str, nights: Callable[[str], Nights]) -> None:
    assert nights(scheme).indexed == nights("file").indexed
    assert len(nights(scheme).indexed) > 40


@pytest.mark.parametrize("scheme", SCHEMES[1:])
def test_a_broker_gets_the_same_files(scheme: str, nights: Callable[[str], Nights]) -> None:
    assert nights(scheme).restored == nights("file").restored
    assert sum(name.endswith(".log") for name in nights("file").restored) == 17


@pytest.mark.parametrize("scheme", SCHEMES[1:])
def test_catalogs_have_the_same_rows(scheme: str, nights: Callable[[str], Nights]) -> None:
    assert nights(scheme).rows == nights("file").rows
    assert len(nights(scheme).rows) == 25


@pytest.mark.parametrize("command", ["unindexed", "verified", "found"])
@pytest.mark.parametrize("scheme", SCHEMES[1:])
def test_commands_say_the_same(scheme: str, command: str, nights: Callable[[str], Nights]) -> None:
    said, expected = (
        without(night.place.neutral(night.ran[command].records))
        for night in (nights(scheme), nights("file"))
    )
    assert said == expected


@pytest.mark.parametrize("scheme", SCHEMES[1:])
def test_tables_have_the_same_records_each_once(
    scheme: str, nights: Callable[[str], Nights]
) -> None:
    assert nights(scheme).written() == nights("file").written()
    counts = [nights(scheme).ran[name].record["records"] for name in ("written", "written again")]
    assert counts == [len(nights("file").written()), 0]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_second_build_reads_nothing_again(scheme: str, nights: Callable[[str], Nights]) -> None:
    again = nights(scheme).ran["rebuilt"].record
    assert (again["reused"], again["indexed"], again["bytes_read"]) == (25, 0, 0)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_plan_is_carried_out_and_what_goes_is_in_the_trash(
    scheme: str, nights: Callable[[str], Nights]
) -> None:
    night = nights(scheme)
    gone = night.before.keys() - night.after.keys()
    assert gone == nights("file").before.keys() - nights("file").after.keys()
    assert gone
    assert night.after.items() <= night.before.items()
    trashed = {
        path.split("/", 2)[2]: data
        for path, data in night.trashed.items()
        if path.split("/")[1] == "segments"
    }
    assert trashed == {path: night.before[path] for path in gone}
    logs = sum(path.endswith(".log") for path in gone)
    assert night.ran["rebuilt after"].record["segments"] == 25 - logs


@pytest.mark.parametrize("scheme", SCHEMES)
def test_what_is_in_the_trash_comes_back(scheme: str, nights: Callable[[str], Nights]) -> None:
    night = nights(scheme)
    undone, again = (night.ran[name].record["summary"] for name in ("undone", "undone again"))
    assert night.back == night.before
    left = night.place.files("trash")
    if scheme == "s3a":  # no lock there: an apply beside the undo may delete what comes back
        assert left == night.trashed
    else:
        assert [path.partition("/")[2] for path in left] == ["plan.jsonl"]
    assert undone["segments_put_back"] == again["segments_there_already"] > 0
    assert again["segments_put_back"] == 0


@pytest.mark.parametrize("scheme", SCHEMES)
def test_in_place_the_indexes_lie_beside_their_logs(
    scheme: str, new_place: Callable[[str], Place], tmp_path: Path, nights: Callable[[str], Nights]
) -> None:
    make_archive(tmp_path / "demo")
    place = new_place(scheme)
    place.put(tmp_path / "demo", "logs")
    source, catalog = f"{place.uri}/logs", f"{place.uri}/catalog"
    ran = place.run("build", source, "--in-place", "--overwrite", "--catalog", catalog)
    assert ran.code == 0, ran.err
    indexed = {path: data for path, data in place.files("logs").items() if "timeindex" in path}
    expected = {p: data for p, data in nights("file").indexed.items() if "timeindex" in p}
    assert {
        p: data for p, data in expected.items() if "sensors" not in p
    }.items() <= indexed.items()


def test_no_secret_is_said_or_written(nights: Callable[[str], Nights]) -> None:
    night = nights("s3a")
    place = night.place
    keys = [place.conf["spark.hadoop.fs.s3a." + name].encode() for name in ("secret.key",)]
    written = place.files("").values()
    beside = [
        path.read_bytes()
        for path in place.folder.rglob("*")
        if path.is_file() and path.name != "kip33.toml"  # which told it
    ]
    assert any(b"SparkListenerJobStart" in text for text in beside), "no event log of Spark"
    for text in (*written, *beside, *(said.encode() for said in place.said)):
        assert not any(key in text for key in keys)
