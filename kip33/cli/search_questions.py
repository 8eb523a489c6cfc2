"""The questions of `kip33 search`: those of --time and --topics, or of a file."""

from collections.abc import Sequence

import click

from kip33.catalog.catalog import Catalog, Snapshot
from kip33.cli.search_options import SearchRequest
from kip33.cli.targets import parse_target
from kip33.cli.times import current_ms
from kip33.errors import CatalogError, LocationError
from kip33.formats.names import is_topic
from kip33.rules.policies import TopicGlobs, nearest_topics
from kip33.search.answers import load_time_requests
from kip33.search.catalog_search import TimeQuestion, topics_of


def questions_of(
    catalog: Catalog, snapshot: Snapshot, options: SearchRequest
) -> list[TimeQuestion]:
    """Return the questions of --requests or --time; UsageError or LocationError, one line."""
    now_ms = current_ms() if options.now is None else options.now
    if bool(options.requests) == bool(options.times):
        raise click.UsageError("give --time T or --requests FILE", click.get_current_context())
    if options.until and (options.requests or options.emit or options.index_only):
        raise click.UsageError(
            "--until requires --time and cannot be combined with --requests, --emit or "
            "--index-only",
            click.get_current_context(),
        )
    if options.requests:
        return _of_file(options.requests, now_ms)
    try:
        targets = [parse_target(text, now_ms) for text in options.times]
    except ValueError as error:
        raise click.BadParameter(f"--time: {error}") from error
    topics = _matching(topics_of(catalog, snapshot), options.topics)
    partition = options.partition
    return [TimeQuestion(topic, partition, target) for topic in topics for target in targets]


def _of_file(file: str, now_ms: int) -> list[TimeQuestion]:
    questions = []
    for request in load_time_requests(file):
        try:
            target_ms = parse_target(request.time, now_ms)
        except ValueError as error:
            raise LocationError(f"{file}: line {request.line}: {error}") from error
        questions.append(TimeQuestion(request.topic, request.partition, target_ms, request.log_dir))
    return questions


def _matching(topics: Sequence[str], globs: Sequence[str]) -> list[str]:
    """Return the topics that match; CatalogError if a topic that is named is not there."""
    if not globs:
        return list(topics)
    asked = TopicGlobs.of(globs)
    found = [topic for topic in topics if asked.matches(topic)]
    named = [glob for glob in asked.included if not set(glob) & set("*?[") and asked.matches(glob)]
    named = [glob for glob in named if glob not in found]
    illegal = next((name for name in named if not is_topic(name)), None)
    if illegal is not None:
        raise CatalogError(
            f"--topic {illegal!r}: Kafka allows no such name; give a topic or a glob"
        )
    if named or not found:
        wanted = named or globs
        near = nearest_topics(wanted, topics)
        raise CatalogError(f"no topic matches {' or '.join(wanted)}{near}")
    return found
