"""Small disks in a private namespace: they can be full while the machine's own are not."""

import os
import subprocess
from pathlib import Path
from typing import Self

from tests.cli.console import Finished, subprocess_of

NAMESPACE = ("unshare", "--user", "--map-root-user", "--mount")
DISK_BYTES = 16 << 20
KIB = 1024
PAGE_BYTES = 4 * KIB  # a file takes whole pages


def why_not() -> str | None:
    """Return why there can be no such namespace here, None where there can."""
    try:
        tried = subprocess.run(
            [*NAMESPACE, "mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", "/mnt"],
            capture_output=True,
            text=True,
        )
    except FileNotFoundError as error:
        return f"needs {error.filename}"
    return tried.stderr.strip() or "unshare failed" if tried.returncode else None


class SmallDisks:
    """Directories that are disks of their own, for the programs that are run here."""

    def __init__(self, *places: Path) -> None:
        """Make every one of `places` a disk."""
        mounts = [f"mount -t tmpfs -o size={DISK_BYTES} tmpfs '{place}'" for place in places]
        for place in places:
            place.mkdir()
        self._holder = subprocess.Popen(
            [*NAMESPACE, "sh", "-ec", "\n".join([*mounts, "echo mounted", "exec cat"])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._holder.stdout and self._holder.stdout.readline() == b"mounted\n"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._holder.communicate()  # its end of input, and with it the end of the namespace

    def seen(self, place: Path) -> Path:
        """Return where a path in the namespace is from outside."""
        return Path(f"/proc/{self._holder.pid}/root{place}")

    def run(self, *arguments: object, cwd: Path, **environment: str) -> Finished:
        """Run a program that has these disks."""
        return subprocess_of(*self.enter(cwd), *arguments, cwd=cwd, **environment)

    def enter(self, cwd: Path) -> tuple[str, ...]:
        """Return what starts a program that has these disks, up to its name."""
        enter = ("nsenter", f"--target={self._holder.pid}", "--user", "--mount")
        return (*enter, "--preserve-credentials", f"--wd={cwd}")

    def fill(self, place: Path, *, leave: int) -> None:
        """Leave so many bytes on a disk."""
        disk = os.statvfs(self.seen(place))
        with (self.seen(place) / "ballast").open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, disk.f_bavail * disk.f_frsize - leave)
        disk = os.statvfs(self.seen(place))
        assert disk.f_bavail * disk.f_frsize == leave

    def make_room(self, place: Path) -> None:
        """Take back what `fill` did."""
        (self.seen(place) / "ballast").unlink()


def pages(sizes: list[int]) -> int:
    """Return the bytes that files of these sizes take on a small disk."""
    return sum(-(-size // PAGE_BYTES) * PAGE_BYTES for size in sizes)
