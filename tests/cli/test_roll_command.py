"""`kip33 roll`: a catalog and a SOURCE, in every format; a replay under other settings."""

from pathlib import Path
from typing import Any

import pytest

from kip33.demo import START_MS
from tests.builders.log_file import write_log
from tests.builders.segment_builder import Record, v2_batch
from tests.cli.console import Command, Finished, result_in

HOUR_MS = 3_600_000
CATALOG = "indexes/_catalog"


def segments_of(done: Finished) -> list[dict[str, Any]]:
    return [row for row in done.lines if row.get("kind") == "segment"]


def summary_of(done: Finished) -> dict[str, Any]:
    assert done.exit_code == 0, done
    return next(row for row in done.lines if row.get("kind") == "summary")


def batch(offset: int, *hours: float) -> bytes:
    records = [Record(timestamp=START_MS + int(one * HOUR_MS)) for one in hours]
    return v2_batch(offset, records)


@pytest.fixture
def clicks(tmp_path: Path) -> Path:
    """Segments that ended by time, early, and by nothing; one was kept open too long."""
    partition = tmp_path / "own" / "clicks-0"
    write_log(partition, 0, batch(0, 0), batch(1, 0.5))
    write_log(partition, 2, batch(2, 1.1), batch(3, 3))
    write_log(partition, 4, batch(4, 3.1), batch(5, 3.2))
    write_log(partition, 6, batch(6, 3.3))
    return tmp_path / "own"


def test_the_table_names_what_is_overdue_and_what_other_settings_explain(
    command: Command, clicks: Path
) -> None:
    done = command("roll", clicks, "--segment-ms", "1h", "--now", "2023-12-01", "--result-line")
    assert done.exit_code == 0
    assert "2 time, 1 unexplained, 1 active" in done.stdout
    assert "has a timestamp of 2023-11-15T01:13:20.000Z, 54 min beyond the limit" in done.stdout
    assert "active past limit │ 1 of 1 at 2023-12-01T00:00:00.000Z" in done.stdout
    assert result_in(done)["bytes_read"] > 0


def test_a_source_and_its_catalog_have_the_same_rows(command: Command, clicks: Path) -> None:
    assert command("build", clicks, "--index-dir", "indexes").exit_code == 0
    by_headers = command("roll", clicks, "--segment-ms", "1h", "--format", "jsonl")
    for options in ((), ("--read-headers",)):
        of_catalog = command("roll", CATALOG, "--segment-ms", "1h", "--format", "jsonl", *options)
        assert segments_of(of_catalog) == segments_of(by_headers)
    assert summary_of(of_catalog)["bytes_read"] > 0


def test_a_catalog_alone_opens_no_log(command: Command, clicks: Path) -> None:
    assert command("build", clicks, "--index-dir", "indexes").exit_code == 0
    for log in clicks.rglob("*.log"):
        log.unlink()
    done = command("roll", CATALOG, "--segment-ms", "1h", "--format", "jsonl")
    assert summary_of(done)["bytes_read"] == 0
    reasons = [row["ended_by"] for row in segments_of(done)]
    assert reasons == ["time", "time", "unexplained", "active"]
    done = command("roll", CATALOG, "--read-headers")
    assert done.stderr.count("what its header would tell is unknown") == 4


def test_what_if_shows_the_segments_by_each_reading(command: Command, clicks: Path) -> None:
    how = ("--segment-ms", "1h", "--retention-ms", "1d", "--format", "jsonl")
    done = command("roll", "what-if", clicks, *how)
    bases: dict[str, list[int]] = {}
    for row in segments_of(done):
        bases.setdefault(row["reading"], []).append(row["base_offset"])
    assert bases == {"kafka": [0, 2, 3], "kip33": [0, 2, 3], "kip33-largest": [0, 3]}
    first = segments_of(done)[0]
    day_later = START_MS + HOUR_MS // 2 + 24 * HOUR_MS + 1
    assert (first["deletable_at_ms"], first["ended_by"]) == (day_later, "time")
    assert summary_of(done)["readings"]["kafka"]["segments"] == 3
    table = command("roll", "what-if", clicks, "--segment-ms", "1h").stdout
    assert "│ kafka, kip33  │" in table


@pytest.mark.integration
@pytest.mark.spark
@pytest.mark.parametrize("mode", [[], ["what-if"]], ids=["audit", "what if"])
def test_both_engines_read_the_same_headers(
    command: Command, clicks: Path, mode: list[str]
) -> None:
    write_log(clicks / "orders-0", 0, batch(0, 0, 2), batch(2, 3))
    write_log(clicks / "orders-0", 3, batch(3, 9))
    asked = ["roll", *mode, str(clicks), "--segment-ms", "1h"]
    rows = {}
    for engine in ("local", "spark"):
        done = command(*asked, "--engine", engine, "--format", "jsonl")
        assert done.exit_code == 0, done.stderr
        rows[engine] = [row for row in done.lines if row["kind"] != "summary"]
        summary = summary_of(done)
        assert (summary["engine"], summary["bytes_read"] > 0) == (engine, True)
    assert rows["spark"] == rows["local"]
    assert rows["local"]


def test_a_policy_gives_the_settings_and_an_option_overrides_it(
    command: Command, clicks: Path, tmp_path: Path
) -> None:
    (tmp_path / "policy.toml").write_text('[topics.clicks]\nsegment.ms = "2h"\n')
    settings = ("--policy", tmp_path / "policy.toml", "--format", "jsonl")
    [row, *_] = segments_of(command("roll", clicks, *settings))
    assert row["segment_ms"] == 2 * HOUR_MS
    [row, *_] = segments_of(command("roll", clicks, *settings, "--segment-ms", "7"))
    assert row["segment_ms"] == 7


def test_what_if_says_what_is_missing_or_damaged(command: Command, tmp_path: Path) -> None:
    partition = tmp_path / "own" / "holes-0"
    write_log(partition, 0, batch(0, 0), batch(1, 1)[:-3])
    write_log(partition, 5, batch(5, 2))
    done = command("roll", "what-if", tmp_path / "own", "--format", "jsonl")
    [row, *_] = [row for row in done.lines if row["kind"] == "partition"]
    assert [one.split(": ", 2)[1] for one in row["doubts"]] == ["truncated", "hole"]
    assert summary_of(done)["doubts"] == 2
