"""Wrong usage and bad places: one line on standard error, exit 2, nothing written."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs

from kip33.indexing.quick_verification import QuickVerdict
from tests.cli.console import KIP33, Command, directory_named, file_named, subprocess_of

FIRST = "00000000000000000000"
BUILD = ["build", "archive", "--index-dir", "indexes"]
VERIFY = ["verify", "archive"]


def with_config(text: str) -> list[str]:
    Path("kip33.toml").write_text(text)
    return [*BUILD, "--config", "kip33.toml"]


def newer_catalog() -> str:
    commits = Path("newer/commits")
    commits.mkdir(parents=True)
    (commits / "00000000000000000001-abc.json").write_text('{"schema_version": 99}')
    return "newer"


WRONG_USAGE: dict[str, tuple[Callable[[], list[str]], str]] = {
    # what is built
    "no SOURCE given": (lambda: ["build"], "Missing argument 'SOURCE'. Try 'kip33 build --help'"),
    "missing SOURCE": (
        lambda: ["build", "nowhere", "--index-dir", "x"],
        "/nowhere: SOURCE does not exist",
    ),
    "SOURCE is a file": (
        lambda: ["build", file_named("a.log", b""), "--index-dir", "x"],
        "/a.log: SOURCE is a file, expected a directory",
    ),
    "unknown scheme": (
        lambda: ["build", "ftp://host/logs", "--index-dir", "x"],
        "ftp://host/logs: unknown scheme ftp://, expected a local path or one of file://, ",
    ),
    "directory without segments": (
        lambda: ["build", directory_named("logs/orders-0"), "--index-dir", "x"],
        "/logs/orders-0: no segments found",
    ),
    "no topic matches": (
        lambda: [*BUILD, "--topics", "nothing*"],
        "/archive: no segments of topics nothing* found",
    ),
    # where to
    "neither --index-dir nor --in-place": (
        lambda: ["build", "archive"],
        "give an index directory (--index-dir) or --in-place, one of the two",
    ),
    "both --index-dir and --in-place": (
        lambda: [*BUILD, "--in-place"],
        "give an index directory (--index-dir) or --in-place, one of the two",
    ),
    "--in-place without --catalog": (
        lambda: ["build", "archive", "--in-place"],
        "--in-place requires a catalog (--catalog) outside of all log directories",
    ),
    "--in-place with a dialect that no broker writes": (
        lambda: ["build", "archive", "--in-place", "--catalog", "c", "--dialect", "kip33"],
        "--in-place: brokers do not write the dialect 'kip33' and would misread such files; "
        "choose --dialect recover or live, or give --index-dir",
    ),
    "catalog in a log directory": (
        lambda: ["build", "archive", "--in-place", "--catalog", "archive/broker-1/c"],
        "/archive/broker-1/c: the catalog is inside the log directory",
    ),
    "catalog in a log directory, of a broker without these topics": (
        lambda: [
            "build",
            "archive",
            "--in-place",
            "--catalog",
            "archive/broker-1/c",
            "--topics",
            "clicks",
        ],
        "/archive/broker-1/c: the catalog is inside the log directory",
    ),
    "index directory in a log directory": (
        lambda: ["build", "archive", "--index-dir", "archive/broker-1/indexes"],
        "/archive/broker-1/indexes: the index directory is inside the log directory",
    ),
    "index directory is SOURCE": (
        lambda: ["build", "archive", "--index-dir", "archive"],
        "/archive: the index directory contains SOURCE",
    ),
    "index directory is a file": (
        lambda: ["build", "archive", "--index-dir", file_named("indexes", b"")],
        "/indexes: the index directory is a file, expected a directory",
    ),
    "catalog is a file": (
        lambda: [*BUILD, "--catalog", file_named("catalog", b"")],
        "/catalog: the catalog is a file, expected a directory",
    ),
    "newer catalog": (
        lambda: [*BUILD, "--catalog", newer_catalog()],
        "/newer/commits/00000000000000000001-abc.json: schema version 99 found, this kip33 "
        "reads versions up to 2",
    ),
    # options
    "no such command": (lambda: ["rebuild"], "No such command 'rebuild'. Try 'kip33 --help'"),
    "no such option": (lambda: [*BUILD, "--frobnicate"], "No such option '--frobnicate'"),
    "no such dialect": (lambda: [*BUILD, "--dialect", "dead"], "'dead' is not one of 'recover',"),
    "no such format": (lambda: [*BUILD, "--format", "xml"], "'xml' is not one of 'table', 'json'"),
    "no such status": (lambda: [*BUILD, "--fail-on", "wrong"], "'wrong' is not one of 'ok', "),
    "--parallelism 0": (
        lambda: [*BUILD, "--parallelism", "0"],
        "0 is not in the range 1<=x<=100000",
    ),
    "negative interval": (
        lambda: [*BUILD, "--index-interval-bytes", "-1"],
        "Invalid value for '--index-interval-bytes': -1 is not in the range 0<=x<=2147483647",
    ),
    "index smaller than an entry": (
        lambda: [*BUILD, "--segment-index-bytes", "11"],
        "Invalid value for '--segment-index-bytes': 11 is not in the range 12<=x<=2147483647",
    ),
    "--conf without a value": (
        lambda: [*BUILD, "--conf", "spark.executor.memory"],
        "Invalid value for '--conf': 'spark.executor.memory': expected KEY=VALUE",
    ),
    # configuration files
    "no such config": (
        lambda: [*BUILD, "--config", "nowhere.toml"],
        "Invalid value for '--config': nowhere.toml: No such file or directory",
    ),
    "config is a directory": (
        lambda: [*BUILD, "--config", directory_named("conf.d")],
        "Invalid value for '--config': conf.d: Is a directory",
    ),
    "bad TOML": (
        lambda: with_config("[build\n"),
        "Invalid value for '--config': kip33.toml: not v",
    ),
    "bytes that are no text": (
        lambda: [*BUILD, "--config", file_named("kip33.toml", b"\xff\xfe")],
        "Invalid value for '--config': kip33.toml: not valid TOML",
    ),
    "unknown key in a command's table": (
        lambda: with_config("[build]\nfrobnicate = 1\n"),
        "kip33.toml: [build] has no option 'frobnicate'",
    ),
    "unknown key above the tables": (
        lambda: with_config("frobnicate = 1\n"),
        "kip33.toml: unknown option 'frobnicate'",
    ),
    "misspelt table": (
        lambda: with_config('[biuld]\ndialect = "live"\n'),
        "kip33.toml: unknown command 'biuld'",
    ),
    "a table that is a number": (
        lambda: with_config("build = 3\n"),
        "kip33.toml: unknown option 'build'",
    ),
    "an argument as a key": (
        lambda: with_config('[build]\nsource = "x"\n'),
        "kip33.toml: [build] has no option 'source'",
    ),
    "a string where a list belongs": (
        lambda: with_config('[build]\ntopics = "orders"\n'),
        "kip33.toml: topics: expected a list [...] of texts or numbers",
    ),
    "a bad value in a config": (
        lambda: with_config('[build]\ndialect = "dead"\n'),
        "Invalid value for '--dialect': 'dead' is not one of",
    ),
    # the other commands
    "verify: missing SOURCE": (lambda: ["verify", "nowhere"], "/nowhere: SOURCE does not exist"),
    "verify: missing file": (lambda: ["verify", "0.log"], "/0.log: no such segment file"),
    "verify: missing index directory": (
        lambda: ["verify", "archive", "--index-dir", "nowhere"],
        "/nowhere: the index directory does not exist",
    ),
    "verify: a name without an offset": (
        lambda: ["verify", file_named("orders.log", b"")],
        "/orders.log: the name is not that of a segment's file, expected '<base offset>.log'",
    ),
    "verify: --quick without a catalog": (
        lambda: [*VERIFY, "--quick"],
        "--quick requires the catalog: give --catalog or --index-dir",
    ),
    "verify: a catalog without --quick": (
        lambda: [*VERIFY, "--catalog", "c"],
        "--catalog requires --quick",
    ),
    "verify: a verdict that only --quick gives": (
        lambda: [*VERIFY, "--fail-on", "changed"],
        "--fail-on changed requires --quick",
    ),
    "verify: --quick with what needs a log": (
        lambda: [*VERIFY, "--quick", "--dialect", "kip33"],
        "--quick reads no log: leave out --dialect",
    ),
    "verify: a verdict that --quick never gives": (
        lambda: [*VERIFY, "--quick", "--fail-on", "wrong"],
        f"--quick never gives the verdict wrong: --fail-on takes {', '.join(QuickVerdict)}",
    ),
    "verify: a day without --share": (
        lambda: [*VERIFY, "--as-of", "2024-05-01"],
        "--as-of requires --share",
    ),
    "verify: --share with --quick": (
        lambda: [*VERIFY, "--share", "1/7", "--quick"],
        "--share is for the logs of a tree, without --quick",
    ),
    "verify: a share above all": (
        lambda: [*VERIFY, "--share", "8/7"],
        "'8/7' found, expected a share such as 1/7, from 1/366 to 1/1",
    ),
    "verify: a share of no days": (lambda: [*VERIFY, "--share", "1/0"], "'1/0' found"),
    "verify: a share that is no fraction": (
        lambda: [*VERIFY, "--share", "0.1"],
        "'0.1' found",
    ),
    "dump: no FILE": (lambda: ["dump"], "Missing argument 'FILE...'"),
    "dump: foreign file": (
        lambda: ["dump", file_named("notes.txt", b"hello")],
        "notes.txt: kip33 cannot show this file; expected '<base offset>.timeindex', ",
    ),
    "dump: directory": (
        lambda: ["dump", directory_named(f"{FIRST}.log")],
        f"{FIRST}.log: cannot be read: ",
    ),
    "dump: missing file": (
        lambda: ["dump", f"{FIRST}.timeindex"],
        f"{FIRST}.timeindex: cannot be read: ",
    ),
    "dump: half an entry": (
        lambda: ["dump", file_named(f"{FIRST}.timeindex", bytes(13))],
        f"{FIRST}.timeindex: 13 bytes found, expected a multiple of 12",
    ),
    "catalog: missing": (lambda: ["catalog", "nowhere"], "/nowhere: CATALOG does not exist"),
    "catalog: a file": (lambda: ["catalog", file_named("c", b"")], "/c: CATALOG is a file"),
    "catalog: no snapshot": (
        lambda: ["catalog", directory_named("empty")],
        "/empty: no committed snapshot found; `kip33 build` makes one",
    ),
    "catalog: newer": (lambda: ["catalog", newer_catalog()], "schema version 99"),
}


@pytest.mark.parametrize("case", WRONG_USAGE)
def test_wrong_usage_is_one_line_and_exit_2(command: Command, case: str) -> None:
    arguments, message = WRONG_USAGE[case]

    done = command(*arguments())

    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("Error: ")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert not Path("indexes").is_dir()


@pytest.mark.parametrize("case", ["missing SOURCE", "no such option", "bad TOML"])
def test_the_console_script_says_the_same(command: Command, tmp_path: Path, case: str) -> None:
    arguments, _ = WRONG_USAGE[case]
    here = command(*arguments())
    assert subprocess_of(KIP33, *arguments(), cwd=tmp_path) == here


@pytest.mark.spark
def test_a_spark_that_does_not_start_is_one_line(archive: Path, tmp_path: Path) -> None:
    done = subprocess_of(
        *(KIP33, "build", archive, "--index-dir", "indexes", "--master", "nonsense"), cwd=tmp_path
    )
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("Error: Spark did not start: ")
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "indexes").exists()


class Closed:
    """The local disk, with an archive that may be seen but not listed."""

    def get_file_info(self, what: Any) -> Any:
        if isinstance(what, fs.FileSelector) and what.base_dir.endswith("/archive"):
            raise PermissionError(13, "Permission denied")
        return fs.LocalFileSystem().get_file_info(what)


@pytest.mark.parametrize("arguments", [BUILD, VERIFY], ids=["build", "verify"])
def test_a_source_that_cannot_be_listed(
    command: Command, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    monkeypatch.setattr("kip33.stores.locations._filesystem", lambda _: Closed())
    done = command(*arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.endswith("/archive: SOURCE cannot be listed: Permission denied\n")
