"""Rows whose index files were put without reading back: sizes and times come from one listing.

A local folder has the same listing as a bucket, so these tests need no server. Requests to a real
one are counted in tests/integration/stores/test_s3_requests.py.
"""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kip33.archive.listing import list_tree
from kip33.builds.build_options import BuildSpec
from kip33.builds.pending_rows import LEAST_FILES, SMALL_LOG_BYTES, Built, WaitingPuts
from kip33.rules.index_builder import IndexSettings
from kip33.stores.locations import Location
from tests.builders.plans import plan_build


class Folder:
    """Segments of one partition, and their index files as a task puts them."""

    def __init__(self, root: Path, segments: int) -> None:
        self.root = root
        self.logs = [root / f"orders-0/{number:020d}.log" for number in range(segments)]
        self.logs[0].parent.mkdir(parents=True)
        for log in self.logs:
            log.write_bytes(b"log")
        source = Location.of(root)
        self.listing = list_tree(source)
        self.build = BuildSpec(source, source, IndexSettings(), lists_puts=True)

    def puts(self, **how: Any) -> WaitingPuts:
        return WaitingPuts(self.build._replace(**how), self.listing.table)

    def put(
        self, number: int, data: bytes | None = b"index", *, offset_index: bool = False
    ) -> Built:
        """Return the row of a segment whose index files have 5 bytes, as far as the task knows."""
        place = self.logs[number].with_suffix(".timeindex")
        if data is not None:
            place.write_bytes(data)
        row: dict[str, Any] = {
            "index_uri": place.as_uri(), "index_file": "written",
            "time_index_bytes": 5, "time_index_modified_ms": None, "time_index_matches": True,
            "offset_index_bytes": None, "offset_index_modified_ms": None,
            "offset_index_matches": None,
        }  # fmt: skip
        if offset_index:
            place.with_suffix(".index").write_bytes(b"12345678")
            row |= {"offset_index_bytes": 8, "offset_index_matches": True}
        return Built(row, 0)


def modified(file: Path) -> int:
    return file.stat().st_mtime_ns // 1_000_000


def completed(puts: WaitingPuts, *built: Built) -> list[dict[str, Any]]:
    rows = [one.row for each in built for one in puts.complete(each)]
    return rows + [one.row for one in puts.complete_all()]


@pytest.mark.parametrize("segments", [1, LEAST_FILES])
def test_rows_get_the_times_of_their_files_in_order(segments: int, tmp_path: Path) -> None:
    folder = Folder(tmp_path, segments)

    rows = completed(folder.puts(), *(folder.put(i, offset_index=True) for i in range(segments)))

    assert [row["index_uri"] for row in rows] == [
        log.with_suffix(".timeindex").as_uri() for log in folder.logs
    ]
    for row, log in zip(rows, folder.logs, strict=True):
        assert (row["time_index_bytes"], row["offset_index_bytes"]) == (5, 8)
        assert row["time_index_modified_ms"] == modified(log.with_suffix(".timeindex"))
        assert row["offset_index_modified_ms"] == modified(log.with_suffix(".index"))
        assert row["index_file"] == "written" and "index_error" not in row


@pytest.mark.parametrize(("data", "found"), [(b"inde", 4), (None, None)])
def test_a_file_that_a_store_did_not_keep_whole_is_an_error_and_tried_again(
    data: bytes | None, found: int | None, tmp_path: Path
) -> None:
    folder = Folder(tmp_path, 3)

    first, wrong, last = completed(folder.puts(), folder.put(0), folder.put(1, data), folder.put(2))

    assert first["index_file"] == last["index_file"] == "written"
    assert wrong["index_file"] == "stale"
    assert wrong["index_error"] == (
        f"{wrong['index_uri']}: cannot be written: {wrong['index_uri']}: 5 bytes were written, "
        f"but the file has {found} bytes"
    )
    for column in ("bytes", "modified_ms", "matches"):
        assert wrong[f"time_index_{column}"] is None


def test_a_row_with_known_times_does_not_wait_unless_others_before_it_do(tmp_path: Path) -> None:
    folder = Folder(tmp_path, 3)
    puts = folder.puts()
    known = folder.put(0)
    known.row["time_index_modified_ms"] = 1
    waiting = folder.put(1)

    assert list(puts.complete(known)) == [known]
    assert list(puts.complete(waiting)) == []
    assert list(puts.complete(known)) == []
    assert list(puts.complete_all()) == [waiting, known]
    assert known.row["time_index_modified_ms"] == 1


def test_which_segments_wait(tmp_path: Path) -> None:
    many, few = Folder(tmp_path / "many", 3), Folder(tmp_path / "few", 2)
    small = next(iter(many.listing.segments()))
    assert many.puts().waits(small)
    assert not many.puts().waits(small._replace(size_bytes=SMALL_LOG_BYTES + 1))
    assert not many.puts(lists_puts=False).waits(small), "a folder of older files"
    assert not few.puts().waits(next(iter(few.listing.segments())))


def test_on_a_filesystem_no_file_waits_for_a_listing(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "logs", 3)
    assert isinstance(folder.listing.table, pa.Table)

    plan = plan_build(str(folder.root), str(tmp_path / "indexes"), now_ms=2**41)

    assert not plan.build.lists_puts
