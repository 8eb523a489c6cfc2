"""Random partitions as a broker leaves them that had nothing but their `.log` files."""

import shutil
from pathlib import Path
from typing import Any

from tests.builders.random_partitions import NOW, RandomPartition
from tests.integration.kafka.oracle import Oracle, Truncated


def write_as_broker(
    oracle: Oracle, log: RandomPartition, directory: Path, **options: Any
) -> Truncated:
    """Write a log, and let a broker recover it: its files are then all Kafka's.

    The broker stops, starts again and stops: it deletes what the recovery left over.
    """
    shutil.rmtree(directory, ignore_errors=True)
    log.write_to(directory)
    load_and_close(oracle, log, directory, clean=False, **options)
    return load_and_close(oracle, log, directory, **options)


def load_and_close(
    oracle: Oracle, log: RandomPartition, directory: Path, *, clean: bool = True, **options: Any
) -> Truncated:
    """Let a broker start with a log and stop; without `clean` it recovers all segments."""
    return oracle.truncate(
        directory,
        None,
        now_ms=NOW,
        index_interval_bytes=log.index_interval_bytes,
        clean=clean,
        **options,
    )
