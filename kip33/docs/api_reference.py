"""What the docstrings of `import kip33` and `kip33.spark` say, in the form that Sphinx reads.

A docstring has prose, a list of parameters ("- `name`: what it is", several names, or several
entries with "; " between them), sentences that name errors, and examples (`>>>`). What many
functions take is described once, in SHARED. Sphinx's autodoc has the signatures and types.
"""

import inspect
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final, NamedTuple

import kip33
import kip33.spark
from kip33.archive.common_options import LocalRun
from kip33.builds.verify_options import VerifyOptions
from kip33.options import declared
from kip33.records.reading import ReadOptions

_SAME: Final = (  # declared options that mean the same in every function
    *("check_crc", "filesystem", "include_control", "index_interval_bytes", "layout"),
    *("max_batch_bytes", "on_progress", "parallelism", "segment_index_bytes", "storage_options"),
    "topics",
)
_DECLARED: Final = {
    one.name: one.text.rstrip(".")
    for kind in (ReadOptions, VerifyOptions, LocalRun)
    for one in declared(kind)
    if one.name in _SAME
}
SHARED: Final[Mapping[str, str]] = {
    "base_offset": "the segment's base offset; by default the one in the file's name",
    "dialect": "which entries an index has: `recover` and `live` as a broker's, or `kip33`",
    "end": "the offset to stop before; None: the end",
    "kafka_configs": "a file with the topics' settings, as Kafka's tools print them",
    "now_ms": "the time to judge at, ms since 1970 or a `datetime` with a time zone",
    "offsets": "committed offsets: tuples (group, topic, partition, offset), or the path of a CSV "
    "or of the output of `kafka-consumer-groups.sh --describe`",
    "policies": "retention policies: `Policies`, or their tables",
    "segment": "a path, a URI or a `Segment`",
    "segments": "paths, URIs or `Segment`s; or one of them",
    "snapshot": "a snapshot's name, number or id; None: the newest undamaged one",
    "source": "the archive: a path or URI",
    "spark": "the session that runs the jobs",
    "start": "the first offset",
    "time": "ms since 1970, or a `datetime` with a time zone",
    "index_dir": "the directory of the index files; None: they are beside the logs",
    "output": "where the page goes, a path or URI that ends in `.html`",
    "to": "the log directory of a stopped broker on this machine",
    "log_dir": "the log directory of a stopped broker on this machine",
    "catalog": "a catalog's path or URI",
    "subject": "the name of a subject",
    "schema_id": "the number of a schema",
    "place": "a registry's URL, a directory of schemas, or an archive",
    "url": "the registry's address; with `user:password@` for Basic authentication",
    "timeout": "seconds for each request",
    "path": "the directory, a path or URI",
    "topic": "the topic's name",
    "entries": "pairs of numbers, see above",
    "last_offset": "the log's last offset",
    "size_bytes": "the size of the log in bytes",
    "offset": "an absolute offset",
    "timestamps": "ms since 1970",
    "positions": "bytes from the start of the log",
}
_ITEM: Final = re.compile(r"^- (.*(?:\n  .*)*)\n?", re.MULTILINE)
_NAMES: Final = re.compile(r"(`\w+`(?:, `\w+`)*): ")
_SENTENCE: Final = re.compile(r"(?<=\.)\s+(?=[A-Z])")
_ERROR: Final = re.compile(r"\b[A-Z]\w*Error\b")
_RESULTS: Final = r"`?(?:kip33/api/)?RESULTS\.md`?"
_MARKED: Final = re.compile(
    rf"`(\w+)` in {_RESULTS}|({_RESULTS})|`([^`]+)`|({_ERROR.pattern})|\w_\b"
)


class Documented(NamedTuple):
    """What a docstring says, in parts."""

    text: str  # without the other parts, but with the examples
    parameters: Mapping[str, str]  # each parameter, and what it is; "" if nothing says it
    errors: str  # the sentences with errors of a function


def documented(thing: Any) -> Documented:
    """Return what the docstring of a function, a class or a property says."""
    text = inspect.getdoc(thing) or ""
    shared = {} if inspect.isclass(thing) else _DECLARED | {**SHARED}
    parameters = {name: shared.get(name, "") for name in _parameters(thing)}
    for item in _ITEM.finditer(text):
        items = dict(_items(item[1]))
        if items.keys() & parameters.keys():
            parameters |= items
            text = text.replace(item[0], "")
    text = re.sub(r"\n{3,}", "\n\n", text).strip()
    if inspect.isclass(thing):
        return Documented(text, parameters, "")
    text, errors = _without_errors(text)
    return Documented(text, parameters, errors)


