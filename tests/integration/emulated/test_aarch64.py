"""The wheel for aarch64 on an aarch64 CPU, which qemu emulates.

`KIP33_SEED` chooses other random logs, `KIP33_LOGS` how many the long form has.
"""

import json
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from kip33.demo import make_archive
from kip33.formats.native.library import CPU_TARGETS
from kip33.formats.native.maker import linker_of
from tests.builders import verified_log
from tests.builders.logs_to_verify import (
    random_logs,
    with_batches_of_many_sizes,
    with_many_transactions,
)
from tests.builders.verified_log import VerifiedLog, everything_about
from tests.golden.test_golden import VECTORS
from tests.integration.emulated.aarch64 import Aarch64
from tests.integration.installed.conftest import make_wheel
from tests.integration.servers.fixtures import or_skip
from tests.integration.servers.processes import ServerMissingError
from tests.long_forms import short_and_long
from tests.test_packaging import packages_without_spark

pytestmark = pytest.mark.integration
SEED = int(os.environ.get("KIP33_SEED", "33"))
KERNELS = "shared library aarch64"


class Installed:
    """The emulated machine with kip33 installed."""

    def __init__(self, machine: Aarch64, site: Path) -> None:
        self._machine, self._site = machine, site

    def kip33(self, *arguments: str | Path) -> str:
        """Return what a command prints."""
        program = "from kip33.cli.main import main; main()"
        done = self._machine.run("-c", program, *arguments, site=self._site)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    def verified(self, logs: Sequence[VerifiedLog]) -> list[list[str]]:
        """Return what it says of each log, plain and compiled; it has compiled by the library."""
        given = "".join(f"{log.as_line()}\n" for log in logs)
        done = self._machine.run(verified_log.__file__, site=self._site, given=given)
        assert (done.returncode, done.stderr) == (0, "")
        *found, machine = map(json.loads, done.stdout.splitlines())
        assert machine == ["aarch64", KERNELS]  # and no compiler was imported
        return found


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """A machine with the wheel of this checkout and the packages for a machine without Spark."""
    folder = tmp_path_factory.mktemp("aarch64")
    with or_skip("an emulated aarch64 machine"):
        machine = Aarch64(packages_without_spark())
        try:
            linker_of(CPU_TARGETS[-1])
        except RuntimeError as error:
            raise ServerMissingError(str(error)) from error
        wheel = make_wheel(folder / "wheel", "aarch64")
        machine.install(folder / "site", "--no-deps", wheel)
    return Installed(machine, folder / "site")


def said_everywhere(installed: Installed, logs: Sequence[VerifiedLog]) -> list[str]:
    """Return what is said of each log: the same by both forms on aarch64 and the plain one here."""
    here = [repr(everything_about(log, compiled=False)) for log in logs]
    for log, expected, found in zip(logs, here, installed.verified(logs), strict=True):
        assert found == [expected, expected], log
    return here


def test_every_golden_vector_is_recovered_as_by_kafka(installed: Installed, tmp_path: Path) -> None:
    logs = []
    for number, vector in enumerate(VECTORS):
        folder = tmp_path / str(number)
        folder.mkdir()
        settings = (vector.index_interval_bytes, vector.segment_index_bytes)
        logs.append(VerifiedLog(vector.lay_out(folder), vector.base_offset, *settings))

    found = said_everywhere(installed, logs)

    for vector, said in zip(VECTORS, found, strict=True):
        by_kafka = repr((vector.time_index, vector.offset_index))
        assert said.startswith(by_kafka.removesuffix(")")), vector


@pytest.mark.parametrize("count", short_and_long(20, 120, "KIP33_LOGS"))
def test_random_logs_are_recovered_as_by_the_plain_functions(
    count: int, installed: Installed, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = SEED * 1000
    logs = [
        *random_logs(tmp_path, seeds=range(first, first + count)),
        with_many_transactions(tmp_path),
        with_batches_of_many_sizes(tmp_path),
    ]
    with capsys.disabled():
        print(f"\n{len(logs)} logs of KIP33_SEED={SEED} on aarch64", end=" ")
    said_everywhere(installed, logs)
    seen = {everything_about(log, compiled=False)[2] for log in logs}
    assert seen >= {"ok", "truncated", "invalid"}


def test_the_commands_work(installed: Installed, tmp_path: Path) -> None:
    archive, indexes = tmp_path / "archive", tmp_path / "indexes"
    make_archive(archive)

    assert f"kernels: {KERNELS}\n" in installed.kip33("--version", "-v")
    built = installed.kip33("build", archive, "--index-dir", indexes, "--format", "json")
    assert json.loads(built)["segments"] > 10
    assert installed.kip33("count", archive, "--topic", "orders", "--per", "1d").count("\n") > 1
