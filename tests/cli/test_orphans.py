"""`kip33 catalog orphans`: files that belong to no segment, by name and size."""

from collections.abc import Callable
from pathlib import Path

import pytest

from kip33.archive.layouts import layout_of
from kip33.archive.leftover_files import list_leftovers
from kip33.stores.locations import Location
from tests.builders.changing_archive import CLICKS, ORDERS, ChangingArchive, batches, built_archive
from tests.builders.layouts import WRITERS, Stored, aiven, aiven_stem
from tests.builders.segment_builder import segment
from tests.cli.console import Command

DEAD = "0123456789abcdef0123456789abcdef"
Orphans = Callable[[], list[tuple[str, str, int]]]


@pytest.fixture
def changing(tmp_path: Path) -> ChangingArchive:
    """Two partitions with two segments each, built with both kinds of index files."""
    return built_archive(tmp_path)


@pytest.fixture
def orphans(command: Command, changing: ChangingArchive) -> Orphans:
    """Return a function that gives each leftover's kind, its path and its bytes."""

    def found() -> list[tuple[str, str, int]]:
        done = command("catalog", "orphans", changing.catalog, "--format", "json")
        assert done.exit_code == 0, done.stderr
        [answer] = done.lines
        root = changing.folder.as_uri() + "/"
        return [
            (one["leftover"], one["uri"].removeprefix(root), one["size_bytes"])
            for one in answer["leftovers"]
        ]

    return found


def test_every_file_belongs_to_a_segment(
    command: Command, changing: ChangingArchive, orphans: Orphans
) -> None:
    for name in ("partition.metadata", "leader-epoch-checkpoint", f"{40:020d}.snapshot"):
        (changing.source / ORDERS / name).write_text("version: 0")
    for name in ("meta.properties", "recovery-point-offset-checkpoint", ".kafka_cleanshutdown"):
        (changing.source / "b1" / name).write_text("0")
    assert orphans() == []
    shown = command("catalog", "orphans", changing.catalog)
    assert shown.stdout == f"{changing.source.as_uri()}: every file belongs to a segment.\n"


def test_unknown_files_and_temporary_ones(changing: ChangingArchive, orphans: Orphans) -> None:
    (changing.source / ORDERS / "core.1234").write_bytes(bytes(5))
    (changing.source / "b1/orders.tar").write_bytes(bytes(6))
    temporary = f".{0:020d}.timeindex.{DEAD}.tmp"
    (changing.index_root / ORDERS / temporary).write_bytes(bytes(7))
    (changing.index_root / "notes.txt").write_bytes(bytes(8))
    assert orphans() == [
        ("temporary file of kip33", f"indexes/{ORDERS}/{temporary}", 7),
        ("unknown file", "indexes/notes.txt", 8),
        ("unknown file", "source/b1/orders-0/core.1234", 5),
        ("unknown file", "source/b1/orders.tar", 6),
    ]


def test_a_catalog_in_the_index_directory_is_no_leftover(
    command: Command, changing: ChangingArchive
) -> None:
    indexes = changing.folder / "other"
    assert command("build", changing.source, "--index-dir", indexes).exit_code == 0
    done = command("catalog", "orphans", indexes / "_catalog", "--format", "json")
    assert done.lines[0]["leftovers"] == []


def test_a_directory_that_cannot_be_listed_is_a_warning(
    command: Command, changing: ChangingArchive
) -> None:
    (changing.source / "loop").symlink_to(changing.source)
    done = command("catalog", "orphans", changing.catalog)
    assert (
        f"Warning: {changing.source.as_uri()}/loop: a link to a directory above itself; "
        "leftovers in it are not shown" in done.stderr
    )


def test_every_file_that_an_uploader_writes_belongs_to_a_segment(
    tmp_path: Path, subtests: pytest.Subtests
) -> None:
    for name in WRITERS:
        with subtests.test(name):
            layout, write, _ = WRITERS[name]
            log = segment([batches(0, 3)])
            place = tmp_path / name
            write(place, [Stored("t", number, 0, log, bytes(12), bytes(8)) for number in range(2)])
            assert list_leftovers(Location.of(place), layout_of(layout)).found == []


def test_uploads_without_a_manifest(tmp_path: Path) -> None:
    stored = [Stored("t", 0, base, batches(base, 3), bytes(12), bytes(8)) for base in (0, 40, 80)]
    aiven(tmp_path, stored)
    first, second, _ = (aiven_stem(tmp_path, one) for one in stored)
    first.with_name(f"{first.name}.rsm-manifest").unlink()
    second.with_name(f"{second.name}.log").unlink()
    found = list_leftovers(Location.of(tmp_path), layout_of("aiven")).found
    assert sorted((one.kind.value, Path(one.uri).name) for one in found) == [
        ("manifest without a log", f"{second.name}.rsm-manifest"),
        ("upload without a manifest", f"{first.name}.indexes"),
        ("upload without a manifest", f"{first.name}.log"),
    ]


@pytest.fixture
def with_orphans(changing: ChangingArchive) -> ChangingArchive:
    """A log is deleted, and a build has seen it."""
    changing.log(CLICKS).unlink()
    changing.build(offset_index=True)
    return changing


def test_a_plan_is_written_and_applied(command: Command, with_orphans: ChangingArchive) -> None:
    orphans = ("catalog", "orphans", with_orphans.catalog)
    names = [f"indexes/{CLICKS}/{0:020d}{suffix}" for suffix in (".index", ".timeindex")]
    paths = [with_orphans.folder / name for name in names]
    size_bytes = sum(path.stat().st_size for path in paths)

    [planned] = command(*orphans, "--plan", "plan.jsonl", "--format", "json").lines
    assert list(planned) == ["snapshot", "source", "by_kind", "plan", "seconds", "leftovers"]
    plan = planned["plan"]
    assert (plan["files"], plan["size_bytes"], plan["left_out"]) == (2, size_bytes, [])

    [tried] = command(*orphans, "--apply", "plan.jsonl", "--dry-run", "--format", "json").lines
    assert all(path.exists() for path in paths)
    [done] = command(*orphans, "--apply", "plan.jsonl", "--format", "json").lines
    assert not any(path.exists() for path in paths)
    assert tried == done | {"dry_run": True, "seconds": tried["seconds"]}
    assert (done["by_outcome"], done["files_removed"]) == ({"removed": 2}, 2)
    assert (done["plan_id"], done["bytes_removed"]) == (plan["plan_id"], size_bytes)
    assert [one["uri"] for one in done["results"]] == [path.as_uri() for path in paths]


def test_the_tables_of_a_plan_and_its_apply(
    command: Command, with_orphans: ChangingArchive
) -> None:
    orphans = ("catalog", "orphans", with_orphans.catalog)
    marked = with_orphans.source / f"b1/orders-1.{DEAD}-delete"
    marked.mkdir()
    (marked / f"{0:020d}.log").write_bytes(bytes(100))
    shown = command(*orphans, "--plan", "plan.jsonl", "--remove", "delete-directories")
    assert "2 files in 2 leftovers" in shown.stdout
    assert f"{marked.as_uri()}: was modified less than a day ago" in shown.stderr
    with_orphans.index(CLICKS).write_bytes(b"of another program")
    done = command(*orphans, "--apply", "plan.jsonl")
    assert done.exit_code == 4
    assert "18 bytes found, the plan says" in done.stdout
    records = command(*orphans, "--apply", "plan.jsonl", "--format", "jsonl").lines
    assert [line["kind"] for line in records] == ["result", "result", "summary"]
    assert records[-1]["by_outcome"] == {"already removed": 1, "kept": 1}