def _parameters(thing: Any) -> list[str]:
    """Return the names of parameters; those of a class are its fields."""
    if not callable(thing) or (inspect.isclass(thing) and issubclass(thing, Exception)):
        return []
    return [name for name in inspect.signature(thing).parameters if name != "self"]


def _items(item: str) -> Iterator[tuple[str, str]]:
    """Yield name and description of what an item of a list describes."""
    line = " ".join(item.split())
    starts = [
        found
        for found in _NAMES.finditer(line)
        if not found.start() or line[: found.start()].endswith("; ")
    ]
    ends = [*(found.start() for found in starts[1:]), len(line)]
    for start, end in zip(starts, ends, strict=False):
        what = line[start.end() : end].removesuffix("; ").rstrip(".")
        for name in re.findall(r"\w+", start[1]):
            yield name, what


def _without_errors(text: str) -> tuple[str, str]:
    """Split a text into what speaks of no error, and the sentences that do."""
    summary, *others = text.split("\n\n")
    kept, errors = [summary], []
    for paragraph in others:
        sentences = [paragraph] if ">>>" in paragraph else _SENTENCE.split(paragraph)
        named = [one for one in sentences if _ERROR.search(one) and ">>>" not in one]
        kept.append(" ".join(one for one in sentences if one not in named) if named else paragraph)
        errors += named
    errors = [*filter(_ERROR.search, _SENTENCE.split(summary)), *errors]
    return "\n\n".join(filter(None, kept)), " ".join(" ".join(errors).split())


# --- for Sphinx -----------------------------------------------------------------------------


def format_docstring(
    app: Any, what: str, name: str, thing: Any, options: Any, lines: list[str]
) -> None:
    """Make lines for autodoc: fields for parameters and errors, links for names."""
    found = documented(thing)
    fields = {f":param {name}:": text for name, text in found.parameters.items() if text}
    if found.errors:
        fields[":Errors:"] = found.errors
    package = "kip33.spark" if name.startswith("kip33.spark.") else "kip33"
    links = {key: link for key, link in _links(package).items() if key not in found.parameters}
    lines[:] = _linked(found.text, links).splitlines()
    lines += ["", *(f"{field} {_linked(text, links)}" for field, text in fields.items()), ""]


def format_signature(
    app: Any, what: str, name: str, thing: Any, options: Any, signature: str | None, returns: Any
) -> tuple[str | None, Any]:
    """Show a default that is a function by its name."""
    return re.sub(r"<function (\w+)>", r"\1", signature or "") or None, returns


def _linked(text: str, links: Mapping[str, str]) -> str:
    """Mark code, and make links of public names and of sections of the page of results."""

    def mark(found: re.Match[str]) -> str:
        section, results, code, error = found.groups()
        if section:
            return f"`{section} <results.html#{section}>`__"
        if results:
            return ":doc:`Results </reference/results>`"
        if not code and not error:
            return found[0].replace("_", "\\_")  # at a word's end it would be a link
        name = (code or error).removeprefix("kip33.")
        marked = f":py:obj:`{name} <{links[name]}>`" if name in links else f"``{code or error}``"
        return marked + "\\ "  # so that a letter may follow

    parts = text.split("\n\n")
    return "\n\n".join(one if one.startswith(">>>") else _MARKED.sub(mark, one) for one in parts)


@cache
def _links(package: str) -> Mapping[str, str]:
    """Return for each public name the one in full; a package's own goes before the other's."""
    names = sorted(public_names(), key=lambda name: name.rpartition(".")[0] == package)
    return {name.rpartition(".")[2]: name for name in names}


@cache
def public_names() -> tuple[str, ...]:
    """Return the public names of both packages in full; what both have is the first's."""
    names = {
        id(thing): f"{module.__name__}.{name}"
        for module in (kip33.spark, kip33)
        for name in module.__all__
        if not isinstance(thing := getattr(module, name), str)
    }
    return tuple(names.values())
