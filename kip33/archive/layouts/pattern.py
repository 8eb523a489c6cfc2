"""A layout that is given as a pattern: a path below SOURCE with named fields.

    {log_dir}/{topic}-{partition}/{base_offset}.log
    {cluster}/{entropy}/{topic}/{partition}/{base_offset}-{segment_id}.segment

    {topic} {partition} {base_offset}    required; partition and base offset are digits
    {log_dir}                            zero or more directories; must be first, before a /
    {cluster} {broker}                   one directory's name or a part of it
    {topic_id} {segment_id}              a UUID: 22 characters of base64, or the form with dashes
    {entropy}                            any text within one directory's or file's name

`log_dir` in the catalog is the text of {log_dir}, {cluster} and {broker}, joined by slashes, so
that replicas stay separate. {topic_id} tells topics of one name apart; without it the id is read
from a `partition.metadata` beside the logs. The other fields are only matched. Logs are raw bytes,
with `.index` and `.timeindex` beside them under the same name without `.log`.
"""

import re
from collections import defaultdict
from functools import partial
from typing import Any, Final, NamedTuple

from pyarrow import fs

from kip33.archive.directory import Directory, Layout, Partition, Visit, add_inner, entries
from kip33.archive.index_listing import (
    NO_SMALL_FILES,
    add_segments,
    index_files,
    unfinished_of,
)
from kip33.archive.segment_paths import UUID
from kip33.formats.partition_metadata import parse_topic_id

NEEDED: Final = ("topic", "partition", "base_offset")
_OF_LOG_DIR: Final = ("log_dir", "cluster", "broker")
_FIELDS: Final = {
    "log_dir": r".+",
    "topic": r"[a-zA-Z0-9._-]{1,249}",
    "partition": r"[0-9]{1,10}",
    "base_offset": r"[0-9]+",
    "cluster": r"[^/]+",
    "broker": r"[^/]+",
    "topic_id": UUID.pattern,
    "segment_id": UUID.pattern,
    "entropy": r"[^/]+",
}
_FIELD: Final = re.compile(r"\{([^{}]*)\}")
_UNFINISHED: Final = unfinished_of(".+")
_LOG_DIR: Final = "{log_dir}/"


def pattern_layout(text: str) -> Layout:
    """Return the layout of a pattern; ValueError, one line with the possible fields, if wrong.

    >>> pattern_layout("{topic}/{base_offset}.log")
    Traceback (most recent call last):
    ...
    ValueError: layout '{topic}/{base_offset}.log': field {partition} is missing; \
required fields are {topic}, {partition}, {base_offset}, optional fields are {log_dir}, {cluster}, \
{broker}, {topic_id}, {segment_id}, {entropy}
    """
    fault = _fault(text)
    if fault:
        needed = ", ".join(f"{{{name}}}" for name in NEEDED)
        others = ", ".join(f"{{{name}}}" for name in _FIELDS if name not in NEEDED)
        raise ValueError(
            f"layout {text!r}: {fault}; required fields are {needed}, optional fields are {others}"
        )
    fixed = text.removeprefix(_LOG_DIR)
    depth = fixed.count("/") if fixed == text else None
    pattern = _Pattern(_compiled(text), depth)
    return Layout(
        text,
        f"'{text}' expected",
        partial(_list_directory, pattern),
        why_not_deleted="only the layout kafka defines all files of a segment",
    )


def _fault(text: str) -> str | None:
    names = _FIELD.findall(text)
    unknown = [name for name in names if name not in _FIELDS]
    missing = [name for name in NEEDED if name not in names]
    if unknown:
        return f"unknown field {{{unknown[0]}}}"
    if missing:
        return f"field {{{missing[0]}}} is missing"
    if len(set(names)) < len(names):
        return "a field appears twice"
    rest = _FIELD.sub("", text)
    if "{" in rest or "}" in rest:
        return "a brace that belongs to no field"
    if "}{" in text:
        return "two fields have no text between them"
    if "log_dir" in names and not text.startswith(_LOG_DIR):
        return "{log_dir}/ is not at the start"
    if "" in text.split("/") or {".", ".."} & set(text.split("/")):
        return "not a path below SOURCE"
    return None


def _compiled(text: str) -> re.Pattern[str]:
    expression = ""
    if text.startswith(_LOG_DIR):  # SOURCE itself may be a log directory
        text = text.removeprefix(_LOG_DIR)
        expression = f"(?:(?P<log_dir>{_FIELDS['log_dir']})/)?"
    for number, part in enumerate(_FIELD.split(text)):
        expression += f"(?P<{part}>{_FIELDS[part]})" if number % 2 else re.escape(part)
    return re.compile(expression)


class _Pattern(NamedTuple):
    path: re.Pattern[str]  # of a log, below SOURCE
    depth: int | None  # of the directories with logs, below SOURCE; None: any depth


def _list_directory(pattern: _Pattern, visit: Visit) -> Directory:
    directory = Directory.empty()
    depth = visit.below.count("/") + 1 if visit.below else 0
    infos = entries(directory, visit, None)
    logs: dict[Partition, list[tuple[int, Any]]] = defaultdict(list)
    small_files = NO_SMALL_FILES
    for info in infos:
        if info.type == fs.FileType.Directory:
            if pattern.depth is None or depth < pattern.depth:
                add_inner(directory, visit, info.base_name)
        elif pattern.depth is None or depth == pattern.depth:
            found = pattern.path.fullmatch(visit.path_of(info.base_name))
            if found:
                partition, base_offset = _of(found)
                if partition.partition < 1 << 31 and base_offset < 1 << 63:
                    logs[partition].append((base_offset, info))
            else:
                small_files = small_files.with_file(visit.place, info)
    if logs:
        names = [info.base_name for own in logs.values() for _, info in own]
        files = index_files(directory, visit, infos, names, _UNFINISHED)
        for partition, own in logs.items():
            of_one = len(logs) == 1 and partition.topic_id is None
            beside = small_files if of_one else NO_SMALL_FILES
            add_segments(directory, visit, partition, own, files, beside)
    return directory


def _of(found: re.Match[str]) -> tuple[Partition, int]:
    fields = found.groupdict()
    log_dir = "/".join(filter(None, (fields.get(name) for name in _OF_LOG_DIR)))
    topic_id = parse_topic_id(fields.get("topic_id") or "")
    partition = Partition(log_dir, fields["topic"], int(fields["partition"]), topic_id)
    return partition, int(fields["base_offset"])
