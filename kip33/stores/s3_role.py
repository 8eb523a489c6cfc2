"""Keys of a role: S3A's `fs.s3a.assumed.role.*`, requested from a security token service (STS).

The keys expire after the session's duration. A client is used for the first three quarters of it;
work that it has begun by then has the last quarter to finish.
"""

from collections.abc import Mapping
from contextlib import closing
from typing import Any, Final, NamedTuple, Self
from urllib.parse import quote

from kip33.errors import LocationError
from kip33.stores.s3_settings import BucketSettings

BY_ROLE: Final = "AssumedRoleCredentialProvider"
STS_ATTEMPTS: Final = 7  # tolerates an STS that is down for 30 s, as for S3
_DURATION_S: Final = 3600
_USED_FOR: Final = 0.75
_OF_SETTINGS: Final = ("SimpleAWSCredentialsProvider", "TemporaryAWSCredentialsProvider")


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
    asked = {
        "role_arn": role.arn,
        "session_name": role.session_name,
        "load_frequency": role.duration_s,
        "external_id": role.external_id,
    }
    return {key: value for key, value in asked.items() if value is not None}


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
    said = ours.get("assumed.role.credentials.provider") or _OF_SETTINGS[0]
    return ours.keys() if any(provider in said for provider in _OF_SETTINGS) else {}


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
    asked = {
        "RoleArn": role.arn,
        "RoleSessionName": role.session_name,
        "DurationSeconds": role.duration_s,
        "ExternalId": role.external_id,
        "Policy": role.policy,
    }
    try:
        client = boto3.client("sts", **_client_arguments(base, ours, connection))
        with closing(client):
            answer = client.assume_role(**{key: value for key, value in asked.items() if value})
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
    said = {
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
            **{key: value for key, value in said.items() if value},
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
