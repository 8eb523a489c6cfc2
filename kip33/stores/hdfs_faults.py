"""Faults of hdfs-native, turned into OSErrors with one line.

hdfs-native prints a fault in Rust's debug form, including the Java trace that a name node sent:

    RPCError("org.apache...AccessControlException", "Permission denied: user=a\\n\\tat org...")
    GSSAPIError(GssMajorCodes { ... "GSS_S_NO_CRED" ... }, 2529639053, "No credentials were ...")
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from kip33.errors import is_of_the_machine

PANIC: Final = "PanicException"  # not an Exception; a truncated token file raises it, for example
_OF_SERVERS: Final = ("RPCError", "FatalRPCError")  # their first text is the name of a Java class
_TEXT: Final = re.compile(r'"((?:[^"\\]|\\.)*)"')


@contextmanager
def faults_as_os_errors() -> Iterator[None]:
    """Raise the client's faults as OSErrors with one line, or as PermissionError."""
    try:
        yield
    except MemoryError:
        raise
    except OSError as error:
        if is_of_the_machine(error):
            raise
        raise type(error)(str(error).partition("\n")[0]) from None
    except BaseException as error:  # RuntimeError for most faults of a name node
        if not isinstance(error, Exception) and type(error).__name__ != PANIC:
            raise
        kind = PermissionError if "AccessControlException" in str(error) else OSError
        raise kind(said(error)) from None


def said(error: BaseException) -> str:
    """Return the kind of fault and its last text, without the trace.

    >>> said(RuntimeError('RPCError("org.example.Expired", "\\\\"a\\\\" is over\\\\n\\\\tat")'))
    'Expired: "a" is over'
    """
    shown = str(error)
    kind = shown.partition("(")[0]
    texts: list[str] = _TEXT.findall(shown)
    if not (kind.isidentifier() and texts):
        return f"{type(error).__name__}: {shown.splitlines()[0] if shown else ''}"
    if kind in _OF_SERVERS:
        kind = texts[0].rpartition(".")[2]
    return f"{kind}: " + texts[-1].partition("\\n")[0].replace('\\"', '"')
