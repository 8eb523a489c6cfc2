"""Carry out a build's plan on an engine."""

from collections.abc import Iterator
from functools import partial

import pyarrow as pa

from kip33.archive.bins import Engine, Progress
from kip33.builds.build_spec import BuildSpec
from kip33.builds.build_summary import BuildSummary
from kip33.builds.commit import begin_build, commit_build
from kip33.builds.plan import BuildPlan
from kip33.builds.task import TaskResult, build_bin
from kip33.stores.locations import Location


def execute_build(
    plan: BuildPlan,
    engine: Engine,
    *,
    parallelism: int | None = None,
    on_progress: Progress | None = None,
) -> BuildSummary:
    """Carry out a plan: index files, then one catalog snapshot.

    Bad segments are rows, not exceptions. `on_progress` is called with (finished bins, all bins).
    In place the log directories are locked until the end, as a broker locks them; LockedError if a
    broker or another run of kip33 holds a lock.
    """
    with plan.locks():
        engine.prepare(plan.files)
        begun = begin_build(plan)
        results = engine.run_on_bins(
            plan.files,
            partial(_build_bin, plan.build, begun.draft.staging, len(begun.taken)),
            reads_files=not plan.build.read_tail,
            parallelism=parallelism,
            on_progress=on_progress,
        )
        return commit_build(begun, results)


def _build_bin(
    build: BuildSpec, staging: Location, first_part: int, number: int, files: pa.Table
) -> Iterator[TaskResult]:
    yield build_bin(build, staging, first_part + number, files)
