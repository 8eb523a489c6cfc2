"""`kip33 records --decode`: values by their schemas in four formats, and what cannot be decoded."""

import csv
import io
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.builders.schema_values import (
    NEW,
    OLD,
    V1,
    V2,
    framed,
    put_log,
    registered,
)
from tests.cli.console import Command, result_in, subprocess_of
from tests.cli.test_records_command import rows_of

JSON_VALUE = framed(3, '{"id": 0.10000000000000000001,\n "note": "a\u2028b"}'.encode())
TRUNCATED, PLAIN = framed(2, b"\x02"), b"plain text"
COLUMNS = ["--columns", "offset,value"]
REASONS = [
    "1 bytes found, the Avro value is longer",
    "magic byte 112 found, expected 0 (Confluent's wire format)",
]


@pytest.fixture
def shop(command: Command) -> Path:
    """Return an archive with values of three schemas, a null, and two that cannot be decoded."""
    put_log(
        *(Path("shop"), "_schemas-0", registered("orders-value", 1, 1, V1)),
        registered("orders-value", 2, 2, V2),
        registered("notes-value", 1, 3, {"type": "object"}, schemaType="JSON"),
    )
    values = (OLD, NEW, None, TRUNCATED, PLAIN)
    put_log(Path("shop"), "orders-0", *((b"k", value) for value in values))
    put_log(Path("shop"), "notes-0", (b"k", JSON_VALUE))
    return Path("shop")


def test_json_lines_have_json_and_not_text(command: Command, shop: Path) -> None:
    done = command(
        *("records", shop, "--topic", "orders", "--decode", *COLUMNS, "--format", "jsonl"),
        "--result-line",
    )

    assert rows_of(done) == [
        {"offset": 0, "value": {"id": 5}, "schema_id": 1, "decode_error": None},
        {
            **{"offset": 1, "value": {"id": 6, "state": "paid"}},
            **{"schema_id": 2, "decode_error": None},
        },
        {"offset": 2, "value": None, "schema_id": None, "decode_error": None},
        {"offset": 3, "value": "\0\0\0\0\x02\x02", "schema_id": 2, "decode_error": REASONS[0]},
        {"offset": 4, "value": "plain text", "schema_id": None, "decode_error": REASONS[1]},
    ]
    result = result_in(done)
    assert (result["records"], result["undecoded"]) == (5, 2)


def test_a_json_value_is_one_line_and_keeps_its_digits(command: Command, shop: Path) -> None:
    done = command(
        *("records", shop, "--topic", "notes", "--decode", *COLUMNS, "--format", "jsonl")
    )

    assert done.stdout.splitlines() == [
        '{"offset": 0, "value": {"id": 0.10000000000000000001,  "note": "a\\u2028b"}, '
        '"schema_id": 3, "decode_error": null}'
    ]


def test_csv_and_a_table_have_json_text(command: Command, shop: Path) -> None:
    arguments = ["records", shop, "--topic", "orders", "--decode", *COLUMNS]

    header, *rows = csv.reader(io.StringIO(command(*arguments, "--format", "csv").stdout))
    table = command(*arguments)

    assert header == ["offset", "value", "value_base64", "schema_id", "decode_error"]
    assert rows[1] == ["1", '{"id":6,"state":"paid"}', "", "2", ""]
    assert rows[3:] == [
        ["3", "\0\0\0\0\x02\x02", "", "2", REASONS[0]],
        ["4", "plain text", "", "", REASONS[1]],
    ]
    cells = [[one.strip() for one in line.split("│")[1:-1]] for line in table.stdout.splitlines()]
    assert cells[4] == ["1", '{"id":6,"state":"paid"}', "2", ""]
    assert cells[7] == ["4", "plain text", "", REASONS[1]]
    assert "; 2 values cannot be decoded; read in " in table.stdout.splitlines()[-1]


def test_parquet_has_columns_and_keeps_the_bytes_that_are_not_decoded(
    command: Command, shop: Path
) -> None:
    written = ("--decode", "--output", "orders.parquet", "--result-line")
    done = command("records", shop, "--topic", "orders", *written)

    assert (done.exit_code, done.stderr.count("\n")) == (0, 1)
    table = pq.read_table("orders.parquet")
    assert table.schema.field("value").type == pa.struct({"id": pa.int64(), "state": pa.string()})
    assert table["value"].to_pylist() == [
        *({"id": 5, "state": "new"}, {"id": 6, "state": "paid"}, None, None, None)
    ]
    assert table["value_bytes"].to_pylist() == [None, None, None, TRUNCATED, PLAIN]
    assert table["decode_error"].to_pylist() == [None, None, None, *REASONS]
    assert table.schema.names[-6:] == [
        *("key", "value", "schema_id", "decode_error", "value_bytes", "headers")
    ]
    assert result_in(done)["undecoded"] == 2


WRONG = {
    "shop --schemas shop": "--schemas requires --decode",
    "shop --decode --columns offset,key": "--decode requires the column value in --columns",
    "archive --decode": "archive: no segments of topics _schemas found",
    f"shop/orders-0/{0:020d}.log --decode": "has no topic _schemas; give --schemas an archive, a",
    "shop/orders-0 --decode": "shop/orders-0: has no topic _schemas; ",
    "shop --decode --schemas nowhere": "/nowhere",
    "shop --decode --schemas http://me:secret@localhost:1": "http://localhost:1/schemas/ids/",
    "nothing --decode": "/nothing",
}


@pytest.mark.usefixtures("shop")
def test_a_wrong_option_is_one_line(command: Command, subtests: pytest.Subtests) -> None:
    for line, message in WRONG.items():
        with subtests.test(line):
            done = command("records", *line.split(), "--output", "out.jsonl")

            assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1)
            assert message in done.stderr
            assert "secret" not in done.stderr
            assert not Path("out.jsonl").exists()


@pytest.mark.slow
def test_a_missing_extra_is_one_line(shop: Path, tmp_path: Path) -> None:
    code = "import sys\nsys.modules['fastavro'] = None\nfrom kip33.cli.main import main\nmain()\n"
    done = subprocess_of(
        *(sys.executable, "-c", code, "records", shop, "--topic", "orders", "--decode"),
        *("--output", "out.jsonl"),
        cwd=tmp_path,
    )

    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == (
        "Error: decode: the Python package of fastavro is not installed; install it with: pip "
        "install 'kip33[schemas]'\n"
    )
    assert not (tmp_path / "out.jsonl").exists()
