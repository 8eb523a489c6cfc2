"""Translate the settings of Hadoop's S3A into arguments of pyarrow's S3 client.

Names and meanings are Hadoop's (hadoop-aws 3.5, "Configuration"); `fs.s3a.bucket.NAME.KEY`
overrides `fs.s3a.KEY`. If no setting has keys, the AWS client finds them itself: in the
environment and `~/.aws`, from the role of the machine or container, or by web identity.
"""

import os
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from pyarrow import ArrowInvalid, fs

from kip33.errors import LocationError
from kip33.stores.s3_role import BY_ROLE, KEYS_IN_SETTINGS, BucketSettings, role_arguments

DEFAULT_REGION: Final = "us-east-1"  # the region that other vendors' servers expect in a signature
S3_ATTEMPTS: Final = 10  # tolerates a server down for 30 s; the waits between attempts double
# Opening is delayed until the first bytes: then a small file is one put, not a multipart upload.
_DELAYS: Final = "allow_delayed_open"
_SMALL_PUTS: Final[dict[str, Any]] = (
    {_DELAYS: True} if _DELAYS in (fs.S3FileSystem.__doc__ or "") else {}  # not in older pyarrow
)
_AWS_REGION: Final = re.compile(r"s3[.-](?:dualstack\.)?([a-z]{2}(?:-[a-z]+)+-\d)\.amazonaws\.")


def open_bucket(settings: Mapping[str, str], bucket: str) -> fs.S3FileSystem:
    """Return the filesystem for `bucket`; LocationError if the settings are wrong."""
    arguments = client_arguments(settings, bucket)
    if not arguments.get("region"):
        arguments["region"] = _own_region(bucket)
    return fs.S3FileSystem(**_SMALL_PUTS, **arguments)


def client_arguments(settings: Mapping[str, str], bucket: str) -> dict[str, Any]:
    """Return the arguments for `S3FileSystem`, without `region` if no setting names one."""
    ours = BucketSettings(settings, bucket)
    _leave_checksums(ours)
    connection = _connection(ours)
    return _credentials(ours, connection) | connection


def _leave_checksums(ours: BucketSettings) -> None:
    """Make the AWS client send no checksums, because servers of other vendors may not know them.

    Some store the checksum's framing as content. S3A has the same default. The client reads the
    environment once, when the first filesystem is opened.
    """
    if ours.get("endpoint") and not ours.flag("checksum.generation"):
        os.environ.setdefault("AWS_REQUEST_CHECKSUM_CALCULATION", "when_required")


def _connection(ours: BucketSettings) -> dict[str, Any]:
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


def _region(ours: BucketSettings, endpoint: str | None) -> str | None:
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


def _credentials(ours: BucketSettings, connection: Mapping[str, Any]) -> dict[str, Any]:
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
        if provider.endswith(BY_ROLE):
            return role_arguments(ours, connection)
        if not provider.endswith(KEYS_IN_SETTINGS):
            return {}  # the AWS client finds keys itself
        keys = ours.keys()
        if keys and ("session_token" in keys or not provider.endswith(KEYS_IN_SETTINGS[1])):
            return keys
    return {}


def _providers(ours: BucketSettings) -> Iterable[str]:
    names = ours.get("aws.credentials.provider")
    if not names:
        return (KEYS_IN_SETTINGS[0],)
    return (name.strip() for name in names.split(",") if name.strip())
