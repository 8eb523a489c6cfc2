"""Hadoop's S3A settings become arguments of pyarrow's client."""

import os
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from pyarrow import fs

from kip33.errors import LocationError
from kip33.stores.s3 import DEFAULT_REGION, S3_ATTEMPTS, client_arguments, keys_period
from tests.cases import each_case

KEYS = {"access.key": "AK", "secret.key": "SK"}
OURS = {"access_key": "AK", "secret_key": "SK"}
PROVIDER = "aws.credentials.provider"
ROLE = "org.apache.hadoop.fs.s3a.auth.AssumedRoleCredentialProvider"
SIMPLE = "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider"
TEMPORARY = "org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider"
ANONYMOUS = "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider"
INSTANCE = "software.amazon.awssdk.auth.credentials.InstanceProfileCredentialsProvider"
SERVER = {"endpoint": "http://127.0.0.1:9000"}
REACHED = {
    "endpoint_override": "127.0.0.1:9000",
    "scheme": "http",
    "force_virtual_addressing": False,
    "region": DEFAULT_REGION,
}

CASES: dict[str, tuple[dict[str, str], dict[str, Any]]] = {
    "nothing is said": ({}, {}),
    "keys": (KEYS, OURS),
    "keys and a session's token": (
        KEYS | {"session.token": "ST"},
        OURS | {"session_token": "ST"},
    ),
    "nobody": ({PROVIDER: ANONYMOUS} | KEYS, {"anonymous": True}),
    "the machine's role, though there are keys": ({PROVIDER: INSTANCE} | KEYS, {}),
    "of several the first that has what it needs": (
        {PROVIDER: f"{TEMPORARY},\n {SIMPLE}"} | KEYS,
        OURS,
    ),
    "a role, by the client's own keys": (
        {
            PROVIDER: ROLE,
            "assumed.role.arn": "arn:aws:iam::1:role/r",
            "assumed.role.session.duration": "30m",
            "assumed.role.session.name": "nightly",
        },
        {"role_arn": "arn:aws:iam::1:role/r", "session_name": "nightly", "load_frequency": 1800},
    ),
    "a server of one's own": (SERVER, REACHED),
    "its name alone": (
        {"endpoint": "store:9000"},
        REACHED
        | {
            "endpoint_override": "store:9000",
            "scheme": "https",
        },
    ),
    "buckets as hosts": (
        SERVER | {"path.style.access": "false"},
        REACHED | {"force_virtual_addressing": True},
    ),
    "a region": ({"endpoint.region": "eu-west-1"}, {"region": "eu-west-1"}),
    "a region in Amazon's endpoint": (
        {"endpoint": "s3.eu-central-1.amazonaws.com"},
        {
            "endpoint_override": "s3.eu-central-1.amazonaws.com",
            "scheme": "https",
            "force_virtual_addressing": False,
            "region": "eu-central-1",
        },
    ),
    "timeouts": (
        {"connection.timeout": "200s", "connection.establish.timeout": "5000"},
        {"request_timeout": 200, "connect_timeout": 5.0},
    ),
    "a proxy": (
        {"proxy.host": "p", "proxy.port": "3128", "proxy.username": "u", "proxy.password": "w"},
        {
            "proxy_options": {
                "scheme": "http",
                "host": "p",
                "port": 3128,
                "username": "u",
                "password": "w",
            }
        },
    ),
    "a proxy over TLS": (
        {"proxy.host": "p", "proxy.ssl.enabled": "true"},
        {"proxy_options": {"scheme": "https", "host": "p", "port": 443}},
    ),
}


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_REQUEST_CHECKSUM_CALCULATION"):
        monkeypatch.delenv(name, raising=False)
    yield
    os.environ.pop("AWS_REQUEST_CHECKSUM_CALCULATION", None)


def arguments(settings: dict[str, str], bucket: str = "archive") -> dict[str, Any]:
    found = client_arguments(settings, bucket)
    retry = found.pop("retry_strategy")
    assert isinstance(retry, fs.AwsStandardS3RetryStrategy)
    return found


def prefixed(settings: dict[str, str], prefix: str = "fs.s3a.") -> dict[str, str]:
    return {prefix + key: value for key, value in settings.items()}


