"""Store settings from a caller, by short names or Hadoop's, and their scope."""

from typing import Any

import pytest

import kip33
from kip33.stores import settings as store_settings
from kip33.stores.filesystem_option import hadoop_options, use_storage_options
from kip33.stores.locations import Location
from kip33.stores.s3 import client_arguments
from tests.cases import each_case

KEYS = {"endpoint": "http://store:9000", "access_key": "AK", "secret_key": "SK"}
ONE, OTHER = Location.of("s3://one/a"), Location.of("s3://other/b")


@pytest.fixture(autouse=True)
def _process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_settings._Process, "settings", {})
    monkeypatch.setattr(store_settings._Process, "options", {})


def test_short_names_are_settings_of_the_buckets_of_the_call() -> None:
    use_storage_options(KEYS | {"region": "eu-1", "token": "T"}, [ONE, Location.of("/disk")])
    arguments = client_arguments(store_settings.settings(), "one")
    assert arguments["endpoint_override"] == "store:9000"
    assert (arguments["scheme"], arguments["region"]) == ("http", "eu-1")
    assert (arguments["access_key"], arguments["secret_key"]) == ("AK", "SK")
    assert arguments["session_token"] == "T"
    assert "access_key" not in client_arguments(store_settings.settings(), "other")


def test_two_buckets_have_their_own_keys() -> None:
    use_storage_options(KEYS, [ONE])
    use_storage_options({"access_key": "OAK", "secret_key": "OSK"}, [OTHER])
    found = [client_arguments(store_settings.settings(), bucket) for bucket in ("one", "other")]
    assert [one["access_key"] for one in found] == ["AK", "OAK"]
    assert ["endpoint_override" in one for one in found] == [True, False]


def test_hadoops_keys_are_used_unchanged() -> None:
    options = {"fs.s3a.path.style.access": True, "spark.hadoop.dfs.nameservices": "ns", "dfs.n": 3}
    expected = {"fs.s3a.path.style.access": "true", "dfs.nameservices": "ns", "dfs.n": "3"}
    assert hadoop_options(options, []) == expected


def test_options_override_later_settings() -> None:
    before = store_settings.generation()
    use_storage_options({"fs.s3a.endpoint": "mine"}, [])
    after = store_settings.generation()
    assert after != before  # an open filesystem is not used again
    use_storage_options({"fs.s3a.endpoint": "mine"}, [])
    assert store_settings.generation() == after
    store_settings.use_settings({"fs.s3a.endpoint": "theirs", "dfs.a": "b"})  # of a session
    assert store_settings.settings() == {"fs.s3a.endpoint": "mine", "dfs.a": "b"}


def test_keys_in_options_replace_another_provider() -> None:
    store_settings.use_settings({"fs.s3a.aws.credentials.provider": "Anonymous"})
    use_storage_options(KEYS, [ONE])
    assert client_arguments(store_settings.settings(), "one")["access_key"] == "AK"


def test_a_custom_endpoint_has_buckets_in_paths_for_sparks_client_too() -> None:
    key = "fs.s3a.bucket.one.path.style.access"
    assert hadoop_options(KEYS, [ONE])[key] == "true"
    amazon = {"endpoint": "https://s3.eu-west-1.amazonaws.com"}
    assert key not in hadoop_options(amazon, [ONE])


WRONG_NAMES = [
    ({"acess_key": "hidden"}, "s3://one/a", "acess_key"),
    ({"mapreduce.job.name": "hidden"}, "s3://one/a", "mapreduce"),
    ({"access_key": "hidden"}, "/disk", "s3://"),
]


@each_case(("options", "place", "token"), WRONG_NAMES)
def test_a_wrong_name_is_a_value_error_that_shows_no_value(
    options: Any, place: str, token: str
) -> None:
    with pytest.raises(ValueError, match=token) as error:
        kip33.list_segments(place, storage_options=options)
    assert "hidden" not in str(error.value) and "\n" not in str(error.value)
