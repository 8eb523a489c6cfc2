"""A tree verified in this process: which index files are read, and what cannot be read."""

import shutil
from collections import Counter
from pathlib import Path

import pytest

from kip33.demo import make_archive
from kip33.indexing.verification import SegmentVerdict
from kip33.indexing.verify_tree import execute_verify, plan_verify
from kip33.local.local_engine import LocalEngine
from kip33.rules.index_builder import IndexSettings
from tests.faults.builds import build_here

FIRST = "00000000000000000000"
ORDERS = "broker-1/orders-0"


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo archive and its index files, which the tests do not change."""
    root = tmp_path_factory.mktemp("demo")
    make_archive(root / "archive")
    build_here(root / "archive", root / "indexes", now_ms=1_800_000_000_000, offset_index=True)
    return root


def by_log(source: Path, index_dir: Path | None = None) -> dict[str, SegmentVerdict]:
    plan = plan_verify(str(source), str(index_dir) if index_dir else None)
    found = [*execute_verify(plan, LocalEngine())]
    assert [one.log_uri for one in found] == sorted(one.log_uri for one in found)
    prefix = f"{source.as_uri()}/"
    return {one.log_uri.removeprefix(prefix).removesuffix(".log"): one for one in found}


def test_what_a_build_wrote_is_identical(demo: Path) -> None:
    found = by_log(demo / "archive", demo / "indexes")
    assert Counter((one.verdict, one.offset_index_verdict) for one in found.values()) == {
        ("identical", "identical"): 12,
        ("missing", "missing"): 1,  # a log that Kafka keeps no index of
    }


def test_settings_and_topics_are_those_of_the_plan(demo: Path) -> None:
    settings = IndexSettings(index_interval_bytes=65_536)
    places = (str(demo / "archive"), str(demo / "indexes"))
    plan = plan_verify(*places, settings=settings, topics=["orders"])
    found = [*execute_verify(plan, LocalEngine())]
    assert Counter(one.verdict for one in found) == {"consistent": 6}


def test_an_index_beside_the_log_is_verified_if_the_index_directory_has_none(
    demo: Path, tmp_path: Path
) -> None:
    source, index_dir = tmp_path / "source", tmp_path / "indexes"
    shutil.copytree(demo / "archive" / ORDERS, source / ORDERS)
    shutil.copytree(demo / "indexes" / ORDERS, index_dir / ORDERS)
    first, second, third = (f"{ORDERS}/{offset:020d}" for offset in (0, 4000, 8000))
    (index_dir / f"{first}.index").rename(source / f"{first}.index")
    (source / f"{second}.index").write_bytes(b"not looked at")
    (index_dir / f"{third}.index").unlink()
    found = by_log(source, index_dir)
    expected = {first: "identical", second: "identical", third: "missing"}
    assert {name: one.offset_index_verdict for name, one in found.items()} == expected


def test_a_file_that_changes_after_the_listing_is_a_verdict(demo: Path, tmp_path: Path) -> None:
    source = Path(shutil.copytree(demo / "archive", tmp_path / "source"))
    index_dir = Path(shutil.copytree(demo / "indexes", tmp_path / "indexes"))
    plan = plan_verify(str(source), str(index_dir))
    gone, cut = f"{ORDERS}/{FIRST}", f"broker-1/payments-0/{FIRST}"
    directory, torn = f"broker-2/orders-0/{FIRST}", f"broker-1/audit.v1-0/{FIRST}"
    (source / f"{gone}.log").unlink()
    (source / f"{cut}.log").write_bytes((source / f"{cut}.log").read_bytes()[:1000])
    (source / f"{directory}.log").unlink()
    (source / f"{directory}.log").mkdir()
    with (index_dir / f"{torn}.timeindex").open("ab") as index:
        index.write(b"\x00")

    found = {one.log_uri: one for one in execute_verify(plan, LocalEngine())}

    gone, cut, directory, torn = (
        found[(source / f"{one}.log").as_uri()] for one in (gone, cut, directory, torn)
    )
    assert (gone.verdict, cut.verdict) == ("unreadable", "wrong")
    assert (directory.verdict, torn.verdict) == ("unreadable", "malformed")
    assert "the log cannot be read" in gone.problems[0]
    assert torn.problems == ("49 bytes found, expected a multiple of 12",)
    assert "at byte" in cut.log_error
    assert len(found) == 13


def test_a_directory_that_cannot_be_listed_is_a_verdict(tmp_path: Path) -> None:
    tmp_path.joinpath("broker-1", *["d"] * 32, "orders-0").mkdir(parents=True)
    (tmp_path / "orders-1").mkdir()
    (tmp_path / "orders-1" / f"{FIRST}.log").touch()
    plan = plan_verify(str(tmp_path), None)
    found = {one.verdict: one for one in execute_verify(plan, LocalEngine())}
    assert found.keys() == {"missing", "unreadable"}
    problem = found["unreadable"].problems[0]
    assert "cannot be listed: more than 32 directories deep" in problem
