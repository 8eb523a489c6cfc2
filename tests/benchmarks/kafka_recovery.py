"""Kafka's `LogSegment.recover` in warm JVMs: the reference for speed, and the oracle."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, Self

from tests.integration.kafka.kafka_jars import KAFKA_VERSION, JarFolder
from tests.integration.kafka.oracle import JavaProcess

WARM_UP_PASSES: Final = 3
WARM_UP_SECONDS: Final = 4.0
NANOSECONDS: Final = 1e9
INDEX_SUFFIXES: Final = (".timeindex", ".index")


class WarmKafka:
    """One JVM that recovers segments in one thread, like a broker's recovery thread."""

    def __init__(self) -> None:
        jars = JarFolder.of_version(KAFKA_VERSION)
        jars.build()
        self._process = JavaProcess(jars)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.close()

    def recover(self, logs: Sequence[Path], *, passes: int = 1) -> float:
        """Recover every log; return the last pass's seconds inside `recover`."""
        segments = [{"directory": str(log.parent), "base_offset": int(log.stem)} for log in logs]
        answer = self._process.ask({"do": "bench", "segments": segments, "passes": passes})
        return sum(answer["recover_ns"][-1]) / NANOSECONDS

    def warm_up(self, log: Path) -> None:
        """Recover a log as often as the JIT needs, for any size of log."""
        seconds = 0.0
        while seconds < WARM_UP_SECONDS:
            seconds += WARM_UP_PASSES * self.recover([log], passes=WARM_UP_PASSES)


def recover_side_by_side(machines: Sequence[WarmKafka], logs: Sequence[Path]) -> None:
    """Distribute the logs over the machines, as over a broker's recovery threads.

    A directory belongs to one machine: Kafka keeps a file of leader epochs in it.
    """
    folders = sorted({log.parent for log in logs})
    shares = [
        [log for log in logs if log.parent in set(folders[number :: len(machines)])]
        for number in range(len(machines))
    ]
    with ThreadPoolExecutor(len(machines)) as pool:
        for _ in pool.map(WarmKafka.recover, machines, shares):
            pass


def indexes_of(log: Path) -> tuple[bytes, ...]:
    """Return the `.timeindex` and `.index` beside a log."""
    return tuple(log.with_suffix(suffix).read_bytes() for suffix in INDEX_SUFFIXES)
