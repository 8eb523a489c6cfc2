"""What a machine of a cluster must see before its task begins: `archive.bins.require_seen`."""

import socket
from pathlib import Path

import pyarrow as pa
import pytest

from kip33.archive.bins import Work, first_seen, require_seen
from kip33.errors import NotSeenError
from kip33.stores.locations import Location
from kip33.stores.progress import Phase
from tests.cases import each_case


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Return a source with two disks and a partition on each."""
    for name in ("disk-1/orders-0", "disk-2/orders-1"):
        (tmp_path / "source" / name).mkdir(parents=True)
    return tmp_path / "source"


def logs(*paths: str) -> pa.Table:
    return pa.table({"path": pa.array(paths, pa.string())})


def unseen(work: Work, files: pa.Table) -> str:
    """Return the error's text, empty if the machine sees all."""
    try:
        require_seen(work, files)
    except NotSeenError as error:
        return str(error)
    return ""


@each_case(
    ("paths", "missing"),
    {
        "all": (["disk-1/orders-0/1.log", "disk-2/orders-1/1.log"], ""),
        "a log that was deleted since": (["disk-1/orders-0/gone.log"], ""),
        "a partition deleted since": (["disk-1/orders-0/1.log", "disk-1/gone-0/1.log"], ""),
        "a disk that is not mounted": (
            ["disk-1/orders-0/1.log", "disk-3/orders-2/1.log"],
            "disk-3/orders-2",
        ),
        "no logs": ([], ""),
    },
)
def test_a_machine_sees_a_directory_of_each_log_directory(
    source: Path, paths: list[str], missing: str
) -> None:
    said = unseen(Work(Phase.READING_LOGS, source=Location.of(source)), logs(*paths))
    assert (f"does not see {source}/{missing}," in said) if missing else not said
    assert not said or f"machine {socket.gethostname()} " in said


def test_rows_with_a_uri_need_no_source(source: Path) -> None:
    files = pa.table({"log_uri": [f"file://{source}/disk-9/orders-0/1.log", None]})
    assert "disk-9/orders-0" in unseen(Work(Phase.READING_LOGS), files)


def test_places_in_a_store_are_the_same_on_all_machines() -> None:
    work = Work(Phase.READING_LOGS, marks=(Location.of("s3://bucket/none"),))
    files = pa.table({"log_uri": ["s3://bucket/a/1.log"]})
    assert unseen(work, files) == ""


def test_a_machine_sees_all_marks(source: Path) -> None:
    mark = source / "mark"
    work = Work(Phase.READING_LOGS, marks=(Location.of(mark),))
    assert f"does not see {mark}," in unseen(work, logs())
    mark.touch()
    assert unseen(work, logs()) == ""


def test_the_first_file_that_the_driver_sees_is_a_mark(tmp_path: Path) -> None:
    (tmp_path / "b").touch()
    uris = [None, "s3://bucket/a", f"file://{tmp_path}/a", f"file://{tmp_path}/b"]
    assert [mark.name for mark in first_seen(uris)] == ["b"]
    assert first_seen(uris[:3]) == ()
