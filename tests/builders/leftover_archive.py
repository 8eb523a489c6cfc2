"""An archive with leftovers of every kind that a plan can have, and of those that it never has."""

import os
from pathlib import Path

from tests.builders.changing_archive import CLICKS, ORDERS, ChangingArchive, built_archive

DEAD = "0123456789abcdef0123456789abcdef"
LONG_AGO_NS = 1_700_000_000 * 10**9
MARKED = ("delete", "stray", "future")


def put(path: Path, data: bytes) -> Path:
    """Write a file that was modified long ago."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    os.utime(path, ns=(LONG_AGO_NS, LONG_AGO_NS))
    return path


def marked(changing: ChangingArchive, kind: str) -> Path:
    """Return the directory of a partition that a broker has marked."""
    return changing.source / f"b1/gone-0.{DEAD}-{kind}"


def ours(changing: ChangingArchive) -> set[Path]:
    """Return the files of kip33 whose log is deleted, and its temporary file."""
    index = changing.index(CLICKS)
    return {index, index.with_suffix(".index"), temporary(changing)}


def temporary(changing: ChangingArchive) -> Path:
    """Return the temporary file of a killed build."""
    return changing.index_root / ORDERS / f".{0:020d}.timeindex.{DEAD}.tmp"


def archive_with_leftovers(folder: Path) -> ChangingArchive:
    """Return an archive after two builds, with each kind of leftover."""
    changing = built_archive(folder)
    changing.log(CLICKS).unlink()
    changing.build(offset_index=True)
    add_leftovers(changing)
    return changing


def add_leftovers(changing: ChangingArchive) -> None:
    """Put files that belong to no segment into an archive."""
    partition = changing.source / ORDERS
    put(temporary(changing), bytes(7))
    put(partition / f"{90:020d}.timeindex", bytes(12))
    put(changing.index_root / ORDERS / f"{91:020d}.index", bytes(8))
    for suffix in ("deleted", "cleaned", "swap"):
        put(partition / f"{7:020d}.log.{suffix}", bytes(10))
    for kind in MARKED:
        put(marked(changing, kind) / f"{0:020d}.log", bytes(100))
        put(marked(changing, kind) / f"{0:020d}.index", bytes(8))
    put(partition / "core.1234", bytes(5))
    put(changing.source / "b1/orders.tar", bytes(6))
