"""Wrong usage and bad places: one line on standard error, exit 2, nothing written."""

import re
import shlex
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
        lambda: [*BUILD, "--topic", "nothing*"],
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
            "--topic",
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
        "reads versions up to 4",
    ),
    # options
    "no such command": (lambda: ["zip"], "No such command 'zip'. Try 'kip33 --help'"),
    "a misspelt command": (lambda: ["biuld"], "No such command 'biuld'; did you mean build? Try"),
    "a misspelt option": (lambda: [*BUILD, "--indx-dir"], "did you mean --index-dir? Try"),
    "a misspelt choice": (lambda: [*BUILD, "--engine", "sprak"], "did you mean spark? Try"),
    "a misspelt topic": (lambda: [*BUILD, "--topics", "oders"], "found; did you mean orders?"),
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
        "kip33.toml: unknown command 'biuld'; did you mean build?",
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


FILES: dict[str, str] = {
    "offsets.csv": "sensors,1,107\n",
    "mine.prom": "node_cpu 1\n",
    "policy.toml": "[defaults]\nretention.ms = '1d'\n",
    "bad.toml": "[defaults]\nretention.ms = 'soon'\n",
}
# What is wrong with a file of offsets or requests: tests/search/test_request_files.py.
OF_COMMANDS: list[tuple[str, str]] = [
    ("retention", "CATALOG is missing"),
    ("retention catalog", "no retention policy: give --policy FILE"),
    ("retention catalog --retention-ms soon", "'soon' found, expected"),
    ("retention catalog --now noon", "'noon' found, expected ISO 8601"),
    (
        "retention catalog --retention-ms 7d --at 0 --forecast 3d",
        "--at and --forecast cannot be combined",
    ),
    ("retention catalog --retention-ms 7d --at 0,x", "'x' found, expected"),
    (
        "retention catalog --retention-ms 7d --forecast 90000d",
        "--forecast: 90,000 days found, expected at most 10,000",
    ),
    ("retention catalog --policy no.toml", "no.toml"),
    ("retention catalog --retention-ms 1 --dry-run", "--dry-run requires --apply"),
    ("retention catalog --apply p", "CATALOG cannot be combined with --apply"),
    ("retention --apply p --policy x", "--policy cannot be combined"),
    ("retention --apply none.jsonl", "none.jsonl"),
    (
        "retention --apply p --metrics x.prom",
        "--metrics cannot be combined with --apply: give --summary FILE",
    ),
    ("retention catalog --retention-ms 1 --plan p.jsonl", "no cleanup.policy"),
    ("retention catalog --retention-ms 1 --emit delete-records", "no cleanup.policy"),
    ("retention catalog --retention-ms 1 --emit delete-records --now now+1d", "--emit prints what"),
    (
        "retention catalog --retention-ms 1 --now now+1h --plan p.jsonl",
        "only segments that have already expired",
    ),
    ("search catalog --format jsonl", "give --time T or --requests FILE"),
    ("search catalog --time 0 --requests r.csv", "give --time T or --requests FILE"),
    ("search catalog --time noon", "'noon' found, expected ISO 8601"),
    ("search catalog --time -5", "'-5' found, expected"),
    ("search catalog --time 0 --topic x*", "no topic matches x*; there are audit.v1, clicks,"),
    ("search catalog --time 0 --topic orders --topic sensor", "sensor; did you mean sensors?"),
    ("search catalog --requests none.csv", "none.csv: cannot be read"),
    ("search catalog --time 0 --time now --emit spark", "--emit prints one offset per partition"),
    ("search catalog --time 0 --until x", "--until: 'x' found, expected"),
    ("search catalog --time 0 --until now --index-only", "--until requires --time"),
    ("search catalog --time 0 --as kafka:2.8", "'2.8' is not a version of Kafka: expected 3.0"),
    ("lag catalog", "Missing option '--offsets'"),
    ("lag catalog --offsets none.csv", "none.csv: cannot be read: No such file or direct"),
    ("lag catalog --offsets .", ": cannot be read: not a regular file"),
    ("lag catalog --offsets offsets.csv --policy none.toml", "none.toml: "),
    ("lag catalog --offsets offsets.csv --policy bad.toml", "retention.ms"),
    ("lag catalog --offsets offsets.csv --now noon", "'noon' found, expected"),
    ("lag catalog --offsets offsets.csv --snapshot 99", "99"),
    ("lag nowhere --offsets offsets.csv", "/nowhere: CATALOG does not exist"),
    ("failover --from catalog --to catalog --buffer 3m", "Missing option '--offsets'"),
    ("failover --from catalog --to catalog --offsets offsets.csv", "Missing option '--buffer'"),
    (
        "failover --from catalog --to catalog --offsets offsets.csv --buffer -5m",
        "'-5m' found, expected",
    ),
    (
        "failover --from catalog --to catalog --offsets offsets.csv --buffer 3m --emit spark",
        "'spark' is not",
    ),
    (
        "failover --from none --to catalog --offsets offsets.csv --buffer 3m",
        "none: --from does not exist",
    ),
    (
        "failover --from catalog --to none --offsets offsets.csv --buffer 3m",
        "none: --to does not exist",
    ),
    ("failover --from catalog --to archive --offsets offsets.csv --buffer 3m", "/archive: "),
    ("records nowhere", "nowhere"),
    ("records archive --format parquet", "--format parquet requires --output FILE"),
    (
        "records archive --output out.txt",
        "'out.txt' found, expected a name that ends in .json or .jsonl or .csv or .parquet",
    ),
    (
        "records archive --output out.csv --format jsonl",
        "--format jsonl contradicts --output, whose name ends in .csv",
    ),
    (
        "records archive --output out.csv --format table",
        "--format table contradicts --output, whose name ends in .csv",
    ),
    (
        "records archive --columns offset,time",
        "columns: 'time' found, expected some of log_dir, topic, partition, base_offset, offset, "
        "timestamp, timestampType, key, value, headers",
    ),
    (
        "records archive --from 9:05 --until 9:00",
        "--until must be later than --from; records at --until are not included",
    ),
    ("records archive --topic nothing", "no segments of topics nothing found"),
    ("records archive --topic order", "did you mean orders?"),
    ("records archive --partition 7", "no segments of partitions 7 found"),
    ("records archive --log-dir b3", "no segments of log_dir 'b3' found"),
    ("count archive", "Missing option '--per'"),
    ("count archive --per 0", "'0' found, expected more than 0; for example 1h"),
    ("count archive --per hour", "'hour' found, expected 7d, 36h, 15m, 30s, 500ms"),
    ("count archive --per 1h --topic nothing", "no segments of topics nothing found"),
    ("count archive --per 1h --from 0 --until 0", "later than --from"),
    ("catalog catalog --diff 1 2 --keep 1", "--diff and --keep cannot be combined: give one"),
    ("catalog catalog --diff 1 2 --path", "--diff and --path cannot be combined"),
    ("catalog catalog --diff 1 2 --snapshot 1", "--diff and --snapshot cannot be combined"),
    ("catalog catalog --keep 1 --path", "--keep and --path cannot be combined"),
    ("catalog catalog --keep 1 --snapshot 1 --path", "--keep and --path and --snapshot cannot"),
    ("catalog catalog --keep 0", "0 is not in the range x>=1"),
    ("catalog catalog --keep all", "'all' is not a valid integer"),
    ("catalog catalog --diff 1", "Option '--diff' requires 2 arguments"),
    *(
        (f"catalog catalog {options}", "--policy requires --holes, and --holes excludes --diff, ")
        for options in ("--policy p.toml", "--holes --keep 1", "--holes --path")
    ),
    *(
        (f"catalog catalog --orphans {options}", "--orphans excludes")
        for options in ("--keep 1", "--path", "--diff 1 2", "--holes")
    ),
    ("catalog catalog --plan p.jsonl", "require --orphans"),
    ("catalog catalog --apply p.jsonl", "require --orphans"),
    ("catalog catalog --orphans --snapshot 1 --plan p.jsonl", "exclude --snapshot"),
    ("catalog catalog --orphans --plan p.jsonl --apply p.jsonl", "cannot be combined"),
    ("catalog catalog --orphans --remove stray-directories", "--remove requires --plan"),
    ("catalog catalog --orphans --plan p.jsonl --dry-run", "--dry-run requires --apply"),
    ("catalog catalog --orphans --plan p.jsonl --remove swap-files", "is not one of"),
    ("catalog catalog --orphans --plan plan.txt", "ends in .jsonl"),
    ("catalog catalog --orphans --apply missing.jsonl", "the plan cannot be read"),
    (
        "build archive --index-dir i --metrics x.txt",
        "'x.txt' found, expected a name that ends in .prom",
    ),
    ("build archive --index-dir i --metrics-by topic", "--metrics-by requires --metrics"),
    (
        "build archive --index-dir i --metrics mine.prom",
        "mine.prom: a file that --metrics did not write is there",
    ),
    (
        "build archive --index-dir i --summary archive/a.log",
        "'archive/a.log' found, expected a name that ends in .json",
    ),
    ("build archive --index-dir i --summary ftp://host/s.json", "unknown scheme ftp://"),
    ("build archive --index-dir i --summary ''", "'' found, expected a name that ends in .json"),
    *(
        (f"{command} archive --index-dir i --layout {layout}", says)
        for command in ("build", "verify")
        for layout, says in (
            ("tiered", "expected kafka, pinterest, aiven, local-tiered, hdfs-rsm"),
            ("{topic}/{base_offset}", "field {partition} is missing; required fields are {topic}"),
        )
    ),
    ("report catalog", "Missing option '--output'"),
    ("report catalog --output r.htm", "--output 'r.htm': expected a name that ends in .html"),
    (
        "report catalog --output r.html --forecast 400d",
        "--forecast: 400 days found, expected",
    ),
    (
        "report catalog --output r.html --retention-ms 1d --policy policy.toml",
        "--retention-ms cannot be combined with --policy",
    ),
    (
        "roll archive --snapshot 1",
        "--snapshot requires a CATALOG; of a SOURCE, all headers are read",
    ),
    ("roll archive --read-headers", "--read-headers requires a CATALOG"),
    ("roll archive --segment-ms 0", "'0' found, expected more than 0"),
    ("roll archive --segment-bytes 13", "expected"),
    ("roll archive --what-if --fail-on early", "--fail-on cannot be combined with --what-if"),
    ("timestamps archive --catalog-only", "--catalog-only requires a CATALOG"),
    ("timestamps archive --snapshot 1", "--snapshot"),
    ("dialects archive --dialect hour", "'hour' is not one of"),
    ("dialects archive --time-index-interval 0", "expected more than 0"),
    ("dialects archive --partitions 0", "0 is not in the range"),
    ("truncate nowhere-0 --to 1", "expected a directory such as orders-0"),
    ("truncate s3a://bucket/t-0 --to 1", "expected a partition directory on this machine"),
    ("truncate archive/broker-1/orders-0 --to -1", "-1 is not in the range"),
    ("truncate archive/broker-1/orders-0", "Missing option '--to'"),
    ("truncate archive/broker-1/orders-0 --to 1 --plan-id x", "--plan-id is for --apply"),
    ("repair s3a://bucket/logs", "s3a://bucket/logs: expected a broker's log directory on this"),
    ("restore archive --to data --truncate", "--truncate"),
    ("restore archive --to data --from 0 --from-offsets offsets.csv", "--from"),
    (
        "restore archive --to data --topic-ids ids --bootstrap-server host:9092",
        "--topic-ids",
    ),
    ("restore archive --to data --partitions 5-3", "'5-3' found, expected numbers such as 0,2-5"),
]


