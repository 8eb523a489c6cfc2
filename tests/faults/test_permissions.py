"""Permission denied, on the archive, on the indexes, on the catalog.

As root the command runs without the privilege to bypass permissions.
"""

import shutil
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.builders.changing_archive import ChangingArchive, batches
from tests.builders.log_file import write_log
from tests.cli.console import Finished
from tests.faults.builds import Outcome, build_here
from tests.faults.forks import Forks
from tests.faults.nightly_builds import NightlyBuild
from tests.faults.nights import GROWN, NEW, UNCHANGED, log_of, partition
from tests.faults.privileges import shut
from tests.long_forms import one_in, short_and_long

BROKER = partition(1).partition("/")[0]
DENIED = "Permission denied"
NO_LIST, NO_WRITE = 0, 0o500


@pytest.fixture(scope="module")
def nightly(forks_as_any_owner: Forks, tmp_path_factory: pytest.TempPathFactory) -> NightlyBuild:
    folder = tmp_path_factory.mktemp("denied")
    return NightlyBuild(folder, forks_as_any_owner, folder / "indexes", folder / "catalog")


@pytest.fixture
def archive(nightly: NightlyBuild) -> NightlyBuild:
    nightly.restore()
    return nightly


def rows_of(archive: NightlyBuild, found: Outcome) -> dict[str, dict[str, Any]]:
    """Return rows by the path below the archive."""
    start = len(archive.source.as_uri()) + 1
    return {row["log_uri"][start:]: row for row in found.rows}


def require_line_on_one_log(done: Finished, path: Path) -> None:
    [line] = done.stderr.splitlines()
    assert " logs could not be read, the first is " in line
    assert f"{path.as_uri()}: " in line
    assert DENIED in line


@pytest.mark.parametrize(
    ("directory", "mode"),
    one_in(
        3,
        [
            pytest.param(partition(1), 0o400, id="of a partition the names only"),
            pytest.param(partition(1), 0, id="a partition is shut"),
            pytest.param(BROKER, 0o400, id="of a broker the names only"),
            pytest.param(BROKER, 0, id="a broker's log directory is shut"),
        ],
    ),
)
def test_a_directory_of_the_archive(archive: NightlyBuild, directory: str, mode: int) -> None:
    with shut(archive.source / directory, mode):
        done = archive.build()
    found = archive.outcome()

    assert done.exit_code == 0
    require_line_on_one_log(done, archive.source / directory)
    archive.require_old_or_new(found)
    rows = rows_of(archive, found)
    row = rows.pop(directory)
    assert (row["status"], row["base_offset"]) == ("unreadable", None)
    assert DENIED in row["error"]
    before, after = rows_of(archive, archive.before), rows_of(archive, archive.after)
    carried = {path: row for path, row in before.items() if path.startswith(f"{directory}/")}
    assert done.lines[0]["carried"] == len(carried) > 0
    assert rows == carried | {p: r for p, r in after.items() if not p.startswith(f"{directory}/")}

    archive.require_next_build_mends_it()


def test_source_itself(archive: NightlyBuild) -> None:
    with shut(archive.source):
        done = archive.build()
    said = f"{archive.source.as_uri()}: SOURCE cannot be listed"
    archive.require_ended(done, said, DENIED, exit_code=2)
    archive.require_next_build_mends_it()


@pytest.mark.parametrize(
    ("segment", "index_stays", "workers"),
    one_in(
        3,
        [
            pytest.param(GROWN[0], True, None, id="one that grew"),
            pytest.param(GROWN[0], True, 2, id="one that grew, two workers"),
            pytest.param(NEW[0], False, None, id="a new one"),
            pytest.param(NEW[0], False, 2, id="a new one, two workers"),
        ],
    ),
)
def test_a_segment_file(
    archive: NightlyBuild, segment: int, index_stays: bool, workers: int | None
) -> None:
    path = log_of(0, segment)
    with shut(archive.source / path):
        done = archive.build(workers)
    found = archive.outcome()

    assert done.exit_code == 0
    require_line_on_one_log(done, archive.source / path)
    assert done.lines[0]["by_status"]["unreadable"] == 1
    assert done.lines[0]["workers"] == (workers or 1)
    archive.require_old_or_new(found)
    rows, after = rows_of(archive, found), rows_of(archive, archive.after)
    row = rows.pop(path)
    assert row["status"] == "unreadable"
    assert DENIED in row["error"]
    assert row["index_file"] == ("written" if index_stays else None)
    del after[path]
    assert rows == after
    for suffix in (".timeindex", ".index"):
        index = str(Path(path).with_suffix(suffix))
        assert found.files.get(index) == archive.before.files.get(index)
        assert (index in found.files) == index_stays

    archive.require_next_build_mends_it()


