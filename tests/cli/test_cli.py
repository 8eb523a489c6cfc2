"""The `kip33` command as a user meets it: help, output, exit codes, configuration files."""

import json
import os
import pty
import shutil
import subprocess
from pathlib import Path

import pytest

from kip33 import __version__, build_time_index
from kip33.cli.main import COMMANDS
from kip33.demo import START_MS, make_archive
from kip33.formats import native
from tests.cli.console import (
    KIP33,
    PROJECT,
    Command,
    Finished,
    directory_named,
    file_named,
    subprocess_of,
)
from tests.imported_modules import modules_of

FIRST = "00000000000000000000"
BUILD = ["build", "archive", "--index-dir", "indexes"]
SUMMARY_KEYS = ["snapshot", "catalog", "segments", "by_status", "entries", "log_bytes"]
VERDICT_KEYS = ["log_uri", "index_uri", "verdict", "dialect", "entries", "problems"]
BY_STATUS = {"empty": 1, "invalid": 1, "ok": 9, "truncated": 2}


@pytest.mark.parametrize("name", ["", *COMMANDS])
def test_help_has_an_example(command: Command, name: str) -> None:
    done = command(*filter(None, [name]), "--help")
    assert (done.exit_code, done.stderr) == (0, "")
    assert "Example: " in done.stdout
    assert f"kip33 {name or 'build'} " in done.stdout.partition("Example: ")[2]


@pytest.mark.parametrize("name", ["", *COMMANDS])
def test_help_fits_80_columns(command: Command, name: str) -> None:
    done = command(*filter(None, [name]), "--help")
    assert [line for line in done.stdout.splitlines() if len(line) > 80] == []


def test_kip33_alone_is_its_help(command: Command) -> None:
    assert command() == command("--help")
    assert all(name in command().stdout for name in COMMANDS)


