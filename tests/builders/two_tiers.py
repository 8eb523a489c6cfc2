"""Partitions in two tiers, on brokers' disks and in a bucket, with a catalog of each."""

from pathlib import Path

from tests.builders import layouts
from tests.builders.generated_segments import plain_batch, wire_of
from tests.builders.layouts import Stored
from tests.faults.builds import build_here


def stored(topic: str, base: int, *times: int) -> Stored:
    """Return a segment with a record for each timestamp."""
    log = wire_of([plain_batch(base + i, [time]) for i, time in enumerate(times)])
    return Stored(topic, 0, base, log)


# The remote tier has offsets 0 to 5 of orders, the local one 3 to 8; the largest time is at 1.
OLDEST, BOTH, NEWEST = (
    stored("orders", 0, 100, 900, 300),
    stored("orders", 3, 400, 500, 600),
    stored("orders", 6, 700, 800),
)
OTHER_TIMES = stored("orders", 3, 400, 500, 650)
PLAIN = stored("plain", 0, 100, 200)  # not in the remote tier
GONE = stored("gone", 0, 100, 200)  # not in the local one


def built(place: Path, local: list[Stored], remote: list[Stored]) -> tuple[Path, Path]:
    """Return the catalogs of these segments, the local one first."""
    layouts.kafka(place / "disks", local)
    layouts.local_tiered(place / "bucket", remote)
    return catalogs_of(place)


def catalogs_of(place: Path, remote_layout: str = "local-tiered") -> tuple[Path, Path]:
    """Return new catalogs of `place/disks` and `place/bucket`, the local one first."""
    build_here(place / "disks", place / "local")
    build_here(place / "bucket", place / "remote", layout=remote_layout)
    return place / "local/_catalog", place / "remote/_catalog"
