"""`kip33 verify --quick`: index files compared with the CRCs in the catalog."""

from collections.abc import Sequence
from typing import Any, Final

import click
from click.core import ParameterSource

from kip33.catalog.catalog import Catalog
from kip33.cli.engine_option import EngineOptions, open_engine
from kip33.cli.metrics_file import MetricsRequest, publish_metrics
from kip33.cli.output import human_bytes, print_json, print_table
from kip33.cli.progress import progress_bar
from kip33.cli.snapshot_choice import choose_and_warn
from kip33.cli.summary_file import publish_summary
from kip33.indexing.by_path import topic_of
from kip33.indexing.quick_verification import QuickVerdict, execute_quick, plan_quick
from kip33.indexing.verification import ALL_KINDS, INDEX_KINDS
from kip33.stores.directory_checks import require_directory
from kip33.stores.locations import Location

ONLY_WITH_QUICK: Final = (QuickVerdict.CHANGED.value,)  # a verification of logs never gives it
_OF_LOGS: Final = {
    "dialect": "--dialect",
    "layout": "--layout",
    "index_interval_bytes": "--index-interval-bytes",
    "segment_index_bytes": "--segment-index-bytes",
    "kafka_configs": "--kafka-configs",
    "no_check_crc": "--no-check-crc",
    "untimestamped": "--untimestamped",
}


def require_quick_options(fail_on: Sequence[str], *, quick: bool) -> None:
    """Raise UsageError for options on the command line that do not belong together.

    A configuration file may have options for verifications of both kinds.
    """
    if not quick:
        if _is_typed("catalog"):
            raise click.UsageError("--catalog requires --quick")
        if _is_typed("fail_on") and set(fail_on).intersection(ONLY_WITH_QUICK):
            raise click.UsageError("--fail-on changed requires --quick")
        return
    for name, option in _OF_LOGS.items():
        if _is_typed(name):
            raise click.UsageError(f"--quick reads no log: leave out {option}")
    others = [verdict for verdict in fail_on if verdict not in list(QuickVerdict)]
    if others and _is_typed("fail_on"):
        raise click.UsageError(
            f"--quick never gives the verdict {others[0]}: --fail-on takes "
            f"{', '.join(QuickVerdict)}"
        )


def _is_typed(name: str) -> bool:
    source = click.get_current_context().get_parameter_source(name)
    return source is ParameterSource.COMMANDLINE


def verify_quick(  # parameters: options of the command
    source: str,
    index_dir: str | None,
    catalog: str | None,
    *,
    topics: Sequence[str],
    parallelism: int | None,
    options: EngineOptions,
    summary_file: Location | None,
    output_format: str,
    metrics: MetricsRequest,
) -> set[str]:
    """Compare index files with the newest snapshot; print the result and return its verdicts."""
    if not catalog and not index_dir:
        raise click.UsageError("--quick requires the catalog: give --catalog or --index-dir")
    place = Location.of(catalog) if catalog else Location.of(index_dir or "").child("_catalog")
    require_directory(place, "the catalog")
    opened = Catalog(place)
    opened.require_source(Location.of(source))
    snapshot = choose_and_warn(opened, None).snapshot
    engine = open_engine(options)
    with progress_bar("verify") as bar:
        files = plan_quick(opened, snapshot, topics)
        counted = execute_quick(
            files,
            engine,
            parallelism=parallelism,
            on_progress=bar.advance if bar else None,
        )
    summary: dict[str, Any] = {
        "catalog": place.uri,
        "snapshot": snapshot.name,
        "segments": files.num_rows,
    }
    for kind in ALL_KINDS:
        found = counted.by_verdict[kind]
        summary[kind.count_field] = {name: found[name] for name in QuickVerdict if found[name]}
    summary |= {
        "bytes_read": counted.bytes_read,
        "engine": engine.name,
        "workers": engine.workers,
    }
    publish_summary(summary_file, summary)
    if metrics.place:
        from kip33.cli.metric_gauges import verify_gauges

        by_topic = ((topic_of(one.uri), True) for one in counted.not_identical)
        gauges = verify_gauges(summary, by_topic, metrics)
        publish_metrics(metrics, "verify", {"source": snapshot.source}, gauges)
    if output_format == "jsonl":
        for file in counted.not_identical:
            print_json(file._asdict())
    elif output_format == "json":
        rows = [file._asdict() for file in counted.not_identical]
        print_json(summary | {"not_identical": rows})
    else:
        _print_tables(
            summary, counted.not_identical, below=f"{snapshot.settings.get('index_dir')}/"
        )
    return {name for found in counted.by_verdict.values() for name in found if found[name]}


def _print_tables(summary: dict[str, Any], files: Sequence[Any], *, below: str) -> None:
    kinds = [kind for kind in ALL_KINDS if kind in INDEX_KINDS or summary[kind.count_field]]
    rows = [
        (name, *(summary[kind.count_field].get(name, 0) for kind in kinds))
        for name in QuickVerdict
        if any(summary[kind.count_field].get(name) for kind in kinds)
    ]
    count, read = summary["segments"], human_bytes(summary["bytes_read"])
    title = f"{count:,} segment{'' if count == 1 else 's'}; {read} of index files read, no log"
    print_table(("verdict", *(kind.suffix for kind in kinds)), rows, title=title)
    if files:
        shown = [(file.verdict, file.uri.removeprefix(below), file.problem) for file in files]
        print_table(("verdict", "file", "problem"), shown)
