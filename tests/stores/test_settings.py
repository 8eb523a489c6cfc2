"""The sources of a process's store settings."""

from pathlib import Path

import pytest

from kip33.errors import LocationError
from kip33.stores import settings as store_settings
from kip33.stores.locations import Location
from tests.cases import each_case

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
    variables = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS")
    for name in ("HADOOP_CONF_DIR", "SPARK_CONF_DIR", "SPARK_HOME", *variables):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(store_settings._Process, "settings", None)
    monkeypatch.setattr(store_settings._Process, "source", None)


def test_nothing_is_configured() -> None:
    assert store_settings.configured() == {}
    assert store_settings.settings() == {}


def test_spark_overrides_hadoop_and_the_command_line_overrides_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "core-site.xml").write_text(SITE)
    (tmp_path / "spark-defaults.conf").write_text(DEFAULTS)
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    assert store_settings.configured()["fs.s3a.endpoint"] == "http://site:9000"
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert store_settings.configured()["fs.s3a.endpoint"] == "http://defaults:9000"
    said = {"spark.hadoop.fs.s3a.endpoint": "http://said:9000", "spark.master": "local[2]"}
    assert store_settings.configured(said) == {
        "fs.s3a.endpoint": "http://said:9000",
        "fs.s3a.endpoint.region": "eu-west-1",
        "fs.s3a.access.key": "AK",
        "dfs.nameservices": "ha",
    }


def test_the_endpoint_of_the_environment_is_that_of_boto3(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable of S3 wins, and a setting of kip33 wins over both."""
    for name, value, expected in (
        ("AWS_ENDPOINT_URL", "http://all:9000", "http://all:9000"),
        ("AWS_ENDPOINT_URL_S3", "http://s3:9000", "http://s3:9000"),
        ("AWS_ENDPOINT_URL_S3", "", "http://all:9000"),
        ("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "true", None),
    ):
        monkeypatch.setenv(name, value)
        store_settings.use_settings({})
        assert store_settings.settings().get("fs.s3a.endpoint") == expected
        store_settings.use_settings({"fs.s3a.endpoint": "http://said:9000"})
        assert store_settings.settings() == {"fs.s3a.endpoint": "http://said:9000"}


def test_only_what_stores_understand_is_kept() -> None:
    store_settings.use_settings({"fs.s3a.endpoint": "e", "mapreduce.job.name": "secret"})
    assert store_settings.settings() == {"fs.s3a.endpoint": "e"}


def test_other_settings_are_another_generation() -> None:
    store_settings.use_settings({"fs.s3a.endpoint": "one"})
    before = store_settings.generation()
    store_settings.use_settings({"fs.s3a.endpoint": "one"})
    assert store_settings.generation() == before
    store_settings.use_settings({"fs.s3a.endpoint": "other"})
    assert store_settings.generation() != before


def test_a_source_of_settings_is_called_once_at_first_use() -> None:
    asked = []

    def source() -> dict[str, str]:
        asked.append(1)
        return {"fs.s3a.endpoint": "late"}

    store_settings.settings_from(source)
    assert asked == []
    assert store_settings.settings() == store_settings.settings() == {"fs.s3a.endpoint": "late"}
    assert asked == [1]


INCLUDE = '<xi:include xmlns:xi="http://www.w3.org/2001/XInclude" href="keys.xml"/>'
FILES: dict[str, tuple[str, str, str, dict[str, str]]] = {
    "Hadoop's short form of a property": (
        *("HADOOP_CONF_DIR", "core-site.xml"),
        '<configuration><property name="fs.s3a.endpoint" value="e"/></configuration>',
        {"fs.s3a.endpoint": "e"},
    ),
    "Spark's, as Java reads them": (
        *("SPARK_CONF_DIR", "spark-defaults.conf"),
        "spark.hadoop.fs.s3a.endpoint = http://\\\n  host\nspark.hadoop.dfs.a: A\\=K \n",
        {"fs.s3a.endpoint": "http://host", "dfs.a": "A=K"},
    ),
    "in Spark's own folder": (
        *("SPARK_HOME", "conf/spark-defaults.conf", "spark.hadoop.dfs.a 1"),
        {"dfs.a": "1"},
    ),
}


@each_case(("variable", "file", "text", "expected"), FILES)
def test_forms_of_settings(
    variable: str,
    file: str,
    text: str,
    expected: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text(text)
    with monkeypatch.context() as patch:
        patch.setenv(variable, str(tmp_path))
        assert store_settings.configured() == expected


@each_case(
    ("text", "said"),
    [
        ("<configuration>", "not a valid Hadoop configuration: no element"),
        (SITE.replace("</configuration>", f"{INCLUDE}</configuration>"), "xi:include found, which"),
    ],
)
def test_a_configuration_that_cannot_be_read_is_one_line(
    text: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "core-site.xml").write_text(text)
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    with pytest.raises(LocationError, match=rf"core-site\.xml: {said}"):
        store_settings.configured()


@each_case("uri", ("s3a://bucket/x", "hdfs://ha/x"))
def test_a_value_that_only_hadoop_expands_is_named_without_the_value(uri: str) -> None:
    store_settings.use_settings(
        {
            "fs.s3a.secret.key": "s3cr3t-${env.KEY}",
            "fs.s3a.access.key": "A",
            "fs.s3a.endpoint.region": "eu-west-1",
            "dfs.nameservices": "s3cr3t-${env.KEY}",
            "dfs.namenode.name.dir": "${hadoop.tmp.dir}/dfs",
        }
    )
    with pytest.raises(LocationError, match="which kip33 does not expand") as refused:
        Location.of(uri).filesystem()
    assert "s3cr3t" not in str(refused.value)
