"""Which of a partition's replicas answers for it."""

from collections.abc import Iterable
from typing import NamedTuple


class Replica(NamedTuple):
    """One log directory's copy of a partition: what of it can be read."""

    log_dir: str
    valid_bytes: int
    last_offset: int


def fullest(replicas: Iterable[Replica]) -> str | None:
    """Return the log directory with most valid bytes, then the latest end, then the first name.

    None where there is no replica. What damage or an early retention took counts against a copy.
    """
    best = min(replicas, key=lambda r: (-r.valid_bytes, -r.last_offset, r.log_dir), default=None)
    return best.log_dir if best else None
