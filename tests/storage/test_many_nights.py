"""A random walk: an archive changes, a build follows, and nobody can tell it read only a part.

After every build: each row of a topic it looked at is what a build into a new place makes of the
same archive, each index file that a row names is that build's to the byte, and rows of what it did
not look at are as they were. A row that believes a `.timeindex` may tell less, never another.
KIP33_WALKS is how many walks the long form has.
"""

import random
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from kip33.storage.building import build_bin
from kip33.storage.committing import begin_build
from tests.changing_archive import ChangingArchive, Row, batches
from tests.long_forms import short_and_long

PARTITIONS = ("x 1/a-0", "x 1/a-1", "x 1/b-0", "ü%41/b-0")
BASES = (0, 40, 80)
TOPICS: tuple[tuple[str, ...], ...] = ((), (), (), ("a",), ("b*",))
SETTINGS_COLUMNS = ("build_settings", "time_index_settings", "offset_index_settings")
LOST = "lost"
SEGMENTS = st.tuples(st.sampled_from(PARTITIONS), st.sampled_from(BASES))
SETTINGS = st.fixed_dictionaries(
    {
        "dialect": st.sampled_from(["recover", "recover", "kip33"]),
        "offset_index": st.booleans(),
        "read": st.sampled_from(["log", "log", "tail"]),
        "topics": st.sampled_from(TOPICS),
        "full": st.sampled_from([False, False, False, True]),
    }
)
TOLD_BY_BOTH = ("topic", "base_offset", "size_bytes", "last_modified_ms", "active_segment",
                "largest_timestamp", "max_timestamp", "first_batch_timestamp")  # fmt: skip


