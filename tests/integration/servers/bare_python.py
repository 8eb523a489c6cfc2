"""A Python that has what kip33 needs and not kip33: the Python of a cluster's machines."""

import sys
import sysconfig
from pathlib import Path

# Without site-packages' .pth files, by which `pip install -e` makes kip33 known.
BARE_PYTHON = """#!/bin/sh
PYTHONPATH="$PYTHONPATH:{packages}" exec {python} -S "$@"
"""


def write_bare_python(path: Path) -> None:
    """Write the program, which runs this Python, to `path`."""
    packages = sysconfig.get_path("purelib")
    path.write_text(BARE_PYTHON.format(packages=packages, python=sys.executable))
    path.chmod(0o755)
