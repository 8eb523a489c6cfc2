"""A reader that a prune overtakes gives a complete answer, or one line that says what to do.

Before each access of the catalog, one after another, a newer snapshot is committed and all older
ones are removed, as if the reader had stood still for hours.
"""

import itertools
import re
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kip33.catalog import catalog as catalog_module
from kip33.catalog import ordered_parts, orphan_list, snapshot_parts
from kip33.catalog.catalog import Catalog
from kip33.catalog.pruning import prune
from kip33.demo import COPIED_MS, make_archive, make_sensors
from tests.cli.command_lines import CATALOG, OF_CATALOGS, write_offsets
from tests.cli.console import Command, Finished
from tests.faults.builds import build_here
from tests.long_forms import one_in

DAY_MS = 86_400_000
HOURS_MS = 2 * 3_600_000
READERS = {
    **OF_CATALOGS,
    "segments": f"catalog segments {CATALOG}",
    "holes": f"catalog holes {CATALOG}",
    "orphans": f"catalog orphans {CATALOG}",
    "diff": f"catalog diff {CATALOG} 1 2",
    "verify": f"verify quick ARCHIVE --catalog {CATALOG}",
}
WHAT_TO_DO = re.compile(
    r"the snapshot was removed while it was read, .*; run the command again$"
    r"|no snapshot \d; `kip33 catalog` lists the snapshots$"
)
NAMED = ("search", "report", "orphans")


@pytest.fixture(scope="module")
def snapshots(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the archive, its indexes, and a catalog before and after a third build.

    Each snapshot has several parts, and lists an index file whose log is gone.
    """
    root = tmp_path_factory.mktemp("pruned")
    make_archive(root / "archive")
    make_sensors(root / "archive")
    for night in (1, 2, 3):
        now_ms = COPIED_MS + night * DAY_MS
        with pytest.MonkeyPatch.context() as small:
            small.setattr(ordered_parts, "ROWS_PER_PART", 10)
            build_here(root / "archive", root / "indexes", now_ms=now_ms, full=True)
        if night == 1:
            first = min((root / "archive").rglob("*.log"))
            first.rename(first.with_suffix(".gone"))
        if night == 2:
            shutil.copytree(root / "indexes/_catalog", root / "before")
    return root


class Overtaken:
    """Counts the accesses of a catalog; before one of them all its older snapshots are removed."""

    def __init__(self, catalog: Path, later: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.catalog, self.later = catalog, later
        self.accesses, self.at = 0, -1
        for module in (catalog_module, snapshot_parts, orphan_list):
            for name in ("read_whole", "entries_of", "opened_by_arrow"):
                if hasattr(module, name):
                    monkeypatch.setattr(module, name, self.counted(getattr(module, name)))

    def counted(self, access: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any, **options: Any) -> Any:
            self.accesses += 1
            if self.accesses - 1 == self.at:
                self.overtake()
            return access(*arguments, **options)

        return wrapped

    def overtake(self) -> None:
        shutil.copytree(self.later, self.catalog, dirs_exist_ok=True)
        now_ms = int(time.time() * 1000) + HOURS_MS
        pruned = prune(Catalog.at(str(self.catalog)), keep=1, now_ms=now_ms)
        assert (len(pruned.removed), pruned.failures) == (2, ())


def told(done: Finished) -> str:
    """Return standard output without what names a snapshot or the clock."""
    text = re.sub(r"0000000000000000000\d-[0-9a-f]+", "SNAPSHOT", done.stdout)
    text = re.sub(r"--snapshot [0-9a-f]+", "--snapshot SNAPSHOT", text)
    text = re.sub(r'"snapshots": \[.*?}\]', "", text)
    of_two = r'"(new|before|changes|new_findings)": ("SNAPSHOT"|null|0|{[^}]*})'
    text = re.sub(of_two, "", text)  # the snapshot before goes, too
    return re.sub(r'"(seconds|free_bytes|\w+_ms)": ?[\d.]+', "", text)


def readers() -> Iterator[Any]:
    for name, line in READERS.items():
        yield pytest.param(line, id=name)
        if name in NAMED:
            yield pytest.param(f"{line} --snapshot 2", id=f"{name} of a named snapshot")


@pytest.mark.parametrize("line", one_in(6, readers()))
def test_the_answer_is_complete_or_one_line(
    line: str,
    snapshots: Path,
    command: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    catalog = tmp_path / CATALOG
    write_offsets()
    words = line.replace("ARCHIVE", str(snapshots / "archive")).split()
    overtaken = Overtaken(catalog, snapshots / "indexes/_catalog", monkeypatch)
    for at in itertools.count(-1):
        shutil.rmtree(catalog, ignore_errors=True)
        shutil.copytree(snapshots / "before", catalog)
        overtaken.accesses, overtaken.at = 0, at
        done = command(*words, "--format", "json")
        if at < 0:
            undisturbed = done
            assert done.stdout, done
            assert overtaken.accesses
            continue
        if overtaken.accesses <= at:
            break
        if done.exit_code == undisturbed.exit_code:
            assert told(done) == told(undisturbed), f"before access {at}"
        else:
            [line] = done.stderr.splitlines()
            assert done.stdout == "", f"before access {at}"
            assert line.startswith("Error: "), f"before access {at}"
            assert WHAT_TO_DO.search(line), f"before access {at}: {line}"


def test_rows_that_were_printed_before_their_snapshot_was_removed_are_said_to_be_incomplete(
    snapshots: Path, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = tmp_path / "catalog"
    overtaken = Overtaken(catalog, snapshots / "indexes/_catalog", monkeypatch)
    words = ("catalog", "segments", catalog, "--format", "jsonl")
    shutil.copytree(snapshots / "before", catalog)
    assert command(*words).exit_code == 0
    overtaken.at, overtaken.accesses = overtaken.accesses - 1, 0
    done = command(*words)
    assert done.exit_code != 0
    warning, error = done.stderr.splitlines()
    assert "the output is incomplete" in warning
    assert WHAT_TO_DO.search(error)
