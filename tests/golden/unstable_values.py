"""What differs from one recording to the next though kip33 does the same, and how it is masked.

This is the only place that hides anything: each rule says why the value cannot be equal.
"""

import json
import re
import time
from collections.abc import Iterator
from datetime import datetime
from itertools import groupby
from pathlib import Path
from typing import Final

ID = "[0-9a-f]{12}"
RULES: Final = (
    # uuid4: a snapshot's id, after its number; an apply's run id, after a base offset
    (re.compile(rf"\b(\d{{20}})-{ID}\b"), r"\1-<id>"),
    (re.compile(rf'("(?:id|run_id)": |"continues": \[)"{ID}"'), r"\1<id>"),
    (re.compile(rf"(--snapshot ){ID}\b"), r"\1<id>"),
    # A plan's id is a SHA-256 over its text, which has paths and the time it was made.
    (re.compile(r"\b[0-9a-f]{32}\b"), "<plan id>"),
    (re.compile(r'("plan_id": )"[0-9a-f]{16}"'), r"\1<plan id>"),
    (re.compile(r'("free_bytes": )\d+'), r"\1<bytes>"),  # of the disk
    # Durations: in JSON, in a table's row, in the line below a table
    (re.compile(r'("seconds": )\d+(?:\.\d+)?(?:e-?\d+)?'), r"\1<seconds>"),
    (re.compile(r"(│ seconds +│ +)[\d,.]+( +│)"), r"\1<seconds>\2"),
    (re.compile(r"( in )\d+\.\d s\b"), r"\1<seconds>"),
    # The size and CRC of a snapshot's Parquet file and of its list of orphaned index files: they
    # hold paths and file times.
    (re.compile(r'("part-\d+\.parquet",\s+\d+,\s+)\d+,\s+\d+'), r"\1<bytes>, <crc>"),
    (re.compile(r'("size_bytes": )\d+(,\s+"crc32": )\d+'), r"\1<bytes>\2<crc>"),
    # The same sizes, and that of the commit file, as `catalog prune` shows them
    (re.compile(r'(-<id>", "size_bytes": )\d+'), r"\1<bytes>"),
    (re.compile(r'("bytes_freed": )\d+'), r"\1<bytes>"),
    (re.compile(r"(-<id> +│ +)[\d.]+ [KM]?i?B( +│)"), r"\1<bytes>\2"),
    (re.compile(r"(│ freed +│ +)[\d.]+ [KM]?i?B( +│)"), r"\1<bytes>\2"),
)
NUMBER: Final = re.compile(r"(?<![\d.])(?:\d{13}|\d{19})(?![\d.])")  # ms or ns since the epoch
ISO_TIME: Final = re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|\+00:00)")
TABLE_LINE: Final = re.compile("[│┃─━]")
JOURNAL_LINE: Final = re.compile(  # of a table or JSON; the groups name a partition
    r"│ (\S+-\d+) +│ \d+ +│ (?:intent|result) +│"
    r'|{"kind": "(?:intent|result)".*?("log_dir": .*?, "topic": .*?, "partition": \d+)'
)
MARGIN_MS: Final = 2_000  # a file system's clock may be a little behind ours


class UnstableValues:
    """Masks one recording's unstable values, from its beginning to now."""

    def __init__(self, folder: Path) -> None:
        """Begin a recording whose files are all below `folder`, before the first is written."""
        self._folder = str(folder)
        self._started_ms = time.time_ns() // 1_000_000 - MARGIN_MS

    def mask(self, text: str) -> str:
        """Return the text as every recording of the same outcome has it."""
        text = "\n".join(_by_partition(text.split("\n")))
        text = text.replace(self._folder, "<folder>")  # a temporary one, with a random name
        for pattern, replacement in RULES:
            text = pattern.sub(replacement, text)
        # Times of now: of builds and plans, of the files that the recording wrote
        text = NUMBER.sub(self._number, text)
        text = ISO_TIME.sub(self._iso_time, text)
        return "\n".join(map(_without_widths, text.split("\n")))

    def _number(self, match: re.Match[str]) -> str:
        digits = match[0]
        is_now = self._is_now(int(digits) // (1 if len(digits) == 13 else 1_000_000))
        return "<now>" if is_now else digits

    def _iso_time(self, match: re.Match[str]) -> str:
        moment = datetime.fromisoformat(match[0])
        return "<now>" if self._is_now(int(moment.timestamp() * 1_000)) else match[0]

    def _is_now(self, moment_ms: int) -> bool:
        return self._started_ms <= moment_ms <= time.time_ns() // 1_000_000 + MARGIN_MS


def _by_partition(lines: list[str]) -> Iterator[str]:
    """Yield lines, those of an apply's journal by partition: threads share the partitions."""
    for is_journal, group in groupby(lines, lambda line: JOURNAL_LINE.match(line) is not None):
        if is_journal:  # the steps of one partition stay in their order
            yield from sorted(group, key=lambda line: JOURNAL_LINE.match(line).groups(""))
        else:
            yield from (_journal_by_partition(line) for line in group)


def _journal_by_partition(line: str) -> str:
    """Return a line as it is unless it is one JSON object with a journal."""
    if not line.startswith('{"journal": ['):
        return line
    record = json.loads(line)
    record["journal"].sort(key=lambda one: (one["log_dir"], one["topic"], one["partition"]))
    return json.dumps(record)


def _without_widths(line: str) -> str:
    """Return a table's line without its columns' widths: those depend on the folder's name."""
    if TABLE_LINE.search(line):
        line = re.sub(r"([─━]) *(?:\1)+", r"\1", line)
        line = re.sub(" {2,}", " ", line)
    return line.rstrip(" ")  # a table's title is padded to the table's width
