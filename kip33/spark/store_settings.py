"""A session's settings of remote stores, and the places in a job's arguments."""

import os
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias, TypeGuard
from xml.etree import ElementTree

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from kip33.options import Path
from kip33.stores.filesystem_option import (
    Filesystem,
    StorageOptions,
    places_on,
    require_for_tasks,
    require_writable_store,
)
from kip33.stores.settings import (
    PREFIXES,
    SPARK_PREFIX,
    configured,
    hadoop_keys,
    settings,
    use_settings,
)

Session: TypeAlias = SparkSession | SparkContext
"""What runs tasks: a user's session, or the context that a command has started without SQL."""
_DEFAULTS: Final = ("core-default.xml", "hdfs-default.xml")  # Hadoop's defaults
_SECRETS: Final = ("access.key", "secret.key", "session.token")
_PROVIDER_PATHS: Final = (
    "hadoop.security.credential.provider.path",
    "fs.s3a.security.credential.provider.path",
)


def use_session(spark: Session) -> Mapping[str, str]:
    """Use the session's settings for the stores of this process; return them.

    They are Hadoop's configuration in the JVM, including `spark.hadoop.*`, later changes and
    credential stores. For a session without a JVM (Connect) they are its `spark.hadoop.*`.
    """
    jvm = getattr(spark, "_jsc", None)
    found = _of_hadoop(jvm.hadoopConfiguration(), spark._jvm) if jvm else _of_connect(spark)
    use_settings(found)
    return settings()


def is_connect(spark: Session) -> TypeGuard[SparkSession]:
    """Return whether a session is a Connect session, without RDDs and JVM."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def context_of(spark: Session) -> SparkContext:
    """Return the context of a session that is not a Connect session."""
    return spark if isinstance(spark, SparkContext) else spark.sparkContext


def submitted_settings(conf: Mapping[str, str]) -> Mapping[str, str]:
    """Return the settings that spark-submit was told, `conf` over them, without a SparkContext.

    The JVM of spark-submit runs already. Its `SparkHadoopUtil` makes the same Hadoop
    configuration as a SparkContext has.
    """
    SparkContext._ensure_initialized()
    jvm: Any = SparkContext._jvm
    submitted = SparkConf().setAll(list(conf.items()))
    util = jvm.org.apache.spark.deploy.SparkHadoopUtil.get()
    return _of_hadoop(util.newConfiguration(submitted._jconf), jvm)


def _of_connect(spark: Any) -> dict[str, str]:
    return configured() | hadoop_keys(
        {key: value for key, value in spark.conf.getAll.items() if key.startswith(SPARK_PREFIX)}
    )


def _of_hadoop(configuration: Any, jvm: Any) -> dict[str, str]:
    """Return the settings of a Hadoop `Configuration` except defaults, with one call to the JVM."""
    writer = jvm.java.io.StringWriter()
    configuration.writeXml(writer)
    found: dict[str, str] = {}
    for entry in ElementTree.fromstring(writer.toString()).iter("property"):
        key, value = entry.findtext("name") or "", entry.findtext("value") or ""
        sources = [source.text for source in entry.iter("source")]
        if key.startswith(PREFIXES) and not (sources and sources[-1] in _DEFAULTS):
            found[key] = str(configuration.get(key)) if "${" in value else value
    if any(found.get(path) for path in _PROVIDER_PATHS):
        found |= _of_credential_stores(configuration, found)
    return found


def _of_credential_stores(configuration: Any, found: Mapping[str, str]) -> dict[str, str]:
    """Return the S3 keys in Hadoop's credential stores (JCEKS), for each named bucket."""
    parts = (key.removeprefix("fs.s3a.bucket.") for key in found if "fs.s3a.bucket." in key)
    buckets = {part.partition(".")[0] for part in parts}
    prefixes = ["fs.s3a.", *(f"fs.s3a.bucket.{bucket}." for bucket in sorted(buckets))]
    keys = {}
    for key in (prefix + secret for prefix in prefixes for secret in _SECRETS):
        password = configuration.getPassword(key)
        if password is not None:
            keys[key] = "".join(password)
    return keys


def given_places(
    spark: SparkSession,
    source: str,
    targets: Sequence[Path | None],
    storage_options: StorageOptions | None,
    filesystem: Filesystem | None,
    *,
    writes: bool = False,
) -> tuple[str, list[str | None]]:
    """Return a source and other places in the form that a job takes, None for missing ones.

    `storage_options` and `filesystem` apply from now on; with a filesystem, names become URIs.
    Raises ValueError for a filesystem that tasks cannot use, and with `writes` for one that cannot
    replace a file where the job writes.
    """
    named = [source, *(target for target in targets if target)]
    places = places_on(named, storage_options, filesystem)
    if filesystem is None:
        return source, [os.fspath(target) if target else None for target in targets]
    if is_connect(spark):
        raise ValueError(
            "filesystem: a session of Spark Connect cannot send it to tasks; expected "
            "storage_options"
        )
    require_for_tasks(places)
    if writes:
        require_writable_store(places[1:] or places)
    uris = iter(place.uri for place in places)
    return next(uris), [next(uris) if target else None for target in targets]
