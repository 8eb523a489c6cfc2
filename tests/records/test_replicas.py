"""Which replica is read: the same one as in a search."""

from pathlib import Path

import pytest

import kip33
from tests.builders.log_file import write_log
from tests.builders.segment_builder import Record, v2_batch
from tests.records.test_levels import build

T = 1_700_000_000_000


def batches(first: int, count: int) -> list[bytes]:
    return [v2_batch(at, [Record(T + at, value=b"x" * 50)]) for at in range(first, first + count)]


REPLICAS = [
    ("more bytes", batches(7, 5), batches(7, 6), "b2"),
    ("the same bytes", batches(7, 5), batches(7, 5), "b1"),
    ("an invalid log", [*batches(7, 9), *batches(3, 1)], batches(7, 2), "b2"),
]


def test_the_same_replica_is_read_and_searched(tmp_path: Path, subtests: pytest.Subtests) -> None:
    for number, (name, first, second, chosen) in enumerate(REPLICAS):
        with subtests.test(name):
            folder = tmp_path / str(number)
            folder.mkdir()
            for log_dir, log in (("b1", first), ("b2", second)):
                write_log(folder / "archive" / log_dir / "orders-0", 7, *log)
            catalog = build(folder / "archive", folder)

            read = kip33.read_arrow(catalog, columns=["log_dir"], on_error="skip").read_all()
            [answer] = kip33.open_catalog(catalog).offsets_for_times([("orders", 0, T)]).to_pylist()

            assert {*read["log_dir"].to_pylist()} == {chosen}
            assert answer["log_dir"] == chosen
