"""A stranger with a wheel of kip33: a home and a folder of their own, no checkout and no Java.

All blocks of a page run in one bash, as in a terminal: what one block sets, the next one finds. The
first block that fails ends it.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.conftest import QUICK_JVM
from tests.pages import Block

PROJECT = Path(__file__).parents[3]
LOCK = PROJECT / ".ci" / "requirements.lock"
SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"
OF_THE_MACHINE = re.compile(r"PIP_\w+|(https?|no|all)_proxy|SSL_CERT_\w+|LANG", re.IGNORECASE)
LONGEST_S = 1200
JAVA = "Java"  # in the mark of a block that needs it
NOT_COMPILED, COMPILED = "0", "1"  # of PIP_NO_COMPILE: pip takes it for the value of `compile`


def java_home() -> str | None:
    """Return where this machine has Java, for JAVA_HOME; None: it has none."""
    java = shutil.which("java")
    return os.environ.get("JAVA_HOME") or (str(Path(java).resolve().parents[1]) if java else None)


class Printed(NamedTuple):
    """What a block printed, and how it ended."""

    exit_code: int
    stdout: str
    stderr: str


class Stranger:
    """A user of this machine who has its Python, and nothing of kip33."""

    def __init__(self, root: Path) -> None:
        self.home, self.folder = root / "home", root / "home" / "kip33-tutorial"
        self.java_calls = root / "java-calls"
        self._programs, self._no_java = root / "programs", root / "no-java"
        self._blocks = root / "blocks"
        for folder in (self.folder, self._programs, self._no_java, self._blocks):
            folder.mkdir(parents=True)
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        python = Path(sys.base_prefix, "bin", f"python{version}")
        _write_program(self._programs / "python3", f'exec {python} "$@"')
        _write_program(self._no_java / "java", f'echo "$@" >> {self.java_calls}; exit 1')

    @property
    def environment(self) -> dict[str, str]:
        """Return the variables of a new terminal; pip installs the versions of the lock file."""
        found = {name: text for name, text in os.environ.items() if OF_THE_MACHINE.fullmatch(name)}
        return {
            "PIP_CACHE_DIR": str(Path.home() / ".cache" / "pip"),
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PIP_NO_COMPILE": NOT_COMPILED,  # Spark has much that these pages do not import
            "LANG": "C.UTF-8",
            **found,
            "HOME": str(self.home),
            "PATH": f"{self._no_java}:{self._programs}:{SYSTEM_PATH}",
            "PIP_CONSTRAINT": str(LOCK),
        }

    @property
    def installed(self) -> Path:
        """Return the programs of the environment that the tutorial makes."""
        return self.folder / "kip33-environment" / "bin"

    def follow(self, blocks: Sequence[Block]) -> list[Printed]:
        """Run the blocks of a page, one after another; return what those printed that began.

        Standard error of a step is between its lines, as on a terminal.
        """
        folder = Path(tempfile.mkdtemp(dir=self._blocks))
        files = [folder / str(number) for number in range(len(blocks))]
        script = [
            f"{self._command(block, file)} > {file}.out 2> {file}.err"
            if JAVA in block.mark or not block.is_step
            else f"{self._command(block, file)} > {file}.out 2>&1"
            for block, file in zip(blocks, files, strict=True)
        ]
        code = self.run("bash", "-eo", "pipefail", "-c", "\n".join(script)).exit_code
        begun = [file for file in files if file.with_suffix(".out").exists()]
        return [
            Printed(
                code if file == begun[-1] else 0,
                file.with_suffix(".out").read_text(encoding="utf-8"),
                errors.read_text(encoding="utf-8")
                if (errors := file.with_suffix(".err")).exists()
                else "",
            )
            for file in begun
        ]

    def run(self, *command: str | Path, **environment: str) -> Printed:
        """Run a program to its end in the stranger's folder; `environment` adds variables."""
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=self.environment | environment,
            capture_output=True,
            text=True,
            timeout=LONGEST_S,
            check=False,
        )
        return Printed(done.returncode, done.stdout, done.stderr)

    def _command(self, block: Block, file: Path) -> str:
        file.write_text(block.code, encoding="utf-8")
        command = f"python3 {file}" if block.language == "python" else f"source {file}"
        if JAVA not in block.mark:
            return command
        return f"( export JAVA_HOME={java_home()} JDK_JAVA_OPTIONS='{QUICK_JVM}'; {command} )"


def _write_program(path: Path, line: str) -> None:
    path.write_text(f"#!/bin/sh\n{line}\n", encoding="utf-8")
    path.chmod(0o755)