class Nights(RuleBasedStateMachine):
    """An archive with a catalog, one change after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="nights-"))
        self.archive = ChangingArchive(self.folder)
        self.chance = random.Random(0)
        self.before: dict[str, Row] = {}
        self.settings: dict[str, Any] = {"offset_index": False}

    def teardown(self) -> None:
        shutil.rmtree(self.folder)

    @initialize()
    def two_segments_that_stay(self) -> None:
        for partition in ("stays/a-9", "stays/b-9"):  # SOURCE is never without a segment
            self.archive.write(self.archive.log(partition), batches(0, 3))

    # What happens to logs

    @rule(segment=SEGMENTS, count=st.integers(0, 9), age_ms=st.sampled_from([500, 1999, 60_000]))
    def comes_or_changes(self, segment: tuple[str, int], count: int, age_ms: int) -> None:
        log = self.archive.log(*segment)
        if log.parent.is_symlink():
            return
        self._forget_beside(log)
        first_ms = self.archive.now_ms - 1_000_000 + self.chance.randrange(1000)
        self.archive.write(log, batches(segment[1], count, first_ms=first_ms), age_ms=age_ms)

    @rule(segment=SEGMENTS)
    def grows(self, segment: tuple[str, int]) -> None:
        log = self.archive.log(*segment)
        if log.exists():
            self._forget_beside(log)
            more = batches(segment[1] + 18, 2, first_ms=self.archive.now_ms)
            self.archive.write(log, log.read_bytes() + more)

    @rule(segment=SEGMENTS)
    def turns_bad(self, segment: tuple[str, int]) -> None:
        log = self.archive.log(*segment)
        if log.exists():
            self._forget_beside(log)
            later = self.archive.now_ms
            self.archive.write(log, batches(segment[1] - 9, 9, first_ms=later))

    @rule(segment=SEGMENTS)
    def is_cut(self, segment: tuple[str, int]) -> None:
        log = self.archive.log(*segment)
        if log.exists() and log.stat().st_size:
            self._forget_beside(log)
            self.archive.write(log, log.read_bytes()[:-5])

    @rule(segment=SEGMENTS)
    def goes(self, segment: tuple[str, int]) -> None:
        """Its index files go with it: otherwise they would be nobody's when it comes back."""
        log = self.archive.log(*segment)
        if log.exists():
            self._forget_beside(log)
            log.unlink()
            for suffix in (".timeindex", ".index"):
                self.archive.index_of(log).with_suffix(suffix).unlink(missing_ok=True)

    @rule(partition=st.sampled_from(PARTITIONS))
    def a_directory_is_lost_or_found(self, partition: str) -> None:
        directory = self.archive.log(partition).parent
        hidden = self.folder / LOST / partition.replace("/", " ")
        if directory.is_symlink():
            directory.unlink()
            hidden.rename(directory)
        elif directory.exists():
            hidden.parent.mkdir(exist_ok=True)
            directory.rename(hidden)
            directory.symlink_to(self.archive.source)

    # What happens to index files

    @rule(segment=SEGMENTS, suffix=st.sampled_from([".timeindex", ".index"]))
    def an_index_goes(self, segment: tuple[str, int], suffix: str) -> None:
        self.archive.index(*segment).with_suffix(suffix).unlink(missing_ok=True)

    @rule(segment=SEGMENTS, suffix=st.sampled_from([".timeindex", ".index"]))
    def an_index_is_cut(self, segment: tuple[str, int], suffix: str) -> None:
        place = self.archive.index(*segment).with_suffix(suffix)
        if place.exists() and place.stat().st_size:
            place.write_bytes(place.read_bytes()[:-4])

    @rule(segment=SEGMENTS)
    def a_true_index_appears_beside_the_log(self, segment: tuple[str, int]) -> None:
        log = self.archive.log(*segment)
        if log.exists():
            (name,) = {str(log.relative_to(self.archive.source).with_suffix(".timeindex"))}
            for path, data in self.archive.fresh().files.items():
                if path == name:
                    log.with_suffix(".timeindex").write_bytes(data)

    # Builds

    @rule(settings=SETTINGS)
    def is_built(self, settings: dict[str, Any]) -> None:
        settings = settings | self._no_new_offset_indexes(settings)
        before = self.before
        fresh_settings = {k: v for k, v in settings.items() if k != "full"}
        truth = {row["log_uri"]: row for row in self.archive.fresh(**fresh_settings).rows}
        files = self.archive.fresh(**fresh_settings | {"read": "log"}).files
        summary = self.archive.build(**settings)
        seen = self.archive.outcome()
        after = {row["log_uri"]: row for row in seen.rows}
        assert not summary.warnings
        assert summary.failed == 0
        segments = {uri for uri, row in after.items() if row["base_offset"] is not None}
        unlisted = segments - set(truth)
        assert set(truth) <= set(after)
        assert summary.carried == len(unlisted)
        assert summary.indexed + summary.reused == len(truth)
        for uri in unlisted:
            assert without_settings(after[uri]) == without_settings(before[uri])
        for uri, true in truth.items():
            row = after[uri]
            if row["status"] == true["status"] == "unverified" or "unverified" not in (
                row["status"], true["status"],
            ):  # fmt: skip
                assert row == true
            else:
                assert (row["status"], true["status"]) == ("ok", "unverified")
                assert [row[name] for name in TOLD_BY_BOTH] == [true[name] for name in TOLD_BY_BOTH]
        for path, data in seen.files.items():
            log = self.archive.source / Path(path).with_suffix(".log")
            if log.as_uri() in truth:
                assert data == files[path], path
        self.before = after

    @precondition(lambda self: self.before)
    @rule(settings=SETTINGS, bins=st.sampled_from([0, 1]))
    def a_build_is_killed(self, settings: dict[str, Any], bins: int) -> None:
        settings = settings | self._no_new_offset_indexes(settings)
        begun = begin_build(self.archive.plan(**settings))
        if bins:
            files = begun.plan.files.slice(0, max(1, begun.plan.files.num_rows // 2))
            build_bin(begun.plan.build, begun.draft.staging, len(begun.taken), files)

    @invariant()
    def the_newest_snapshot_is_whole(self) -> None:
        if self.before:
            assert {row["log_uri"]: row for row in self.archive.outcome().rows} == self.before

    def _forget_beside(self, log: Path) -> None:
        log.with_suffix(".timeindex").unlink(missing_ok=True)

    def _no_new_offset_indexes(self, settings: dict[str, Any]) -> dict[str, Any]:
        """Return what keeps offset indexes on once they were: off and on, they are nobody's."""
        self.settings["offset_index"] |= settings["offset_index"]
        return {"offset_index": self.settings["offset_index"]}


def without_settings(row: Row) -> Row:
    return {name: value for name, value in row.items() if name not in SETTINGS_COLUMNS}


@pytest.mark.parametrize("walks", short_and_long(15, 40, "KIP33_WALKS"))
def test_no_night_tells_what_the_nights_before_did(walks: int) -> None:
    run_state_machine_as_test(
        Nights,
        settings=hypothesis_settings(
            max_examples=walks,
            stateful_step_count=25,
            deadline=None,
            derandomize=True,
            phases=[Phase.generate],
        ),
    )
