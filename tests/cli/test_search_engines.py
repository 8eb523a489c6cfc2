"""`kip33 search` in one process, in worker processes and on Spark: the same answers."""

import json
import re
import shutil
from pathlib import Path

import pytest

from kip33.demo import START_MS
from tests.cli.console import Command, Finished, file_named
from tests.long_forms import one_in

pytestmark = pytest.mark.spark

DAY_MS = 86_400_000
REQUESTS = f"""topic,partition,time,log_dir
sensors,,earliest,
orders,0,{START_MS + DAY_MS},broker-2
orders,0,{START_MS + DAY_MS},
orders,7,latest,
none,,2023-11-15,
none,3,2023-11-15,
metrics,0,0,
payments,0,2024-01-01,
sensors,1,max-timestamp,
"""
AT = ("--time", str(START_MS + DAY_MS))
QUESTIONS = {
    "all topics": [*AT, "--time", "latest", "--format", "json"],
    "as kafka": [*AT, "--time", "max-timestamp", "--as", "kafka:3.7", "--format", "jsonl"],
    "all replicas": [*AT, "--all-replicas", "--format", "jsonl"],
    "a range": [*AT, "--until", "latest", "--topic", "sensors", "--format", "jsonl"],
    "a file": ["--requests", "requests.csv", "--format", "json"],
    "for brokers": [*AT, "--emit", "delete-records", "--topic", "sensors"],
}
ENGINES = {
    "one process": ("--engine", "local"),
    "two workers": ("--engine", "local", "--workers", "2"),
    "spark": ("--engine", "spark"),
}


@pytest.mark.parametrize("options", one_in(3, QUESTIONS.values()), ids=QUESTIONS)
def test_every_engine_prints_the_same(
    options: list[str], built: Path, spark_command: Command
) -> None:
    file_named("requests.csv", REQUESTS.encode())

    one, *others = (
        steady(spark_command("search", built / "indexes/_catalog", *options, *engine))
        for engine in ENGINES.values()
    )

    assert others == [one] * len(others)
    assert one.stdout or one.exit_code


def test_every_engine_searches_both_tiers(
    built: Path, spark_command: Command, tmp_path: Path
) -> None:
    bucket = tmp_path / "bucket/orders-0"
    bucket.mkdir(parents=True)
    first = built / "archive/broker-1/orders-0/00000000000000000000.log"
    shutil.copy2(first, bucket)
    layout = ("--layout", "{topic}-{partition}/{base_offset}.log", "--engine", "local")
    assert not spark_command(
        "build", bucket.parent, "--index-dir", tmp_path / "r", *layout
    ).exit_code

    places = (built / "indexes/_catalog", tmp_path / "r/_catalog")
    asked = [*AT, "--time", "latest-tiered", "--until", "latest", "--topic", "orders"]
    one, *others = (
        steady(spark_command("search", *places, *asked, "--format", "jsonl", *engine))
        for engine in ENGINES.values()
    )

    assert others == [one] * len(others)
    assert '"target": "latest-tiered"' in one.stdout


def steady(done: Finished) -> Finished:
    """Return what was printed, without what differs from engine to engine and run to run."""
    text = re.sub(r'"engine": "[a-z]+", "workers": \d+', "", done.stdout)
    text = re.sub(r'"seconds": [0-9.]+', '"seconds": 0', text)
    return done._replace(stdout=re.sub(r"[0-9.]+ s\b", "0 s", text))


def test_workers_are_as_many_as_asked_for_and_as_there_are_partitions(
    built: Path, command: Command, subtests: pytest.Subtests
) -> None:
    for options, workers in [
        ((), 1),
        (("--workers", "1"), 1),
        (("--workers", "2"), 2),
        (("--workers", "900"), 10),
    ]:
        with subtests.test(f"{options}"):
            done = command("search", built / "indexes/_catalog", *AT, "--format", "json", *options)

            assert json.loads(done.stdout)["summary"]["workers"] == workers
