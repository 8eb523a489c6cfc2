"""The JVM that a command starts for its session: its options, output and signals."""

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
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Final

from pyspark import SparkConf, SparkContext

from kip33.errors import Kip33Error

SUBMIT_ARGS: Final = "PYSPARK_SUBMIT_ARGS"
LOG4J2_FILE: Final = "log4j2.properties"
JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"


# A command's JVM lives for seconds: the slow compiler starts ten times later than by default.
JVM_OPTIONS: Final = (
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


def start_jvm(settings: Mapping[str, str]) -> None:
    """Start the JVM, unless it is running, without the settings that may be secrets.

    PySpark would put all of them on the JVM's command line, which every user of this machine can
    read. Only the settings that the JVM itself needs are put there. The others are added to the
    `SparkConf` of the running JVM, before there is a SparkContext. For a local Connect server
    PySpark starts a different JVM.
    """
    if "connect" in (settings.get("spark.api.mode"), os.environ.get("SPARK_API_MODE")):
        return
    said = SparkConf().setAll([pair for pair in settings.items() if not _SECRET.search(pair[0])])
    SparkContext._ensure_initialized(conf=said)


def quiet_log() -> Path:
    """Return a file for the JVM's output, beside log settings that show only errors."""
    folder = Path(tempfile.mkdtemp(prefix="kip33-"))
    (folder / LOG4J2_FILE).write_text(QUIET_LOG4J2)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder / "spark.log"


@contextmanager
def submit_args(log: Path | None, java_options: str) -> Iterator[None]:
    """Make a JVM that starts now log to `log`, with the environment variable that PySpark reads.

    `java_options` are the user's. This variable replaces that setting, so it repeats them. The
    environment is restored afterwards.
    """
    if log is None:
        yield
        return
    quiet = f"-Dlog4j2.configurationFile={(log.parent / LOG4J2_FILE).as_uri()}"
    options = " ".join((quiet, *_jvm_options(java_options), java_options))
    os.environ[SUBMIT_ARGS] = f"--driver-java-options {shlex.quote(options)} pyspark-shell"
    try:
        yield
    finally:
        del os.environ[SUBMIT_ARGS]


def _jvm_options(java_options: str) -> tuple[str, ...]:
    """Return the JVM's options; no collector if the user chose one: a JVM refuses two."""
    said = (java_options, *map(os.environ.get, ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS")))
    has_one = re.search(r"-XX:\+Use\w+GC\b", " ".join(filter(None, said)))
    return JVM_OPTIONS if has_one else (*JVM_OPTIONS, COLLECTOR)


@contextmanager
def stderr_to(path: Path | None) -> Iterator[None]:
    """Give `path` as standard error to a child process, the JVM, that starts now."""
    if path is None:
        yield
        return
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
def signals_wait_for_the_jvm() -> Iterator[None]:
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
