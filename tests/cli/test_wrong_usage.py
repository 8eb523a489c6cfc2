"""Wrong usage and bad places: one line on standard error, exit 2, nothing written."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs

from tests.cli.console import KIP33, Command, subprocess_of

FIRST = "00000000000000000000"
BUILD = "build archive --index-dir indexes"
SOME_FILE: dict[str, bytes] = {
    **{"a.log": b"", "orders.log": b"", "a-file": b"", "notes.txt": b"hello"},
    **{"binary": b"\xff\xfe", f"{FIRST}.timeindex": bytes(13), "mine.prom": b"node_cpu 1\n"},
    "o.csv": b"sensors,1,107\n",
    "policy.toml": b"[defaults]\nretention.ms = '1d'\ncleanup.policy = 'delete'\n",
    "bad.toml": b"[defaults]\nretention.ms = 'soon'\n",
    "newer/commits/00000000000000000001-abc.json": b'{"schema_version": 99}',
    **{"logs/orders-0/none": b"", f"conf.d/{FIRST}.log/none": b""},
}
WRONG: list[tuple[str, str]] = [
    ("build", "Missing argument 'SOURCE'. Try 'kip33 build --help'"),
    ("build nowhere --index-dir x", "/nowhere: SOURCE does not exist"),
    ("build a.log --index-dir x", "/a.log: SOURCE is a file, expected a directory"),
    ("build ftp://host/logs --index-dir x", "ftp://host/logs: unknown scheme ftp://"),
    ("build logs/orders-0 --index-dir x", "/logs/orders-0: no segments found"),
    ("build archive --in-place --catalog c --layout aiven", "'aiven' has no index files"),
    (f"{BUILD} --topic nothing*", "/archive: no segments of topics nothing* found"),
    (
        f"{BUILD} --in-place",
        "give an index directory (--index-dir), --in-place or --no-index-files, one",
    ),
    ("build archive --in-place", "--in-place requires a catalog (--catalog) outside of all log"),
    ("build archive --in-place --catalog c --dialect kip33", "brokers do not write the dialect"),
    (
        "build archive --in-place --catalog archive/broker-1/c --topic clicks",
        "/archive/broker-1/c: the catalog is inside the log directory",
    ),
    ("build archive --index-dir archive/broker-1/indexes", "the index directory is inside the log"),
    ("build archive --index-dir archive", "/archive: the index directory contains SOURCE"),
    ("build archive --index-dir a-file", "/a-file: the index directory is a file"),
    (f"{BUILD} --catalog a-file", "/a-file: the catalog is a file, expected a directory"),
    (f"{BUILD} --catalog newer", "abc.json: schema version 99 found, this kip33 reads"),
    ("records archive --to 2023-11-15", "found a time; give --until"),
    ("zip", "No such command 'zip'. Try 'kip33 --help'"),
    ("biuld", "No such command 'biuld'; did you mean build? Try"),
    (f"{BUILD} --indx-dir", "did you mean --index-dir? Try"),
    (f"{BUILD} --engine sprak", "did you mean spark? Try"),
    (f"{BUILD} --frobnicate", "No such option '--frobnicate'. Try"),
    (f"{BUILD} --quiet", "No such option '--quiet'. Try"),
    (f"{BUILD} --color never", "No such option '--color'. Try"),
    (f"{BUILD} --jobs 2", "No such option '--jobs'; did you mean --workers? Try"),
    ("records archive --since 1h", "No such option '--since'; did you mean --from? Try"),
    ("build archive --since 1h", "No such option '--since'. Try"),
    ("check archive", "No such command 'check'; did you mean verify? Try"),
    (
        "retention aply plan.jsonl --trash t",
        "no place and no command 'aply' of kip33 retention; did you mean apply?",
    ),
    ("retention nowhere --retention-ms 1", "/nowhere: CATALOG does not exist"),
    (f"{BUILD} --dialect dead", "'dead' is not one of 'recover',"),
    (f"{BUILD} --index-interval-bytes -1", "-1 is not in the range 0<=x<=2147483647"),
    (f"{BUILD} --conf spark.executor.memory", "'spark.executor.memory': expected KEY=VALUE"),
    (f"{BUILD} --config nowhere.toml", "nowhere.toml: No such file or directory"),
    (f"{BUILD} --config conf.d", "Invalid value for '--config': conf.d: Is a directory"),
    (f"{BUILD} --config binary", "Invalid value for '--config': binary: not valid TOML"),
    ("verify nowhere", "/nowhere: SOURCE does not exist"),
    ("verify 0.log", "/0.log: no such segment file"),
    ("verify archive --index-dir nowhere", "/nowhere: the index directory does not exist"),
    ("verify orders.log", "/orders.log: the name is not that of a segment's file"),
    ("verify quick archive", "requires the catalog: give --catalog or --index-dir"),
    ("verify archive --fail-on changed", "'changed' is not one of 'identical',"),
    ("verify quick archive --dialect kip33", "No such option '--dialect'. Try"),
    ("verify archive --as-of 2024-05-01", "--as-of requires --share"),
    ("verify 0.log --share 1/7", "--share is for the logs of a tree"),
    ("dump", "Missing argument 'FILE...'"),
    (f"dump {FIRST}.log --payload", "--payload requires --records"),
    ("dump notes.txt", "notes.txt: kip33 cannot show this file"),
    (f"dump conf.d/{FIRST}.log", f"{FIRST}.log: cannot be read: "),
    (f"dump {FIRST}.index", f"{FIRST}.index: cannot be read: "),
    (f"dump {FIRST}.timeindex", f"{FIRST}.timeindex: 13 bytes found, expected a multiple of 12"),
    ("catalog nowhere", "/nowhere: CATALOG does not exist"),
    ("catalog a-file", "/a-file: CATALOG is a file"),
    ("catalog logs", "/logs: no committed snapshot found; `kip33 build` makes one"),
    # What is wrong with a file of offsets or requests: tests/search/test_request_files.py.
    ("retention", "Missing argument 'CATALOG'"),
    ("retention catalog", "no retention policy: give --policy FILE"),
    ("retention catalog --retention-ms 7d --at 0 --forecast 3d", "cannot be combined"),
    ("retention catalog --retention-ms 7d --forecast 90000d", "--forecast: 90,000 days found"),
    ("retention catalog --policy no.toml", "no.toml"),
    ("retention apply none.jsonl", "none.jsonl"),
    ("retention catalog --retention-ms 1 --plan p.jsonl", "no cleanup.policy"),
    ("retention catalog --policy policy.toml --plan p.json", "a name that ends in .jsonl"),
    ("retention catalog --retention-ms 1 --emit delete-records", "no cleanup.policy"),
    *(
        (
            f"retention catalog --policy policy.toml --emit delete-records {what_if}",
            "--emit prints what the policy deletes now",
        )
        for what_if in ("--ignore-future 1h", "--retention-ms 1d")
    ),
    (
        "retention catalog --policy policy.toml --emit delete-records --now now+1d",
        "--now is in the future, but only what the policies delete now",
    ),
    ("retention catalog --retention-ms 1 --now now+1h --plan p.jsonl", "have already expired"),
    ("search catalog --format jsonl", "give --time T or --requests FILE"),
    ("search catalog --time 0 --requests r.csv", "give --time T or --requests FILE"),
    ("search catalog --time 0 --topic x*", "no topic matches x*; there are audit.v1, clicks,"),
    ("search catalog --requests none.csv", "none.csv: cannot be read"),
    ("search catalog --time 0 --time now --emit spark", "--emit prints one offset per partition"),
    ("restore archive --to data --from 2023-11-15 --until 2023-11-14", "--until must be later"),
    ("count archive --per 1h --from 2023-11-15 --until 2023-11-14", "--until must be later"),
    ("search catalog --time 2023-11-15 --until 2023-11-14", "--until must be later than the"),
    ("search catalog --time 0 --until x", "--until: 'x' found, expected"),
    ("search catalog --time 0 --until now --index-only", "--until requires --time"),
    ("search catalog --time 0 --as kafka:2.8", "'2.8' is not a version of Kafka: expected 3.0"),
    ("lag catalog --offsets none.csv", "none.csv: cannot be read: No such file or direct"),
    ("lag catalog --offsets .", ": cannot be read: not a regular file"),
    ("lag catalog --offsets o.csv --policy bad.toml", "retention.ms"),
    ("lag catalog --offsets o.csv --snapshot 99", "99"),
    (
        "failover --from none --to catalog --offsets o.csv --buffer 3m",
        "--from does not exist",
    ),
    ("failover --from catalog --to none --offsets o.csv --buffer 3m", "--to does not exist"),
    ("failover --from catalog --to archive --offsets o.csv --buffer 3m", "/archive: "),
    ("records archive --format parquet", "--format parquet requires --output FILE"),
    ("records archive --output out.txt", "'out.txt' found, expected a name that ends in .json or"),
    ("records archive --output out.csv --format jsonl", "--format jsonl contradicts --output"),
    ("records archive --columns offset,time", "'time' found, expected some of log_dir, topic,"),
    ("records archive --from 9:05 --until 9:00", "--until must be later than --from"),
    ("records archive --partition 7", "no segments of partitions 7 found"),
    ("records archive --log-dir b3", "no segments of log_dir 'b3' found"),
    ("count archive --per 0", "'0' found, expected more than 0; for example 1h"),
    ("catalog diff catalog 1", "Missing argument 'B'. Try 'kip33 catalog diff --help'"),
    ("catalog prune catalog", "Missing option '--keep'"),
    ("catalog prune catalog --keep 0", "0 is not in the range 1<=x<="),
    ("catalog catalog --policy p.toml", "No such option '--policy'"),
    ("catalog orphans catalog --snapshot 1 --plan p.jsonl", "exclude --snapshot"),
    ("catalog orphans catalog --plan p.jsonl --apply p.jsonl", "cannot be combined"),
    ("catalog orphans catalog --remove stray-directories", "--remove requires --plan"),
    ("catalog orphans catalog --plan p.jsonl --dry-run", "--dry-run requires --apply"),
    ("catalog orphans catalog --plan plan.txt", "ends in .jsonl"),
    ("catalog orphans catalog --apply missing.jsonl", "the plan cannot be read"),
    ("build archive --index-dir i --metrics x.txt", "'x.txt' found, expected a name that ends in"),
    ("build archive --index-dir i --metrics-by topic", "--metrics-by requires --metrics"),
    ("build archive --index-dir i --metrics mine.prom", "a file that --metrics did not write"),
    ("build archive --index-dir i --summary archive/a.log", "a name that ends in .json"),
    ("build archive --index-dir i --layout tiered", "expected kafka, pinterest, aiven, local"),
    ("build archive --index-dir i --summary ftp://host/s.json", "unknown scheme ftp://"),
    ("report catalog --output r.html --forecast 400d", "--forecast: 400 days found, expected"),
    (
        "report catalog --output r.html --retention-ms 1d --policy policy.toml",
        "--retention-ms cannot be combined with --policy",
    ),
    ("roll archive --snapshot 1", "--snapshot requires a CATALOG"),
    ("roll archive --read-headers", "--read-headers requires a CATALOG"),
    ("roll archive --segment-ms 0", "'0' found, expected more than 0"),
    ("roll what-if archive --fail-on early", "No such option '--fail-on'"),
    ("timestamps archive --catalog-only", "--catalog-only requires a CATALOG"),
    ("timestamps archive --snapshot 1", "--snapshot"),
    ("dialects archive --time-index-interval 0", "expected more than 0"),
    ("truncate nowhere-0 --to 1", "expected a directory such as orders-0"),
    ("truncate s3a://bucket/t-0 --to 1", "expected a partition directory on this machine"),
    ("truncate archive/broker-1/orders-0 --to 1 --plan-id x", "--plan-id is for --apply"),
    ("repair s3a://bucket/logs", "s3a://bucket/logs: expected a broker's log directory on this"),
    ("restore archive --to data --truncate", "--truncate"),
    ("restore --to data", "Missing argument 'SOURCE'"),
    ("restore archive --to data --from 0 --from-offsets o.csv", "--from"),
    ("restore archive --to data --topic-ids ids --bootstrap-server h:1", "--topic-ids"),
    ("restore archive --to data --partitions 5-3", "'5-3' found, expected numbers such as 0,2-5"),
]
CONFIGURATION_FILES: dict[str, str] = {
    "[build\n": "Invalid value for '--config': kip33.toml: not v",
    "[build]\nfrobnicate = 1\n": "kip33.toml: [build] has no option 'frobnicate'",
    "frobnicate = 1\n": "kip33.toml: unknown option 'frobnicate'",
    '[biuld]\ndialect = "live"\n': "kip33.toml: unknown command 'biuld'; did you mean build?",
    "build = 3\n": "kip33.toml: unknown option 'build'",
    '[build]\nsource = "x"\n': "kip33.toml: [build] has no option 'source'",
    '[build]\ntopics = "orders"\n': (
        "kip33.toml: topics: expected a list [...] of texts or numbers"
    ),
    '[build]\ndialect = "dead"\n': "Invalid value for '--dialect': 'dead' is not one of",
}


@pytest.fixture
def beside(command: Command, built: Path) -> Command:
    """Return `kip33` beside ./archive, ./catalog and some files."""
    for name, data in SOME_FILE.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_bytes(data)
    Path("catalog").symlink_to(built / "indexes/_catalog")
    return command


def require_one_line(command: Command, line: str, says: str) -> None:
    """Run a command, and require that it prints one line and writes nothing."""
    before = {*Path().rglob("*"), *Path("catalog").rglob("*")}

    done = command(*shlex.split(line))

    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("Error: ") and done.stderr.count("\n") == 1
    assert says in done.stderr
    assert {*Path().rglob("*"), *Path("catalog").rglob("*")} == before


def test_wrong_usage_is_one_line_and_exit_2(beside: Command, subtests: pytest.Subtests) -> None:
    for line, says in WRONG:
        with subtests.test(line):
            require_one_line(beside, line, says)


def test_a_wrong_configuration_file_is_one_line(beside: Command, subtests: pytest.Subtests) -> None:
    for text, says in CONFIGURATION_FILES.items():
        with subtests.test(text):
            Path("kip33.toml").write_text(text)
            require_one_line(beside, f"{BUILD} --config kip33.toml", says)


def test_no_configuration_file_may_delete_or_say_what_to_delete(
    command: Command, built: Path, subtests: pytest.Subtests
) -> None:
    Path("catalog").symlink_to(built / "indexes/_catalog")
    before = {*Path("catalog").rglob("*")}
    for line, setting in (
        ("catalog prune catalog", "keep = 1"),
        ("catalog orphans catalog", 'plan = "x.jsonl"'),
        ("catalog orphans catalog", 'apply = "x.jsonl"'),
        ("catalog orphans catalog", 'remove = ["stray-directories"]'),
        ("retention catalog --retention-ms 1", 'plan = "x.jsonl"'),
    ):
        with subtests.test(f"{line}: {setting}"):
            Path("kip33.toml").write_text(
                f"[{line.split(' catalog')[0].replace(' ', '.')}]\n{setting}\n"
            )

            done = command(*line.split(), "--config", "kip33.toml")

            assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1)
            assert re.search("give (this option|it) on the command line", done.stderr)
            assert {*Path("catalog").rglob("*")} == before


def test_the_console_script_says_the_same(command: Command, tmp_path: Path) -> None:
    arguments = ("build", "nowhere", "--index-dir", "x")
    assert subprocess_of(KIP33, *arguments, cwd=tmp_path) == command(*arguments)


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


def test_a_source_that_cannot_be_listed(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kip33.stores.locations._filesystem", lambda _: Closed())
    for line in (BUILD, "verify archive"):
        done = command(*line.split())
        assert (done.exit_code, done.stdout) == (2, "")
        assert done.stderr.endswith("/archive: SOURCE cannot be listed: Permission denied\n")
