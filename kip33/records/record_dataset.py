"""A folder of Parquet files with records, which each run continues: what it has and may get.

    TO/topic=orders/2024-05-01/part-00000-5c1e9b02a4f7.parquet     what readers see
    TO/topic=!types/types.parquet                                  no records: see below
    TO/_kip33/commits/00000000000000000001-5c1e9b02a4f7.json       files of a run, and offsets
    TO/_kip33/staging/5c1e9b02a4f7-1715000000000/topic=orders/...  files before the commit,
                                                                   named *.parquet.staged

Each file has the columns `topic` and `day`. Readers that take `topic` from the folder's name guess
its type from all names: topics named by numbers would become numbers. `topic=!types` is no number,
so all are texts. pyarrow takes the other columns from the first file, and fails if that has another
type of `topic` than it has guessed, as pandas does: this file is first and has no such column.

A run writes its files into staging. Then it puts its commit file, which names them and, for each
partition, the offset at which the next run begins, and the leader epoch of the record before it.
Then it moves the files to their places; a run that finds files of the newest commit in staging
moves them first. So each record is in the folder once, whatever ends a run. Readers of Spark, Arrow
and Hive ignore a folder whose name begins with `_`.

Two runs at once: each lists the commits after it put its own. One that finds another with the same
number takes its own back before it has moved a file. A run that finds two, of which none has moved
a file, cannot know whether they go on, and ends.
"""

import uuid
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple, Self

import pyarrow as pa
import pyarrow.parquet as pq

from kip33.archive.plans import JournalForm, plan_line, with_content_id
from kip33.errors import CatalogError, LocationError, PublishError
from kip33.records.columns import RECORDS
from kip33.records.log_ranges import LogEpochs, LogOffsets
from kip33.stores.files import entries_of, one_line, status_of
from kip33.stores.locations import Location
from kip33.stores.own_files import (
    move,
    publish_or_raise,
    remove_folder_quietly,
    remove_quietly,
)

_FOLDER: Final = "_kip33"
_FORM: Final = JournalForm(
    2,
    "a commit of records that were written to a folder",
    "restore the file, or write to another folder",
    CatalogError,
)
TOPIC: Final = "topic"
_TYPES: Final = f"{TOPIC}=!types/types.parquet"  # before all topics, and no topic's name
STAGED: Final = ".staged"  # behind the name of a file in staging: readers look for *.parquet
_DEAD_AFTER_MS: Final = 7 * 24 * 3_600_000
_DIGITS: Final = 20


class DatasetFile(NamedTuple):
    """A Parquet file of a dataset."""

    path: str  # below the dataset's folder
    records: int
    size_bytes: int


class DatasetCommit(NamedTuple):
    """What a run wrote."""

    number: int
    commit_id: str
    source: tuple[str, ...]  # URIs of what was read: one, or those of two tiers
    options: Mapping[str, Any]  # what each run must have in common
    ends: LogOffsets  # of all runs
    epochs: LogEpochs  # of the last records
    files: tuple[DatasetFile, ...]

    @property
    def name(self) -> str:
        """Return the name of its file without the suffix."""
        return f"{self.number:0{_DIGITS}d}-{self.commit_id}"

    def as_record(self) -> dict[str, Any]:
        """Return the content of its file."""
        record = self._asdict() | {"files": [one._asdict() for one in self.files]}
        return with_content_id({"format": _FORM.version} | record)

    @classmethod
    def of_record(cls, record: dict[str, Any]) -> Self:
        """Return the commit of a file; KeyError, TypeError or ValueError for another object."""
        files = tuple(DatasetFile(**one) for one in record["files"])
        values = {
            name: record[name] for name in ("number", "commit_id", "options", "ends", "epochs")
        }
        return cls(source=tuple(record["source"]), files=files, **values)


