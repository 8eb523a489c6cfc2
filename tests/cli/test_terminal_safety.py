"""What a terminal would act on, and keys in URIs: in names, but not in what is printed."""

import unicodedata
from pathlib import Path

import pytest

from kip33.catalog.catalog import Catalog
from tests.builders.log_file import write_log
from tests.builders.segment_builder import Record, v2_batch
from tests.builders.snapshots import row, write
from tests.cli.command_lines import CATALOG, OF_CATALOGS, write_offsets
from tests.cli.console import KIP33, Command, subprocess_of
from tests.faults.builds import build_here

KEYS = {
    "log_uri": "s3a://KEY:SE/CRET@bucket/orders-0/5.log",
    "index_uri": "s3a://KEY:SE/CRET@bucket/orders-0/5.timeindex",
}
CLEAR = "\x1b[2J\x9b"  # what a terminal would act on
IN_TABLES = (  # before which an archive with such names is built
    *OF_CATALOGS.values(),
    *(f"catalog {CATALOG} --{kind}" for kind in ("holes", "orphans", CLEAR)),
    *("build archive --index-dir other", "verify archive --index-dir indexes"),
    *("records archive --columns log_dir,offset", "timestamps archive", "dump LOG"),
    *(f"report {CATALOG} --output {CLEAR}.html", f"dump {CLEAR}.log"),
)
REPLICAS = f"search {CATALOG} --topic orders --time earliest --all-replicas"


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


@pytest.fixture
def here(command: Command, hostile: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Return a function that runs a line beside the archive."""
    monkeypatch.chdir(hostile)
    [log, _] = sorted(Path("archive").glob("*/*/*.log"))
    return lambda line: command(*(str(log) if word == "LOG" else word for word in line.split(" ")))


def test_no_control_character_of_a_name_reaches_a_terminal(
    here: Command, subtests: pytest.Subtests
) -> None:
    write_offsets()
    for line in IN_TABLES:
        with subtests.test(line):
            done = here(line)

            printed = (done.stdout + done.stderr).replace("\n", "")
            assert printed
            assert "Traceback" not in printed
            assert [one for one in printed if unicodedata.category(one) == "Cc"] == []


def test_csv_and_json_have_the_names_as_they_are(here: Command) -> None:
    for line in (OF_CATALOGS["retention"], OF_CATALOGS["roll"], REPLICAS):
        assert f"é{CLEAR}" in here(f"{line} --format csv").stdout
    [row, *_] = here(f"{REPLICAS} --format jsonl").lines
    assert row["log_dir"] == f"é{CLEAR}"


def test_an_encoding_without_a_character_changes_tables_only(
    hostile: Path,
) -> None:
    table, csv = (
        subprocess_of(KIP33, *line.split(), cwd=hostile, PYTHONIOENCODING="ascii")
        for line in (OF_CATALOGS["retention"], f"{REPLICAS} --format csv")
    )

    assert (table.exit_code, table.stdout.isascii()) == (0, True)
    assert "Traceback" not in table.stderr
    assert (csv.exit_code, f"é{CLEAR}" in csv.stdout) == (0, True)


IN_ROWS = (
    *("catalog CATALOG", "catalog holes CATALOG --format json", "records CATALOG"),
    *("catalog diff CATALOG 1 2 --format jsonl", "records CATALOG --format jsonl"),
    *("retention CATALOG --retention-ms 7d --format json", "count CATALOG"),
    *("search CATALOG --topic orders --time 0 --format json", "roll CATALOG --format json"),
    *("report CATALOG --output page.html --format json", "timestamps CATALOG --format json"),
)


def test_a_key_in_a_row_of_a_catalog_is_not_printed(
    command: Command, subtests: pytest.Subtests
) -> None:
    for size in (10, 11):
        rows = [row(0, size_bytes=size, base_offset=5, last_offset=5, **KEYS)]
        write(Catalog.at("made"), rows)
    for line in IN_ROWS:
        with subtests.test(line):
            done = command(*line.replace("CATALOG", "made").split())

            assert "SE/CRET" not in done.stdout + done.stderr
            assert "KEY:" not in done.stdout + done.stderr
    assert "SE/CRET" not in Path("page.html").read_text()
