"""A removal of leftovers killed with SIGKILL around every deletion; the same plan continues it."""

import json
import shutil
import signal
from pathlib import Path

import pytest

from kip33.builds.leftovers import (
    PLANNED_ON_REQUEST,
    find_leftovers,
    plan_leftovers,
    write_leftover_plan,
)
from kip33.catalog.catalog import Catalog
from kip33.stores.locations import Location
from tests.builders.leftover_archive import archive_with_leftovers
from tests.faults.line_programs import ask, start


def paths_below(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


@pytest.mark.parametrize("when", ["before", "after"])
def test_around_every_deletion(tmp_path: Path, when: str) -> None:
    archive, saved, plan = tmp_path / "archive", tmp_path / "saved", tmp_path / "plan.jsonl"
    changing = archive_with_leftovers(archive)
    catalog = Catalog.at(str(changing.catalog))
    newest = catalog.require_newest()
    made, _ = plan_leftovers(
        catalog,
        newest,
        find_leftovers(catalog, newest),
        kinds=tuple(PLANNED_ON_REQUEST.values()),
        now_ms=changing.now_ms,
    )
    write_leftover_plan(made, Location.of(plan))
    shutil.copytree(archive, saved)
    before = paths_below(archive)
    with start("tests.faults.forked_removals", changing.catalog, plan) as forks:
        assert ask(forks, "[]") == "0"
        done = paths_below(archive)
        assert len(before - done) == made.files + 2, "the files and two directories"
        for number in range(made.files + 2):
            shutil.rmtree(archive)
            shutil.copytree(saved, archive)
            assert ask(forks, json.dumps([when, number])) == str(-signal.SIGKILL)
            there = paths_below(archive)
            assert done <= there <= before, f"{when} deletion {number}"
            assert len(before - there) == number + (when == "after")
            assert ask(forks, "[]") == "0"
            assert paths_below(archive) == done, f"{when} deletion {number}"
