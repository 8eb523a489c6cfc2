"""Where a process has the settings of its stores from."""

from pathlib import Path

import pytest

from kip33.errors import LocationError
from kip33.storage import stores

SITE = """<?xml version="1.0"?>
<configuration>
  <property><name>fs.s3a.endpoint</name><value> http://site:9000 </value></property>
  <property><name>fs.s3a.endpoint.region</name><value>eu-west-1</value></property>
  <property><name>dfs.nameservices</name><value>ha</value><final>true</final></property>
</configuration>
"""
DEFAULTS = """# as Spark's
spark.executor.memory   2g
spark.hadoop.fs.s3a.endpoint\thttp://defaults:9000
spark.hadoop.fs.s3a.access.key=AK
"""


@pytest.fixture(autouse=True)
def _process(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HADOOP_CONF_DIR", "SPARK_CONF_DIR", "SPARK_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(stores._Process, "settings", None)
    monkeypatch.setattr(stores._Process, "source", None)


def test_nothing_is_configured() -> None:
    assert stores.configured() == {}
    assert stores.settings() == {}


def test_spark_goes_over_hadoop_and_the_command_line_over_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "core-site.xml").write_text(SITE)
    (tmp_path / "spark-defaults.conf").write_text(DEFAULTS)
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    assert stores.configured()["fs.s3a.endpoint"] == "http://site:9000"
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert stores.configured()["fs.s3a.endpoint"] == "http://defaults:9000"
    said = {"spark.hadoop.fs.s3a.endpoint": "http://said:9000", "spark.master": "local[2]"}
    assert stores.configured(said) == {
        "fs.s3a.endpoint": "http://said:9000",
        "fs.s3a.endpoint.region": "eu-west-1",
        "fs.s3a.access.key": "AK",
        "dfs.nameservices": "ha",
    }


def test_sparks_own_folder_has_its_defaults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "spark-defaults.conf").write_text(DEFAULTS)
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    assert stores.configured()["fs.s3a.access.key"] == "AK"


def test_a_broken_configuration_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "core-site.xml").write_text("<configuration>")
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    with pytest.raises(LocationError, match=r"core-site\.xml: no Hadoop configuration: no element"):
        stores.configured()


def test_only_what_stores_understand_is_kept() -> None:
    stores.use_settings({"fs.s3a.endpoint": "e", "mapreduce.job.name": "secret"})
    assert stores.settings() == {"fs.s3a.endpoint": "e"}


def test_other_settings_are_another_generation() -> None:
    stores.use_settings({"fs.s3a.endpoint": "one"})
    before = stores.generation()
    stores.use_settings({"fs.s3a.endpoint": "one"})
    assert stores.generation() == before
    stores.use_settings({"fs.s3a.endpoint": "other"})
    assert stores.generation() != before


def test_a_source_is_asked_once_and_late() -> None:
    asked = []

    def source() -> dict[str, str]:
        asked.append(1)
        return {"fs.s3a.endpoint": "late"}

    stores.settings_from(source)
    assert asked == []
    assert stores.settings() == stores.settings() == {"fs.s3a.endpoint": "late"}
    assert asked == [1]
