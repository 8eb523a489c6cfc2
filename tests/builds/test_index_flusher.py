"""Index files are flushed in lists; what cannot be opened does not end a build."""

from pathlib import Path
from typing import Any

import pytest

from kip33.builds.index_flusher import FILES_AT_ONCE, IndexFlusher
from kip33.errors import PublishError

FILES = 2 * FILES_AT_ONCE + 3


def row(folder: Path, number: int) -> dict[str, Any]:
    place = folder / f"{number:020d}.timeindex"
    return {"index_file": "written", "index_uri": place.as_uri(), "time_index_bytes": 12}


def test_a_file_that_has_another_name_now_is_flushed_with_its_file_system(tmp_path: Path) -> None:
    flusher = IndexFlusher()
    for number in range(FILES):
        if number % 7:
            (tmp_path / f"{number:020d}.timeindex").write_bytes(bytes(12))
        flusher.add(row(tmp_path, number))
    flusher.flush()


@pytest.mark.parametrize("files", [1, FILES])
def test_a_folder_that_cannot_be_flushed_ends_the_build(tmp_path: Path, files: int) -> None:
    flusher = IndexFlusher()
    for number in range(files):
        flusher.add(row(tmp_path / "none", number))
    with pytest.raises(PublishError, match="--no-fsync"):
        flusher.flush()
