"""What a terminal would act on, and keys in URIs: in names, but not in what is printed."""

import unicodedata
from pathlib import Path

import pytest

from kip33.catalog.catalog import Catalog
from tests.builders.log_file import write_log
from tests.builders.segment_builder import Record, v2_batch
from tests.builders.snapshots import row, write
from tests.cli.console import KIP33, Command, subprocess_of
from tests.faults.builds import build_here

KEYS = {
    "log_uri": "s3a://KEY:SE/CRET@bucket/orders-0/5.log",
    "index_uri": "s3a://KEY:SE/CRET@bucket/orders-0/5.timeindex",
}
CLEAR = "\x1b[2J\x9b"  # what a terminal would act on
IN_TABLES = {  # commands, before which an archive with such names is built
    "build": ("build", "SOURCE", "--index-dir", "other"),
    "verify": ("verify", "SOURCE", "--index-dir", "indexes"),
    "catalog": ("catalog", "CATALOG"),
    "holes": ("catalog", "CATALOG", "--holes"),
    "orphans": ("catalog", "CATALOG", "--orphans"),
    "search": ("search", "CATALOG", "--topic", "orders", "--time", "earliest", "--all-replicas"),
    "records": ("records", "SOURCE", "--columns", "log_dir,offset"),
    "count": ("count", "CATALOG"),
    "retention": ("retention", "CATALOG", "--retention-ms", "7d"),
    "roll": ("roll", "CATALOG"),
    "timestamps": ("timestamps", "SOURCE"),
    "report": ("report", "CATALOG", "--output", f"{CLEAR}.html"),
    "dump": ("dump", "LOG"),
    "an error": ("dump", f"{CLEAR}.log"),
    "a wrong option": ("catalog", "CATALOG", f"--{CLEAR}"),
}


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with an archive whose log directory has control characters in its name."""
    root = tmp_path_factory.mktemp("hostile")
    broker = root / f"archive/é{CLEAR}"
    for base, offset in ((0, 0), (10, 10)):
        write_log(broker / "orders-0", base, v2_batch(offset, [Record(1_000, None, b"v")]))
    (broker / f"orders-0/{CLEAR}.txt").touch()
    build_here(root / "archive", root / "indexes")
    return root


def words_of(hostile: Path, arguments: tuple[str, ...]) -> list[str]:
    [log, _] = sorted((hostile / "archive").glob("*/*/*.log"))
    given = {
        "SOURCE": hostile / "archive",
        "CATALOG": hostile / "indexes/_catalog",
        "LOG": log,
        "indexes": hostile / "indexes",
    }
    return [str(given.get(one, one)) for one in arguments]


def test_no_control_character_of_a_name_reaches_a_terminal(
    command: Command, hostile: Path, subtests: pytest.Subtests
) -> None:
    for name, arguments in IN_TABLES.items():
        with subtests.test(name):
            done = command(*words_of(hostile, arguments))

            printed = (done.stdout + done.stderr).replace("\n", "")
            assert printed
            assert "Traceback" not in printed
            assert [one for one in printed if unicodedata.category(one) == "Cc"] == []


def test_csv_and_json_have_the_names_as_they_are(command: Command, hostile: Path) -> None:
    for name in ("retention", "roll", "search"):
        text = command(*words_of(hostile, IN_TABLES[name]), "--format", "csv").stdout
        assert f"é{CLEAR}" in text
    words = words_of(hostile, IN_TABLES["search"])
    [row, *_] = command(*words, "--format", "jsonl").lines

    assert row["log_dir"] == f"é{CLEAR}"


def test_an_encoding_without_a_character_replaces_it(hostile: Path) -> None:
    table, csv = (
        subprocess_of(KIP33, *words_of(hostile, words), cwd=hostile, PYTHONIOENCODING="ascii")
        for words in (IN_TABLES["retention"], (*IN_TABLES["search"], "--format", "csv"))
    )

    assert (table.exit_code, table.stdout.isascii(), "Traceback" in table.stderr) == (
        0,
        True,
        False,
    )
    assert (csv.exit_code, r"\xe9" in csv.stdout) == (0, True)


IN_ROWS = {
    "catalog": ("catalog", "CATALOG"),
    "holes": ("catalog", "CATALOG", "--holes", "--format", "json"),
    "difference": ("catalog", "CATALOG", "--diff", "1", "2", "--format", "jsonl"),
    "retention": ("retention", "CATALOG", "--retention-ms", "7d", "--format", "json"),
    "search": ("search", "CATALOG", "--topic", "orders", "--time", "0", "--format", "json"),
    "records": ("records", "CATALOG"),
    "records as JSON": ("records", "CATALOG", "--format", "jsonl"),
    "count": ("count", "CATALOG"),
    "report": ("report", "CATALOG", "--output", "page.html", "--format", "json"),
    "roll": ("roll", "CATALOG", "--format", "json"),
    "timestamps": ("timestamps", "CATALOG", "--format", "json"),
}


def test_a_key_in_a_row_of_a_catalog_is_not_printed(
    command: Command, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    for name, arguments in IN_ROWS.items():
        with subtests.test(name):
            catalog = Catalog.at(str(tmp_path / "catalog"))
            for size in (10, 11):
                rows = [row(0, size_bytes=size, base_offset=5, last_offset=5, **KEYS)]
                write(catalog, rows)

            done = command(
                *(str(tmp_path / "catalog") if one == "CATALOG" else one for one in arguments)
            )

            assert "SE/CRET" not in done.stdout + done.stderr
            assert "KEY:" not in done.stdout + done.stderr
            if arguments[0] == "report":
                assert "SE/CRET" not in (tmp_path / "page.html").read_text()
