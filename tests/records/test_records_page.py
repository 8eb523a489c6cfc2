"""The example of records/README.md runs as it stands, in a folder with an archive."""

import re
from pathlib import Path
from typing import Any

import pytest

import kip33
from tests.builders.schema_values import avro, framed, put_log, registered
from tests.records.test_schemas import V2

PAGE = (Path(kip33.__file__).parent / "records" / "README.md").read_text()


def test_the_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_log(tmp_path / "archive", "_schemas-0", registered("orders-value", 1, 1, V2))
    values = [framed(1, avro(V2, {"id": i, "state": state})) for i, state in enumerate("ab")]
    paid = framed(1, avro(V2, {"id": 7, "state": "paid"}))
    put_log(
        *(tmp_path / "archive", "orders-0"),
        *((b"k", value) for value in (*values, None, paid, b"text")),
    )
    monkeypatch.chdir(tmp_path)
    (example,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    names: dict[str, Any] = {}
    exec(example, names)
    assert names["paid"] == [{"id": 7, "state": "paid"}]
    assert names["wrong"].column("offset").to_pylist() == [4]
