"""Python environments of servers: made once from a lock file, kept in the user's cache folder."""

import fcntl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.integration.servers.processes import ServerMissingError, cache_folder

# The lock that was installed whole: another one means another environment. Environments with an
# `installed.lock` were made before two workers of pytest took turns, and may be broken.
INSTALLED = "complete.lock"


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Hold a cache folder: two workers of pytest may want to fill it at once."""
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def locked_python(name: str, lock: Path) -> Path:
    """Return the Python of environment `name`, which has what `lock` says, this Python's kind.

    The first call installs it; ServerMissingError where pip does not.
    """
    folder = cache_folder(f"{name}-py{sys.version_info.major}.{sys.version_info.minor}")
    python, installed = folder / "venv" / "bin" / "python", folder / INSTALLED
    with held(folder):
        if not (installed.is_file() and installed.read_text() == lock.read_text()):
            installed.unlink(missing_ok=True)
            for command in (
                (sys.executable, "-m", "venv", "--clear", folder / "venv"),
                (python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "-r", lock),
            ):
                done = subprocess.run(command, capture_output=True, text=True, check=False)
                if done.returncode != 0:
                    last = (done.stderr or done.stdout).strip().splitlines()[-1:]
                    raise ServerMissingError(f"pip does not install {name}: {' '.join(last)}")
            installed.write_text(lock.read_text())
    return python
