"""A session's settings of remote stores, what tasks get of them, and places in arguments."""

import os
import pathlib
import pickle
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import Any, Final, Self, TypeAlias, TypeGuard
from uuid import uuid4
from xml.etree import ElementTree

from pyarrow.fs import FileSystem
from pyspark import SparkConf, SparkContext, SparkFiles
from pyspark.sql import SparkSession

from kip33.options import Path
from kip33.stores.filesystem_option import (
    require_for_tasks,
    require_writable_store,
    texts_on,
)
from kip33.stores.filesystems import filesystems_for_tasks, use_stores
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
    credential stores. For a session without a JVM (Connect) they are its `spark.hadoop.*`, from 4.3
    on without keys: those must be `storage_options`.
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


Stores: TypeAlias = tuple[Mapping[str, str], Mapping[str, FileSystem]]
"""The settings of a session, and the filesystems that its user gave."""


class SessionStores:
    """A session's settings of stores and filesystems, for its tasks and planning workers.

    Pickled, it has no secret, because plans and closures are displayed and logged. Jobs of a
    classic session have the settings in a broadcast, which ends with the job. Connect has none, and
    Spark gives none to the worker that plans a stream: there they are a file among the session's
    artifacts. Tasks of a stream do not get the artifacts of a Connect session: what they read says.
    """

    def __init__(self, broadcast: Any, file: str) -> None:
        """Take a broadcast, or the name of a file."""
        self._broadcast, self._file = broadcast, file

    @classmethod
    def of(cls, spark: Session, *, for_planning: bool = False) -> Self:
        """Return the settings and filesystems that the session has now."""
        settings = use_session(spark)
        if is_connect(spark):
            return cls(None, _among_artifacts(spark, (settings, {})))
        found = settings, filesystems_for_tasks()
        if for_planning:
            return cls(None, _among_artifacts(spark, found))
        return cls(context_of(spark).broadcast(found), "")

    def use(self) -> Stores:
        """Use them for all stores of this process; return them, secrets included."""
        if self._broadcast is not None:
            found: Stores = self._broadcast.value
        else:
            file = _found(self._file)
            with suppress(OSError):
                file.chmod(0o600)  # Spark lets all users of an executor's machine read it
            found = pickle.loads(file.read_bytes())
        use_stores(*found)
        return found

    def destroy(self) -> None:
        """Remove a broadcast from the executors. It cannot be used afterwards."""
        if self._broadcast is not None:
            self._broadcast.destroy()


def _found(name: str) -> pathlib.Path:
    """Return a file of the session; the worker that plans a stream has a folder beside its own."""
    file = pathlib.Path(SparkFiles.get(name))
    if not file.exists():
        beside = file.parent.parent
        file = next(iter([*beside.glob(name), *beside.glob(f"*/{name}")]), file)
    return file


def _among_artifacts(spark: Any, stores: Stores) -> str:
    """Send stores to the workers of a session in a file; return its name."""
    file = pathlib.Path(_folder().name) / f"kip33-{uuid4().hex}.pickle"
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as stream:
        pickle.dump(stores, stream)
    spark.addArtifacts(str(file), file=True)
    return file.name


@cache
def _folder() -> "tempfile.TemporaryDirectory[str]":
    """Return a folder that is removed at the end of the process: Spark reads its files later."""
    return tempfile.TemporaryDirectory(prefix="kip33-")


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
    spark: SparkSession, named: Sequence[Path | None], options: Any, *, writes: bool = False
) -> list[Any]:
    """Return a source and other places as the texts that a job takes, None for missing ones.

    The session's settings of stores, and those of a function's options (`storage_options`,
    `filesystem`), apply from now on; with a filesystem, names become URIs. Raises ValueError for a
    filesystem that tasks cannot use, and with `writes` for one that cannot replace a file where the
    job writes.
    """
    texts, places = texts_on(named, options)
    use_session(spark)
    if options["filesystem"] is not None:
        if is_connect(spark):
            raise ValueError(
                "filesystem: a session of Spark Connect cannot send it to tasks; expected "
                "storage_options"
            )
        require_for_tasks(places)
        if writes:
            require_writable_store(places[1:] or places)
    return texts
