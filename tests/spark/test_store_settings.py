"""A session's settings of stores, and Hadoop's defaults."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kip33.spark.store_settings import use_session
from kip33.stores import settings as store_settings

ENDPOINT, SECRET = "fs.s3a.endpoint", "fs.s3a.bucket.archive.secret.key"
PROVIDER = "hadoop.security.credential.provider.path"


@pytest.fixture
def hadoop(spark: Any) -> Iterator[Any]:
    configuration = spark._jsc.hadoopConfiguration()
    yield configuration
    for key in (ENDPOINT, SECRET, "fs.s3a.bucket.archive.endpoint", PROVIDER):
        configuration.unset(key)
    use_session(spark)


def test_hadoops_defaults_are_not_settings(spark: Any, hadoop: Any) -> None:
    assert hadoop.get("fs.s3a.path.style.access") == "false"
    assert "fs.s3a.path.style.access" not in use_session(spark)


def test_what_a_notebook_set_at_run_time_holds(spark: Any, hadoop: Any) -> None:
    hadoop.set(ENDPOINT, "http://store:9000")
    assert use_session(spark)[ENDPOINT] == "http://store:9000"
    assert store_settings.settings()[ENDPOINT] == "http://store:9000"


def test_a_credential_stores_keys_are_opened(spark: Any, hadoop: Any, tmp_path: Path) -> None:
    hadoop.set(PROVIDER, f"localjceks://file{tmp_path}/keys.jceks")
    hadoop.set("fs.s3a.bucket.archive.endpoint", "http://store:9000")
    factory = spark._jvm.org.apache.hadoop.security.alias.CredentialProviderFactory
    [provider] = factory.getProviders(hadoop)
    characters = spark.sparkContext._gateway.new_array(spark._jvm.char, len("hidden"))
    for place, letter in enumerate("hidden"):
        characters[place] = letter
    provider.createCredentialEntry(SECRET, characters)
    provider.flush()
    assert use_session(spark)[SECRET] == "hidden"