@each_case(("settings", "expected"), CASES)
def test_settings_become_arguments(settings: Any, expected: Any) -> None:
    assert arguments(prefixed(settings)) == expected
    if "role_arn" not in expected:  # for that it asks Amazon
        fs.S3FileSystem(**{"region": "us-east-1"} | expected)  # it takes them


@each_case(("settings", "expected"), CASES)
def test_a_buckets_own_settings_go_over_all_others(settings: Any, expected: Any) -> None:
    own = prefixed(settings, "fs.s3a.bucket.archive.")
    others = {key.replace("bucket.archive.", ""): "true" for key in own if "path.style" in key}
    assert arguments(others | own) == expected
    assert arguments(own, bucket="another") == {}


def test_a_server_without_a_region_uses_the_environments(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_REGION", "eu-west-3")
    assert arguments(prefixed(SERVER))["region"] == "eu-west-3"


CHECKSUMS = [
    (SERVER, "when_required"),
    (SERVER | {"checksum.generation": "true"}, None),
    ({}, None),
]


@each_case(("settings", "expected"), CHECKSUMS)
def test_servers_of_other_vendors_are_sent_no_checksums(
    settings: Any, expected: str | None
) -> None:
    os.environ.pop("AWS_REQUEST_CHECKSUM_CALCULATION", None)
    arguments(prefixed(settings))
    assert os.environ.get("AWS_REQUEST_CHECKSUM_CALCULATION") == expected


@each_case(("said", "attempts"), (({}, S3_ATTEMPTS), ({"attempts.maximum": "3"}, 3)))
def test_the_number_of_attempts_per_request(said: Any, attempts: Any) -> None:
    found = client_arguments(prefixed(said), "archive")
    assert found["retry_strategy"].max_attempts == attempts


WRONG = {
    "connection.ssl.enabled": ("yes", "true or false"),
    "attempts.maximum": ("many", "a number"),
    "connection.timeout": ("soon", "a duration such as 200s"),
    "endpoint": ("ftp://store", r"host:port or an http\(s\) URL"),
}


@each_case("key", [*WRONG])
def test_a_wrong_value_is_reported_but_not_shown(key: str) -> None:
    value, expected = WRONG[key]
    with pytest.raises(LocationError, match=f"fs.s3a.{key}: expected {expected}") as said:
        client_arguments({f"fs.s3a.{key}": value}, "archive")
    assert value not in str(said.value)


def test_a_customers_own_encryption_key_is_refused() -> None:
    with pytest.raises(LocationError, match="SSE-C"):
        client_arguments({"fs.s3a.encryption.algorithm": "SSE-C"}, "archive")


def test_a_role_without_its_name_is_refused() -> None:
    with pytest.raises(LocationError, match=r"fs\.s3a\.assumed\.role\.arn is missing"):
        client_arguments(prefixed({PROVIDER: ROLE}), "archive")


def test_a_role_by_keys_of_the_settings_needs_boto3(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)
    settings = {PROVIDER: ROLE, "assumed.role.arn": "arn:aws:iam::1:role/r"} | KEYS
    with pytest.raises(LocationError, match=r"needs boto3: pip install 'kip33\[s3\]'"):
        client_arguments(prefixed(settings), "archive")


PERIODS: dict[str, tuple[dict[str, str], list[float]]] = {
    "three quarters of an hour": ({}, [0, 2699, 2700, 5399, 5400]),
    "of a quarter": ({"assumed.role.session.duration": "15m"}, [0, 674, 675, 1349, 1350]),
    "of so many seconds": ({"assumed.role.session.duration": "900"}, [0, 674, 675, 1349, 1350]),
}


@each_case(("said", "moments_s"), PERIODS)
def test_keys_of_a_role_are_used_for_three_quarters_of_their_time(
    said: Any, moments_s: Any
) -> None:
    settings = prefixed({PROVIDER: f"{SIMPLE},\n {ROLE}"} | said, "fs.s3a.bucket.archive.")
    periods = [keys_period(settings, "archive", now_s=now_s) for now_s in moments_s]
    assert periods == [0, 0, 1, 1, 2]
    assert keys_period(settings, "another", now_s=1e9) == 0