READERS: list[tuple[object, ...]] = [
    ("build", "--index-dir", "indexes"),
    ("build", "--index-dir", "indexes", "--workers", 2),
    ("verify",),
    ("timestamps",),
    ("timestamps", "--by", "topic", "--format", "jsonl"),
    ("roll",),
    ("roll what-if",),
    ("dialects",),
]


@pytest.mark.parametrize("step", short_and_long(3, 1, "KIP33_STEP"))
def test_one_of_two_logs_or_none_can_be_read(
    forks_as_any_owner: Forks, tmp_path: Path, step: int, subtests: pytest.Subtests
) -> None:
    logs = [write_log(tmp_path / f"logs/orders-{number}", 0, batches(0, 2)) for number in (0, 1)]
    for command, *options in READERS[::step]:
        given = ("console", *command.split(), tmp_path / "logs")
        given += tuple(tmp_path / "indexes" if one == "indexes" else one for one in options)
        with subtests.test(" ".join(map(str, (command, *options)))):
            with shut(logs[0]), shut(logs[1]):
                done = forks_as_any_owner.run(*given)
            assert done.exit_code == 1
            require_line_on_logs(done, "2 of 2 logs", logs[0])
            assert list(tmp_path.rglob("_catalog/snapshots/*")) == []

            with shut(logs[1]):
                done = forks_as_any_owner.run(*given)
            assert done.exit_code == 0
            require_line_on_logs(done, "1 of 2 logs", logs[1])
        shutil.rmtree(tmp_path / "indexes", ignore_errors=True)


@pytest.mark.parametrize(
    ("options", "exit_code"),
    [
        (("count", "--per", "1h"), 1),
        (("records", "--format", "jsonl"), 1),
        (("records", "--format", "jsonl", "--on-error", "fail"), 1),
        (("records", "--format", "jsonl", "--on-error", "row"), 0),
    ],
)
def test_records_of_a_log_that_is_shut_are_not_left_out(
    forks_as_any_owner: Forks, tmp_path: Path, options: tuple[str, ...], exit_code: int
) -> None:
    """It is not damaged, so only a row may stand for it."""
    logs = [write_log(tmp_path / f"logs/orders-{number}", 0, batches(0, 2)) for number in (0, 1)]
    command, *others = options
    with shut(logs[1]):
        done = forks_as_any_owner.run("console", command, tmp_path / "logs", *others)
    assert done.exit_code == exit_code
    line = f"{logs[1].as_uri()}: cannot be read: {DENIED}"
    assert line in (done.stderr if exit_code else done.stdout)


@pytest.mark.parametrize(("unread", "exit_code"), [(1, 4), (2, 1)])
def test_logs_that_a_restore_cannot_read(
    unread: int, exit_code: int, forks_as_any_owner: Forks, tmp_path: Path
) -> None:
    logs = [write_log(tmp_path / f"logs/orders-{number}", 0, batches(0, 2)) for number in (0, 1)]
    (tmp_path / "data").mkdir()
    restore = ("console", "restore", tmp_path / "logs", "--to", tmp_path / "data")
    with ExitStack() as stack:
        for log in logs[:unread]:
            stack.enter_context(shut(log))
        done = forks_as_any_owner.run(*restore, "--until", "2100-01-01")

    assert done.exit_code == exit_code
    named = [line for line in done.stderr.splitlines() if DENIED in line]
    assert len(named) == unread
    assert all(log.as_uri() in line for log, line in zip(logs[:unread], named, strict=True))


def test_no_first_header_of_a_catalogs_logs_can_be_read(
    forks_as_any_owner: Forks, tmp_path: Path
) -> None:
    log = write_log(tmp_path / "logs/orders-0", 0, batches(0, 2))
    build_here(tmp_path / "logs", tmp_path / "indexes")
    with shut(log):
        done = forks_as_any_owner.run(
            "console", "roll", tmp_path / "indexes/_catalog", "--read-headers"
        )
    assert done.exit_code == 1
    require_line_on_logs(done, "1 of 1 log", log)


def require_line_on_logs(done: Finished, count: str, first: Path) -> None:
    (line,) = [one for one in done.stderr.splitlines() if "could not be read" in one]
    assert f" {count} could not be read, the first is {first.as_uri()}: " in line
    assert DENIED in line


