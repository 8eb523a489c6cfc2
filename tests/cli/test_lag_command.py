"""`kip33 lag` as a user meets it: offsets in every form, rows for what is wrong, no Spark."""

from pathlib import Path
from typing import Any

import pytest

from kip33.demo import START_MS
from kip33.search.group_lag import GroupLag
from tests.cli.console import Command, Finished, file_named

DAY_MS = 86_400_000
MINUTE_MS = 60_000
DESCRIBED = """\

Consumer group 'billing' has no active members.

GROUP    TOPIC    PARTITION  CURRENT-OFFSET  LOG-END-OFFSET  LAG   CONSUMER-ID  HOST  CLIENT-ID
billing  sensors  1          107             1200            1093  -            -     -
billing  orders   0          8500            8500            0     -            -     -
billing  clicks   3          -               0               -     -            -     -
"""


@pytest.fixture
def lag(command: Command, built: Path, no_spark: None) -> Command:
    """Return `kip33 lag` of the built catalog; Spark is not to start."""

    def run(*arguments: Any) -> Finished:
        return command("lag", built / "indexes/_catalog", *arguments)

    return run


def lags(done: Finished, said: str = "") -> list[dict[str, Any]]:
    assert (done.exit_code, done.stderr) == (0, said), done
    for row in done.lines:
        assert tuple(row) == (*GroupLag._fields, "snapshot", "warnings")
        assert "Traceback" not in (row["note"] or "") and "\n" not in (row["note"] or "")
    return done.lines


def offsets(text: str) -> str:
    return file_named("offsets.csv", text.encode())


def test_what_the_tool_described(lag: Command) -> None:
    (file := Path("described.txt")).write_text(DESCRIBED)

    sensors, orders = lags(
        lag("--offsets", file, "--format", "jsonl"),
        "Warning: group billing has no committed offset in 1 partition of clicks: 3\n",
    )

    newest = START_MS + 3 * DAY_MS + 199 * MINUTE_MS
    assert 0 < sensors.pop("bytes_read") < 64 * 1024
    assert sensors.pop("snapshot").startswith("00000000000000000001-")
    assert sensors == {
        **{"group": "billing", "log_dir": "broker-1", "topic": "sensors", "partition": 1},
        **{"offset": 107, "result": "found", "timestamp": START_MS + 107 * MINUTE_MS},
        **{"newest_timestamp": newest, "log_start_offset": 0, "log_end_offset": 1200},
        **{"lag_records": 1093, "lag_ms": 3 * DAY_MS + 92 * MINUTE_MS},
        **{"unread_expires_at_ms": None, "note": None, "warnings": []},
    }
    assert (orders["result"], orders["lag_records"], orders["lag_ms"]) == ("at_end", 0, 0)


def test_when_what_is_unread_expires(lag: Command, subtests: pytest.Subtests) -> None:
    cases = {
        "--policy": (["--policy", "p.toml"], 7 * DAY_MS),
        "--kafka-configs": (["--kafka-configs", "c.txt"], 2 * DAY_MS),
        "a policy, and what if": (["--policy", "p.toml", "--retention-ms", "1d"], DAY_MS),
        "no policy": ([], None),
    }
    for name, (options, expires_at) in cases.items():
        with subtests.test(name):
            file_named("p.toml", b'[defaults]\n"retention.ms" = "7d"\n')
            file_named(
                "c.txt",
                b"All configs for topic sensors are:\n  retention.ms=172800000 sensitive=false "
                b"synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=172800000}\n",
            )

            [row] = lags(
                lag("--offsets", offsets("sensors,1,107\n"), *options, "--format", "jsonl")
            )

            last = START_MS + 199 * MINUTE_MS
            expected = None if expires_at is None else last + expires_at + 1
            assert row["unread_expires_at_ms"] == expected
