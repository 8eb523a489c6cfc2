"""Why a Spark job failed, in one line, from the trace of Java or of a worker."""

import re
from typing import Final

from py4j.protocol import Py4JError, Py4JNetworkError

from kip33.errors import ExitCode, Kip33Error

_SAYS_WHAT: Final = re.compile(r"(Caused by: |Exception in thread \S+ )?[\w.$]*(Error|Exception): ")


class SparkJobError(Kip33Error):
    """A Spark job failed: a task failed at every attempt, or the JVM ended."""

    exit_code = ExitCode.INCOMPLETE


def job_failure(error: BaseException) -> str:
    """Return one line on why a Spark job failed, from its exception.

    Spark names the last attempt's failure first, then its causes, down to "EOFException".
    """
    if type(error) is Py4JError or isinstance(error, Py4JNetworkError | ConnectionError):
        said = "its JVM ended: it was killed or ran out of memory"
    elif "No module named 'kip33'" in str(error):
        said = "the executors do not have kip33: run make dist, then give --py-files dist/kip33.zip"
    else:
        trace = str(error).partition("Driver stacktrace:")[0]
        lines = [line.strip(" :\t") for line in trace.splitlines()]
        own = [line for line in lines if _SAYS_WHAT.match(line) and "Caused by: " not in line]
        said = own[-1].rpartition("most recent failure: ")[2] if own else java_reason(trace)
    return f"the Spark job failed: {said}; no file is half-written: run the command again"


def java_reason(trace: str) -> str:
    """Return the line of a Java or worker trace that says what happened."""
    lines = [line.strip().removeprefix(": ") for line in trace.splitlines() if line.strip()]
    said = [line for line in lines if _SAYS_WHAT.match(line)]
    return said[-1] if said else lines[0] if lines else "no message"
