"""Leftovers are planned and removed in a bucket and in HDFS as on a disk."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyarrow import fs

from kip33.archive.leftover_files import LeftoverKind
from kip33.builds.leftovers import (
    PLANNED_ON_REQUEST,
    LeftoverOutcome,
    find_leftovers,
    plan_leftovers,
    remove_leftovers,
)
from kip33.catalog.catalog import Catalog
from kip33.errors import ExitCode
from kip33.stores.filesystems import forget_filesystem, use_filesystem
from kip33.stores.locations import Location
from tests.builders.changing_archive import CLICKS, DAY_MS, ORDERS, ChangingArchive, batches
from tests.builders.leftover_archive import DEAD, MARKED, add_leftovers, marked
from tests.integration.stores.places import Place

pytestmark = pytest.mark.integration
INDEX = f"indexes/{CLICKS}/{0:020d}.timeindex"


class Leftovers:
    """An archive in a store, with leftovers, and the commands on it."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.local = ChangingArchive(place.folder / "local")
        for partition in (ORDERS, CLICKS):
            for base_offset in (0, 40):
                self.local.write(self.local.log(partition, base_offset), batches(base_offset, 20))
        place.put(self.local.source, "source")
        self.catalog, self.plan = f"{place.uri}/catalog", f"{place.uri}/plan.jsonl"
        self.build()
        place.filesystem.delete_file(f"{place.path}/source/{CLICKS}/{0:020d}.log")
        self.build()

    def build(self) -> None:
        place = self.place
        done = place.run(
            *("build", f"{place.uri}/source", "--index-dir", f"{place.uri}/indexes"),
            *("--catalog", self.catalog, "--offset-index"),
        )
        assert done.code == 0, done.err

    def run(self, *options: str, code: int = ExitCode.DONE) -> Any:
        done = self.place.run("catalog", "orphans", self.catalog, *options, "--format", "json")
        assert done.code == code, done.err
        return done.record

    def write(self, path: str, data: bytes) -> None:
        with self.place.filesystem.open_output_stream(f"{self.place.path}/{path}") as stream:
            stream.write(data)

    def exists(self, path: str) -> bool:
        info = self.place.filesystem.get_file_info(f"{self.place.path}/{path}")
        return bool(info.type != fs.FileType.NotFound)


@pytest.fixture
def in_this_process(leftovers: "Leftovers") -> Iterator[Catalog]:
    """Return the catalog, opened in this process, whose clock the test gives."""
    root = Location.of(leftovers.place.uri).root
    if leftovers.place.scheme != "file":
        use_filesystem(root, leftovers.place.filesystem)
    yield Catalog.at(leftovers.catalog)
    forget_filesystem(root)


@pytest.fixture(params=["file", "s3a", "hdfs"])
def leftovers(request: pytest.FixtureRequest, new_place: Callable[[str], Place]) -> Leftovers:
    return Leftovers(new_place(request.param))


def test_our_orphans_are_removed_and_changed_ones_stay(leftovers: Leftovers) -> None:
    planned = leftovers.run("--plan", leftovers.plan)
    uris = {one["uri"]: one["leftover"] for one in planned["leftovers"]}
    assert uris[f"{leftovers.place.uri}/{INDEX}"] == LeftoverKind.ORPHAN
    assert planned["plan"]["files"] == 2

    before = leftovers.place.files("")
    tried = leftovers.run("--apply", leftovers.plan, "--dry-run")
    assert tried["by_outcome"] == {"removed": 2}
    assert leftovers.place.files("") == before

    leftovers.write(INDEX, b"of another program")
    done = leftovers.run("--apply", leftovers.plan, code=ExitCode.REFUSED)
    assert done["by_outcome"] == {"removed": 1, "kept": 1}
    assert leftovers.place.files("")[INDEX] == b"of another program"
    removed = before.keys() - leftovers.place.files("").keys()
    assert removed == {INDEX.replace(".timeindex", ".index")}
    again = leftovers.run("--apply", leftovers.plan, code=ExitCode.REFUSED)
    assert again["by_outcome"] == {"already removed": 1, "kept": 1}


def test_marked_directories_are_removed_with_their_files_as_planned(
    leftovers: Leftovers, in_this_process: Catalog
) -> None:
    place, catalog = leftovers.place, in_this_process
    leftovers.local.log(CLICKS).unlink()
    add_leftovers(leftovers.local)
    place.put(leftovers.local.source / "b1", "source/b1")
    newest = catalog.require_newest()
    files = place.files("source")
    later_ms = newest.created_ms + 3 * DAY_MS
    kinds = tuple(PLANNED_ON_REQUEST.values())
    found = find_leftovers(catalog, newest)
    plan, unplanned = plan_leftovers(catalog, newest, found, kinds=kinds, now_ms=later_ms)
    assert unplanned == []
    delete, stray, future = (
        str(marked(leftovers.local, kind).relative_to(leftovers.local.folder)) for kind in MARKED
    )
    leftovers.write(f"{stray}/new", b"not planned")

    done = remove_leftovers(catalog, plan)

    kept = [one.uri for one in done.results if one.outcome == LeftoverOutcome.KEPT]
    assert kept == [f"{place.uri}/{stray}"]
    assert not leftovers.exists(delete)
    assert leftovers.exists(stray) and leftovers.exists(future)
    removed = files.keys() - place.files("source").keys()
    b1 = f"b1/gone-0.{DEAD}-delete"
    assert removed == {
        *(f"{b1}/{0:020d}.{suffix}" for suffix in ("log", "index")),
        f"{ORDERS}/{90:020d}.timeindex",
        f"{ORDERS}/{7:020d}.log.deleted",
    }
    again = remove_leftovers(catalog, plan)
    assert {one.outcome for one in again.results} == {
        LeftoverOutcome.MISSING,
        LeftoverOutcome.KEPT,
    }
