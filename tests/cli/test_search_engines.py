"""`kip33 search` in one process, in worker processes and on Spark: the same answers."""

import json
import re
import shutil
from pathlib import Path

import pytest

from kip33.demo import START_MS
from tests.cli.console import Command, Finished
from tests.long_forms import one_in

pytestmark = pytest.mark.spark

DAY_MS = 86_400_000
AT = ("--time", str(START_MS + DAY_MS))
QUESTIONS = {
    "as kafka": [*AT, "--time", "max-timestamp", "--as", "kafka:3.7", "--format", "json"],
    "all replicas": [*AT, "--all-replicas", "--format", "jsonl"],
    "a range": [*AT, "--until", "latest", "--topic", "sensors", "--format", "jsonl"],
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
    is_slow = re.compile(r"^.*, \d+:\d\d\n", re.MULTILINE)  # a line of progress, once a minute
    return done._replace(
        stdout=re.sub(r"[0-9.]+ s\b", "0 s", text), stderr=is_slow.sub("", done.stderr)
    )


def test_workers_are_as_many_as_asked_for_and_as_there_are_partitions(
    built: Path, command: Command, subtests: pytest.Subtests
) -> None:
    for options, workers in [((), 1), (("--workers", 2), 2), (("--workers", 900), 10)]:
        with subtests.test(f"{options}"):
            done = command("search", built / "indexes/_catalog", *AT, "--format", "json", *options)

            assert json.loads(done.stdout)["summary"]["workers"] == workers
