"""A `.log` on the disk."""

from pathlib import Path


def write_log(partition: Path, base_offset: int, *entries: bytes) -> Path:
    """Write a log with these batches below a partition's directory; return its path."""
    partition.mkdir(parents=True, exist_ok=True)
    log = partition / f"{base_offset:020d}.log"
    log.write_bytes(b"".join(entries))
    return log
