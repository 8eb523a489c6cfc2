"""A SparkSession for the command line, on a laptop as on a cluster."""

import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from kip33.errors import Kip33Error

DEFAULTS: Final = {
    "spark.app.name": "kip33",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.showConsoleProgress": "false",  # the command draws its own
    "spark.python.unix.domain.socket.enabled": "true",  # 7 ms instead of 25 a Python task (4.1+)
}
LOCAL_DEFAULTS: Final = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
QUIET_LOG4J2: Final = """\
status = error
rootLogger.level = error
logger.repl.name = org.apache.spark.api.python.PythonGatewayServer
logger.repl.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.console.type = Console
appender.console.name = stderr
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n
"""


class JavaMissingError(Kip33Error):
    """Spark needs a Java runtime and none was found."""


def create_session(
    *, master: str | None = None, conf: Mapping[str, str] | None = None
) -> SparkSession:
    """Return the session: what spark-submit set up, else a local one on all cores.

    `conf` wins over everything. Workers run this very Python unless PYSPARK_PYTHON says otherwise.
    Raises JavaMissingError, one line, where Spark could not start.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder
    settings = dict(DEFAULTS)
    if "PYSPARK_GATEWAY_PORT" not in os.environ:  # not below spark-submit
        require_java()
        master = master or os.environ.get("SPARK_MASTER") or "local[*]"
        if master.startswith("local"):
            settings |= LOCAL_DEFAULTS
        _keep_quiet()
    if master:
        settings["spark.master"] = master
    for key, value in (settings | dict(conf or {})).items():
        builder = builder.config(key, value)
    session: SparkSession = builder.getOrCreate()
    return session


def require_java() -> None:
    """Raise JavaMissingError, one line on how to get it, where there is no Java for Spark."""
    home = os.environ.get("JAVA_HOME")
    in_home = home and (Path(home) / "bin" / "java").exists()
    if not in_home and shutil.which("java") is None:
        raise JavaMissingError(
            "Java is missing: Spark needs a Java 17 runtime (Debian: apt-get install "
            "openjdk-17-jre-headless; macOS: brew install openjdk@17), or JAVA_HOME set to one"
        )


def _keep_quiet() -> None:
    """Let Spark's own log show errors only, unless the user configured it."""
    if "PYSPARK_SUBMIT_ARGS" in os.environ or "SPARK_CONF_DIR" in os.environ:
        return
    folder = Path(tempfile.mkdtemp(prefix="kip33-"))
    path = folder / "log4j2.properties"
    path.write_text(QUIET_LOG4J2)
    options = f"-Dlog4j2.configurationFile={path.as_uri()}"
    os.environ["PYSPARK_SUBMIT_ARGS"] = f'--driver-java-options "{options}" pyspark-shell'
