"""Translate the settings of Hadoop's S3A into arguments of pyarrow's S3 client.

Names and meanings are Hadoop's (hadoop-aws 3.5, "Configuration"); `fs.s3a.bucket.NAME.KEY`
overrides `fs.s3a.KEY`. If no setting has keys, the AWS client finds them itself: in the
environment and `~/.aws`, from the role of the machine or container, or by web identity.

With S3A's `fs.s3a.assumed.role.*`, keys are requested from a security token service (STS). They
expire after the session's duration. A client is used for the first three quarters of it; work that
it has begun by then has the last quarter to finish.
"""

import os
import re
from collections.abc import Iterable, Mapping
from contextlib import closing
from typing import Any, Final
from urllib.parse import quote, urlsplit

from pyarrow import ArrowInvalid, fs

from kip33.errors import LocationError
from kip33.stores.settings import require_expanded
from kip33.stores.watch import StoreName

DEFAULT_REGION: Final = "us-east-1"  # the region that other vendors' servers expect in a signature
S3_ATTEMPTS: Final = 6  # 12 to 25 s where a server refuses, and 3 s more each where it is silent
# Opening is delayed until the first bytes: then a small file is one put, not a multipart upload.
_DELAYS: Final = "allow_delayed_open"
_SMALL_PUTS: Final[dict[str, Any]] = (
    {_DELAYS: True} if _DELAYS in (fs.S3FileSystem.__doc__ or "") else {}  # not in older pyarrow
)
_AWS_REGION: Final = re.compile(r"s3[.-](?:dualstack\.)?([a-z]{2}(?:-[a-z]+)+-\d)\.amazonaws\.")
_BY_ROLE: Final = "AssumedRoleCredentialProvider"
STS_ATTEMPTS: Final = 7
_DURATION_S: Final = 3600
_ROLE_IN_PYARROW: Final = {  # what STS is asked, as arguments of `S3FileSystem`
    "RoleArn": "role_arn",
    "RoleSessionName": "session_name",
    "DurationSeconds": "load_frequency",
    "ExternalId": "external_id",
}
_USED_FOR: Final = 0.75
_SECONDS: Final = {"ms": 1e-3, "s": 1, "m": 60, "h": 3600, "d": 86400}
_KEYS_IN_SETTINGS: Final = ("SimpleAWSCredentialsProvider", "TemporaryAWSCredentialsProvider")


class _BucketSettings:
    """The settings of one bucket."""

    def __init__(self, settings: Mapping[str, str], bucket: str) -> None:
        self.bucket = bucket
        self._settings = settings

    def get(self, key: str) -> str | None:
        """Return the value of `fs.s3a.` + `key`, None if it is not set or empty."""
        for full in (f"fs.s3a.bucket.{self.bucket}.{key}", f"fs.s3a.{key}"):
            value = self._settings.get(full, "").strip()
            if value:
                require_expanded(full, value)
                return value
        return None

    def flag(self, key: str) -> bool | None:
        """Return the value of a `true` or `false`; LocationError for anything else."""
        value = self.get(key)
        if value is None:
            return None
        if value.lower() not in ("true", "false"):
            raise self.wrong(key, "true or false")
        return value.lower() == "true"

    def seconds(self, key: str, *, unit: str = "ms") -> float | None:
        """Return a duration in seconds: `200s`, `5m`, or a bare number in `unit`, as in Hadoop."""
        value = self.get(key)
        found = re.fullmatch(r"(\d+)\s*(ms|[smhd]?)", value) if value else None
        if value and not found:
            raise self.wrong(key, "a duration such as 200s")
        return int(found[1]) * _SECONDS[found[2] or unit] if found else None

    def number(self, key: str) -> int | None:
        """Return a count; LocationError for anything else."""
        value = self.get(key)
        if value and not value.isdecimal():
            raise self.wrong(key, "a number")
        return int(value) if value else None

    def wrong(self, key: str, expected: str) -> LocationError:
        """Return the error for a wrong value, which is not shown because it may be a secret."""
        return LocationError(f"s3a://{self.bucket}: fs.s3a.{key}: expected {expected}")

    def keys(self) -> dict[str, str]:
        """Return the keys in the settings, by pyarrow's names; empty unless both are set."""
        found = {
            "access_key": self.get("access.key"),
            "secret_key": self.get("secret.key"),
            "session_token": self.get("session.token"),
        }
        if not (found["access_key"] and found["secret_key"]):
            return {}
        return {name: value for name, value in found.items() if value}


def open_bucket(settings: Mapping[str, str], bucket: str) -> fs.S3FileSystem:
    """Return the filesystem for `bucket`; LocationError if the settings are wrong."""
    arguments = client_arguments(settings, bucket)
    if not arguments.get("region"):
        arguments["region"] = _own_region(bucket)
    return fs.S3FileSystem(**_SMALL_PUTS, **arguments)


