"""Object code as a release contains it: made for this machine's CPU, used by all processes."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from kip33.formats.native.object_code import CPU_TARGETS, Target
from kip33.formats.native.object_kernels import is_for_this_machine

PLACE: Final = "KIP33_OBJECT_CODE"


def this_target() -> Target:
    """Return the kind of CPU for which a release has code that this machine uses."""
    return next(target for target in CPU_TARGETS if is_for_this_machine(target))


def make_object_code(folder: str | Path) -> None:
    """Compile all kernels for this machine."""
    command = [sys.executable, "-m", "kip33.indexing.object_files", folder]
    subprocess.run([*command, "--target", this_target().name], check=True)


def use_object_code(folder: Path) -> None:
    """Compile all kernels, for this process and those it starts."""
    make_object_code(folder)
    os.environ[PLACE] = str(folder)
