"""The log start offset of each partition, from brokers' checkpoints and from a user's CSV.

    topic,partition,offset,log_dir        the last column may be missing or its cells empty:
    orders,0,4711,broker-1                then the row applies to every log directory

The checkpoints are in the archive. A partition that is in neither starts at its first segment,
which keeps more records. A damaged checkpoint is an error here, although Kafka treats it as
missing. Kafka renames the complete file into place, so damage means that the copy is bad. An audit
that ignored it would report deleted records as kept.
"""

import csv
import io
from collections.abc import Iterable, Iterator
from typing import Final

from kip33.errors import LocationError, proves_nothing
from kip33.formats.kafka_configs import number_in_line
from kip33.formats.partition_metadata import LOG_START_OFFSET_CHECKPOINT, parse_offset_checkpoint
from kip33.stores.files import one_line, read_whole
from kip33.stores.locations import Location

MOST_CHECKPOINT_BYTES: Final = 2**28  # a million partitions of the longest names
START_COLUMNS: Final = ("topic", "partition", "offset")
LOG_DIR: Final = "log_dir"

LogStartOffsets = dict[tuple[str, str, int], int]  # by log directory, topic, partition


def log_start_offsets(
    source: Location, log_dirs: Iterable[str], file: str | None = None
) -> LogStartOffsets:
    """Return {(log_dir, topic, partition): log start offset} of the archive `source`.

    `log-start-offset-checkpoint` is read from every log directory that has it; "" is `source`
    itself. The CSV `file`, a local path or URI, overrides it, and a row for one log directory
    overrides a row for all. Raises LocationError, one line, for a file that cannot be read or is
    wrong.
    """
    offsets: LogStartOffsets = {}
    directories = sorted(set(log_dirs))
    for log_dir in directories:
        folder = source.child(log_dir) if log_dir else source
        for (topic, partition), offset in _checkpoint(folder).items():
            offsets[log_dir, topic, partition] = offset
    if file is not None:
        rows = _rows(file)
        for (log_dir, topic, partition), offset in sorted(rows.items()):  # "" before the others
            for directory in [log_dir] if log_dir else directories:
                offsets[directory, topic, partition] = offset
    return offsets


def _checkpoint(log_dir: Location) -> dict[tuple[str, int], int]:
    location = log_dir.child(LOG_START_OFFSET_CHECKPOINT)
    try:
        return parse_offset_checkpoint(checkpoint_text(location))
    except (OSError, ValueError) as error:
        if proves_nothing(error):
            raise
        raise LocationError(
            f"{location.uri}: cannot be read: {one_line(error)}; copy it again, or "
            "remove it so that each log starts with its first segment"
        ) from error


def checkpoint_text(place: Location) -> str:
    """Return a checkpoint's text, empty if it is missing; FileReadError or ValueError."""
    try:
        return read_whole(place, most_bytes=MOST_CHECKPOINT_BYTES).decode()
    except FileNotFoundError:
        return ""


def _rows(file: str) -> LogStartOffsets:
    """Return a CSV file's rows; the log directory "" means all."""
    try:
        text = read_whole(Location.of(file), most_bytes=MOST_CHECKPOINT_BYTES).decode("utf-8-sig")
        offsets: LogStartOffsets = {}
        for number, key, offset in _parse(text):
            if offsets.setdefault(key, offset) != offset:
                raise ValueError(f"line {number}: offset {offset} found, but {offsets[key]} above")
    except (OSError, ValueError, csv.Error) as error:
        if proves_nothing(error):
            raise
        raise LocationError(
            f"{file}: {one_line(error)}; expected CSV with the header "
            f"{','.join(START_COLUMNS)} or {','.join((*START_COLUMNS, LOG_DIR))}"
        ) from error
    return offsets


def _parse(text: str) -> Iterator[tuple[int, tuple[str, str, int], int]]:
    """Yield (line, (log_dir, topic, partition), offset); ValueError says what was found."""
    lines = csv.reader(io.StringIO(text, newline=""), strict=True)
    header = [name.strip() for name in next(lines, [])]
    if sorted(header) not in (sorted(START_COLUMNS), sorted((*START_COLUMNS, LOG_DIR))):
        raise ValueError(f"line 1: {','.join(header)[:80]!r} found")
    for cells in lines:
        if not cells:
            continue
        row = dict(zip(header, (cell.strip() for cell in cells), strict=False))
        if len(cells) != len(header) or not row["topic"]:
            raise ValueError(f"line {lines.line_num}: {','.join(cells)[:80]!r} found")
        partition, offset = (
            number_in_line(lines.line_num, name, row[name]) for name in ("partition", "offset")
        )
        yield lines.line_num, (row.get(LOG_DIR, ""), row["topic"], partition), offset