HEAVY = {
    *("numpy", "pyarrow", "pandas", "pyspark", "py4j", "numba", "llvmlite", "rich", "jinja2"),
    *("matplotlib", "zstandard", "cramjam", "prometheus_client", "polars", "fastavro", "boto3"),
    *("hdfs_native",),
}
ARROW = {"numpy", "pyarrow"}
PARTITION = "archive/broker-1/payments-0"
SEGMENT = f"{PARTITION}/{FIRST}.log"
COPY = "payments-0"
CATALOG = "indexes/_catalog"
ALLOWED: dict[str, set[str]] = {
    "--help": set(),
    "--version": set(),
    "--version -v": {"numpy"},
    "init deployment": set(),
    "demo new-archive": ARROW,
    "build --help": ARROW,
    "build archive --index-dir new": ARROW,
    "verify archive": ARROW | {"rich"},
    f"verify {SEGMENT}": ARROW | {"rich"},
    "repair archive/broker-1": ARROW,
    "restore archive --topic orders --to log-dir": ARROW,
    f"dump {SEGMENT}": ARROW,
    f"dump --records {SEGMENT}": ARROW | {"zstandard", "cramjam"},
    "records archive --topic orders": ARROW | {"zstandard", "cramjam"},
    "count archive --topic orders --per 1d": ARROW | {"zstandard", "cramjam"},
    "timestamps archive --topic orders": ARROW,
    "dialects archive": ARROW | {"rich"},
    f"search {CATALOG} --time 2023-11-15T12:00Z": ARROW,
    f"retention {CATALOG} --retention-ms 7d": ARROW,
    f"roll {CATALOG}": ARROW,
    f"catalog {CATALOG}": ARROW,
    f"report {CATALOG} --output report.html": ARROW | {"jinja2"},
    f"truncate {COPY} --to 1": ARROW,
    f"lag {CATALOG} --offsets offsets.csv": ARROW | {"zstandard", "cramjam"},
    f"failover --from {CATALOG} --to {CATALOG} --offsets offsets.csv --buffer 15m": ARROW
    | {"zstandard", "cramjam"},
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
@pytest.mark.parametrize("line", ALLOWED)
def test_a_command_imports_only_what_it_needs(built: Path, tmp_path: Path, line: str) -> None:
    lay_out_files(built, tmp_path)
    loaded = {name.partition(".")[0] for name in modules_of(*line.split(), cwd=tmp_path)}
    assert "click" in loaded
    assert loaded & HEAVY <= ALLOWED[line]


WITHOUT_SPARK = """\
import sys

class NoSpark:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("pyspark", "py4j"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, NoSpark())
"""


@pytest.mark.slow
@pytest.mark.parametrize("line", ["build archive --index-dir new", "verify archive"])
def test_without_pyspark_the_local_engine_works(archive: Path, tmp_path: Path, line: str) -> None:
    (tmp_path / "archive").symlink_to(archive)
    (tmp_path / "sitecustomize.py").write_text(WITHOUT_SPARK)
    done = subprocess_of(KIP33, *line.split(), cwd=tmp_path, PYTHONPATH=str(tmp_path))
    assert (done.exit_code, done.stderr) == (0, "")


def test_without_pyspark_spark_is_one_line(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kip33.cli.engine_option.find_spec", lambda name: None)
    done = command("build", "archive", "--index-dir", "new", "--engine", "spark")
    assert (done.exit_code, done.stdout) == (2, "")
    [line] = done.stderr.splitlines()
    assert "Spark is not installed" in line
    assert "pip install pyspark" in line


@pytest.mark.parametrize("path", ["shared library x86-64-v4", "plain Python"])
def test_the_version_says_how_logs_are_read(
    command: Command, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setattr(native, "how", lambda: path)
    version = f"kip33, version {__version__}\n"
    assert command("--version").stdout == version
    assert command("--version", "-v").stdout == f"{version}kernels: {path}\n"
    done = command("-v")
    assert (done.exit_code, done.stdout) == (2, "")


WITHOUT_PANDAS = """\
import os, sys
from pathlib import Path

class NoPandas:
    def find_spec(self, name, path=None, target=None):
        if name == "pandas":
            raise ImportError("this test has no pandas")

sys.meta_path.insert(0, NoPandas())
(Path(os.environ["STARTED"]) / str(os.getpid())).write_text(" ".join(sys.orig_argv))
"""


@pytest.mark.integration
@pytest.mark.spark
def test_build_in_a_pipe_prints_one_object_and_no_process_needs_pandas(
    archive: Path, tmp_path: Path
) -> None:
    started = tmp_path / "started"
    started.mkdir()
    (tmp_path / "sitecustomize.py").write_text(WITHOUT_PANDAS)

    done = subprocess_of(
        *(KIP33, "build", archive, "--index-dir", "indexes", "--format", "json"),
        *("--fail-on", "invalid", "--engine", "spark"),
        cwd=tmp_path,
        PYTHONPATH=str(tmp_path),
        STARTED=str(started),
    )

    assert (done.exit_code, done.stderr) == (3, "")
    [summary] = done.lines
    assert list(summary)[: len(SUMMARY_KEYS)] == SUMMARY_KEYS
    assert {"index_bytes", "seconds"} <= summary.keys()
    assert summary["by_status"] == BY_STATUS
    assert summary["catalog"] == (tmp_path / "indexes/_catalog").as_uri()
    assert "pyspark.daemon" in " ".join(path.read_text() for path in started.iterdir())


@pytest.mark.parametrize(
    ("fail_on", "exit_code"),
    [
        ([], 0),
        (["unreadable"], 0),
        (["unreadable", "unverified"], 0),
        (["truncated"], 3),
        (["unreadable", "invalid"], 3),
    ],
    ids=lambda value: ",".join(value) or "nothing" if isinstance(value, list) else "",
)
def test_findings_are_an_exit_code_only_on_request(
    command: Command, fail_on: list[str], exit_code: int
) -> None:
    options = [word for status in fail_on for word in ("--fail-on", status)]
    done = command(*BUILD, "--topic", "clicks", "--format", "json", *options)
    assert (done.exit_code, done.stderr) == (exit_code, "")
    assert done.lines[0]["by_status"] == {"empty": 1, "invalid": 1, "truncated": 2}


@pytest.mark.parametrize(("fail_on", "exit_code"), [("unwritten", 3), ("invalid", 1)])
def test_a_build_that_could_write_no_index_file_warns_and_fails_on_request(
    command: Command, fail_on: str, exit_code: int
) -> None:
    Path("indexes").mkdir()
    for broker in ("broker-1", "broker-2"):
        Path("indexes", broker).touch()  # no directory can be made here
    done = command(
        *(*BUILD, "--topic", "orders", "--format", "json", "--catalog", "catalog"),
        *("--fail-on", fail_on),
    )
    [summary] = done.lines
    assert (done.exit_code, summary["written"]) == (exit_code, 0)
    assert summary["failed"] == summary["segments"] > 0
    warning = done.stderr.removesuffix("\n")
    place = Path("indexes").resolve().as_uri()
    assert f"could not be written, for example {place}/broker-" in warning
    assert ".timeindex: cannot be written: " in warning
    assert "\n" not in warning


def test_build_prints_a_table_that_names_what_is_not_as_expected(command: Command) -> None:
    kept = Path(f"indexes/broker-1/payments-0/{FIRST}.timeindex")
    kept.parent.mkdir(parents=True)
    kept.write_bytes(b"somebody else's")
    Path(f"indexes/broker-1/audit.v1-0/{FIRST}.timeindex").mkdir(parents=True)

    done = command(*BUILD)

    table = {
        cells[1].strip(): cells[2].strip()
        for line in done.stdout.splitlines()
        if len(cells := line.split("│")) == 4
    }
    assert done.exit_code == 1
    assert done.stderr.startswith("Warning: index files of 1 segment could not be written, for ")
    assert table["segments"] == "13: 1 empty, 1 invalid, 9 ok, 2 truncated"
    assert table["index files"] == "10 written, 0 unchanged"
    assert table["kept"] == "1 that kip33 did not write"
    assert table["different"] == "1 kept, with other content; --overwrite replaces them"
    assert table["not written"] == "1; see column `error` of the catalog"
    assert table["log bytes"] == "1.7 MiB"
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
        "offset_index": True,
        "bytes_version": 1,
    }
    assert len(record["parts"]) == 1
    # Ten slots are too few for either log, and nobody saw the batch with the broken CRC.
    assert done.lines[0]["by_status"] == {"empty": 1, "invalid": 3}


@pytest.mark.parametrize(
    ("options", "verdict"),
    [((), "consistent"), (("--index-interval-bytes", "100"), "identical")],
)
def test_options_of_verify_reach_the_verdict(
    command: Command, options: tuple[str, ...], verdict: str
) -> None:
    make_archive(Path("logs"))
    log = f"logs/broker-1/orders-0/{FIRST}.log"
    index = build_time_index(log, index_interval_bytes=100)
    Path(log).with_suffix(".timeindex").write_bytes(index.time_index_data or b"")
    assert command("verify", log, *options, "--format", "jsonl").lines[0]["verdict"] == verdict


def test_verify_without_crc_does_not_see_bit_rot(command: Command) -> None:
    rotten = ("verify", f"archive/broker-2/clicks-1/{FIRST}.log", "--format", "jsonl")
    found = [command(*rotten, *options).lines[0] for options in ((), ("--no-check-crc",))]
    assert [one["log_status"] for one in found] == ["truncated", "ok"]


def test_verify_of_one_file_includes_the_offset_index_beside_the_log(
    command: Command,
) -> None:
    make_archive(Path("logs"))
    log = f"logs/broker-1/orders-0/{FIRST}.log"
    index = build_time_index(log)
    Path(log).with_suffix(".index").write_bytes(index.offset_index_data or b"")
    Path(directory_named("indexes"), f"{FIRST}.timeindex").write_bytes(index.time_index_data or b"")
    row = command("verify", log, "--index-dir", "indexes", "--format", "jsonl").lines[0]
    assert (row["verdict"], row["offset_index_verdict"]) == ("identical", "identical")


def test_build_reports_ignored_files(command: Command) -> None:
    directory_named("logs/b-0.0123456789abcdef0123456789abcdef-delete")
    partition = directory_named("logs/a-0")
    for name in ("00.log", "01.log.deleted", "notes.log"):
        Path(partition, name).touch()
    done = command("build", "logs", "--index-dir", "indexes", "--format", "jsonl")
    [summary] = done.lines
    assert summary["segments"] == 1
    assert summary["passed_over"] == {
        ".deleted files": 1,
        "-delete directories": 1,
        "files not named as segments": 1,
    }


@pytest.mark.parametrize(
    ("config", "options", "dialect", "interval"),
    [
        (None, [], "recover", 4096),
        ("the project's", [], "recover", 4096),
        ('[build]\ndialect = "live"\n', [], "live", 4096),
        ('[build]\ndialect = "live"\n', ["--dialect", "kip33"], "kip33", 4096),
        ("index-interval-bytes = 512\n", [], "recover", 512),
        ("index_interval_bytes = 1\n[build]\nindex-interval-bytes = 2\n", [], "recover", 2),
        ('[verify]\nfail-on = ["wrong"]\n[catalog]\nformat = "json"\n', [], "recover", 4096),
        ('catalog = "elsewhere"\n', [], "recover", 4096),
    ],
    ids=[
        "no file",
        "conf/kip33.toml",
        "a command's table",
        "the command line wins",
        "a key for every command",
        "the table wins over it",
        "tables of other commands",
        "an option named as a command",
    ],
)
def test_a_configuration_file_gives_defaults(
    command: Command, config: str | None, options: list[str], dialect: str, interval: int
) -> None:
    path = str(PROJECT / "conf" / "kip33.toml")
    if config != "the project's":
        path = file_named("kip33.toml", (config or "").encode())
    given = ["--config", path] if config else []

    done = command(*BUILD, "--topic", "payments", *given, *options, "--format", "json")

    assert (done.exit_code, done.stderr) == (0, "")
    catalog = Path("elsewhere" if "elsewhere" in (config or "") else "indexes/_catalog").absolute()
    assert done.lines[0]["catalog"] == catalog.as_uri()
    [commit] = (catalog / "commits").iterdir()
    settings = json.loads(json.loads(commit.read_text())["settings"]["build"])
    assert (settings["dialect"], settings["index_interval_bytes"]) == (dialect, interval)


@pytest.mark.integration  # a JVM of its own
def test_verify_on_a_terminal_draws_on_standard_error_only(archive: Path, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    options = ("--engine", "spark", "--format", "jsonl", "--fail-on", "wrong")
    with subprocess.Popen(
        [KIP33, "verify", str(archive / "broker-2"), *options],
        stdout=subprocess.PIPE,
        stderr=theirs,
        cwd=tmp_path,
        env=os.environ | {"TERM": "xterm-256color", "COLUMNS": "100"},
    ) as process:
        os.close(theirs)
        drawn = read_all(ours)
        stdout = process.stdout.read().decode()
    done = Finished(process.returncode, stdout, drawn)

    assert done.exit_code == 3
    assert "reading logs" in drawn
    assert "of 8 segments" in drawn
    assert "Traceback" not in drawn
    assert len(done.lines) == 8
    for line in done.lines:
        assert list(line)[: len(VERDICT_KEYS)] == VERDICT_KEYS
        assert "offset_index_verdict" in line


def read_all(terminal: int) -> str:
    pieces = []
    while True:
        try:
            pieces.append(os.read(terminal, 65536))
        except OSError:  # how Linux says that the other end is closed
            pieces.append(b"")
        if not pieces[-1]:
            os.close(terminal)
            return b"".join(pieces).decode()


def test_verify_prints_one_object_or_a_table(command: Command) -> None:
    done = command("verify", "archive/broker-2", "--topic", "orders", "--format", "json")
    [found] = done.lines
    assert (done.exit_code, done.stderr) == (0, "")
    assert (found["segments"], len(found["verdicts"])) == (3, 3)
    assert found["by_verdict"] == {"wrong": 1, "missing": 2}

    table = command("verify", "archive", "--topic", "orders").stdout
    assert "6 segments" in table
    assert "0 correct entries, then 10485756 zero bytes" in table
    assert f"broker-2/orders-0/{FIRST}.timeindex" in table


@pytest.mark.parametrize("suffix", [".log", ".timeindex", ".index"])
@pytest.mark.parametrize(
    ("partition", "fail_on", "exit_code", "verdict"),
    [
        ("broker-1/payments-0", "wrong", 0, "missing"),
        ("broker-1/payments-0", "missing", 3, "missing"),
        ("broker-2/orders-0", "wrong", 3, "wrong"),
    ],
)
def test_verify_of_one_file_needs_no_spark(
    command: Command, suffix: str, partition: str, fail_on: str, exit_code: int, verdict: str
) -> None:
    path = f"archive/{partition}/{FIRST}{suffix}"
    done = command("verify", path, "--format", "jsonl", "--fail-on", fail_on)
    [line] = done.lines
    assert (done.exit_code, done.stderr, line["verdict"]) == (exit_code, "", verdict)
    assert line["log_uri"] == Path(f"archive/{partition}/{FIRST}.log").absolute().as_uri()


@pytest.mark.parametrize(
    ("offset_index", "verdict"),
    [(bytes.fromhex("0000000100000001"), "wrong"), (b"half", "malformed")],
)
def test_fail_on_looks_at_the_offset_index_too(
    command: Command, offset_index: bytes, verdict: str
) -> None:
    make_archive(Path("logs"))
    log = Path(f"logs/broker-1/payments-0/{FIRST}.log")
    log.with_suffix(".timeindex").write_bytes(build_time_index(str(log)).time_index_data or b"")
    log.with_suffix(".index").write_bytes(offset_index)
    done = command("verify", log, "--format", "jsonl", "--fail-on", verdict)
    [line] = done.lines
    assert (line["verdict"], line["offset_index_verdict"]) == ("identical", verdict)
    assert done.exit_code == 3
    assert command("verify", log, "--fail-on", "padded").exit_code == 0


def test_verify_of_an_offset_index_says_that_it_is_missing(command: Command) -> None:
    index = f"archive/broker-1/payments-0/{FIRST}.index"
    done = command("verify", index, "--format", "json", "--fail-on", "missing")
    [found] = done.lines
    assert (done.exit_code, found["by_offset_index_verdict"]) == (3, {"missing": 1})


def test_a_sparse_index_is_counted_shown_and_failed_on(command: Command) -> None:
    make_archive(Path("logs"))
    log = Path(f"logs/broker-1/orders-0/{FIRST}.log")
    index = build_time_index(str(log), index_interval_bytes=100)
    log.with_suffix(".timeindex").write_bytes(index.time_index_data or b"")
    log.with_suffix(".index").write_bytes(b"")
    asked = ("verify", log, "--index-interval-bytes", "100")
    done = command(*asked, "--format", "json", "--fail-on", "sparse")
    [found] = done.lines
    assert (done.exit_code, found["by_offset_index_verdict"]) == (3, {"sparse": 1})
    assert found["offset_index_largest_gap_bytes"] == log.stat().st_size
    table = command(*asked).stdout
    assert "sparse" in table and "entries missing" in table


def test_verify_reads_the_kip33_dialect_only_where_it_is_asked_for(command: Command) -> None:
    make_archive(Path("logs"))
    log = Path(f"logs/broker-1/orders-0/{FIRST}.log")
    index = build_time_index(str(log), dialect="kip33")
    log.with_suffix(".timeindex").write_bytes(index.time_index_data or b"")
    [seen] = command("verify", log, "--format", "jsonl").lines
    assert (seen["verdict"], "--dialect kip33" in seen["problems"][-1]) == ("wrong", True)
    [seen] = command("verify", log, "--dialect", "kip33", "--format", "jsonl").lines
    assert (seen["verdict"], seen["dialect"]) == ("identical", "kip33")


def test_a_long_path_stays_on_one_line_where_no_terminal_shows_it(command: Command) -> None:
    partition = directory_named(f"{'d' * 200}/{'e' * 200}/orders-0")
    done = command("verify", file_named(f"{partition}/{FIRST}.log", b""))
    assert (done.exit_code, f"{'e' * 200}/orders-0/{FIRST}.timeindex" in done.stdout) == (0, True)


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

    lines = command("catalog", "indexes/_catalog", "--format", "jsonl").lines
    assert [line["kind"] for line in lines] == ["snapshot"] * 2 + ["topic"] * 5

    table = command("catalog", "indexes/_catalog").stdout
    assert "2023-11-14T22:13:20.002Z" in table
    assert "1 invalid, 2 truncated" in table

    path = command("catalog", "indexes/_catalog", "--path").stdout
    assert path == f"{Path('indexes/_catalog').absolute()}/snapshots/{newest['snapshot']}\n"
