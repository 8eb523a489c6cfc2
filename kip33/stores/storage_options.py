"""Store settings that a caller passes: `storage_options={...}` of the public functions.

    {"endpoint": "http://store:9000", "access_key": "...", "secret_key": "..."}
    {"fs.s3a.endpoint": "http://store:9000", "dfs.nameservices": "..."}

Keys are Hadoop's keys, or short names for the buckets of the call. Both apply to this process from
then on and override its settings, so that listed segments and an opened catalog find their store.
"""

from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

from kip33.stores.filesystems import forget_filesystem
from kip33.stores.locations import Location
from kip33.stores.settings import PREFIXES, SPARK_PREFIX, add_options

StorageOptions: TypeAlias = Mapping[str, str | bool | int]
SHORT_NAMES: Final = {
    "endpoint": "endpoint",
    "region": "endpoint.region",
    "access_key": "access.key",
    "secret_key": "secret.key",
    "token": "session.token",
}
_PROVIDER: Final = "org.apache.hadoop.fs.s3a.{}AWSCredentialsProvider"
_S3: Final = "s3a://"


def use_storage_options(options: StorageOptions | None, places: Iterable[Location]) -> None:
    """Apply options to all stores that this process opens from now on; None changes nothing.

    A filesystem that was given for a store of `places` is no longer used for it.
    """
    if options:
        places = list(places)
        add_options(hadoop_options(options, places))
        for place in places:
            forget_filesystem(place.root)


def hadoop_options(options: StorageOptions, places: Iterable[Location]) -> dict[str, str]:
    """Return options by Hadoop's keys; short names apply to the S3 buckets of `places`.

    Raises ValueError for an unknown key, and for a short name if no place is on S3. The message
    shows no values.
    """
    named = {key: _text(value) for key, value in options.items()}
    short = {key: value for key, value in named.items() if key in SHORT_NAMES}
    found = {key.removeprefix(SPARK_PREFIX): named[key] for key in named if key not in short}
    unknown = sorted(key for key in found if not key.startswith(PREFIXES))
    if unknown:
        raise ValueError(
            f"storage_options: {unknown[0]!r} found, expected {', '.join(SHORT_NAMES)} or a key of "
            "Hadoop such as fs.s3a.endpoint"
        )
    buckets = {place.root.removeprefix(_S3) for place in places if place.root.startswith(_S3)}
    if short and not buckets:
        raise ValueError(
            f"storage_options: {min(short)!r} found and no s3:// URI, expected keys of Hadoop"
        )
    for bucket in sorted(buckets):
        of_bucket = {f"fs.s3a.bucket.{bucket}.{key}": v for key, v in _of_bucket(short).items()}
        found = of_bucket | found
    return found


def _of_bucket(short: Mapping[str, str]) -> dict[str, str]:
    """Return a bucket's settings, by keys without their prefix."""
    found = {SHORT_NAMES[key]: value for key, value in short.items()}
    if "access_key" in short:  # overrides the provider of the process's settings
        provider = _PROVIDER.format("Temporary" if "token" in short else "Simple")
        found["aws.credentials.provider"] = provider
    if ".amazonaws." not in short.get("endpoint", ".amazonaws."):
        found["path.style.access"] = "true"
    return found


def _text(value: str | bool | int) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
