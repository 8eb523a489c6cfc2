"""The answer of `kip33 search`: its questions, threads or Spark, and the output."""

import time
from collections.abc import Sequence

import click

from kip33.archive.log_start_offsets import LogStartOffsets, log_start_offsets
from kip33.catalog.catalog import Catalog, Snapshot
from kip33.cli.engine_option import engine_choice, show_engine
from kip33.cli.progress import progress_bar
from kip33.cli.search_deletions import NewerRecordCount
from kip33.cli.search_emit import DELETE_RECORDS, offset_text
from kip33.cli.search_engine import answers_to, engine_for, workers_of
from kip33.cli.search_offsets import offsets_to_emit
from kip33.cli.search_options import SearchRequest
from kip33.cli.search_questions import questions_of
from kip33.cli.search_ranges import log_ends, range_answers
from kip33.cli.search_tables import print_search_answers
from kip33.cli.snapshot_choice import choose_and_warn
from kip33.cli.standard_output import exact_output
from kip33.rules.search import NEWEST_KAFKA
from kip33.search import answers as search_answers
from kip33.search.catalog_search import TimeQuestion, partition_rows, rows_of
from kip33.search.replica_search import ReplicaKey, SearchOptions
from kip33.stores.directory_checks import require_directory
from kip33.stores.locations import Location


def search_catalog(options: SearchRequest) -> None:
    """Print the answer to the options on standard output."""
    started = time.monotonic()
    catalog = Catalog.at(options.catalog_dir)
    require_directory(catalog.location, "CATALOG")
    choice = choose_and_warn(catalog, options.snapshot)
    snapshot = choice.snapshot
    choice_of_engine = engine_choice(options.engine_options._replace(verbose=False))
    how = SearchOptions(
        options.as_whom is not None,
        options.index_only,
        options.all_replicas,
        options.max_batch_bytes,
        options.as_whom or NEWEST_KAFKA,
    )
    questions = questions_of(catalog, snapshot, options)
    starts = _log_start_offsets(catalog, snapshot, questions, options)
    rows = rows_of(catalog, snapshot, {question.topic for question in questions})
    engine = engine_for(rows, questions, options, choice_of_engine)
    if options.verbose:
        show_engine(engine)
    with progress_bar("search"):
        answers = answers_to(catalog, snapshot, rows, questions, how, options, engine.name, starts)
        ends: dict[ReplicaKey, search_answers.Answer] = {}
        if options.emit or options.until:
            ends = log_ends(catalog, snapshot, answers)
        if options.until:
            answers = range_answers(
                catalog, snapshot, rows, answers, ends, options, engine.name, options.until
            )
    if options.emit:
        newer = None
        if options.emit == DELETE_RECORDS:
            topics = {answer["topic"] for answer in answers}
            by_replica = partition_rows(catalog, snapshot, topics)
            newer = NewerRecordCount(by_replica, options.max_batch_bytes)
        offsets = offsets_to_emit(
            answers,
            ends,
            options.emit,
            allow_unsafe=options.allow_unsafe,
            count_newer=newer,
        )
        click.echo(offset_text(offsets, options.emit), exact_output(), nl=False, color=True)
        if newer and newer.partitions:
            click.echo(newer.summary(), err=True)
    else:
        print_search_answers(
            answers,
            options.output_format,
            source=snapshot.source,
            seconds=time.monotonic() - started,
            warnings=choice.warnings,
            engine=engine.name,
            workers=workers_of(engine.name, options, answers),
        )


def _log_start_offsets(
    catalog: Catalog,
    snapshot: Snapshot,
    questions: Sequence[TimeQuestion],
    options: SearchRequest,
) -> LogStartOffsets | None:
    """Return the log start offsets of brokers, which do not search records before them."""
    if options.as_whom is None:
        if options.log_start_offsets:
            raise click.UsageError(
                "--log-start-offsets requires --as kafka", click.get_current_context()
            )
        return None
    rows = rows_of(catalog, snapshot, {question.topic for question in questions})
    log_dirs = [log_dir for log_dir in rows["log_dir"].unique().to_pylist() if log_dir is not None]
    source = Location.of(snapshot.source)
    return log_start_offsets(source, log_dirs, options.log_start_offsets)