def name_of_bucket(settings: Mapping[str, str], bucket: str) -> StoreName:
    """Return what is said of a bucket's server that does not answer; LocationError as usual."""
    ours = _BucketSettings(settings, bucket)
    arguments = _connection(ours)
    host = "Amazon S3"
    if "endpoint_override" in arguments:
        host = f"{arguments['scheme']}://{arguments['endpoint_override'].rpartition('@')[2]}"
    if proxy := arguments.get("proxy_options"):
        host += f" through the proxy {proxy['host']}:{proxy['port']}"
    attempts = ours.number("attempts.maximum") or S3_ATTEMPTS
    how_long = ", for 10 to 30 s" if attempts == S3_ATTEMPTS else ""
    return StoreName(host, f"each request is tried {attempts} times{how_long}")


def client_arguments(settings: Mapping[str, str], bucket: str) -> dict[str, Any]:
    """Return the arguments for `S3FileSystem`, without `region` if no setting names one."""
    ours = _BucketSettings(settings, bucket)
    _leave_checksums(ours)
    connection = _connection(ours)
    return _credentials(ours, connection) | connection


def _leave_checksums(ours: _BucketSettings) -> None:
    """Make the AWS client send no checksums, because servers of other vendors may not know them.

    Some store the checksum's framing as content. S3A has the same default. The client reads the
    environment once, when the first filesystem is opened.
    """
    if ours.get("endpoint") and not ours.flag("checksum.generation"):
        os.environ.setdefault("AWS_REQUEST_CHECKSUM_CALCULATION", "when_required")


def _connection(ours: _BucketSettings) -> dict[str, Any]:
    """Return the connection arguments: endpoint, region, addressing, proxy, timeouts, attempts."""
    arguments: dict[str, Any] = {}
    endpoint = ours.get("endpoint")
    encrypted = ours.flag("connection.ssl.enabled") is not False
    if endpoint:
        parts = urlsplit(endpoint if "://" in endpoint else f"//{endpoint}")
        if not parts.hostname or parts.scheme not in ("", "http", "https"):
            raise ours.wrong("endpoint", "host:port or an http(s) URL")
        arguments["endpoint_override"] = parts.netloc
        arguments["scheme"] = parts.scheme or ("https" if encrypted else "http")
        arguments["force_virtual_addressing"] = ours.flag("path.style.access") is False
    elif not encrypted:
        arguments["scheme"] = "http"
    region = _region(ours, endpoint)
    arguments |= {"region": region} if region else {}
    host = ours.get("proxy.host")
    if host:
        over_tls = bool(ours.flag("proxy.ssl.enabled"))
        proxy: dict[str, Any] = {
            "scheme": "https" if over_tls else "http",
            "host": host,
            "port": ours.number("proxy.port") or (443 if over_tls else 80),
        }
        user, password = ours.get("proxy.username"), ours.get("proxy.password")
        arguments["proxy_options"] = proxy | (
            {"username": user, "password": password} if user and password else {}
        )
    connect, request = (
        ours.seconds("connection.establish.timeout"),
        ours.seconds("connection.timeout"),
    )
    arguments |= {"connect_timeout": connect} if connect else {}
    arguments |= {"request_timeout": request} if request else {}
    attempts = ours.number("attempts.maximum") or S3_ATTEMPTS
    arguments["retry_strategy"] = fs.AwsStandardS3RetryStrategy(max_attempts=attempts)
    return arguments


def _region(ours: _BucketSettings, endpoint: str | None) -> str | None:
    region = ours.get("endpoint.region")
    if region:
        return region
    in_name = _AWS_REGION.search(endpoint or "")
    by_environment = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    return (in_name and in_name[1]) or by_environment or (DEFAULT_REGION if endpoint else None)


def _own_region(bucket: str) -> str:
    try:
        return str(fs.resolve_s3_region(bucket))
    except (OSError, ArrowInvalid) as error:
        raise LocationError(
            f"s3a://{bucket}: the region is unknown: {error}; set "
            "fs.s3a.endpoint.region, and fs.s3a.endpoint if the store is not Amazon's"
        ) from error


