"""What hdfs-native says when something goes wrong, as an OSError of one line.

It shows a fault as Rust does, in one line with all that a name node sent, a Java trace among it:

    RPCError("org.apache...AccessControlException", "Permission denied: user=a\\n\\tat org...")
    GSSAPIError(GssMajorCodes { ... "GSS_S_NO_CRED" ... }, 2529639053, "No credentials were ...")
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

PANIC: Final = "PanicException"  # no Exception: of a token file that was cut off, for example
_OF_SERVERS: Final = ("RPCError", "FatalRPCError")  # their first text is a class of Java's
_TEXT: Final = re.compile(r'"((?:[^"\\]|\\.)*)"')


@contextmanager
def faults_as_os_errors() -> Iterator[None]:
    """Let the client's faults be OSErrors of one line, PermissionError among them."""
    try:
        yield
    except OSError as error:
        raise type(error)(str(error).partition("\n")[0]) from None
    except BaseException as error:  # RuntimeError, for most of what a name node says
        if not isinstance(error, Exception) and type(error).__name__ != PANIC:
            raise
        kind = PermissionError if "AccessControlException" in str(error) else OSError
        raise kind(said(error)) from None


def said(error: BaseException) -> str:
    """Return what kind of fault it is and its last text, without the trace.

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
