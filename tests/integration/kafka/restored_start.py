"""What a broker's log says of the logs that it loads when it starts."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

# What a broker reads a log for: a missing or damaged index, an unclean shutdown.
RECOVERIES = (
    "recovering segment",
    "rebuilding index",
    "Recovering unflushed segment",
    "no clean shutdown file",
    "unclean shutdown",
    "Rebuilding producer state",
)
METADATA = "__cluster_metadata"
CLEAN = "since clean shutdown file was found"
_SNAPSHOT = re.compile(
    r"Loading producer state from snapshot file .*/(?P<name>[^/]+)/(?P<offset>\d{20})\.snapshot"
)
_LOADED = re.compile(
    r"Completed load of Log\(dir=\S+/(?P<name>[^/,]+), .*logEndOffset=(?P<end>\d+)\)"
)


class Start(NamedTuple):
    """What a broker did with its logs before it answered."""

    recoveries: list[str]  # lines
    is_clean: bool
    snapshots: dict[str, int]  # the offset of the snapshot it loaded, by partition directory
    ends: dict[str, int]  # where it found each log to end


def start_of(lines: Iterable[str]) -> Start:
    """Return what the lines of a broker's log since its start say."""
    said = [line for line in lines if METADATA not in line]  # it is recovered at each start
    snapshots, ends = {}, {}
    for line in said:
        if found := _SNAPSHOT.search(line):
            snapshots[found["name"]] = int(found["offset"])
        if found := _LOADED.search(line):
            ends[found["name"]] = int(found["end"])
    return Start(
        [line for line in said if any(text in line for text in RECOVERIES)],
        any(CLEAN in line for line in said),
        snapshots,
        ends,
    )


def strays_in(log_dir: Path) -> list[str]:
    """Return the directories that a broker set aside because of their topic's id."""
    return sorted(path.name for path in log_dir.iterdir() if path.name.endswith("-stray"))
