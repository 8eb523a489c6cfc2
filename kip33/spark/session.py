"""A SparkSession for the command line, on a laptop or a cluster, and the JVM that it starts.

A command's JVM lives for seconds. So it gets options for a fast start, its output is hidden unless
the user configured it, and signals wait until it has started.
"""

import atexit
import os
import re
import shlex
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import Final

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from kip33.errors import Kip33Error
from kip33.spark.store_settings import use_session
from kip33.spark.tasks import java_reason
from kip33.stores.settings import add_options, hadoop_keys, spark_defaults

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
_SUBMIT_ARGS: Final = "PYSPARK_SUBMIT_ARGS"
_LOG4J2_FILE: Final = "log4j2.properties"
_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
# A command's JVM lives for seconds: the slow compiler starts ten times later than by default.
_JVM_OPTIONS: Final = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    "-XX:Tier4InvocationThreshold=50000",
    "-XX:Tier4MinInvocationThreshold=6000",
    "-XX:Tier4CompileThreshold=150000",
    "-XX:Tier4BackEdgeThreshold=400000",
)
COLLECTOR: Final = "-XX:+UseParallelGC"  # less background work than G1
# More than Spark's own `spark.redaction.regex`: also keys of Azure and Google, customer keys of S3.
_SECRET: Final = re.compile(r"(?i)secret|password|token|access[.]?key|[.]key([.]|$)")
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


class SparkStartError(Kip33Error):
    """Spark did not start: a wrong master, or a setting that it refuses."""


def create_session(
    *, master: str | None = None, conf: Mapping[str, str] | None = None
) -> SparkSession:
    """Return the session of spark-submit, else one on the master that the user configured.

    >>> session = create_session(master="local[2]")
    >>> session.range(3).count()
    3

    - `master`: a master or `sc://host:port`; None: as configured
    - `conf`: settings of Spark, by their keys

    The master is `master`, else the one in `conf`, SPARK_MASTER, SPARK_REMOTE or
    spark-defaults.conf, else `local[*]`. `sc://host:port` is a Spark Connect server. `conf`
    overrides other settings. Workers run the same Python unless PYSPARK_PYTHON is set. The JVM's
    output on standard error is hidden, unless PYSPARK_SUBMIT_ARGS or SPARK_CONF_DIR shows that the
    user has configured it. Raises JavaMissingError or SparkStartError, one line, and LocationError
    for a spark-defaults.conf that cannot be read.
    """
    session = _start(master, conf or {}, with_sql=True)
    assert not isinstance(session, SparkContext)
    return session


def create_context(
    *, master: str | None = None, conf: Mapping[str, str] | None = None
) -> SparkSession | SparkContext:
    """Return the SparkContext that `create_session` starts, but with Connect the session.

    A build runs no SQL, and loading Spark's SQL takes some seconds. Arguments and errors are those
    of `create_session`.
    """
    return _start(master, conf or {}, with_sql=False)


def _start(
    master: str | None, conf: Mapping[str, str], *, with_sql: bool
) -> SparkSession | SparkContext:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    given = dict(conf)
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
    configured = {_SUBMIT_ARGS, "SPARK_CONF_DIR"} & os.environ.keys()
    log = None if by_submit or configured else _quiet_log()
    try:
        with ExitStack() as starting:
            starting.enter_context(_signals_wait_for_the_jvm())
            if log:
                starting.enter_context(_submit_args(log, settings.get(_JAVA_OPTIONS, "")))
                starting.enter_context(_stderr_to(log))
            if starts_jvm:
                _start_jvm(settings)
            if with_sql or _has_connect(settings):
                builder = SparkSession.builder
                for key, value in settings.items():
                    builder = builder.config(key, value)
                session: SparkSession | SparkContext = builder.getOrCreate()
            else:
                session = SparkContext.getOrCreate(SparkConf().setAll([*settings.items()]))
    except Exception as error:  # of py4j or pyspark, or a RuntimeError
        logged = log.read_text(errors="replace") if log else ""
        why = java_reason("\n".join((str(error), logged)))
        raise SparkStartError(f"Spark did not start: {why}") from error
    if _has_connect(settings):
        add_options(hadoop_keys(given))  # the session does not return keys
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


