"""An aarch64 machine: Debian's Python for arm64 in qemu's user emulation, kip33 from its wheel.

Its root and its packages are made once and kept in the tests' cache folder: apt fetches Debian's
packages from where this machine's come from, pip the wheels. Nothing is installed on this machine.
"""

import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.integration.servers.environments import held
from tests.integration.servers.processes import (
    ServerMissingError,
    cache_folder,
    require_program,
)

PROJECT = Path(__file__).parents[3]
LOCK = PROJECT / ".ci" / "requirements.lock"
QEMU = ("qemu-aarch64-static", "qemu-aarch64")
DEBIAN_PACKAGES = ("python3", "libstdc++6")  # and what they need
PLATFORMS = ("manylinux_2_28", "manylinux_2_27", "manylinux_2_17", "manylinux2014")
FETCHES_WITHIN_S = 600
RUNS_WITHIN_S = 1200


class Aarch64:
    """Runs Python programs on an emulated aarch64 CPU; they see this machine's files."""

    def __init__(self, packages: Sequence[str]) -> None:
        """Make or find its root with these packages; ServerMissingError where it cannot be had."""
        self._qemu = next(filter(None, map(shutil.which, QEMU)), None)
        if self._qemu is None:
            raise ServerMissingError("no qemu for aarch64 (Debian: qemu-user-static)")
        made_of = "\n".join((*DEBIAN_PACKAGES, *packages, LOCK.read_text()))
        folder = cache_folder("aarch64")
        self._root, self._site = folder / "root", folder / "site"
        complete = folder / "complete"
        with held(folder):
            if not (complete.is_file() and complete.read_text() == made_of):
                complete.unlink(missing_ok=True)
                for old in (self._root, self._site):
                    shutil.rmtree(old, ignore_errors=True)
                _unpack_debian(self._root, folder / "apt")
                self.install(self._site, "-c", LOCK, *packages)
                complete.write_text(made_of)

    @property
    def python(self) -> Path:
        """Return Debian's Python for it."""
        [found] = (p for p in self._root.glob("usr/bin/python3.*") if re.search(r"\.\d+$", p.name))
        return found

    def install(self, target: Path, *what: str | Path) -> None:
        """Have pip put wheels for it into a folder; ServerMissingError where pip does not."""
        kinds = [word for name in PLATFORMS for word in ("--platform", f"{name}_aarch64")]
        version = self.python.name.removeprefix("python")
        pip = (sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check")
        _fetched(
            *(*pip, "--no-compile", "--only-binary=:all:", "--target", target, *kinds),
            *("--implementation", "cp", "--python-version", version, *what),
        )

    def run(
        self, *arguments: str | Path, site: Path, given: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Run Python with its packages and those of `site`."""
        assert self._qemu is not None
        return subprocess.run(
            [self._qemu, "-L", self._root, self.python, "-P", *arguments],
            env={"PYTHONPATH": f"{site}:{self._site}", "PYTHONDONTWRITEBYTECODE": "1"},
            input=given,
            capture_output=True,
            text=True,
            timeout=RUNS_WITHIN_S,
            check=False,
        )


def _unpack_debian(root: Path, folder: Path) -> None:
    """Unpack Debian's packages for arm64 below `root`; apt works in `folder`, of no use later."""
    for name in ("apt-get", "dpkg-deb"):
        require_program(name)
    shutil.rmtree(folder, ignore_errors=True)
    for name in ("state/lists/partial", "cache/archives/partial"):
        (folder / name).mkdir(parents=True)
    (folder / "status").touch()  # nothing is installed
    settings = {
        "Dir::State": folder / "state",
        "Dir::State::status": folder / "status",
        "Dir::Cache": folder / "cache",
        "APT::Architecture": "arm64",
        "APT::Architectures": "arm64",
        "APT::Sandbox::User": "root",  # the user of this process: others cannot write there
        "Debug::NoLocking": "1",
    }
    apt = ["apt-get", "-qq", *(f"-o{name}={value}" for name, value in settings.items())]
    _fetched(*apt, "update", "--error-on=any")
    _fetched(
        *(*apt, "install", "--yes", "--download-only", "--no-install-recommends"), *DEBIAN_PACKAGES
    )
    root.mkdir()
    for package in sorted((folder / "cache" / "archives").glob("*.deb")):
        subprocess.run(["dpkg-deb", "-x", package, root], check=True)
    shutil.rmtree(folder)


def _fetched(*command: str | Path) -> None:
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=FETCHES_WITHIN_S, check=False
    )
    if done.returncode != 0:
        last = (done.stderr or done.stdout).strip().splitlines()[-1:]
        raise ServerMissingError(f"{Path(command[0]).name} fetches nothing: {' '.join(last)}")
