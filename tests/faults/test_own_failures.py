"""A failure of kip33 or of its machine is no fault of a log: no row, no snapshot, one line."""

import errno
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kip33.archive.layouts import KAFKA
from kip33.archive.leftover_files import list_leftovers
from kip33.archive.listing import list_tree
from kip33.archive.log_directory import found_on_start
from kip33.archive.log_slice import LogSlice
from kip33.archive.log_start_offsets import log_start_offsets
from kip33.archive.log_window import Meter
from kip33.archive.output_files import require_summary_place
from kip33.audits.audited_logs import AuditedLog
from kip33.audits.roll_logs import read_first_batch
from kip33.catalog.catalog import Catalog
from kip33.drafts.comparison import DialectQuestion, compare_segment
from kip33.errors import FileReadError
from kip33.indexing.partition_state import PartitionState
from kip33.indexing.segment import index_file
from kip33.indexing.verification import verify_file
from kip33.records.partitions import ReadSegment
from kip33.records.segment_rows import scanned_figures
from kip33.restore.truncate_apply import JOURNAL, read_journal
from kip33.retention.broker_files import seen_by_broker
from kip33.retention.plan import read_plan
from kip33.retention.policy_files import load_policies
from kip33.rules.index_builder import IndexSettings
from kip33.search.answers import load_time_requests
from kip33.search.offset_lookup import record_from
from kip33.search.searched_segment import SearchedSegment
from kip33.stores.files import opened, read_whole, scanned
from kip33.stores.locations import Location
from tests.builders.log_file import write_log
from tests.builders.segment_builder import Record, v2_batch
from tests.cli.console import KIP33, Finished, subprocess_of
from tests.long_forms import one_in

SEGMENT: dict[str, Any] = {"base_offset": 0, "topic": "orders", "native": False}
SETTINGS = IndexSettings()


@pytest.fixture
def log(tmp_path: Path) -> Location:
    batches = (v2_batch(number, [Record(1000 + number, b"value")]) for number in range(3))
    return Location.of(write_log(tmp_path / "logs/orders-0", 0, *batches))


@contextmanager
def no_more_files() -> Iterator[None]:
    """Allow this process no more open files than it has."""
    free = os.open("/", os.O_RDONLY)
    os.close(free)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def first_batch_of(log: Location) -> object:
    return read_first_batch(AuditedLog(0, "", "orders", 0, 0, log.uri, None, None))


def compared(log: Location) -> object:
    random = np.random.default_rng(0)
    return compare_segment(
        DialectQuestion(), log, largest_before=-1, random=random, base_offset=0, topic="orders"
    )


READERS: dict[str, Callable[[Location], object]] = {
    "index": lambda log: index_file(log, settings=SETTINGS, **SEGMENT),
    "verify": lambda log: verify_file(
        log, log._replace(path=log.path + ".timeindex"), None, settings=SETTINGS, **SEGMENT
    ),
    "figures of records": lambda log: scanned_figures(
        ReadSegment(LogSlice(log), None, "orders", 0, 0)
    ),
    "first batch": first_batch_of,
    "dialects": compared,
    "search": lambda log: record_from([SearchedSegment(log.uri, 0)], 1, Meter()),
    "snapshot": lambda log: PartitionState.beside(log, 0),
    "a broker's view": lambda log: list(seen_by_broker([(log.uri, 1002)])),
    "leftovers": lambda log: list_leftovers(log.parent, KAFKA),
    "listing": lambda log: list_tree(log.parent.parent),
}


def test_a_file_that_cannot_be_opened_for_lack_of_descriptors_ends_the_work(
    log: Location, subtests: pytest.Subtests
) -> None:
    Path(log.path).with_suffix(".snapshot").write_bytes(b"")
    for name, reader in READERS.items():
        reader(log)  # nothing is imported for the first time below
        with subtests.test(name):
            with no_more_files(), pytest.raises(OSError) as found:
                reader(log)
            assert found.value.errno == errno.EMFILE
            assert not isinstance(found.value, FileReadError)


