"""The same segments in every layout: the same rows and index bytes, searched and judged alike."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kip33 import verify_segment
from kip33.catalog.catalog import Catalog
from kip33.errors import PlanError
from kip33.retention.evaluation import RetentionRequest
from kip33.retention.make_plan import plan_retention
from kip33.rules.policies import Policies
from tests.builders.layout_segments import DAY_MS, made_segments, real_segments
from tests.builders.layouts import MODIFIED_MS, WRITERS, Stored, kafka
from tests.cases import each_case
from tests.faults.builds import Outcome, build_here, outcome
from tests.formats.real_segments import needs_real_segments

NOW_MS = MODIFIED_MS + DAY_MS
SETTINGS: dict[str, Any] = {"now_ms": NOW_MS, "offset_index": True, "index_interval_bytes": 512}
OTHERS = [name for name in WRITERS if name != "kafka"]
OF_PLACE = ("log_uri", "index_uri", "log_dir", "topic_id", "decided_by")
"""Some names have a topic id, and the `.snapshot`s of tiered storage decide nothing."""


def by_key(rows: Sequence[dict[str, Any]]) -> dict[tuple[Any, ...], dict[str, Any]]:
    keyed = {(row["topic"], row["partition"], row["base_offset"]): row for row in rows}
    assert len(keyed) == len(rows)
    return keyed


def without_place(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in OF_PLACE}


def index_bytes(row: dict[str, Any]) -> tuple[bytes, bytes]:
    """Return the files that a row names: they lie in the index directory, by Kafka's suffixes."""
    path = Path(row["index_uri"].removeprefix("file://"))
    assert path.suffix == ".timeindex"
    return path.read_bytes(), path.with_suffix(".index").read_bytes()


class Built(NamedTuple):
    """An archive in one layout, and what a build made of it."""

    source: Path
    indexes: Path
    found: Outcome


def built(place: Path, name: str, segments: Sequence[Stored], **settings: Any) -> Built:
    layout, write, _ = WRITERS[name]
    write(place / "a", segments)
    build_here(place / "a", place / "i", layout=layout, **SETTINGS | settings)
    return Built(place / "a", place / "i", outcome(place / "i"))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Built]:
    """The same segments in every layout, by the layout's name."""
    top = tmp_path_factory.mktemp("layouts")
    return {name: built(top / name.replace(" ", "_"), name, made_segments()) for name in WRITERS}


@each_case("name", OTHERS)
def test_same_rows_and_index_bytes_as_in_a_log_directory(made: dict[str, Built], name: str) -> None:
    expected = by_key(made["kafka"].found.rows)
    found = by_key(made[name].found.rows)
    assert found.keys() == expected.keys()
    for key, row in found.items():
        assert without_place(row) == without_place(expected[key])
        assert index_bytes(row) == index_bytes(expected[key])
        assert row["log_dir"] == WRITERS[name][2]
        assert row["index_uri"].startswith(made[name].indexes.as_uri() + "/")


@each_case("name", [*WRITERS])
def test_a_second_build_reads_nothing_again(made: dict[str, Built], name: str) -> None:
    source, indexes, before = made[name]
    again = build_here(source, indexes, layout=WRITERS[name][0], **SETTINGS)
    assert (again.indexed, again.reused, again.bytes_read) == (0, len(made_segments()), 0)
    assert outcome(indexes) == before


@each_case("name", [*WRITERS])
def test_verify_finds_the_built_files_identical(made: dict[str, Built], name: str) -> None:
    for row in made[name].found.rows:
        verdict = verify_segment(
            row["log_uri"],
            row["index_uri"],
            base_offset=row["base_offset"],
            index_interval_bytes=512,
        )
        assert (verdict.verdict, verdict.offset_index_verdict) == ("identical", "identical")


@each_case("name", [*WRITERS])
def test_deletions_are_planned_only_in_log_directories(made: dict[str, Built], name: str) -> None:
    catalog = Catalog.at(str(made[name].indexes / "_catalog"))
    newest = catalog.require_newest()
    assert newest.layout == WRITERS[name][0]
    policies = Policies({"defaults": {"cleanup.policy": "delete", "retention.ms": DAY_MS}})
    request = RetentionRequest(policies, NOW_MS, active_segment="kafka")
    if name == "kafka":
        assert len(plan_retention(catalog, newest, request, NOW_MS).partitions) == 3
    else:
        with pytest.raises(
            PlanError, match="kip33 does not plan or delete there, because"
        ) as raised:
            plan_retention(catalog, newest, request, NOW_MS)
        assert "\n" not in str(raised.value)


@needs_real_segments
@each_case("name", OTHERS)
def test_tail_trusts_the_archives_own_indexes(tmp_path: Path, name: str) -> None:
    kafka(tmp_path / "k", real_segments())
    build_here(tmp_path / "k", tmp_path / "ki", **SETTINGS | {"read": "tail"})
    expected = by_key(outcome(tmp_path / "ki").rows)
    found = by_key(built(tmp_path, name, real_segments(), read="tail").found.rows)
    if name != "pattern":  # it has no indexes
        assert {k: without_place(r) for k, r in found.items()} == {
            k: without_place(r) for k, r in expected.items()
        }
    again = build_here(
        *(tmp_path / "a", tmp_path / "i"), layout=WRITERS[name][0], **SETTINGS | {"read": "tail"}
    )
    assert (again.indexed, again.bytes_read) == (0, 0)
