"""Whole builds without a JVM, and what a reader sees after one."""

import time
from pathlib import Path
from typing import Any, NamedTuple

from kip33.builds.commit import BuildSummary, execute_build
from kip33.builds.plan import BuildPlan
from kip33.catalog.catalog import Catalog
from kip33.local.local_engine import LocalEngine
from tests.builders.plans import plan_build

BINS = 3
INDEX_SUFFIXES = (".timeindex", ".index", ".txnindex")
INDEX_FILE_TIMES = (
    "time_index_modified_ms",
    "offset_index_modified_ms",
    "transaction_index_modified_ms",
)


def build_here(
    source: Path | str, index_dir: Path | None, *, now_ms: int | None = None, **settings: Any
) -> BuildSummary:
    """Plan a build and carry it out in this process, in a few bins."""
    plan = plan_build(
        str(source),
        str(index_dir) if index_dir else None,
        now_ms=now_ms if now_ms is not None else int(time.time() * 1000),
        **settings,
    )
    return carry_out(plan)


def carry_out(plan: BuildPlan) -> BuildSummary:
    """Carry a plan out in this process, in a few bins."""
    return execute_build(plan, LocalEngine(1, BINS))


class Outcome(NamedTuple):
    """What a reader sees: index files by path, and the newest snapshot's rows by log.

    Rows are without the modification times of index files: these tell when a build ran.
    """

    files: dict[str, bytes]
    rows: list[dict[str, Any]]


def index_files_below(root: Path) -> dict[str, bytes]:
    """Return the files with an index file's final name, by path; hidden ones are left out."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.suffix in INDEX_SUFFIXES and not path.name.startswith(".")
    }


def outcome(index_dir: Path, catalog: Path | None = None) -> Outcome:
    """Return what a build left; the catalog's files are left out."""
    files = index_files_below(index_dir)
    opened = Catalog.at(str(catalog or index_dir / "_catalog"))
    rows = opened.read(opened.require_newest()).to_pylist()
    for row in rows:
        for name in INDEX_FILE_TIMES:
            del row[name]
    return Outcome(files, sorted(rows, key=lambda row: row["log_uri"]))
