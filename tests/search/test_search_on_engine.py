"""Searches of an engine: each bin reads its own part of the catalog and gets its own questions."""

import pickle
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

from kip33.archive.bins import Engine, Work
from kip33.catalog.catalog import Catalog
from kip33.catalog.tiers import CatalogSnapshot
from kip33.search import catalog_search
from kip33.search.answers import SearchOptions
from kip33.search.catalog_search import TimeAnswer, rows_of, search_on_engine, search_rows
from kip33.search.replica_search import TimeQuestion
from tests.builders.snapshots import row, write

TOPICS = [f"topic-{number:02d}" for number in range(20)]
HOW = SearchOptions(index_only=True)


class OneRowABin:
    """Runs each row of the work alone, from what would be sent to a task."""

    def __init__(self) -> None:
        self.sent_bytes: list[int] = []

    def run_on_bins(
        self, files: pa.Table, run: Callable[[int, pa.Table], Iterable[Any]], *, work: Work
    ) -> list[Any]:
        found = []
        for number in range(files.num_rows):
            sent = pickle.dumps((run, files.take([number])))
            self.sent_bytes.append(len(sent))
            task, share = pickle.loads(sent)
            found += task(number, share)
        return found


@pytest.fixture
def source(tmp_path: Path) -> CatalogSnapshot:
    catalog = Catalog.at(str(tmp_path / "c"))
    of_topics = [
        [
            row(partition, topic=topic, base_offset=base, last_offset=base + 9, index_uri=None)
            | {"log_uri": f"file:///a/{topic}-{partition}/{base:020d}.log"}
            for partition in range(3)
            for base in range(0, 300, 10)
        ]
        for topic in TOPICS
    ]
    return CatalogSnapshot(catalog, write(catalog, *of_topics))


def answers_in(found: list[TimeAnswer]) -> list[tuple[Any, ...]]:
    return [(*one[:3], *one.located[1:]) for one in found]


def test_a_bin_gets_no_rows_of_the_catalog(source: CatalogSnapshot) -> None:
    questions = [TimeQuestion(topic, None, -2) for topic in (*TOPICS, "none")]
    rows = rows_of(source, [*TOPICS, "none"])
    engine = OneRowABin()
    found = search_on_engine(cast(Engine, engine), source, rows, questions, HOW)
    assert answers_in(found) == answers_in(search_rows(rows, questions, HOW))
    assert len(engine.sent_bytes) == len(found) == 3 * len(TOPICS) + 1
    assert max(engine.sent_bytes) < 5_000


def test_a_partition_that_is_asked_for_often_is_several_bins(
    source: CatalogSnapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog_search, "QUESTIONS_AT_ONCE", 3)
    questions = [TimeQuestion("topic-07", 1, -1 - number % 3) for number in range(10)]
    rows = rows_of(source, ["topic-07"])
    engine = OneRowABin()
    found = search_on_engine(cast(Engine, engine), source, rows, questions, HOW)
    assert answers_in(found) == answers_in(search_rows(rows, questions, HOW))
    assert len(engine.sent_bytes) == 4
