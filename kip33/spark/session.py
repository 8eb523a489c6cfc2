"""A SparkSession for the command line, on a laptop or a cluster."""

import os
import sys
from collections.abc import Mapping
from typing import Final

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from kip33.errors import Kip33Error
from kip33.spark.failures import java_reason
from kip33.spark.jvm import (
    JAVA_OPTIONS,
    SUBMIT_ARGS,
    quiet_log,
    require_java,
    signals_wait_for_the_jvm,
    start_jvm,
    stderr_to,
    submit_args,
)
from kip33.spark.store_settings import use_session
from kip33.stores.settings import spark_defaults

SPARK_DEFAULTS: Final = {
    "spark.app.name": "kip33",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.showConsoleProgress": "false",  # the command shows its own
    "spark.python.unix.domain.socket.enabled": "true",  # 7 ms instead of 25 per Python task (4.1+)
    "spark.python.unix.domain.socket.dir": "/tmp",  # the path of a container's own is too long
}
LOCAL_DEFAULTS: Final = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
CONNECT: Final = "sc://"
MASTER: Final = "spark.master"
REMOTE: Final = "spark.remote"  # the master of Spark Connect


class SparkStartError(Kip33Error):
    """Spark did not start: a wrong master, or a setting that it refuses."""


def create_session(
    *, master: str | None = None, conf: Mapping[str, str] | None = None
) -> SparkSession:
    """Return the session of spark-submit, else one on the master that the user configured.

    The master is `master`, else the one in `conf`, SPARK_MASTER, SPARK_REMOTE or
    spark-defaults.conf, else `local[*]`. `sc://host:port` is a Spark Connect server. `conf`
    overrides other settings. Workers run the same Python unless PYSPARK_PYTHON is set. The JVM's
    output on standard error is hidden, unless PYSPARK_SUBMIT_ARGS or SPARK_CONF_DIR shows that the
    user has configured it. Raises JavaMissingError or SparkStartError, one line, and LocationError
    for a spark-defaults.conf that cannot be read.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    given = dict(conf or {})
    by_submit = "PYSPARK_GATEWAY_PORT" in os.environ
    master = master or given.get(MASTER) or given.get(REMOTE)
    if not by_submit:
        master = master or _configured_master() or "local[*]"
    settings = {key: value for key, value in given.items() if key not in (MASTER, REMOTE)}
    starts_jvm = not by_submit
    if master and master.startswith(CONNECT):
        settings[REMOTE] = master  # the server has its own settings and Java
        starts_jvm = False
    else:
        settings = _classic_settings(master, may_be_local=not by_submit) | settings
    configured = {SUBMIT_ARGS, "SPARK_CONF_DIR"} & os.environ.keys()
    log = None if by_submit or configured else quiet_log()
    try:
        with (
            signals_wait_for_the_jvm(),
            submit_args(log, settings.get(JAVA_OPTIONS, "")),
            stderr_to(log),
        ):
            if starts_jvm:
                start_jvm(settings)
            builder = SparkSession.builder
            for key, value in settings.items():
                builder = builder.config(key, value)
            session: SparkSession = builder.getOrCreate()
    except Exception as error:  # of py4j or pyspark, or a RuntimeError
        said = log.read_text(errors="replace") if log else ""
        why = java_reason("\n".join((str(error), said)))
        raise SparkStartError(f"Spark did not start: {why}") from error
    use_session(session)
    return session


def start_if_yarn_waits(conf: Mapping[str, str]) -> None:
    """Start the session now if this process is a driver in cluster mode on YARN.

    There an application fails if it ends without a SparkContext, or has none after
    spark.yarn.am.waitTime (100 s). `conf` is the command's. Errors are those of `create_session`.
    """
    SparkContext._ensure_initialized()  # so that a SparkConf has the values of spark-submit
    if is_yarn_driver(SparkConf()):
        create_session(conf=conf)


def is_yarn_driver(conf: SparkConf) -> bool:
    """Return whether these are the settings of a driver that runs in a YARN container."""
    return (conf.get(MASTER), conf.get("spark.submit.deployMode")) == ("yarn", "cluster")


def _configured_master() -> str | None:
    """Return the master of the environment, else of spark-defaults.conf, else None.

    LocationError if that file cannot be read.
    """
    found = os.environ.get("SPARK_MASTER") or os.environ.get("SPARK_REMOTE")
    return found or spark_defaults().get(MASTER) or spark_defaults().get(REMOTE)


def _classic_settings(master: str | None, *, may_be_local: bool) -> dict[str, str]:
    """Return the default settings of a session with its own JVM; JavaMissingError without Java.

    SPARK_REMOTE is removed from the environment, because Spark refuses it beside a master.
    """
    settings = dict(SPARK_DEFAULTS)
    if master:
        require_java()
        os.environ.pop("SPARK_REMOTE", None)
        settings[MASTER] = master
        if may_be_local and master.startswith("local"):
            settings |= LOCAL_DEFAULTS
    return settings