def _start_jvm(settings: Mapping[str, str]) -> None:
    """Start the JVM, unless it is running, without the settings that may be secrets.

    PySpark would put all of them on the JVM's command line, which every user of this machine can
    read. Only the settings that the JVM itself needs are put there. The others are added to the
    `SparkConf` of the running JVM, before there is a SparkContext. For a local Connect server
    PySpark starts a different JVM.
    """
    if _has_connect(settings):
        return
    public = SparkConf().setAll([pair for pair in settings.items() if not _SECRET.search(pair[0])])
    SparkContext._ensure_initialized(conf=public)


def _has_connect(settings: Mapping[str, str]) -> bool:
    """Return whether PySpark starts a session of Spark Connect with these settings."""
    modes = settings.get("spark.api.mode"), os.environ.get("SPARK_API_MODE")
    is_asked_for = (
        REMOTE in settings or {"SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED"} & os.environ.keys()
    )
    return "connect" in modes or bool(is_asked_for)


def _quiet_log() -> Path:
    """Return a file for the JVM's output, beside log settings that show only errors."""
    folder = Path(tempfile.mkdtemp(prefix="kip33-"))
    (folder / _LOG4J2_FILE).write_text(QUIET_LOG4J2)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder / "spark.log"


@contextmanager
def _submit_args(log: Path, java_options: str) -> Iterator[None]:
    """Make a JVM that starts now log to `log`, with the environment variable that PySpark reads.

    `java_options` are the user's. This variable replaces that setting, so it repeats them. The
    environment is restored afterwards.
    """
    quiet = f"-Dlog4j2.configurationFile={(log.parent / _LOG4J2_FILE).as_uri()}"
    options = " ".join((quiet, *_jvm_options(java_options), java_options))
    os.environ[_SUBMIT_ARGS] = f"--driver-java-options {shlex.quote(options)} pyspark-shell"
    try:
        yield
    finally:
        del os.environ[_SUBMIT_ARGS]


def _jvm_options(java_options: str) -> tuple[str, ...]:
    """Return the JVM's options; no collector if the user chose one: a JVM refuses two."""
    given = (java_options, *map(os.environ.get, ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS")))
    has_collector = re.search(r"-XX:\+Use\w+GC\b", " ".join(filter(None, given)))
    return _JVM_OPTIONS if has_collector else (*_JVM_OPTIONS, COLLECTOR)


@contextmanager
def _stderr_to(path: Path) -> Iterator[None]:
    """Give `path` as standard error to a child process, the JVM, that starts now."""
    sys.stderr.flush()
    ours = os.dup(2)
    theirs = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(theirs, 2)
    try:
        yield
    finally:
        os.dup2(ours, 2)
        os.close(ours)
        os.close(theirs)


@contextmanager
def _signals_wait_for_the_jvm() -> Iterator[None]:
    """Keep the handlers of SIGINT and SIGTERM, and delay these signals until the JVM has started.

    A JVM whose start is interrupted never ends: PySpark removes the folder through which the two
    connect. PySpark's own handler of SIGINT calls the JVM while another call is in progress.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    handlers = {number: handler for number, handler in before.items() if callable(handler)}
    held: list[int] = []

    def hold(number: int, frame: FrameType | None) -> None:
        if SparkContext._gateway is None:
            held.append(number)
        else:
            handlers[signal.Signals(number)](number, frame)

    try:
        for number in handlers:
            signal.signal(number, hold)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if held:
            signal.raise_signal(held[0])


def require_java() -> None:
    """Raise JavaMissingError, one line on how to install Java, if there is no Java for Spark."""
    home = os.environ.get("JAVA_HOME")
    in_home = home and (Path(home) / "bin" / "java").exists()
    if not in_home and shutil.which("java") is None:
        raise JavaMissingError(
            "Java is missing: Spark needs a Java 17 runtime (Debian: apt-get install "
            "openjdk-17-jre-headless; macOS: brew install openjdk@17), or JAVA_HOME set to one"
        )
