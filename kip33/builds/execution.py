"""Carry out a build's plan on an engine."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import pyarrow as pa

from kip33.archive.bins import Engine, Progress
from kip33.builds.build_spec import BuildSpec
from kip33.builds.build_summary import BuildSummary
from kip33.builds.commit import begin_build, commit_build
from kip33.builds.largest_before import with_largest_before
from kip33.builds.plan import BuildPlan
from kip33.builds.task import TaskResult, build_bin
from kip33.rules.draft_entries import BUCKET
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
        files, first_pass_bytes = plan.files, 0
        if plan.build.settings.dialect == BUCKET.name:
            files, first_pass_bytes = with_largest_before(
                plan.build, files, engine, parallelism=parallelism, on_progress=on_progress
            )
        begun = begin_build(plan)
        results = engine.run_on_bins(
            files,
            partial(_build_bin, plan.build, begun.draft.staging, len(begun.taken)),
            reads_files=not plan.build.read_tail,
            parallelism=parallelism,
            on_progress=on_progress,
        )
        summary = commit_build(begun, results)
        return replace(summary, bytes_read=summary.bytes_read + first_pass_bytes)


def _build_bin(
    build: BuildSpec, staging: Location, first_part: int, number: int, files: pa.Table
) -> Iterator[TaskResult]:
    yield build_bin(build, staging, first_part + number, files)
