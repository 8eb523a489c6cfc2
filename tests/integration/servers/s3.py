"""A real S3 server on loopback: versitygw, which keeps objects as plain files of a folder.

    with S3Server(tmp_path) as server:
        server.make_bucket("archive")
        server.filesystem().open_output_stream("archive/key")

Where it differs from Amazon's, or surprises, seen through pyarrow 26:

- Times. LIST and HEAD both give whole seconds, cut off; the file below has nanoseconds.
- Checksums. By default each upload is chunked, with a checksum as its trailer. With `keep_alive`
  the server loses its place after some of these and answers 400; so it closes each connection
  unless told otherwise. Through a proxy an answer is then lost at times and the request repeated.
  `AWS_REQUEST_CHECKSUM_CALCULATION=when_required`, set before the client is made, avoids both.
- Files. Their extended attributes carry checksum and ETag. A file written in place keeps the old
  ones, and reading it fails with `Response checksums mismatch`: put a new file in its place. A file
  without attributes is served as it is; `.sgwtmp` in a bucket is the server's own.
- Folders. A key cannot be both an object and the beginning of another's name (409). A folder goes
  with its last object, unless it was made as such; pyarrow makes it so after `delete_file` and
  `move`. `delete_dir` removes a tree that has folders in it, and yet raises `Directory object not
  empty`.
- Errors. `move` is copy and delete; a missing source is an OSError of NO_SUCH_KEY. A wrong secret
  is ACCESS_DENIED for HEAD and SIGNATURE_DOES_NOT_MATCH for the rest, a wrong key a 404.
"""

import os
import secrets
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Self

from pyarrow.fs import S3FileSystem

from tests.integration.servers.environments import held
from tests.integration.servers.processes import (
    ServerMissingError,
    ServerProcess,
    cache_folder,
    free_port,
    require_program,
)

VERSION = "v1.8.0"
MODULE = "github.com/versity/versitygw/cmd/versitygw"
REGION = "us-east-1"
BUILT_WITHIN_S = 1800
QUICKLY = "-gcflags=all=-N -l"  # unoptimized code is compiled in half the time
STARTS_WITHIN_S = 300


def build_versitygw() -> Path:
    """Return the program; the first call compiles it into the cache, which takes minutes.

    ServerMissingError where there is no Go, or no module proxy that answers.
    """
    folder = cache_folder(f"versitygw-{VERSION}")
    program = folder / "versitygw"
    with held(folder):
        if not program.exists():
            require_program("go")
            with tempfile.TemporaryDirectory(dir=folder) as built:
                _build_into(Path(built))
                (Path(built) / "versitygw").rename(program)
    return program


def _build_into(folder: Path) -> None:
    go = subprocess.run(
        ["go", "install", QUICKLY, f"{MODULE}@{VERSION}"],
        env=os.environ | {"GOBIN": str(folder)},
        capture_output=True,
        text=True,
        timeout=BUILT_WITHIN_S,
        check=False,
    )
    if go.returncode != 0:
        raise ServerMissingError(f"Go does not build versitygw: {go.stderr.strip()[-300:]}")


class S3Server:
    """versitygw over `folder`/buckets: a bucket is a folder there, an object a file in it.

    Port and keys live as long as this object: after `stop()` or `kill()`, `start()` goes on with
    the same data under the same address.
    """

    def __init__(self, folder: Path, *, keep_alive: bool = False) -> None:
        self.root = folder / "buckets"
        self.access_key = f"AK{secrets.token_hex(9).upper()}"
        self.secret_key = secrets.token_hex(20)
        self.port = free_port()
        self._keep_alive = keep_alive
        self._log = folder / "versitygw.log"
        self._process: ServerProcess | None = None

    @property
    def endpoint(self) -> str:
        """Return host and port, as `endpoint_override` takes them."""
        return f"127.0.0.1:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        """Return the variables by which the AWS SDKs find the keys and the region."""
        return {
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_REGION": REGION,
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def start(self) -> Self:
        """Start it and return it once it answers."""
        program = build_versitygw()
        self.root.mkdir(parents=True, exist_ok=True)
        environment = os.environ | {
            "ROOT_ACCESS_KEY": self.access_key,
            "ROOT_SECRET_KEY": self.secret_key,
            "VGW_PORT": self.endpoint,
            "VGW_REGION": REGION,
            "VGW_HEALTH": "/health",
            "VGW_KEEP_ALIVE": str(self._keep_alive).lower(),
        }
        command = [program, "posix", self.root]
        self._process = ServerProcess(command, log=self._log, env=environment)
        self._process.wait_until(self._answers, seconds=STARTS_WITHIN_S)
        return self

    def stop(self) -> None:
        """End it by SIGTERM."""
        if self._process is not None:
            self._process.stop()

    def kill(self) -> None:
        """End it as a crash does."""
        if self._process is not None:
            self._process.kill()

    def make_bucket(self, name: str) -> Path:
        """Return the folder of a bucket, made as the server makes it."""
        self.filesystem(allow_bucket_creation=True).create_dir(name)
        return self.root / name

    def filesystem(self, **options: Any) -> S3FileSystem:
        """Return a client with the server's keys; `options` go over them."""
        given = {
            "access_key": self.access_key,
            "secret_key": self.secret_key,
            "endpoint_override": self.endpoint,
            "scheme": "http",
            "region": REGION,
        }
        return S3FileSystem(**(given | options))

    def logged(self) -> str:
        """Return what it logged since it was started last."""
        return "" if self._process is None else self._process.logged()

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://{self.endpoint}/health", timeout=20) as answer:
                return answer.status == 200
        except (urllib.error.URLError, OSError):
            time.sleep(0.02)
            return False

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()
