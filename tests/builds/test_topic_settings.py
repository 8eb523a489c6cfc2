"""Each topic's own index settings: read from what Kafka's tools print, used by builds."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kip33.builds.build_options import load_topic_settings
from kip33.cli.verify import verify
from kip33.errors import PolicyError
from kip33.rules.index_builder import IndexSettings, TopicSettings
from tests.builders.changing_archive import ChangingArchive, batches

DENSE, SPARSE = 120, 1_000_000
CONFIGS = f"""\
All configs for topic dense are:
  index.interval.bytes={DENSE} sensitive=false synonyms={{}}
  segment.index.bytes=65536 sensitive=false synonyms={{}}
Topic: sparse\tPartitionCount: 1\tReplicationFactor: 1\tConfigs: index.interval.bytes={SPARSE}
"""


@pytest.fixture
def configs(tmp_path: Path) -> Path:
    file = tmp_path / "topics.txt"
    file.write_text(CONFIGS)
    return file


def test_topics_have_their_own_settings_and_others_the_default(configs: Path) -> None:
    settings = load_topic_settings(IndexSettings(), str(configs))
    assert settings.of("dense") == IndexSettings("recover", DENSE, 65536)
    assert settings.of("sparse") == IndexSettings("recover", SPARSE)
    assert settings.of("other") == settings.of(None) == settings.default == IndexSettings()


def test_only_topics_that_differ_travel_to_tasks() -> None:
    settings = TopicSettings.of_topics(IndexSettings(), {"a": IndexSettings()})
    assert settings.by_topic == ()


REFUSED = {
    "-1": "index.interval.bytes=-1 found, expected a number from 0 to 2147483647",
    "2147483648": "expected a number from 0 to 2147483647",
    "9" * 5000: "expected a number from 0 to 2147483647",
    "٣": "expected a number from 0 to 2147483647",
    "": "index.interval.bytes= found",
}


def test_a_value_that_kafka_refuses_is_one_line(tmp_path: Path, subtests: pytest.Subtests) -> None:
    file = tmp_path / "topics.txt"
    for value, says in REFUSED.items():
        file.write_text(CONFIGS.replace(f"bytes={DENSE}", f"bytes={value}"))
        with subtests.test(value[:20]):
            with pytest.raises(PolicyError) as raised:
                load_topic_settings(IndexSettings(), str(file))
            assert f"{file}: topic dense: " in str(raised.value)
            assert says in str(raised.value)
    file.write_text(CONFIGS.replace("65536", "4"))
    with pytest.raises(PolicyError, match=r"topic dense: segment.index.bytes=4: expected"):
        load_topic_settings(IndexSettings(), str(file))


def test_a_build_indexes_each_topic_by_its_own_settings(tmp_path: Path, configs: Path) -> None:
    archive = ChangingArchive(tmp_path)
    for topic in ("dense", "sparse", "other"):
        archive.write(archive.log(f"{topic}-0"), batches(0, 20))
    archive.build(kafka_configs=str(configs), offset_index=True)
    rows = {row["topic"]: row for row in archive.rows()}
    said = {topic: row["index_interval_bytes"] for topic, row in rows.items()}
    assert said == {"dense": DENSE, "sparse": SPARSE, "other": 200}
    for topic, interval in said.items():
        sizes = {"time_index_bytes", "offset_index_bytes"}
        (alone,) = [
            row
            for row in archive.fresh(index_interval_bytes=interval, offset_index=True).rows
            if row["topic"] == topic
        ]
        assert {name: rows[topic][name] for name in sizes} == {name: alone[name] for name in sizes}


def test_a_topic_whose_settings_changed_is_read_again(tmp_path: Path, configs: Path) -> None:
    archive = ChangingArchive(tmp_path)
    for topic in ("dense", "sparse", "other"):
        archive.write(archive.log(f"{topic}-0"), batches(0, 20))
    archive.build(kafka_configs=str(configs))
    again = archive.build(kafka_configs=str(configs))
    assert (again.indexed, again.reused) == (0, 3)
    configs.write_text(CONFIGS.replace(f"bytes={DENSE}", "bytes=300"))
    changed = archive.build(kafka_configs=str(configs))
    assert (changed.indexed, changed.reused) == (1, 2)
    without = archive.build()
    assert (without.indexed, without.reused) == (2, 1)


def test_verify_of_one_file_uses_its_topics_own_settings(tmp_path: Path, configs: Path) -> None:
    archive = ChangingArchive(tmp_path, in_place=True)
    archive.write(archive.log("dense-0"), batches(0, 20))
    archive.build(kafka_configs=str(configs), offset_index=True)
    log = archive.log("dense-0")
    how = ["verify", str(log), "--format", "jsonl"]
    (own,) = _verdicts([*how, "--kafka-configs", str(configs)])
    assert (own["verdict"], own["offset_index_verdict"]) == ("identical", "identical")
    (other,) = _verdicts([*how, "--index-interval-bytes", "100000"])
    assert other["verdict"] != "identical"


def _verdicts(arguments: list[str]) -> list[dict[str, Any]]:
    done = CliRunner().invoke(verify, arguments[1:])
    assert done.exit_code == 0, done
    return [json.loads(line) for line in done.stdout.splitlines()]
