"""Servers as processes of the tests: started, waited for, stopped, never left behind."""

import os
import random
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path

LEASH = Path(__file__).with_name("leash.py")
# Below the ports that systems give to clients: a stopped server finds its port free again.
PORTS = range(20000, 32000)
STOPS_WITHIN_S = 30


class ServerMissingError(Exception):
    """A server cannot be had here: no compiler for it, no registry that answers."""


class ServerError(Exception):
    """A server is here and does not do what it should; carries what it logged."""


def cache_folder(name: str) -> Path:
    """Return the folder, made, where built programs and jars outlive a run of the tests.

    `KIP33_TEST_CACHE` moves it.
    """
    default = Path.home() / ".cache" / "kip33-tests"
    folder = Path(os.environ.get("KIP33_TEST_CACHE", default)) / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def require_program(name: str) -> None:
    """Raise ServerMissingError unless `name` is on the PATH."""
    if shutil.which(name) is None:
        raise ServerMissingError(f"`{name}` is not on the PATH")


def started(command: Sequence[str], log: Path, folder: Path) -> subprocess.Popen[str]:
    """Start a program in `folder` that is talked to line by line; it ends with its input."""
    with log.open("ab") as errors:
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,  # it ends with this, and so with the tests
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            cwd=folder,
            start_new_session=True,
        )


def free_port() -> int:
    """Return a port of loopback that nobody listens on and no client is given by chance."""
    for _ in range(200):
        port = random.choice(PORTS)
        with closing(socket.socket()) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise ServerError(f"no port of {PORTS} is free")


class ServerProcess:
    """One process on a leash: when the tests die, so do it and all it started."""

    def __init__(
        self,
        command: Sequence[str | Path],
        *,
        log: Path,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> None:
        self._log = log
        self._log_start = log.stat().st_size if log.exists() else 0
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", LEASH, *command],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=env,
                cwd=cwd,
                start_new_session=True,  # Ctrl-C is for the tests, which then stop the server
            )

    @property
    def runs(self) -> bool:
        """Return whether the process has not ended."""
        return self._process.poll() is None

    def logged(self) -> str:
        """Return what this process logged, without what its forerunners did."""
        return self._log.read_bytes()[self._log_start :].decode(errors="replace")

    def wait_until(self, ready: Callable[[], bool], *, seconds: float) -> None:
        """Ask `ready` until it says so; ServerError if the process ends or the time does."""
        deadline = time.monotonic() + seconds
        while not ready():
            if not self.runs or time.monotonic() > deadline:
                self.kill()
                raise ServerError(f"not ready in {seconds} s: {self.logged()[-2000:]}")
            time.sleep(0.05)

    def stop(self) -> None:
        """End it as an operator does, by SIGTERM; kill it if that takes too long."""
        if self.runs:
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=STOPS_WITHIN_S)
        self.kill()

    def kill(self) -> None:
        """End it and all it started at once, as a crash does."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
