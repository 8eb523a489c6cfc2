"""Every number and time that a command or a function takes.

A number beyond its type is refused where it is given, in one line that names it. The tables are
made of the options and the declarations, so a new option is in them. A function takes the words for
times that a command takes, and refuses swapped limits as it does.
"""

import importlib
import pkgutil
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, get_args, get_origin, is_typeddict

import click
import numpy as np
import pyarrow as pa
import pytest

import kip33
from kip33.cli.times import Quantity
from kip33.options import Declared, declared, with_defaults
from kip33.records.reading import Reading
from kip33.records.record_request import Comparison, FilterBounds
from tests.cli.command_lines import commands_and_modes

TOO_LARGE, TOO_SMALL = 2**63, -2
WRONG_TEXTS = (str(TOO_LARGE), str(-(2**70)), "1.5", "many", "1e3", "")
WRONG_VALUES = (TOO_LARGE, TOO_SMALL, 10**30, 1.5, float("nan"), True, b"1", object())


def number_options() -> Iterator[tuple[str, click.Context, click.Option]]:
    """Yield the options of all commands whose value is a number, with or without a unit."""
    for name, command in commands_and_modes():
        context = click.Context(command, info_name=name)
        for one in command.params:
            kind = one.type
            is_quantity = isinstance(kind, Quantity) and not kind.name.startswith("moment")
            is_number = is_quantity or isinstance(kind, click.IntRange)
            if isinstance(one, click.Option) and is_number:
                yield f"{name} {one.opts[0]}", context, one


def test_a_command_refuses_each_wrong_number(subtests: pytest.Subtests) -> None:
    options = [*number_options()]
    assert len(options) > 60
    for name, context, option in options:
        for text in WRONG_TEXTS:
            with subtests.test(f"{name} {text!r}"), pytest.raises(click.BadParameter) as refused:
                option.process_value(context, (text,) if option.multiple else text)
            assert name.split()[-1] in refused.value.format_message()


def of_lists(kind: Any) -> bool:
    return isinstance(origin := get_origin(kind), type) and issubclass(Sequence, origin)


def declared_numbers() -> dict[str, tuple[Any, Declared]]:
    """Return each declared option that takes a number, or a list of them, with its typed dict."""
    found = {}
    for module in pkgutil.walk_packages(kip33.__path__, "kip33."):
        if "airflow" in module.name or module.name.endswith("__main__"):
            continue
        for kind in vars(importlib.import_module(module.name)).values():
            for one in declared(kind) if is_typeddict(kind) else ():
                kinds = get_args(one.type) or (one.type,)
                if int in kinds or any(get_args(k) == (int,) for k in (one.type, *kinds)):
                    found[f"{one.name}: {one.type}"] = (kind, one)
    return found


@pytest.mark.spark  # its options are imported
def test_a_function_refuses_each_wrong_number(subtests: pytest.Subtests) -> None:
    options = declared_numbers()
    assert len(options) > 25
    for name, (kind, one) in options.items():
        for value in WRONG_VALUES:
            is_list = int not in (get_args(one.type) or (one.type,))
            given = [value] if is_list else value
            with subtests.test(f"{name} {value!r}"), pytest.raises(ValueError) as refused:
                with_defaults(kind, {one.name: given})
            assert str(refused.value).startswith((one.name, "partition "))
            assert "expected" in str(refused.value)


def catalog() -> Any:
    return kip33.open_catalog("indexes/_catalog")


LOG = "archive/broker-1/orders-0/00000000000000000000.log"
ARGUMENTS: dict[str, Callable[[Any], object]] = {
    "start": lambda n: kip33.read_records(LOG, n),
    "end": lambda n: kip33.read_records(LOG, 0, n),
    "max_batch_bytes": lambda n: kip33.read_records(LOG, max_batch_bytes=n),
    "max_batch_bytes of find_offset": lambda n: kip33.find_offset(LOG, "now", max_batch_bytes=n),
    "base_offset": lambda n: kip33.build_time_index(LOG, n),
    "index_interval_bytes": lambda n: kip33.build_time_index(LOG, index_interval_bytes=n),
    "segment_index_bytes": lambda n: kip33.verify_segment(LOG, segment_index_bytes=n),
    "per": lambda n: kip33.count_records("archive", n),
    "keep": lambda n: catalog().prune(keep=n),
    "partition of requests": lambda n: catalog().offsets_for_times([("orders", n, "now")]),
    "partition of offsets": lambda n: catalog().group_lags([("g", "orders", n, 1)]),
    "offset": lambda n: catalog().group_lags([("g", "orders", 0, n)]),
    "buffer_ms": lambda n: catalog().resume_points("indexes/_catalog", [], buffer_ms=n),
}


