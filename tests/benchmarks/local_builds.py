"""`kip33 build` on the local engine: the command from the start of its process to its end."""

import json
import subprocess
from pathlib import Path

from tests.benchmarks.commands import KIP33


def local_command(archive: Path, target: Path, *, workers: int) -> list[str]:
    """Return the command line of a build in `workers` processes."""
    how = ["--engine", "local", "--workers", str(workers), "--format", "json"]
    return [str(KIP33), "build", str(archive), "--index-dir", str(target), *how]


def build_locally(
    archive: Path, target: Path, segments: int, *, workers: int, full: bool = False
) -> None:
    """Build every segment into a directory; raises if one is not built."""
    command = local_command(archive, target, workers=workers)
    done = subprocess.run(
        [*command, "--full"] if full else command, stdout=subprocess.PIPE, check=True
    )
    summary = json.loads(done.stdout)
    if summary["by_status"] != {"ok": segments} or summary["engine"] != "local":
        raise ValueError(f"{archive}: {summary}")
