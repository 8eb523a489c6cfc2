"""The settings of one S3 bucket, and the keys of a role that they name.

`fs.s3a.bucket.NAME.KEY` overrides `fs.s3a.KEY`. With S3A's `fs.s3a.assumed.role.*`, keys are
requested from a security token service (STS). They expire after the session's duration. A client is
used for the first three quarters of it; work that it has begun by then has the last quarter to
finish.
"""

import re
from collections.abc import Mapping
from contextlib import closing
from typing import Any, Final, NamedTuple, Self
from urllib.parse import quote

from kip33.errors import LocationError
from kip33.stores.settings import require_expanded

BY_ROLE: Final = "AssumedRoleCredentialProvider"
STS_ATTEMPTS: Final = 7  # tolerates an STS that is down for 30 s, as for S3
_DURATION_S: Final = 3600
_USED_FOR: Final = 0.75
_SECONDS: Final = {"ms": 1e-3, "s": 1, "m": 60, "h": 3600, "d": 86400}
KEYS_IN_SETTINGS: Final = ("SimpleAWSCredentialsProvider", "TemporaryAWSCredentialsProvider")


class BucketSettings:
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


class Role(NamedTuple):
    """The role that is requested from STS."""

    arn: str
    session_name: str
    duration_s: int
    external_id: str | None
    policy: str | None  # JSON that further restricts the session

    @classmethod
    def of(cls, ours: BucketSettings) -> Self:
        """Return the role of a bucket; LocationError if the settings name no role."""
        arn = ours.get("assumed.role.arn")
        if not arn:
            raise LocationError(f"s3a://{ours.bucket}: fs.s3a.assumed.role.arn is missing")
        return cls(
            arn,
            ours.get("assumed.role.session.name") or "kip33",
            int(_duration_s(ours)),
            ours.get("assumed.role.external.id"),
            ours.get("assumed.role.policy"),
        )


def role_arguments(ours: BucketSettings, connection: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments for `S3FileSystem`: a role's keys, or what lets pyarrow request them.

    pyarrow can only ask Amazon's STS, with the AWS client's own keys. For another STS, keys in the
    settings, a session policy or a proxy, this function asks STS itself.
    `connection` has the arguments with which `S3FileSystem` connects to the bucket.
    """
    role, base = Role.of(ours), _base_keys(ours)
    own_sts = ours.get("assumed.role.sts.endpoint")
    if base or own_sts or role.policy or "proxy_options" in connection:
        return _assumed_keys(role, base, ours, connection)
    arguments = {
        "role_arn": role.arn,
        "session_name": role.session_name,
        "load_frequency": role.duration_s,
        "external_id": role.external_id,
    }
    return {key: value for key, value in arguments.items() if value is not None}


def keys_period(settings: Mapping[str, str], bucket: str, *, now_s: float) -> int:
    """Return a number that changes when the keys of a bucket must be requested again.

    `now_s` is any clock, in seconds. The number is always 0 if no role is assumed.
    """
    ours = BucketSettings(settings, bucket)
    if BY_ROLE not in (ours.get("aws.credentials.provider") or ""):
        return 0
    return int(now_s / (_USED_FOR * _duration_s(ours)))


def _duration_s(ours: BucketSettings) -> float:
    return ours.seconds("assumed.role.session.duration", unit="s") or _DURATION_S


def _base_keys(ours: BucketSettings) -> dict[str, str]:
    """Return the keys with which the role is requested, empty for the AWS client's own."""
    providers = ours.get("assumed.role.credentials.provider") or KEYS_IN_SETTINGS[0]
    return ours.keys() if any(provider in providers for provider in KEYS_IN_SETTINGS) else {}


def _assumed_keys(
    role: Role, base: Mapping[str, str], ours: BucketSettings, connection: Mapping[str, Any]
) -> dict[str, Any]:
    """Return `access_key`, `secret_key` and `session_token` of the role.

    Raises LocationError, one line without a key, if boto3 is missing or STS refuses.
    """
    try:
        import boto3
        from botocore.exceptions import BotoCoreError, ClientError
    except ImportError as error:
        raise LocationError(
            f"{role.arn}: assuming this role needs boto3: pip install 'kip33[s3]'"
        ) from error
    request = {
        "RoleArn": role.arn,
        "RoleSessionName": role.session_name,
        "DurationSeconds": role.duration_s,
        "ExternalId": role.external_id,
        "Policy": role.policy,
    }
    try:
        client = boto3.client("sts", **_client_arguments(base, ours, connection))
        with closing(client):
            answer = client.assume_role(**{key: value for key, value in request.items() if value})
    except (BotoCoreError, ClientError) as error:
        raise LocationError(
            f"s3a://{ours.bucket}: the role {role.arn} cannot be assumed: "
            f"{str(error).rstrip('.')}; check fs.s3a.assumed.role.* and the keys used "
            "to assume it"
        ) from error
    given = answer["Credentials"]
    return {
        "access_key": given["AccessKeyId"],
        "secret_key": given["SecretAccessKey"],
        "session_token": given["SessionToken"],
    }


def _client_arguments(
    base: Mapping[str, str], ours: BucketSettings, connection: Mapping[str, Any]
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