@pytest.fixture
def folder(tmp_path: Path, built: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("archive", "indexes"):
        (tmp_path / name).symlink_to(built / name)
    (tmp_path / "data").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("folder")
def test_an_argument_refuses_each_wrong_number(subtests: pytest.Subtests) -> None:
    for name, call in ARGUMENTS.items():
        for value in WRONG_VALUES:
            with subtests.test(f"{name} {value!r}"), pytest.raises(ValueError) as refused:
                call(value)
            assert str(refused.value).startswith(name.split()[0])
            assert "expected" in str(refused.value)


@pytest.mark.usefixtures("folder")
def test_a_version_of_kafka_is_no_float() -> None:
    with pytest.raises(ValueError, match=r"as_kafka 4\.2: expected True or False or a text"):
        catalog().offsets_for_times([], as_kafka=4.2)


def test_a_filter_beyond_int64_is_cut_to_it() -> None:
    for column in ("offset", "timestamp"):
        for comparison in Comparison:
            for value in (2**63 - 1, 2**63, 10**30, -(2**63), -(10**30)):
                values: Any = [value] if comparison == Comparison.IN else value
                bounds = FilterBounds().where(column, comparison, values)
                assert all(-(2**63) <= limit < 2**63 for limit in bounds.limits[:4])


DAY = date(2023, 11, 14)
TIMES: dict[str, Any] = {
    "ISO 8601": "2023-11-14T12:00Z",
    "relative": "now-3h",
    "relative, as for search": "-3h",
    "a time of today": "0:01",
    "milliseconds": 1_700_000_000_000,
    "a datetime": datetime(2023, 11, 14, tzinfo=UTC),
    "a date": DAY,
    "a timestamp of pyarrow": pa.scalar(datetime(2023, 11, 14)),
    "a date of pyarrow": pa.scalar(DAY),
    "NumPy": np.datetime64("2023-11-14"),
}
NO_TIMES: dict[str, Any] = {
    **{"before 1970": -6, "beyond int64": 2**63, "a flag": True, "a word": "noon"},
    **{"a fraction": 1.5, "none of pyarrow": pa.scalar(None, pa.date32()), "a list": [DAY]},
}
WEEK = {"defaults": {"retention.ms": "7d"}}
AT_A_TIME: dict[str, Callable[[Any], object]] = {
    "find_offset": lambda t: kip33.find_offset(LOG, t),
    "offsets_for_times": lambda t: catalog().offsets_for_times([("orders", 0, t)]),
    "until": lambda t: catalog().offsets_for_times([("orders", 0, "earliest")], until=t),
    "read_arrow from": lambda t: kip33.read_arrow("archive", start_time=t),
    "scan_polars until": lambda t: kip33.scan_polars("archive", end_time=t),
    "count": lambda t: kip33.count_records("archive", "365d", topic="payments", start_time=t),
    "Spark's source": lambda t: Reading.of(end_time=t),
    "retention": lambda t: catalog().retention(WEEK, now=t),
    "at": lambda t: catalog().retention_sums(WEEK, at=[t]),
    "lag": lambda t: catalog().group_lags([("g", "orders", 0, 1)], now=t),
    "restore": lambda t: kip33.restore_archive("archive", "data", from_=t, dry_run=True),
    "verify": lambda t: kip33.verify_index("archive", share="1/7", as_of=t),
    "a profile": lambda t: kip33.timestamp_profile("indexes/_catalog", topics=["metrics"], now=t),
    "status": lambda t: kip33.archive_status("indexes/_catalog", now=t),
}


@pytest.mark.usefixtures("folder")
@pytest.mark.filterwarnings("ignore::UserWarning")  # of damage in the archive
def test_each_function_takes_the_times_of_a_command(subtests: pytest.Subtests) -> None:
    for name, call in AT_A_TIME.items():
        for kind, time in TIMES.items():
            with subtests.test(f"{name}: {kind}"):
                call(time)
        for kind, time in NO_TIMES.items():
            with subtests.test(f"{name}: {kind}"), pytest.raises(ValueError, match="expected"):
                call(time)


B, A = "2023-11-15", "2023-11-14"
SWAPPED: dict[str, Callable[[], object]] = {
    "end_time of read_arrow": lambda: kip33.read_arrow("archive", start_time=B, end_time=A),
    "end_time of scan_polars": lambda: kip33.scan_polars("archive", start_time=B, end_time=A),
    "end_time of count": lambda: kip33.count_records("archive", "5m", start_time=B, end_time=A),
    "end_time of a file": lambda: kip33.write_record_file(
        "archive", "x.csv", start_time=B, end_time=A
    ),
    "end_time of nothing between": lambda: kip33.read_arrow("archive", start_time=A, end_time=A),
    "end_offset": lambda: kip33.read_arrow("archive", start_offset=5, end_offset=4),
    "until of restore": lambda: kip33.restore_archive("archive", "data", from_=B, until=A),
    "until of a search": lambda: catalog().offsets_for_times([("orders", 0, B)], until=A),
}


@pytest.mark.usefixtures("folder")
def test_swapped_limits_are_refused(subtests: pytest.Subtests) -> None:
    for name, call in SWAPPED.items():
        with subtests.test(name), pytest.raises(ValueError, match=f"^{name.split()[0]} "):
            call()
