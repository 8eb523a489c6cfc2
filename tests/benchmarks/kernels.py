"""The shared library that a wheel for this machine contains, used by all processes."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

PLACE: Final = "KIP33_KERNELS"


def make_kernels(folder: str | Path) -> None:
    """Make the library for this machine."""
    command = [sys.executable, "-m", "kip33.indexing.kernels", folder, "--target", "here"]
    subprocess.run(command, check=True)


def use_kernels(folder: Path) -> None:
    """Make it, for this process and those it starts."""
    make_kernels(folder)
    os.environ[PLACE] = str(folder)
