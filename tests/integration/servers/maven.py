"""Jars that Maven resolves once, as a `pom.xml` says, and that stay in the tests' cache."""

import subprocess
import tempfile
from pathlib import Path

from tests.integration.servers.environments import held
from tests.integration.servers.processes import ServerMissingError, cache_folder, require_program

RESOLVES_WITHIN_S = 1800


def resolved_jars(project: Path, name: str) -> Path:
    """Return the folder of the jars that `project`/pom.xml names; the first call has Maven fill it.

    ServerMissingError where Maven, or a repository that answers, is not there.
    """
    folder = cache_folder(name)
    jars = folder / "jars"
    with held(folder):
        if not jars.exists():
            require_program("mvn")
            with tempfile.TemporaryDirectory(dir=folder) as made:
                fetched = Path(made) / "jars"
                _fetch(project, fetched)
                fetched.rename(jars)
    return jars


def _fetch(project: Path, jars: Path) -> None:
    command = ["mvn", "-q", "-B", "-f", str(project / "pom.xml"), f"-Djars={jars}"]
    maven = subprocess.run(
        [*command, "generate-resources"],
        capture_output=True,
        text=True,
        timeout=RESOLVES_WITHIN_S,
        check=False,
    )
    if maven.returncode != 0:
        complaint = "\n".join(line for line in maven.stdout.splitlines() if "ERROR" in line)
        raise ServerMissingError(f"Maven does not resolve {project.name}: {complaint[:300]}")