class RecordDataset:
    """The folder of a dataset."""

    def __init__(self, to: Location) -> None:
        """Name the places; nothing is read."""
        self.to = to
        self._commits = to.child(f"{_FOLDER}/commits")
        self._staging = to.child(f"{_FOLDER}/staging")

    def newest(self) -> DatasetCommit | None:
        """Return the newest commit after its files were moved to their places, None without one.

        Raises LocationError for a folder with files of others, CatalogError for a commit that
        cannot be used, PublishError if a file cannot be moved.
        """
        names = self._commit_names()
        if not names:
            self._require_ours()
            return None
        newest = [name for name in names if _number_of(name) == _number_of(names[-1])]
        found = [*filter(None, map(self._read, newest))]
        if len(newest) > 1:  # a run was killed before it took its commit back
            found = [one for one in found if any(self._is_in_place(file) for file in one.files)]
        if len(found) != 1:
            raise PublishError(
                f"{self._commits.uri}: {' and '.join(newest)} found, expected one of a number: two "
                "runs write at the same time; run the command again when they have ended; if they "
                "were killed, remove these files first"
            )
        for name in set(newest) - {found[0].name}:
            remove_quietly(self._commits.child(f"{name}.json"))
        self._move(found[0])
        return found[0]

    def begin(self, now_ms: int) -> Location:
        """Return the folder for the files of a new run; those of runs of a week ago are removed.

        Files that a commit names stay.
        """
        committed = {name.rpartition("-")[2] for name in self._commit_names()}
        for name in _names_in(self._staging):
            run_id, _, began_ms = name.partition("-")
            is_dead = began_ms.isdecimal() and now_ms - int(began_ms) >= _DEAD_AFTER_MS
            if is_dead and run_id not in committed:
                remove_folder_quietly(self._staging.child(name))
        return self._staging.child(f"{uuid.uuid4().hex[:12]}-{now_ms}")

    def commit(self, commit: DatasetCommit, staging: Location) -> None:
        """Put the commit file, then move the files; PublishError if that fails.

        If the commit file is there, the next run moves what is left.
        """
        place = self._commits.child(f"{commit.name}.json")
        for file in commit.files:
            if status_of(staging.child(f"{file.path}{STAGED}")) is None:
                raise PublishError(
                    f"{staging.uri}: {file.path} is missing: it was removed while the run wrote; "
                    "no record is added: run the command again"
                )
        publish_or_raise(place, plan_line(commit.as_record()), "no record is added")
        others = [
            name
            for name in self._commit_names()
            if name != commit.name and _number_of(name) == commit.number
        ]
        if others:
            remove_quietly(place)
            remove_folder_quietly(staging)
            raise PublishError(
                f"{self.to.uri}: another run wrote at the same time ({others[0]}); no record of "
                "this one is added: run the command again"
            )
        self._move(commit)

    def _commit_names(self) -> list[str]:
        names = (name.removesuffix(".json") for name in _names_in(self._commits))
        return sorted(name for name in names if _number_of(name))

    def _read(self, name: str) -> DatasetCommit | None:
        return _FORM.read(self._commits.child(f"{name}.json"), DatasetCommit.of_record)

    def _is_in_place(self, file: DatasetFile) -> bool:
        return status_of(self.to.child(file.path)) is not None

    def _move(self, commit: DatasetCommit) -> None:
        """Move the files of a commit that are still in staging."""
        if commit.files and status_of(types := self.to.child(_TYPES)) is None:
            data = _empty_file(commit.options["columns"])
            publish_or_raise(types, data, "the records are committed, and not yet in their places")
        prefix = f"{commit.commit_id}-"
        for name in _names_in(self._staging):
            if not name.startswith(prefix):
                continue
            staging = self._staging.child(name)
            for file in commit.files:
                self._move_one(staging.child(f"{file.path}{STAGED}"), self.to.child(file.path))
            remove_folder_quietly(staging)

    def _move_one(self, staged: Location, place: Location) -> None:
        try:
            if status_of(staged) is not None:
                move(staged, place)
        except OSError as error:
            raise PublishError(
                f"{place.uri}: cannot be written: {one_line(error)}; the records are committed: "
                "fix it and run the command again, which moves the files to their places"
            ) from error

    def _require_ours(self) -> None:
        """Raise LocationError for a folder in which another program has files."""
        others = [name for name in _names_in(self.to) if name != _FOLDER]
        if others:
            raise LocationError(
                f"{self.to.uri}: {min(others)} found, expected an empty folder or one of an "
                "earlier run: choose another folder"
            )


def file_columns(names: Iterable[str]) -> pa.Schema:
    """The columns of the files: some of a record's, topic and day."""
    of_records = (RECORDS.field(name) for name in names)
    return pa.schema([*of_records, pa.field(TOPIC, pa.string()), pa.field("day", pa.date32())])


def _empty_file(names: Iterable[str]) -> bytes:
    """A Parquet file without records, whose topic is only in the folder's name."""
    table = file_columns(names).empty_table().drop_columns([TOPIC])
    data = pa.BufferOutputStream()
    pq.write_table(table, data)
    return data.getvalue().to_pybytes()


def _number_of(commit_name: str) -> int:
    """Return the number in a commit's name, 0 for another name."""
    digits = commit_name[:_DIGITS]
    return int(digits) if len(digits) == _DIGITS and digits.isdecimal() else 0


def _names_in(folder: Location) -> list[str]:
    return sorted(info.base_name for info in entries_of(folder))
