"""What a command imports, from a process that ran it."""

import sys
from pathlib import Path
from typing import Any

from tests.cli.console import subprocess_of

RUN_AND_TELL = """\
import atexit, sys
atexit.register(lambda: print(*sys.modules, file=open("modules", "w")))
from kip33.cli.main import main
main()
"""


def modules_of(*arguments: Any, cwd: Path) -> list[str]:
    """Run `kip33` with these arguments; return the modules it had at its end, in their order."""
    done = subprocess_of(sys.executable, "-c", RUN_AND_TELL, *arguments, cwd=cwd)
    assert done.exit_code == 0, done.stderr
    return (cwd / "modules").read_text().split()
