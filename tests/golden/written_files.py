"""What a command wrote and removed below a folder."""

import hashlib
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from tests.golden.unstable_values import UnstableValues

TEXTS: Final = (".json", ".jsonl", ".csv", ".txt", ".toml")
# Spark names parts by random UUIDs and by task; which rows are in which part means nothing.
SPARK_PART: Final = re.compile(r"part-\d{5}-[0-9a-f-]{36}\S*\.parquet")
OF_SPARK: Final = re.compile(r"_SUCCESS|\..*\.crc")  # checksums of those parts, an empty mark


class Seen(NamedTuple):
    """A file as it was: a rewritten one differs in at least one of these."""

    inode: int
    size_bytes: int
    modified_ns: int


class WrittenFiles:
    """Files below a folder, looked at before and after every command."""

    def __init__(self, folder: Path, values: UnstableValues) -> None:
        """Begin with a folder as it is now."""
        self._folder, self._values = folder, values
        self._seen = self._look()

    def look_again(self) -> None:
        """Take what changed since as the test's own doing, no command's."""
        self._seen = self._look()

    def changes(self) -> list[dict[str, Any]]:
        """Return what was written and removed since the last look, by path."""
        before, self._seen = self._seen, self._look()
        places = {
            self._place(path)
            for path in before.keys() | self._seen.keys()
            if before.get(path) != self._seen.get(path) and not OF_SPARK.fullmatch(path.name)
        }
        found = [{"path": self._values.mask(str(place)), **self._what(place)} for place in places]
        return sorted(found, key=json.dumps)

    def _look(self) -> dict[Path, Seen]:
        return dict(self._files())

    def _files(self) -> Iterator[tuple[Path, Seen]]:
        for directory, _, names in os.walk(self._folder):
            for name in names:
                path = Path(directory, name)
                stat = path.lstat()
                yield path, Seen(stat.st_ino, stat.st_size, stat.st_mtime_ns)

    @staticmethod
    def _place(path: Path) -> Path:
        return path.parent / "*.parquet" if SPARK_PART.fullmatch(path.name) else path

    def _what(self, place: Path) -> dict[str, Any]:
        files = sorted(place.parent.glob("*.parquet")) if place.name == "*.parquet" else [place]
        files = [file for file in files if file in self._seen]
        if not files:
            return {"removed": True}
        if place.suffix in (".parquet", ".arrow"):
            return {"rows": self._rows(files)}
        if place.suffix in TEXTS:  # masked text, as its hash would be another in every recording
            return {"text": self._values.mask(place.read_text()).split("\n")}
        return {"sha256": hashlib.sha256(place.read_bytes()).hexdigest()}

    def _rows(self, files: list[Path]) -> list[str]:
        """Return the columns with their types, then the rows, sorted."""
        tables = [_table(file) for file in files]
        rows = [json.dumps(row, default=str) for table in tables for row in table.to_pylist()]
        columns = ", ".join(f"{field.name} {field.type}" for field in tables[0].schema)
        return [columns, *sorted(map(self._values.mask, rows))]


def _table(file: Path) -> pa.Table:
    if file.suffix == ".parquet":
        return pq.ParquetFile(file).read()
    with pa.ipc.open_stream(file) as reader:
        return reader.read_all()