def test_a_segment_file_that_has_not_changed_is_not_opened(archive: NightlyBuild) -> None:
    with shut(archive.source / log_of(0, UNCHANGED[0])):
        assert archive.build().exit_code == 0
    assert archive.outcome() == archive.after


@pytest.mark.parametrize(
    ("directory", "mode", "workers"),
    one_in(
        3,
        [
            pytest.param(partition(0), NO_WRITE, 2, id="one partition's, two workers"),
            pytest.param(partition(0), NO_WRITE, None, id="one partition's"),
            pytest.param(partition(0), NO_LIST, None, id="one partition's is shut"),
            pytest.param("", NO_LIST, None, id="all of it is shut"),
            pytest.param("", NO_LIST, 2, id="all of it is shut, two workers"),
            pytest.param("", NO_WRITE, None, id="all of it"),
        ],
    ),
)
def test_the_directory_of_index_files(
    archive: NightlyBuild, directory: str, mode: int, workers: int | None
) -> None:
    with shut(archive.index_dir / directory, mode, all_below=True):
        done = archive.build(workers)
    found = archive.outcome()

    warning, *_ = done.stderr.splitlines()
    assert warning.startswith("Warning: index files of ")
    assert "segments could not be written, for example file:///" in warning
    assert (done.exit_code, done.lines[0]["workers"]) == (1, workers or 1)
    archive.require_old_or_new(found)
    rows, after = rows_of(archive, found), rows_of(archive, archive.after)
    changed = {path for path in after if after[path] != rows_of(archive, archive.before).get(path)}
    for path in changed if mode == NO_WRITE else set(after):
        if path.startswith(directory):
            index = (archive.index_dir / path).with_suffix("").as_uri()
            assert f"{index}.timeindex: cannot be" in rows[path]["index_error"]
            assert f"{index}.index: cannot be" in rows[path]["index_error"]
            assert DENIED in rows[path]["index_error"]
            del rows[path], after[path]
    assert rows == after

    archive.require_next_build_mends_it()


CATALOG = {
    "shut": ("", NO_LIST, 1, "/commits: cannot be listed"),
    "commits shut": ("commits", NO_LIST, 1, "/commits: cannot be listed"),
    "no commit": ("commits", NO_WRITE, 1, ".json: cannot be written"),
    "snapshots shut": ("snapshots", NO_LIST, 1, ": cannot be listed"),
    "no snapshot": ("snapshots", NO_WRITE, 1, "part-00000.parquet: cannot be written"),
    "staging shut": ("staging", NO_LIST, 1, "/staging: cannot be listed"),
    "no draft": ("staging", NO_WRITE, 2, "the catalog's folder cannot be created"),
}


def test_the_catalog(archive: NightlyBuild, subtests: pytest.Subtests) -> None:
    for name, (folder, mode, exit_code, said) in CATALOG.items():
        archive.restore()
        with subtests.test(name):
            with shut(archive.catalog / folder, mode):
                done = archive.build()
            archive.require_ended(done, said, DENIED, exit_code=exit_code)
    for file in ("commits/*.json", "snapshots/*/part-00000.parquet"):
        archive.restore()
        [place] = archive.catalog.glob(file)
        with subtests.test(file):
            with shut(place):
                done = archive.build()
            archive.require_ended(done, "fix it and run the command again", DENIED)
    archive.require_next_build_mends_it()


def test_a_closed_directory_with_a_partitions_name_may_hold_any_topic(
    forks_as_any_owner: Forks, tmp_path: Path
) -> None:
    """`broker-2` reads as partition 2 of a topic `broker`; with `--topic` its rows stay."""
    archive = ChangingArchive(tmp_path)
    closed, other = "broker-2/orders-0", "broker-3/orders-1"
    for name in (closed, other):
        archive.write(archive.log(name), batches(0, 9))
    build = ("console", "build", archive.source, "--index-dir", archive.index_dir)
    build += ("--catalog", archive.catalog, "--format", "json")
    assert forks_as_any_owner.run(*build).exit_code == 0
    before = archive.row(closed)

    with shut(archive.source / "broker-2", NO_LIST):
        summary = forks_as_any_owner.run(*build, "--topic", "orders").lines[0]

    assert (summary["carried"], summary["dropped"]) == (1, 0)
    assert archive.row(closed) == before
    again = forks_as_any_owner.run(*build, "--topic", "orders").lines[0]
    assert (again["reused"], again["kept"]) == (2, 0)
