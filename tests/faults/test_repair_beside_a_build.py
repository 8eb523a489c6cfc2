"""`kip33 repair` beside a build in place, in a copy of a log directory: both end well.

In a broker's own one its lock keeps them apart: `tests/builds/test_in_place_locks.py`,
`tests/cli/test_repair_command.py`.
"""

import itertools
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kip33.builds import repair_plan as repair_apply
from kip33.builds.repair_plan import (
    RepairOutcome,
    RepairPlan,
    apply_repair,
    list_log_dir,
    plan_repair,
)
from kip33.indexing import published_files
from kip33.rules.index_builder import IndexSettings, TopicSettings
from kip33.stores.locations import Location
from tests.builders.changing_archive import INTERVAL, ChangingArchive, KeptArchive, batches
from tests.faults.test_two_builds import finish, steps
from tests.long_forms import one_in

PARTITIONS = ("a-0", "b-0", "c-0", "d-0")
SETTINGS = TopicSettings(IndexSettings("recover", INTERVAL))
INDEX_SUFFIXES = (".timeindex", ".index")


@pytest.fixture
def archive(tmp_path: Path) -> ChangingArchive:
    """Return a log directory with index files, some of which were then lost or damaged."""
    archive = ChangingArchive(tmp_path, in_place=True)
    for name in PARTITIONS:
        archive.write(archive.log(f"logs/{name}"), batches(0, 20))
    archive.build(offset_index=True)
    shutil.rmtree(archive.catalog)
    missing, flipped, wrong, torn = (archive.log(f"logs/{name}") for name in PARTITIONS)
    missing.with_suffix(".timeindex").unlink()
    flip(flipped.with_suffix(".timeindex"), 3)
    flip(wrong.with_suffix(".index"), 3)
    flip(torn, torn.stat().st_size // 2 - 3)
    archive.touch(torn)
    return archive


def flip(file: Path, position: int) -> None:
    data = bytearray(file.read_bytes())
    data[position] ^= 0x40
    file.write_bytes(data)


def repair_plan(archive: ChangingArchive) -> RepairPlan:
    listing = list_log_dir(Location.of(archive.source / "logs"))
    return plan_repair(listing, SETTINGS)


def index_files(archive: ChangingArchive) -> dict[str, bytes]:
    return {
        str(path.relative_to(archive.source)): path.read_bytes()
        for path in archive.source.rglob("*")
        if path.suffix in INDEX_SUFFIXES or path.suffix == ".tmp"
    }


def require_right(
    archive: ChangingArchive, expected: dict[str, bytes], where: str, *, overwrite: bool = False
) -> None:
    """Check that a further repair and a further build complete what the two left."""
    outcomes = {one.outcome for one in apply_repair(repair_plan(archive))}
    assert outcomes <= {None, RepairOutcome.DONE}, where
    archive.build(offset_index=True, overwrite=overwrite)
    assert index_files(archive) == expected, where
    assert not repair_plan(archive).files_to_change, where
    for row in archive.rows():
        file = Path(Location.of(row["index_uri"]).path)
        assert row["time_index_modified_ms"] == file.stat().st_mtime_ns // 1_000_000, where


def one_after_the_other(archive: ChangingArchive, *, overwrite: bool) -> dict[str, bytes]:
    """Return the index files after a repair and then a build."""
    apply_repair(repair_plan(archive))
    archive.build(offset_index=True, overwrite=overwrite)
    return index_files(archive)


@pytest.mark.parametrize("overwrite", one_in(2, [False, True]))
def test_a_repair_between_any_two_steps_of_a_build(
    archive: ChangingArchive, overwrite: bool
) -> None:
    kept = KeptArchive(archive)
    expected = one_after_the_other(archive, overwrite=overwrite)
    for at in range(5):
        archive = kept.again()
        build = steps(archive, overwrite=overwrite)
        for _ in range(at):
            next(build)
        repaired = apply_repair(repair_plan(archive))
        assert not [one for one in repaired if str(one.outcome).startswith(RepairOutcome.FAILED)]
        finish(build)
        require_right(archive, expected, f"after {at} steps", overwrite=overwrite)


@pytest.mark.parametrize("overwrite", one_in(2, [False, True]))
def test_a_build_at_any_point_of_a_repair(
    archive: ChangingArchive, overwrite: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, points, is_inside = KeptArchive(archive), 0, False
    at = -1

    def overtaken(do: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **options: Any) -> Any:
            nonlocal points, is_inside
            if not is_inside:
                points += 1
                if points - 1 == at:
                    is_inside = True
                    archive.build(offset_index=True, overwrite=overwrite)
                    is_inside = False
            return do(*arguments, **options)

        return run

    expected = one_after_the_other(archive, overwrite=overwrite)
    monkeypatch.setattr(repair_apply, "cpu_count", lambda: 1)
    monkeypatch.setattr(repair_apply, "_verified", overtaken(repair_apply._verified))
    for name in ("publish_beside", "remove"):
        monkeypatch.setattr(published_files, name, overtaken(getattr(published_files, name)))
    for at in itertools.count():
        archive = kept.again()
        plan, points = repair_plan(archive), 0
        apply_repair(plan)
        if points <= at:
            break
        require_right(archive, expected, f"before point {at}", overwrite=overwrite)
    assert at > 8
