"""The journal of a plan's deletions, beside the catalog's snapshots.

    CATALOG/retention/<plan id>/
      broker-1/orders-0/                                     a partition, as below SOURCE
        00000000000000000042-91aa3c5e7f02-intent.json        put before the first deletion
        00000000000000000042-91aa3c5e7f02-deleted.json       put after the last

A step is one segment, named by its base offset. Each apply (a run) has an id and writes its own
complete objects, because object stores cannot append. The names alone show how far a plan got:

    intent         all files were as planned; from now on they may be deleted
    deleted        this run deleted all files; with a trash `moved`
    gone_already   all files are deleted; another run deleted the log
    incomplete     the log is deleted, other files may exist: this run was stopped
    stopped        this run changed no file of the segment
"""

import json
from typing import Any, Final

from pyarrow import fs

from kip33.catalog.catalog import Catalog
from kip33.errors import PlanError
from kip33.retention.outcomes import RecordKind, StepOutcome
from kip33.retention.plan import PlannedPartition, RetentionPlan
from kip33.retention.plan_file import PARTITION_KEY, file_record
from kip33.stores.concurrently import map_in_order
from kip33.stores.files import entries_of, read_whole
from kip33.stores.locations import Location
from kip33.stores.own_files import publish_or_raise

DONE_RESULTS: Final = frozenset((StepOutcome.DELETED, StepOutcome.MOVED, StepOutcome.GONE_ALREADY))
_MOST_BYTES: Final = 1 << 24
_CONSEQUENCE: Final = "without it no more segments of its partition are deleted"


def journal_place(plan: RetentionPlan) -> Location:
    """Return the folder of a plan's journal."""
    return Catalog(plan.basis.catalog).location.child(f"retention/{plan.plan_id}")


class Journal:
    """The journal of one partition: the records of all runs, and those that this run adds.

    An object is believed only if it names the plan, whose id is a checksum, its partition, and
    files of its segment in the plan.
    """

    def __init__(self, plan: RetentionPlan, partition: PlannedPartition, run_id: str) -> None:
        """Take the place of the journal; `load` reads it."""
        below = partition.below(plan.basis.source)
        place = journal_place(plan)
        self._folder = place.child(below) if below else place
        self._run_id = run_id
        self._plan_id, self._partition = plan.plan_id, partition
        self._planned = {segment.base_offset: segment for segment in partition.segments}
        self._believed: set[str] = set()  # names of objects
        self._by_step: dict[int, set[tuple[str, str]]] = {}  # (run id, what) by base offset

    @property
    def other_runs(self) -> set[str]:
        """Return the ids of the other runs that put an object."""
        runs = {run_id for step in self._by_step.values() for run_id, _ in step}
        return runs - {self._run_id}

    def load(self) -> None:
        """Read the objects that are new, including those of runs in progress.

        OSError if that fails, PlanError for an object that no run of this plan put.
        """
        self._by_step = {}
        steps: dict[str, tuple[int, str, str]] = {}
        for info in entries_of(self._folder):
            base_offset, _, rest = info.base_name.partition("-")
            run_id, _, what = rest.removesuffix(".json").partition("-")
            if info.type == fs.FileType.File and base_offset.isdecimal() and rest.endswith(".json"):
                steps[info.base_name] = int(base_offset), run_id, what
        new = [(name, *step) for name, step in steps.items() if name not in self._believed]
        for name in map_in_order(self._folder, new, self._require_believable):
            self._believed.add(name)
        for step_offset, run_id, what in steps.values():
            self._by_step.setdefault(step_offset, set()).add((run_id, what))

    def _require_believable(self, step: tuple[str, int, str, str]) -> str:
        name, base_offset, run_id, what = step
        place = self._folder.child(name)
        try:
            found = json.loads(read_whole(place, most_bytes=_MOST_BYTES))
            is_ours = self._is_of_step(found, base_offset, run_id, what)
        except (ValueError, TypeError, KeyError, RecursionError):
            is_ours = False
        if not is_ours:
            raise PlanError(
                f"{place.uri}: not an object that an apply of plan {self._plan_id} put there; "
                "look where it is from and remove it, then make another plan"
            )
        return name

    def _is_of_step(self, found: dict[str, Any], base_offset: int, run_id: str, what: str) -> bool:
        partition = self._partition
        is_intent = what == RecordKind.INTENT
        expected = {
            "kind": str(RecordKind.INTENT if is_intent else RecordKind.RESULT),
            "plan_id": self._plan_id,
            "run_id": run_id,
            **dict(zip(PARTITION_KEY, partition.key, strict=True)),
            "base_offset": base_offset,
            "outcome": None if is_intent else what,
            "dry_run": False,
        }
        planned = self._planned[base_offset].files  # KeyError: not in the plan
        files = [file_record(partition, file) for file in planned]
        has_its_files = all(file in files for file in found["files"])
        return has_its_files and all(found[name] == value for name, value in expected.items())

    def is_done(self, base_offset: int) -> bool:
        """Return whether a run recorded that all files of a segment are deleted."""
        return any(what in DONE_RESULTS for _, what in self._by_step.get(base_offset, ()))

    def is_begun(self, base_offset: int, *, by_another_run: bool = False) -> bool:
        """Return whether a run may have deleted files of a segment."""
        names = self._by_step.get(base_offset, set())
        return any(
            what == RecordKind.INTENT
            and (run_id, StepOutcome.STOPPED) not in names
            and not (by_another_run and run_id == self._run_id)
            for run_id, what in names
        )

    def put(self, base_offset: int, what: str, record: dict[str, Any]) -> None:
        """Publish one object; PublishError if that fails."""
        name = f"{base_offset:020d}-{self._run_id}-{what}.json"
        data = (json.dumps(record) + "\n").encode()
        publish_or_raise(self._folder.child(name), data, _CONSEQUENCE)
        self._believed.add(name)
