"""Kafka's jars and the oracle's classes, a directory for each version, made by Maven on demand.

`KIP33_KAFKA=4.1.1` asks that version instead of the newest.
"""

import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import pytest

PROJECT = Path(__file__).parent / "oracle"
TARGET = PROJECT / "target"

KAFKA_3_1, KAFKA_3_6, KAFKA_3_9 = "3.1.2", "3.6.2", "3.9.1"
KAFKA_4_1, KAFKA_4_3, KAFKA_4_4 = "4.1.1", "4.3.1", "4.4.0"
GOLDEN_VERSIONS = (KAFKA_3_1, KAFKA_3_6, KAFKA_3_9, KAFKA_4_1, KAFKA_4_3, KAFKA_4_4)
NEWEST = KAFKA_4_4
KAFKA_VERSION = os.environ.get("KIP33_KAFKA", NEWEST)
# The newest one that comes with LocalTieredStorage: 4.4.0 has no jar of kafka-storage's tests.
TIERED_VERSION = KAFKA_4_3
LEGACY_CLIENT_VERSION = "3.9.1"
MAVEN_ENDS_WITHIN_S = 1800

# The module that compiles with a version, by the first version it compiles with.
MODULES = {
    (4, 4): "kafka-4.4",
    (4, 1): "kafka-4.1",
    (3, 7): "kafka-3.9",
    (3, 5): "kafka-3.6",
    (3, 0): "kafka-3.1",
}
SHARED_BY_4 = "kafka-4"


class OracleMissingError(Exception):
    """Java or Maven is not there, or Maven cannot resolve Kafka's jars."""


class OracleError(Exception):
    """The oracle itself failed; what Kafka throws is an outcome, never this."""


@contextmanager
def kafka_or_skip(what: str = "Kafka") -> Iterator[None]:
    """Skip a test where Java or Maven is not there; with KIP33_REQUIRE_KAFKA it fails instead."""
    try:
        yield
    except OracleMissingError as missing:
        if os.environ.get("KIP33_REQUIRE_KAFKA"):
            raise
        pytest.skip(f"{what} cannot be asked: {missing}")


@dataclass(frozen=True)
class JarFolder:
    """A module of `oracle/`, built with one version of Kafka below `target/`."""

    module: str
    version: str
    name: str

    @classmethod
    def of_version(cls, version: str) -> Self:
        """Return the module that asks this version; OracleError where none compiles with it."""
        for first, module in MODULES.items():
            if version_of(version) >= first:
                return cls(module, version, version)
        raise OracleError(f"no module of {PROJECT} compiles with Kafka {version}: 3.0 or later")

    @classmethod
    def of_legacy_client(cls) -> Self:
        """Return the client that still writes v0 and v1."""
        return cls("legacy", LEGACY_CLIENT_VERSION, f"legacy-{LEGACY_CLIENT_VERSION}")

    @classmethod
    def of_broker(cls, version: str = KAFKA_VERSION) -> Self:
        """Return a whole broker and its tools."""
        return cls("broker", version, f"broker-{version}")

    @property
    def jars(self) -> Path:
        return TARGET / self.name / "jars"

    @property
    def classes(self) -> Path:
        return TARGET / self.name / "classes"

    @property
    def class_path(self) -> str:
        return f"{self.classes}:{self.jars}/*"

    def build(self) -> None:
        """Compile the module and fetch its jars, unless that was done since the last edit.

        OracleMissingError where Java or Maven is not there, or Maven does not resolve the jars.
        """
        require_program("java")
        TARGET.mkdir(exist_ok=True)
        with (TARGET / f"{self.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # two workers of pytest may ask at once
            if not self._is_built():
                self._run_maven()

    def _is_built(self) -> bool:
        sources = [
            PROJECT / "pom.xml",
            *PROJECT.glob("src/**/*.java"),
            *(
                source
                for module in (self.module, SHARED_BY_4)
                for source in (
                    PROJECT / module / "pom.xml",
                    *PROJECT.glob(f"{module}/src/**/*.java"),
                )
            ),
        ]
        built = self._stamp
        return built.exists() and built.stat().st_mtime > max(s.stat().st_mtime for s in sources)

    @property
    def _stamp(self) -> Path:
        return TARGET / self.name / "built"

    def _run_maven(self) -> None:
        require_program("mvn")
        pom = PROJECT / self.module / "pom.xml"
        maven = subprocess.run(
            ["mvn", "-q", "-B", "-f", str(pom), f"-Dkafka.version={self.version}", "compile"],
            capture_output=True,
            text=True,
            timeout=MAVEN_ENDS_WITHIN_S,
            check=False,
        )
        if maven.returncode == 0:
            self._stamp.touch()
            return
        complaint = "\n".join(line for line in maven.stdout.splitlines() if "ERROR" in line)
        if "COMPILATION ERROR" in complaint:
            raise OracleError(complaint)
        raise OracleMissingError(
            f"Maven does not resolve the jars of Kafka {self.version}: {complaint[:300]}"
        )


def version_of(version: str) -> tuple[int, int]:
    """Return a release's major and minor number."""
    major, minor, *_ = version.split(".")
    return int(major), int(minor)


def require_program(name: str) -> None:
    if shutil.which(name) is None:
        raise OracleMissingError(f"`{name}` is not on the PATH")
