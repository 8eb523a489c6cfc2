"""A copied partition with all its files, as a broker that was stopped leaves them."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from kip33.formats.partition_metadata import EpochStart, format_epoch_checkpoint
from kip33.formats.producer_snapshot import ProducerSnapshot
from kip33.indexing.segment import index_file
from kip33.rules.index_builder import IndexSettings
from kip33.stores.locations import Location

INTERVAL_BYTES = 100


def write_partition(
    directory: Path,
    segments: Mapping[int, Sequence[bytes]],
    *,
    epochs: Sequence[tuple[int, int]] = (),
    snapshots: Mapping[int, ProducerSnapshot] | None = None,
    checkpoints: Mapping[str, int] | None = None,
    interval_bytes: int = INTERVAL_BYTES,
) -> Path:
    """Write logs (batches by base offset), their indexes and the other files; return the directory.

    `epochs` are leader epochs with their first offsets. `checkpoints` are offsets by file name,
    written beside the directory, for this partition and for another.
    """
    directory.mkdir(parents=True)
    for base, batches in segments.items():
        log = directory / f"{base:020d}.log"
        log.write_bytes(b"".join(batches))
        write_indexes(log, interval_bytes)
    for offset, snapshot in (snapshots or {}).items():
        (directory / f"{offset:020d}.snapshot").write_bytes(snapshot.to_bytes())
    if epochs:
        starts = tuple(EpochStart(*one) for one in epochs)
        (directory / "leader-epoch-checkpoint").write_text(format_epoch_checkpoint(starts))
    topic, _, number = directory.name.rpartition("-")
    for name, offset in (checkpoints or {}).items():
        text = f"0\n2\nothers 7 99\n{topic} {number} {offset}\n"
        (directory.parent / name).write_text(text)
    return directory


def write_indexes(log: Path, interval_bytes: int = INTERVAL_BYTES) -> None:
    """Write the indexes that recovery leaves beside a log."""
    settings = IndexSettings("recover", interval_bytes, 65536)
    built = index_file(
        Location.of(log), base_offset=int(log.stem), topic="orders", settings=settings
    )
    assert built.time_index_data is not None and built.offset_index_data is not None, built.error
    log.with_suffix(".timeindex").write_bytes(built.time_index_data)
    log.with_suffix(".index").write_bytes(built.offset_index_data)


def files_of(directory: Path) -> dict[str, bytes]:
    """Return the bytes of all files in a directory, by name."""
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir()) if path.is_file()}


def everything_in(folder: Path) -> dict[str, bytes | str | None]:
    """Return the bytes of all files below a folder, where links go, and None for directories."""
    return {
        str(path.relative_to(folder)): str(path.readlink())
        if path.is_symlink()
        else path.read_bytes()
        if path.is_file()
        else None
        for path in sorted(folder.rglob("*"))
    }
