"""A draft is invisible before its commit and contains only the parts of successful attempts."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kip33.catalog.catalog import Catalog, commit_name
from kip33.catalog.draft import (
    CLAIMS,
    Draft,
    NumberTakenError,
    PartWriter,
    claimed_index_uris,
    next_number,
)
from kip33.catalog.orphan_list import ORPHANS
from kip33.catalog.snapshot_parts import SnapshotPart
from kip33.errors import CatalogError, PublishError
from kip33.stores.locations import Location
from tests.builders.snapshots import NOW_MS, SOURCE, append_rows, commit_path, path_of, row, write
from tests.cases import each_case


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return Catalog.at(str(tmp_path / "_catalog"))


@pytest.fixture
def draft(catalog: Catalog) -> Draft:
    return Draft.begin(catalog, SOURCE)


def published(draft: Draft, number: int) -> SnapshotPart:
    writer = PartWriter(draft.staging, number)
    append_rows(writer, [row(number)])
    return writer.publish()


def folder_of(draft: Draft) -> Location:
    return draft.catalog.snapshot_folder(draft.name)


def names_in(folder: Location) -> list[str]:
    path = path_of(folder)
    return sorted(inside.name for inside in path.iterdir()) if path.exists() else []


def test_parts_move_to_the_snapshot_and_get_the_names_of_their_order(draft: Draft) -> None:
    parts = [published(draft, number) for number in (3, 7)]
    assert names_in(folder_of(draft)) == []
    snapshot = draft.commit(parts, settings={}, now_ms=NOW_MS)
    assert [part.name for part in snapshot.parts] == ["part-00000.parquet", "part-00001.parquet"]
    assert names_in(folder_of(draft)) == [
        "part-00000.parquet",
        "part-00001.parquet",
    ]
    assert not path_of(draft.staging).exists()
    assert draft.catalog.read(snapshot, ["partition"])["partition"].to_pylist() == [3, 7]


def test_only_the_attempt_that_is_named_is_committed(draft: Draft) -> None:
    killed, good = published(draft, 3), published(draft, 3)
    assert killed.name != good.name
    assert killed._replace(name="") == good._replace(name="")
    (path_of(draft.staging) / ".part-00004.0f.parquet.tmp").write_bytes(b"half")
    snapshot = draft.commit([good], settings={}, now_ms=NOW_MS)
    assert names_in(folder_of(draft)) == ["part-00000.parquet"]
    assert draft.catalog.read(snapshot).to_pylist() == [row(3)]


def test_a_zombie_that_writes_after_the_commit_changes_nothing(draft: Draft) -> None:
    snapshot = draft.commit([published(draft, 0)], settings={}, now_ms=NOW_MS)
    published(draft, 0)
    assert names_in(folder_of(draft)) == ["part-00000.parquet"]
    assert draft.catalog.require_newest() == snapshot
    assert Draft.begin(draft.catalog, SOURCE).sequence == snapshot.sequence + 1


def remove_the_part(draft: Draft, part: SnapshotPart) -> None:
    path_of(draft.staging.child(part.name)).unlink()


def remove_staging(draft: Draft, part: SnapshotPart) -> None:
    remove_the_part(draft, part)
    path_of(draft.staging).rmdir()


def cut_the_part(draft: Draft, part: SnapshotPart) -> None:
    path_of(draft.staging.child(part.name)).write_bytes(b"PAR1")


def put_a_file_for_the_folder(draft: Draft, part: SnapshotPart) -> None:
    path_of(draft.catalog.location.child("snapshots")).write_bytes(b"")


def put_a_file_for_the_commits(draft: Draft, part: SnapshotPart) -> None:
    path_of(draft.catalog.location.child("commits")).write_bytes(b"")


HARMS = [
    ("a part is gone", remove_the_part, CatalogError, "this part is missing"),
    ("all of staging is", remove_staging, CatalogError, "this part is missing"),
    ("a part is cut", cut_the_part, CatalogError, "4 bytes found, the commit file says"),
    ("no folder can be", put_a_file_for_the_folder, PublishError, "written"),
    ("no commit can be", put_a_file_for_the_commits, PublishError, "written"),
]


@each_case(("name", "harm", "error", "says"), HARMS)
def test_a_failed_commit_leaves_no_snapshot(
    name: str, harm: Any, error: Any, says: str, tmp_path: Path
) -> None:
    draft = Draft.begin(Catalog.at(str(tmp_path)), SOURCE)
    part = published(draft, 0)
    harm(draft, part)
    with pytest.raises(error, match=says) as told:
        draft.commit([part], settings={}, now_ms=NOW_MS)
    assert "the newest snapshot does not change" in str(told.value)
    assert not path_of(draft.catalog.commit_place(commit_name(draft.sequence))).exists()


def test_of_two_commits_with_one_number_one_succeeds_and_the_other_draft_is_as_before(
    catalog: Catalog,
) -> None:
    first, second = (Draft.begin(catalog, SOURCE) for _ in range(2))
    [won, lost] = (published(draft, number) for number, draft in enumerate((first, second)))
    orphans = pa.table([["i"], [1], [1], ["t"], ["l"]], schema=ORPHANS)
    how: dict[str, Any] = {"settings": {}, "now_ms": NOW_MS, "orphans": orphans}
    snapshot = first.commit([won], **how)
    before = names_in(second.staging)
    with pytest.raises(NumberTakenError):
        second.commit([lost], **how)
    assert names_in(second.staging) == before
    for folder in ("commits", "orphaned", "snapshots"):
        assert len(names_in(catalog.location.child(folder))) == 1, folder
    assert catalog.require_newest() == snapshot
    after = second.commit([lost], number=next_number(catalog), **how)
    assert (after.sequence, catalog.require_newest()) == (2, after)
    assert catalog.read(after, ["partition"])["partition"].to_pylist() == [1]


def test_claims_outlive_a_killed_build(catalog: Catalog) -> None:
    committed = write(catalog, [row(0)])
    killed = Draft.begin(catalog, SOURCE)
    killed.claim(pa.array(["file:///i/0.timeindex", "file:///i/1.timeindex"]))
    uris = ["file:///i/0.timeindex", "file:///i/1.timeindex"]
    assert claimed_index_uris(catalog, since=committed.sequence).to_pylist() == uris
    assert claimed_index_uris(catalog, since=killed.sequence + 1).to_pylist() == []


def test_the_claims_of_a_committed_build_count_only_if_its_snapshot_is_lost(draft: Draft) -> None:
    draft.claim(pa.array(["file:///i/0.timeindex"]))
    snapshot = draft.commit([published(draft, 0)], settings={}, now_ms=NOW_MS)
    assert commit_path(draft.catalog, snapshot).exists()
    for above, claimed in ((snapshot.name, []), ("", ["file:///i/0.timeindex"])):
        assert claimed_index_uris(draft.catalog, since=0, above=above).to_pylist() == claimed


UNREADABLE_CLAIMS = {
    "empty": b"",
    "text": b"half a claim",
    "zeros": bytes(100),
}


@each_case("data", UNREADABLE_CLAIMS)
def test_unreadable_claims_are_ignored(data: Any, tmp_path: Path) -> None:
    draft = Draft.begin(Catalog.at(str(tmp_path)), SOURCE)
    other = Draft.begin(draft.catalog, SOURCE)
    other.claim(pa.array(["file:///i/0.timeindex"]))
    path_of(draft.staging.child(CLAIMS)).write_bytes(data)
    assert claimed_index_uris(draft.catalog, since=0).to_pylist() == ["file:///i/0.timeindex"]
