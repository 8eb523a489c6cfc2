"""The options of `spark.read.format("kafka-segments")`: texts, with the names of `read_arrow`."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from kip33.formats.times import milliseconds_in
from kip33.records.reading import ReadOptions

PATH: Final = "path"


def _texts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",")]


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise ValueError(f"{text!r} found, expected an integer") from error


def _numbers(text: str) -> list[int]:
    return [_number(part) for part in _texts(text)]


def _time(text: str) -> int:
    found = milliseconds_in(text)
    if found is None:
        raise ValueError(f"{text!r} found, expected ISO 8601 (UTC without a zone) or milliseconds")
    return found


def _flag(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(f"{text!r} found, expected true or false")
    return text.lower() == "true"


_PARSED: Final[Mapping[str, Callable[[str], Any]]] = {
    **{"level": str, "topic": _texts, "partition": _numbers, "log_dir": str, "columns": _texts},
    **{"start_time": _time, "end_time": _time, "start_offset": _number, "end_offset": _number},
    **{"isolation": str, "include_control": _flag, "on_error": str, "disorder": str},
    **{"max_batch_bytes": _number, "layout": str},
}
"""How the text of each option is read; lists have commas."""


def parsed_options(texts: Mapping[str, str]) -> tuple[str, ReadOptions]:
    """Return the source and the options of `read_arrow`; ValueError, one line, for a wrong one.

    A message has no value of an unknown option: it may be a key.
    """
    options: Any = {}
    for name, text in texts.items():
        if name == PATH:
            continue
        if name not in _PARSED:
            raise ValueError(
                f"kafka-segments: option {name!r} found, expected some of {', '.join(_PARSED)}; "
                "settings of stores are settings of the session (spark.hadoop.fs.s3a...)"
            )
        try:
            options[name] = _PARSED[name](text.strip())
        except ValueError as error:
            raise ValueError(f"kafka-segments: option {name!r}: {error}") from error
    source = texts.get(PATH, "")
    if not source:
        raise ValueError("kafka-segments: no path found, expected load(SOURCE) or load(CATALOG)")
    return source, options
