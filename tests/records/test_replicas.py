"""Which replica is read: the same one as in a search."""

from pathlib import Path
from typing import Any

import kip33
from tests.builders.log_file import write_log
from tests.builders.segment_builder import Record, v2_batch
from tests.cases import each_case
from tests.records.test_levels import build

T = 1_700_000_000_000


def batches(first: int, count: int) -> list[bytes]:
    return [v2_batch(at, [Record(T + at, value=b"x" * 50)]) for at in range(first, first + count)]


REPLICAS = {
    "more bytes": (batches(7, 5), batches(7, 6), "b2"),
    "the same bytes": (batches(7, 5), batches(7, 5), "b1"),
    "an invalid log": ([*batches(7, 9), *batches(3, 1)], batches(7, 2), "b2"),
}


@each_case(("first", "second", "chosen"), REPLICAS)
def test_the_same_replica_is_read_and_searched(
    first: Any, second: Any, chosen: str, tmp_path: Path
) -> None:
    for log_dir, log in (("b1", first), ("b2", second)):
        write_log(tmp_path / "archive" / log_dir / "orders-0", 7, *log)
    catalog = build(tmp_path / "archive", tmp_path)

    read = kip33.read_arrow(catalog, columns=["log_dir"], on_error="skip").read_all()
    [answer] = kip33.open_catalog(catalog).offsets_for_times([("orders", 0, T)]).to_pylist()

    assert {*read["log_dir"].to_pylist()} == {chosen}
    assert answer["log_dir"] == chosen
