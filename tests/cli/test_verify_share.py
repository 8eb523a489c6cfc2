"""`kip33 verify --share`: each day another part of the segments, all of them in a round of days."""

from pathlib import Path

import pytest

from kip33.rules.packing import ONE_DAY_MS
from tests.builders.changing_archive import ChangingArchive, batches
from tests.cli.console import Command

SEGMENTS = 24


@pytest.fixture
def changing(tmp_path: Path) -> ChangingArchive:
    changing = ChangingArchive(tmp_path)
    for number in range(SEGMENTS):
        changing.write(changing.log(f"b1/t-{number % 3}", 40 * number), batches(40 * number, 3))
    changing.build()
    return changing


def verified(command: Command, changing: ChangingArchive, share: str, day: int) -> list[str]:
    done = command(
        *("verify", changing.source, "--index-dir", changing.index_root, "--format", "json"),
        *("--share", share, "--as-of", str(day * ONE_DAY_MS), "--index-interval-bytes", "200"),
    )
    assert done.exit_code == 0, done.stderr
    [answer] = done.lines
    assert (answer["share"], answer["segments_listed"]) == (share, SEGMENTS)
    assert answer["segments"] == len(answer["verdicts"])
    return [verdict["log_uri"] for verdict in answer["verdicts"]]


def test_every_segment_is_verified_within_a_round(
    command: Command, changing: ChangingArchive, subtests: pytest.Subtests
) -> None:
    for share, days in [("1/3", 3), ("2/5", 3), ("1/1", 1)]:
        with subtests.test(f"{share}"):
            nights = [verified(command, changing, share, 20_000 + day) for day in range(days)]
            assert len({uri for night in nights for uri in night}) == SEGMENTS
            if share == "1/3":
                assert sum(map(len, nights)) == SEGMENTS, "none is verified twice"
                assert all(nights), "each night has some"


def test_without_as_of_it_is_the_share_of_today(
    command: Command, changing: ChangingArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kip33.cli.runs.current_ms", lambda: 20_001 * ONE_DAY_MS + 5)
    [today] = command(
        *("verify", changing.source, "--index-dir", changing.index_root),
        *("--share", "1/3", "--format", "json"),
    ).lines
    uris = [verdict["log_uri"] for verdict in today["verdicts"]]
    assert uris == verified(command, changing, "1/3", 20_001)