@pytest.mark.parametrize(("line", "says"), OF_COMMANDS, ids=lambda text: text[:60])
def test_wrong_usage_of_each_command(command: Command, built: Path, line: str, says: str) -> None:
    for name, text in FILES.items():
        Path(name).write_text(text)
    Path("catalog").symlink_to(built / "indexes/_catalog")
    before = {*Path().iterdir(), *Path("catalog").rglob("*")}

    done = command(*shlex.split(line))

    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("Error: ") and done.stderr.count("\n") == 1
    assert says in done.stderr
    assert {*Path().iterdir(), *Path("catalog").rglob("*")} == before


@pytest.mark.parametrize(
    ("line", "setting"),
    [
        ("catalog catalog", "keep = 1"),
        ("catalog catalog --orphans", 'plan = "x.jsonl"'),
        ("catalog catalog --orphans", 'apply = "x.jsonl"'),
        ("catalog catalog --orphans", 'remove = ["stray-directories"]'),
        ("retention catalog --retention-ms 1", 'plan = "x.jsonl"'),
        ("retention catalog --retention-ms 1", 'apply = "x.jsonl"'),
    ],
)
def test_no_configuration_file_may_delete_or_say_what_to_delete(
    command: Command, built: Path, line: str, setting: str
) -> None:
    Path("catalog").symlink_to(built / "indexes/_catalog")
    before = {*Path("catalog").rglob("*")}
    Path("kip33.toml").write_text(f"[{line.split()[0]}]\n{setting}\n")

    done = command(*line.split(), "--config", "kip33.toml")

    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert re.search("give (this option|it) on the command line", done.stderr)
    assert {*Path("catalog").rglob("*")} == before


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