SMALL_FILES: dict[str, tuple[str, Callable[[Path], object]]] = {
    "a checkpoint": (
        "log-start-offset-checkpoint",
        lambda file: log_start_offsets(Location.of(file.parent), [""]),
    ),
    "start offsets": (
        "starts.csv",
        lambda file: log_start_offsets(Location.of(file.parent), [], str(file)),
    ),
    "a broker's checkpoint": (
        "replication-offset-checkpoint",
        lambda file: [*found_on_start(Location.of(file.parent))],
    ),
    "a journal": (JOURNAL, lambda file: read_journal(Location.of(file.parent))),
    "a plan": ("plan.jsonl", lambda file: read_plan(Location.of(file))),
    "a policy": ("policy.toml", lambda file: load_policies(file)),
    "requests": ("requests.csv", lambda file: load_time_requests(str(file))),
    "a summary": ("summary.json", lambda file: require_summary_place(Location.of(file))),
    "a commit file": (
        f"commits/{1:020d}.json",
        lambda file: Catalog.at(str(file.parents[1])).newest(),
    ),
}


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EIO])
def test_a_fault_of_the_machine_at_a_small_file_says_nothing_about_the_file(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    """No advice to remove or to replace it; a commit file with EIO is one that is unreadable."""
    open_file = os.open

    def fail(path: Any, *how: Any) -> int:
        if os.fspath(path).endswith(failing):
            raise OSError(number, os.strerror(number), path)
        return open_file(path, *how)

    monkeypatch.setattr(os, "open", fail)
    for what, (name, read) in SMALL_FILES.items():
        if what == "a commit file" and number == errno.EIO:
            continue
        file = tmp_path / what / "orders-0" / name
        file.parent.mkdir(parents=True)
        file.write_bytes(b"{}")
        failing = name
        with subtests.test(what):
            with pytest.raises(OSError) as found:
                read(file)
            assert found.value.errno == number


def test_a_fault_of_a_file_keeps_its_kind_and_number(
    tmp_path: Path, subtests: pytest.Subtests
) -> None:
    (tmp_path / "directory").mkdir()
    os.mkfifo(tmp_path / "fifo")
    readers: tuple[Callable[[Location], AbstractContextManager[object]], ...] = (
        opened,
        scanned,
        lambda place: nullcontext(read_whole(place, most_bytes=100)),
    )
    for name, kind, number in (
        ("absent", FileNotFoundError, errno.ENOENT),
        ("directory", IsADirectoryError, errno.EISDIR),
        ("fifo", OSError, errno.EINVAL),
    ):
        for read in readers:
            with subtests.test(name):
                with pytest.raises(FileReadError) as found, read(Location.of(tmp_path / name)):
                    pass
                assert isinstance(found.value, kind)
                assert found.value.errno == number


def assert_one_line(done: Finished, folder: Path, says: str) -> None:
    assert done.exit_code == 1, done
    (line,) = done.stderr.splitlines()
    assert line.startswith("Error: ")
    assert says in line
    assert list(folder.rglob("_catalog/snapshots/*")) == []


BUILD = ("build", "logs", "--index-dir", "indexes")


@pytest.fixture
def broken(tmp_path: Path) -> Callable[[str], str]:
    """Return what makes a library one that cannot be loaded: a folder for PYTHONPATH."""

    def make(name: str) -> str:
        library = tmp_path / f"libraries/{name}/__init__.py"
        library.parent.mkdir(parents=True)
        library.write_text(f"raise OSError('{name}.so: file too short')")
        return str(library.parents[1])

    return make


@pytest.mark.slow
@pytest.mark.parametrize(
    ("library", "command"),
    [("zstandard", ("records", "--topic", "orders")), ("pyarrow", ("verify",))],
)
def test_a_library_that_cannot_be_loaded_ends_the_command(
    library: str, command: list[str], tmp_path: Path, broken: Callable[[str], str]
) -> None:
    write_log(tmp_path / "logs/orders-0", 0, v2_batch(0, [Record(1, b"value")], codec="zstd"))
    done = subprocess_of(KIP33, *command, "logs", cwd=tmp_path, PYTHONPATH=broken(library))
    assert_one_line(done, tmp_path, f"{library}.so: file too short")


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        (*BUILD, "--workers", "2"),
        ("roll", "what-if", "logs"),
        *(pytest.param(one, marks=pytest.mark.long) for one in (("verify", "logs"), BUILD)),
        pytest.param((*BUILD, "--engine", "spark"), marks=pytest.mark.spark),
    ],
    ids=" ".join,
)
def test_without_compiled_code_a_command_says_so_once_and_works(
    arguments: tuple[str, ...], log: Location, tmp_path: Path, broken: Callable[[str], str]
) -> None:
    write_log(tmp_path / "logs/orders-1", 0, v2_batch(0, [Record(1, b"value")]))
    setting = {"PYTHONPATH": broken("llvmlite"), "KIP33_KERNELS": ""}

    done = subprocess_of(KIP33, *arguments, cwd=tmp_path, **setting)

    assert done.exit_code == 0, done
    [line] = [line for line in done.stderr.splitlines() if line.startswith("Warning: ")]
    assert "pip install 'kip33[compile]'" in line


@pytest.mark.slow
@pytest.mark.parametrize("gigabytes", one_in(3, [0.8, 1.7, 2.2]))
def test_little_address_space_ends_a_build_in_one_line(
    gigabytes: float, log: Location, tmp_path: Path
) -> None:
    write_log(tmp_path / "logs/orders-1", 0, v2_batch(0, [Record(1, b"value")]))
    limit = f'ulimit -v {gigabytes * 1e6:.0f}; exec "$@"'

    done = subprocess_of("bash", "-c", limit, "-", KIP33, *BUILD, "--workers", 2, cwd=tmp_path)

    if done.exit_code:
        assert_one_line(done, tmp_path, "")
    else:  # this machine's libraries need less
        assert "2 ok" in done.stdout
