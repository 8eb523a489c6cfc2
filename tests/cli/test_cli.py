"""The `kip33` command as a user meets it: help, output, exit codes, configuration files."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kip33 import __version__, build_time_index
from kip33.cli.main import _SYNONYMS, COMMANDS
from kip33.demo import START_MS
from kip33.formats import native
from tests.cli.command_lines import commands_and_modes
from tests.cli.console import PROJECT, Command, facts_in, file_named
from tests.imported_modules import modules_of

FIRST = "00000000000000000000"
BUILD = ["build", "archive", "--index-dir", "indexes"]


def copied(partition: str) -> Path:
    """Copy a partition of the archive, and return its first log."""
    copy = Path("logs", partition)
    shutil.copytree(f"archive/broker-1/{partition}", copy, dirs_exist_ok=True)
    return copy / f"{FIRST}.log"


def test_help_has_an_example(command: Command, subtests: pytest.Subtests) -> None:
    for name in ["", *dict(commands_and_modes())]:
        with subtests.test(name):
            done = command(*name.split(), "--help")
            assert (done.exit_code, done.stderr) == (0, "")
            assert "Example: " in done.stdout
            assert f"kip33 {name or 'build'} " in done.stdout.partition("Example: ")[2]
            assert [line for line in done.stdout.splitlines() if len(line) > 80] == []


def test_kip33_alone_is_its_help(command: Command) -> None:
    assert command() == command("--help")


HEAVY = {
    *("numpy", "pyarrow", "pandas", "pyspark", "py4j", "numba", "llvmlite", "jinja2"),
    *("matplotlib", "zstandard", "isal", "prometheus_client", "polars", "fastavro", "boto3"),
    *("hdfs_native", "multiprocessing", "tomllib", "xml"),
    # What takes longest of Arrow; `dataset` comes with `group_by`.
    *("pyarrow.parquet", "pyarrow.compute", "pyarrow.dataset"),
}
ARROW = {"numpy", "pyarrow"}
TABLES = ARROW | {"pyarrow.parquet", "pyarrow.compute"}
PARTITION = "archive/broker-1/payments-0"
SEGMENT = f"{PARTITION}/{FIRST}.log"
COPY = "payments-0"
CATALOG = "indexes/_catalog"
ALLOWED: dict[str, set[str]] = {
    "--help": set(),
    "--version": set(),
    "--version -v": {"numpy"},
    "init deployment": set(),
    "completion bash": set(),
    "demo new-archive": ARROW,
    "build --help": TABLES,
    "build archive --index-dir new": TABLES | {"pyarrow.dataset"},
    "verify archive": TABLES,
    f"verify {SEGMENT}": TABLES,
    "repair archive/broker-1": TABLES,
    "restore archive --topic orders --to log-dir": TABLES,
    f"dump {SEGMENT}": ARROW,
    f"dump --records {SEGMENT}": ARROW | {"zstandard", "isal"},
    "records archive --topic orders": TABLES | {"zstandard", "isal"},
    "count archive --topic orders --per 1d": TABLES | {"zstandard", "isal"},
    "timestamps archive --topic orders": TABLES,
    "dialects archive": TABLES,
    f"search {CATALOG} --time 2023-11-15T12:00Z": TABLES,
    f"retention {CATALOG} --retention-ms 7d": TABLES | {"pyarrow.dataset"},
    f"roll {CATALOG}": TABLES,
    f"catalog {CATALOG}": TABLES | {"pyarrow.dataset"},
    f"report {CATALOG} --output report.html": TABLES | {"pyarrow.dataset", "jinja2"},
    f"status {CATALOG}": TABLES | {"pyarrow.dataset"},
    f"truncate {COPY} --to 1": TABLES,
    f"lag {CATALOG} --offsets offsets.csv": TABLES | {"zstandard", "isal"},
    f"failover --from {CATALOG} --to {CATALOG} --offsets offsets.csv --buffer 15m": TABLES
    | {"zstandard", "isal"},
}


def test_every_command_is_among_them() -> None:
    assert {line.partition(" ")[0] for line in ALLOWED} >= {*COMMANDS}


def lay_out_files(built: Path, folder: Path) -> None:
    """Put into a folder what the commands above read; a built archive only as links."""
    for place in built.iterdir():
        (folder / place.name).symlink_to(place)
    shutil.copytree(built / PARTITION, folder / COPY)
    (folder / "offsets.csv").write_text("group,topic,partition,offset\nbilling,sensors,1,107\n")


@pytest.mark.slow
def test_a_command_imports_only_what_it_needs(
    built: Path, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    for line in ALLOWED:
        with subtests.test(line):
            folder = tmp_path / line.replace("/", " ")
            folder.mkdir()
            lay_out_files(built, folder)
            loaded = set(modules_of(*line.split(), cwd=folder))
            assert "click" in loaded
            assert loaded & HEAVY <= ALLOWED[line]


def test_without_pyspark_spark_is_one_line(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kip33.cli.engine_option.find_spec", lambda name: None)
    done = command("build", "archive", "--index-dir", "new", "--engine", "spark")
    assert (done.exit_code, done.stdout) == (2, "")
    [line] = done.stderr.splitlines()
    assert "Spark is not installed" in line
    assert "pip install pyspark" in line


def test_help_names_commands_and_modes(command: Command) -> None:
    for words in ("", "build", "verify quick"):
        assert command("help", *words.split()) == command(*words.split(), "--help")
    assert command("help", "biuld").exit_code == 2


def test_many_options_are_in_groups_of_what_where_engine_and_output(command: Command) -> None:
    parts = re.split(r"^(\w+):$", command("help", "build").stdout, flags=re.MULTILINE)
    groups = dict(zip(parts[1::2], parts[2::2], strict=True))
    assert list(groups) == ["What", "Where", "Engine", "Output"]
    options = ("--dialect ", "--index-dir ", "--workers ", "-h, --help ")
    for (name, text), option in zip(groups.items(), options, strict=True):
        assert f"\n  {option}" in text, name
    assert "\nOptions:\n" in command("help", "demo").stdout


def test_the_version_says_how_logs_are_read(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "how", lambda: "plain Python")
    version = f"kip33, version {__version__}\n"
    for words in (["--version"], ["-V"], ["version"]):
        assert command(*words).stdout == version
    assert command("--version", "-v").stdout == f"{version}kernels: plain Python\n"
    done = command("-v")
    assert (done.exit_code, done.stdout) == (2, "")


def test_a_build_that_could_write_no_index_file_warns_and_fails_on_request(
    command: Command, subtests: pytest.Subtests
) -> None:
    Path("indexes").mkdir()
    for broker in ("broker-1", "broker-2"):
        Path("indexes", broker).touch()  # no directory can be made here
    for fail_on, exit_code in [("unwritten", 3), ("invalid", 1)]:
        with subtests.test(f"{fail_on}"):
            done = command(
                *(*BUILD, "--topic", "orders", "--format", "json", "--catalog", "catalog"),
                *("--fail-on", fail_on),
            )
            [summary] = done.lines
            assert (done.exit_code, summary["written"]) == (exit_code, 0)
            assert summary["failed"] == summary["segments"] > 0
            warning, *_, last = done.stderr.splitlines()
            place = Path("indexes").resolve().as_uri()
            assert f"could not be written, for example {place}/broker-" in warning
            assert ".timeindex: cannot be written: " in warning
            assert last.startswith(f"exit {exit_code}: ")
            assert last.endswith("unwritten: 6 segments")


def test_build_prints_a_table_that_names_what_is_not_as_expected(command: Command) -> None:
    kept = Path(f"indexes/broker-1/payments-0/{FIRST}.timeindex")
    kept.parent.mkdir(parents=True)
    kept.write_bytes(b"somebody else's")
    Path(f"indexes/broker-1/audit.v1-0/{FIRST}.timeindex").mkdir(parents=True)

    done = command(*BUILD)

    table = facts_in(done.stdout)
    assert done.exit_code == 1
    assert done.stderr.startswith("Warning: index files of 1 segment could not be written, for ")
    assert table["segments"] == "13: 1 empty, 1 invalid, 9 ok, 2 truncated"
    assert table["index files"] == "10 written, 0 unchanged"
    assert table["kept"] == "1 that kip33 did not write"
    assert table["different"] == "1 kept, with other content; --overwrite replaces them"
    assert table["not written"] == "1; see column `error` of the catalog"
    assert table["log bytes"] == "1.4 MiB"
    assert kept.read_bytes() == b"somebody else's"


def test_options_of_build_reach_the_build(command: Command) -> None:
    options = ("--segment-index-bytes", "120", "--index-interval-bytes", "512", "--no-check-crc")
    options += ("--parallelism", "1", "--dialect", "live", "--offset-index")
    done = command(*BUILD, "--topic", "clicks", *options, "--format", "json")

    [commit] = (Path("indexes/_catalog/commits")).iterdir()
    record = json.loads(commit.read_text())
    assert json.loads(record["settings"]["build"]) == {
        "dialect": "live",
        "index_interval_bytes": 512,
        "segment_index_bytes": 120,
        "check_crc": False,
        "untimestamped": "none",
        "offset_index": True,
        "bytes_version": 1,
    }
    assert len(record["parts"]) == 1
    # Ten slots are too few for either log, and nobody saw the batch with the broken CRC.
    assert done.lines[0]["by_status"] == {"empty": 1, "invalid": 3}


def test_options_of_verify_reach_the_verdict(command: Command) -> None:
    log = copied("orders-0")
    index = build_time_index(log, index_interval_bytes=100)
    Path(log).with_suffix(".timeindex").write_bytes(index.time_index_data or b"")
    for options, verdict in [((), "consistent"), (("--index-interval-bytes", "100"), "identical")]:
        [row] = command("verify", log, *options, "--format", "jsonl").lines
        assert row["verdict"] == verdict


LIVE = '[build]\ndialect = "live"\n'
TWO = "index-interval-bytes = 2\n"


def test_a_configuration_file_gives_defaults(
    command: Command, new_folder: Callable[[], Path], subtests: pytest.Subtests
) -> None:
    cases = {
        "no file": (None, [], "recover", 4096),
        "conf/kip33.toml": ("the project's", [], "recover", 4096),
        "a command's table": (LIVE, [], "live", 4096),
        "the command line wins": (LIVE, ["--dialect", "kip33"], "kip33", 4096),
        "a key for every command": ("index-interval-bytes = 512\n", [], "recover", 512),
        "the table wins over it": ("index_interval_bytes = 1\n[build]\n" + TWO, [], "recover", 2),
        "a table of another command": ("[verify]\n" + TWO, [], "recover", 4096),
        "an option named as a command": ('catalog = "elsewhere"\n', [], "recover", 4096),
    }
    for name, (config, options, dialect, interval) in cases.items():
        with subtests.test(name):
            new_folder()
            path = str(PROJECT / "conf" / "kip33.toml")
            if config != "the project's":
                path = file_named("kip33.toml", (config or "").encode())
            given = ["--config", path] if config else []

            done = command(*BUILD, "--topic", "payments", *given, *options, "--format", "json")

            assert (done.exit_code, done.stderr) == (0, "")
            catalog = Path(
                "elsewhere" if "elsewhere" in (config or "") else "indexes/_catalog"
            ).absolute()
            assert done.lines[0]["catalog"] == catalog.as_uri()
            [commit] = (catalog / "commits").iterdir()
            settings = json.loads(json.loads(commit.read_text())["settings"]["build"])
            assert (settings["dialect"], settings["index_interval_bytes"]) == (dialect, interval)


def test_verify_of_one_file_needs_no_spark(command: Command, subtests: pytest.Subtests) -> None:
    for partition, suffix, fail_on, exit_code, verdict in [
        ("broker-1/payments-0", ".log", "wrong", 0, "missing"),
        ("broker-1/payments-0", ".index", "missing", 3, "missing"),
        ("broker-2/orders-0", ".timeindex", "wrong", 3, "wrong"),
    ]:
        with subtests.test(f"{partition}, {suffix}"):
            file = Path(f"archive/{partition}/{FIRST}").absolute()
            done = command("verify", f"{file}{suffix}", "--format", "jsonl", "--fail-on", fail_on)
            [line] = done.lines
            assert (done.exit_code, line["verdict"]) == (exit_code, verdict)
            assert done.stderr.startswith(f"{verdict}: {file.as_uri()}." if exit_code else "")
            assert len(done.stderr) > 0 if exit_code else done.stderr == ""
            assert line["log_uri"] == f"{file.as_uri()}.log"


def test_fail_on_looks_at_the_offset_index_too(command: Command) -> None:
    """Its verdicts: tests/rules/test_index_truth_and_verdict.py."""
    log = copied("orders-0")
    index = build_time_index(str(log), index_interval_bytes=100)
    log.with_suffix(".timeindex").write_bytes(index.time_index_data or b"")
    asked = ("verify", log, "--index-interval-bytes", "100")
    log.with_suffix(".index").write_bytes(b"")
    done = command(*asked, "--format", "json", "--fail-on", "sparse")
    [found] = done.lines
    assert (done.exit_code, found["by_offset_index_verdict"]) == (3, {"sparse": 1})
    assert command(*asked, "--fail-on", "padded").exit_code == 0
    assert found["offset_index_largest_gap_bytes"] == log.stat().st_size
    assert "entries missing" in command(*asked).stdout


def test_catalog_lists_snapshots_and_totals(command: Command) -> None:
    newest = command(*BUILD, "--topic", "payments", "--format", "json").lines[0]
    newest = command(*BUILD, "--format", "json").lines[0]

    [found] = command("catalog", "indexes/_catalog", "--format", "json").lines

    assert [s["segments"] for s in found["snapshots"]] == [13, 1]
    assert found["snapshots"][0]["snapshot"] == newest["snapshot"]
    assert found["path"] == f"{newest['catalog']}/snapshots/{newest['snapshot']}"
    topics = {topic.pop("topic"): topic for topic in found["topics"]}
    assert list(topics) == ["audit.v1", "clicks", "metrics", "orders", "payments"]
    assert topics["clicks"]["not_ok"] == {"invalid": 1, "truncated": 2}
    assert topics["audit.v1"]["record_count"] is None
    assert topics["payments"] == {
        "partitions": 1,
        "segments": 1,
        "log_bytes": Path(f"archive/broker-1/payments-0/{FIRST}.log").stat().st_size,
        "record_count": 240,
        "time_index_entries": 6,
        "first_timestamp": START_MS + 2,
        "largest_timestamp": START_MS + 59_005,
        "not_ok": {},
        "overlaps": {},
        "topic_ids": [],
    }

    table = command("catalog", "indexes/_catalog").stdout
    assert "2023-11-14T22:13:20.002Z" in table
    assert "1 invalid, 2 truncated" in table


def test_each_synonym_is_of_a_name_that_there_is() -> None:
    commands = dict(commands_and_modes())
    options = {name for command in commands.values() for one in command.params for name in one.opts}
    assert set(_SYNONYMS.values()) <= {*commands, *options}
    assert not {*commands, *options} & set(_SYNONYMS)
