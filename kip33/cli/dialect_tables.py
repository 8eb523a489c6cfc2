"""The tables of `kip33 dialects`."""

from collections.abc import Mapping, Sequence
from typing import Any

import click

from kip33.cli.output import human_bytes, iso_time, print_table


def print_dialects(rows: Sequence[Mapping[str, Any]], summary: Mapping[str, Any]) -> None:
    """Print one row per dialect, then an example for each that misses a record."""
    title = (
        f"{summary['segments']:,} segments of {summary['partitions']:,} partitions, "
        f"{human_bytes(summary['log_bytes'])}; {human_bytes(summary['bytes_read'])} read"
    )
    memory = f"memory, {summary['memory_for_partitions']:,} partitions"
    print_table(
        (
            "dialect",
            "file",
            "entries",
            "size",
            "with .index",
            "per GiB of log",
            memory,
            "search: median",
            "search: p99",
            "finds the record",
        ),
        [
            (
                row["dialect"],
                row["file"],
                row["entries"],
                _size(row["bytes"]),
                _size(row["bytes_with_offset_index"]),
                _size(row["bytes_per_gib"]),
                _size(row["memory_bytes"]),
                _size(row["scanned_median_bytes"]),
                _size(row["scanned_p99_bytes"]),
                _guarantee(row),
            )
            for row in rows
        ],
        title=title,
    )
    for row in rows:
        if not row["guarantee"]:
            click.echo(_example(row))


def _size(size_bytes: int | None) -> str:
    return "-" if size_bytes is None else human_bytes(size_bytes)


def _guarantee(row: Mapping[str, Any]) -> str:
    if row["guarantee"]:
        return "always"
    missed, searched = row["missed_times"], row["searched_times"]
    return f"not always: missed {missed:,} of {searched:,}" if missed else "not always"


def _example(row: Mapping[str, Any]) -> str:
    target = iso_time(row["counterexample_target_ms"])
    return (
        f"{row['dialect']} misses a record: {row['counterexample_log']}: a search for {target} "
        f"begins at byte {row['counterexample_start']}, but the batch with offset "
        f"{row['counterexample_offset']} at byte {row['counterexample_position']} has "
        f"{iso_time(row['counterexample_timestamp'])}"
    )
