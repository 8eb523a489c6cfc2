"""moto's S3, IAM and STS on loopback, run by the Python of their own environment.

    python in_moto.py PORT REQUESTS

REQUESTS gets a line of JSON for each request once it is answered: who asked for what.
"""

import io
import json
import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from moto.moto_server.werkzeug_app import (
    DomainDispatcherApplication,
    MotoRequestHandler,
    create_backend_app,
)
from werkzeug.serving import run_simple

Environ = dict[str, Any]
FORM = "application/x-www-form-urlencoded"


class Recorded:
    """A WSGI application that another one answers for, and a record of what it was asked."""

    def __init__(self, application: Any, record: Path) -> None:
        self._application = application
        self._record = record
        self._lock = threading.Lock()

    def __call__(self, environ: Environ, start_response: Callable[..., Any]) -> Iterable[bytes]:
        asked = _asked(environ)

        def started(status: str, *rest: Any) -> Any:
            line = json.dumps(asked | {"status": int(status.split()[0])})
            with self._lock, self._record.open("a") as record:
                record.write(line + "\n")
            return start_response(status, *rest)

        answer: Iterable[bytes] = self._application(environ, started)
        return answer


def _asked(environ: Environ) -> dict[str, Any]:
    """Return method, path, key, token and, of STS and IAM, the form that was sent."""
    form: dict[str, str] = {}
    if environ.get("CONTENT_TYPE", "").startswith(FORM):
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        environ["wsgi.input"] = io.BytesIO(body)
        form = dict(parse_qsl(body.decode()))
    signed = environ.get("HTTP_AUTHORIZATION", "")
    return {
        "method": environ["REQUEST_METHOD"],
        "path": environ["PATH_INFO"],
        "access_key": signed.partition("Credential=")[2].partition("/")[0],
        "session_token": environ.get("HTTP_X_AMZ_SECURITY_TOKEN", ""),
        "form": form,
    }


if __name__ == "__main__":
    application = Recorded(DomainDispatcherApplication(create_backend_app), Path(sys.argv[2]))
    run_simple(
        "127.0.0.1",
        int(sys.argv[1]),
        application,
        threaded=True,
        request_handler=MotoRequestHandler,
    )
