"""Every user of an archive reads the same log: that of the rule."""

import warnings
from pathlib import Path
from typing import Any

import pytest

import kip33
from tests.builders.small_kafka import Made, records_of, worlds
from tests.builders.written_worlds import T, catalogs, expected, written
from tests.long_forms import seeds, short_and_long

Records = list[tuple[int, int]]  # offset, number


def read(source: Any, **options: Any) -> Records:
    rows = kip33.read_arrow(source, columns=["offset", "timestamp"], on_error="skip", **options)
    table = rows.read_all()
    times = table["timestamp"].cast("int64").to_pylist()
    return [(offset, time - T) for offset, time in zip(table["offset"].to_pylist(), times)]


@pytest.mark.parametrize("many", short_and_long(6, 300, "KIP33_WORLDS"))
def test_all_users_read_the_log_of_the_rule(many: int, tmp_path: Path) -> None:
    for made in worlds(seeds(many), hide=0):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ask_all_users(made, tmp_path / str(made.seed))


def ask_all_users(made: Made, place: Path) -> None:
    log = expected(made)
    given = [*records_of(made.archive, log)]
    records = [(record.offset, record.uid) for record, _ in given]
    places = written(made, place)
    built = catalogs(places)
    catalog = built[0] if len(built) == 1 else kip33.open_catalog(*built)
    assert read(catalog) == records, made.seed
    if len(places) == 1:
        assert read(places[0]) == records, made.seed
