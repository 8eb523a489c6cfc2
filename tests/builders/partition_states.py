"""The state of a partition before each of its segments and at its end."""

from pathlib import Path

from kip33.indexing.partition_state import PartitionState
from kip33.stores.locations import Location
from tests.builders.random_partitions import RandomPartition


def states_at(partition: RandomPartition, directory: Path) -> dict[int, PartitionState]:
    """Return the states by offset, of logs that are in a directory."""
    state, found = PartitionState(), {}
    for base in partition.segments:
        found[base] = state
        state, damage = state.after_log(Location.of(directory / f"{base:020d}.log"))
        assert damage is None, damage
    found.setdefault(partition.end_offset, state)
    return found