def _credentials(ours: _BucketSettings, connection: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments with credentials.

    As in S3A, the first of several providers that has what it needs is used.
    """
    if (ours.get("encryption.algorithm") or "").upper() == "SSE-C":
        raise LocationError(
            f"s3a://{ours.bucket}: encryption with a customer's key (SSE-C) is not "
            "supported; use SSE-KMS or SSE-S3, which need no key here"
        )
    for provider in _providers(ours):
        if provider.endswith("AnonymousAWSCredentialsProvider"):
            return {"anonymous": True}
        if provider.endswith(_BY_ROLE):
            return _role_arguments(ours, connection)
        if not provider.endswith(_KEYS_IN_SETTINGS):
            return {}  # the AWS client finds keys itself
        keys = ours.keys()
        if keys and ("session_token" in keys or not provider.endswith(_KEYS_IN_SETTINGS[1])):
            return keys
    return {}


def _providers(ours: _BucketSettings) -> Iterable[str]:
    names = ours.get("aws.credentials.provider")
    if not names:
        return (_KEYS_IN_SETTINGS[0],)
    return (name.strip() for name in names.split(",") if name.strip())


def _role_arguments(ours: _BucketSettings, connection: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments for `S3FileSystem`: a role's keys, or what lets pyarrow request them.

    pyarrow can only ask Amazon's STS, with the AWS client's own keys. For another STS, keys in the
    settings, a session policy or a proxy, this function asks STS itself.
    `connection` has the arguments with which `S3FileSystem` connects to the bucket.
    """
    role, base = _role_of(ours), _base_keys(ours)
    own_sts = ours.get("assumed.role.sts.endpoint")
    if base or own_sts or "Policy" in role or "proxy_options" in connection:
        return _assumed_keys(role, base, ours, connection)
    return {name: role[key] for key, name in _ROLE_IN_PYARROW.items() if key in role}


def _role_of(ours: _BucketSettings) -> dict[str, Any]:
    """Return the role of a bucket as STS is asked for it; LocationError if no setting names one."""
    arn = ours.get("assumed.role.arn")
    if not arn:
        raise LocationError(f"s3a://{ours.bucket}: fs.s3a.assumed.role.arn is missing")
    role = {
        "RoleArn": arn,
        "RoleSessionName": ours.get("assumed.role.session.name") or "kip33",
        "DurationSeconds": int(_duration_s(ours)),
        "ExternalId": ours.get("assumed.role.external.id"),
        "Policy": ours.get("assumed.role.policy"),  # JSON that further restricts the session
    }
    return {key: value for key, value in role.items() if value is not None}


def keys_period(settings: Mapping[str, str], bucket: str, *, now_s: float) -> int:
    """Return a number that changes when the keys of a bucket must be requested again.

    `now_s` is any clock, in seconds. The number is always 0 if no role is assumed.
    """
    ours = _BucketSettings(settings, bucket)
    if _BY_ROLE not in (ours.get("aws.credentials.provider") or ""):
        return 0
    return int(now_s / (_USED_FOR * _duration_s(ours)))


def _duration_s(ours: _BucketSettings) -> float:
    return ours.seconds("assumed.role.session.duration", unit="s") or _DURATION_S


def _base_keys(ours: _BucketSettings) -> dict[str, str]:
    """Return the keys with which the role is requested, empty for the AWS client's own."""
    providers = ours.get("assumed.role.credentials.provider") or _KEYS_IN_SETTINGS[0]
    return ours.keys() if any(provider in providers for provider in _KEYS_IN_SETTINGS) else {}


def _assumed_keys(
    role: Mapping[str, Any],
    base: Mapping[str, str],
    ours: _BucketSettings,
    connection: Mapping[str, Any],
) -> dict[str, Any]:
    """Return `access_key`, `secret_key` and `session_token` of the role.

    Raises LocationError, one line without a key, if boto3 is missing or STS refuses.
    """
    try:
        import boto3
        from botocore.exceptions import BotoCoreError, ClientError
    except ImportError as error:
        raise LocationError(
            f"{role['RoleArn']}: assuming this role needs boto3: pip install 'kip33[s3]'"
        ) from error
    try:
        client = boto3.client("sts", **_sts_arguments(base, ours, connection))
        with closing(client):
            answer = client.assume_role(**role)
    except (BotoCoreError, ClientError) as error:
        raise LocationError(
            f"s3a://{ours.bucket}: the role {role['RoleArn']} cannot be assumed: "
            f"{str(error).rstrip('.')}; check fs.s3a.assumed.role.* and the keys used "
            "to assume it"
        ) from error
    given = answer["Credentials"]
    return {
        "access_key": given["AccessKeyId"],
        "secret_key": given["SecretAccessKey"],
        "session_token": given["SessionToken"],
    }


def _sts_arguments(
    base: Mapping[str, str], ours: _BucketSettings, connection: Mapping[str, Any]
) -> dict[str, Any]:
    """Return boto3's arguments for STS: endpoint, keys and the bucket's connection, as in S3A."""
    from botocore.config import Config

    endpoint = ours.get("assumed.role.sts.endpoint")
    options = {
        "connect_timeout": connection.get("connect_timeout"),
        "read_timeout": connection.get("request_timeout"),
        "proxies": _proxies(connection.get("proxy_options")),
    }
    attempts = ours.number("attempts.maximum") or STS_ATTEMPTS
    return {
        "endpoint_url": endpoint if not endpoint or "://" in endpoint else f"https://{endpoint}",
        "region_name": ours.get("assumed.role.sts.endpoint.region")
        or connection.get("region")
        or "us-east-1",
        "aws_access_key_id": base.get("access_key"),
        "aws_secret_access_key": base.get("secret_key"),
        "aws_session_token": base.get("session_token"),
        "config": Config(
            retries={"mode": "standard", "total_max_attempts": attempts},
            **{key: value for key, value in options.items() if value},
        ),
    }


def _proxies(options: Mapping[str, Any] | None) -> dict[str, str] | None:
    """Return pyarrow's proxy options in the form that boto3 takes."""
    if not options:
        return None
    user, password = options.get("username"), options.get("password")
    who = f"{quote(user, safe='')}:{quote(password, safe='')}@" if user and password else ""
    url = f"{options['scheme']}://{who}{options['host']}:{options['port']}"
    return {"http": url, "https": url}
