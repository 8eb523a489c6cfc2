"""`kip33 restore`: its options, the request that they make, and its output."""

import hashlib
import re
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from kip33.cli.engine_option import EngineOptions, open_engine
from kip33.cli.options import (
    TOPICS_HELP,
    engine_options,
    format_option,
    layout_option,
    makes_request,
    publish_summary,
    session_options,
    summary_option,
    topic_setting_options,
)
from kip33.cli.output import (
    Column,
    Output,
    Row,
    Table,
    facts,
    human_bytes,
    show,
    warn,
)
from kip33.cli.progress import progress_line
from kip33.cli.times import MOMENT
from kip33.errors import exit_code_of, unreadable_logs_text
from kip33.formats.batch import MAX_INT32
from kip33.rules.index_builder import IndexSettings

if TYPE_CHECKING:
    from kip33.restore.restore_request import RestoreRequest
    from kip33.stores.locations import Location


_HOW: Final = (
    *("log_dir", "dry_run", "is_abandoned", "summary_file", "output_format"),
    *("master", "conf", "engine", "workers", "verbose"),
)
_FILES: Final = ("from_offsets", "topic_ids", "kafka_configs")
_MOST_FILE_BYTES: Final = 1 << 30
_PART: Final = re.compile(r"([0-9]{1,10})(?:-([0-9]{1,10}))?", re.ASCII)
_MOST: Final = 1_000_000


class _Moment(NamedTuple):
    """A time as it was given, `now-7d` too, and in ms."""

    text: str
    ms: int


def _moment(context: click.Context, parameter: click.Parameter, text: str | None) -> _Moment | None:
    return None if text is None else _Moment(text, MOMENT.convert(text, parameter, context))


class _PartitionNumbers(click.ParamType):  # type: ignore[type-arg]  # generic since 8.4; 8.1 serves
    """Numbers and ranges of partitions."""

    name = "partitions"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> frozenset[int]:
        """Return the numbers, or end the command with what was found and expected."""
        if isinstance(value, frozenset):
            return value
        numbers: set[int] = set()
        for part in str(value).split(","):
            found = _PART.fullmatch(part.strip())
            first = int(found[1]) if found else -1
            last = int(found[2] or found[1]) if found else -1
            if found is None or not first <= last <= MAX_INT32 or last - first >= _MOST:
                self.fail(f"{str(value)[:80]!r} found, expected numbers such as 0,2-5", param, ctx)
            numbers.update(range(first, last + 1))
        return frozenset(numbers)


_PARTITION_NUMBERS: Final = _PartitionNumbers()


@dataclass(frozen=True, kw_only=True)
class RestoreCommand:
    """The options of `kip33 restore`."""

    source: str | None
    log_dir: str
    topics: tuple[str, ...]
    partitions: frozenset[int] | None
    replica: str | None
    snapshot: str | None
    begin: _Moment | None
    end: _Moment | None
    is_truncated: bool
    from_offsets: str | None  # a file
    topic_ids: str | None  # a file
    bootstrap_server: str | None
    leader_epoch: int | None
    is_linked: bool
    allow_holes: bool
    dry_run: bool
    is_abandoned: bool
    layout: str
    settings: IndexSettings
    kafka_configs: str | None
    summary_file: "Location | None"
    engine: EngineOptions
    output_format: str

    def check(self) -> None:
        """Raise UsageError for options that contradict each other."""
        if self.is_abandoned:
            if self.dry_run:
                raise click.UsageError("give --abandon or --dry-run, not both")
            return
        if self.source is None:
            raise click.UsageError("Missing argument 'SOURCE'")
        if self.is_truncated and self.end is None:
            raise click.UsageError("--truncate is for --until")
        if self.from_offsets is not None and self.begin is not None:
            raise click.UsageError("give --from or --from-offsets, not both")
        if self.topic_ids is not None and self.bootstrap_server is not None:
            raise click.UsageError("give --topic-ids or --bootstrap-server, not both")


@click.command(
    epilog="Example: kip33 restore /backup/broker-1 --to /var/lib/kafka/data --topics orders "
    "--dry-run, then the same without --dry-run. kip33/restore/README.md has the steps and what a "
    "broker finds after each."
)
@click.argument("source", required=False)
@click.option(
    "--to",
    "log_dir",
    required=True,
    metavar="LOG_DIR",
    help="The log directory of a stopped broker, on this machine.",
)
@click.option("--topics", multiple=True, metavar="GLOB", help=TOPICS_HELP)
@click.option(
    "--partitions",
    type=_PARTITION_NUMBERS,
    metavar="0,2-5",
    help="Only partitions with these numbers.",
)
@click.option(
    "--replica",
    metavar="LOG_DIR",
    help="Read this log directory of SOURCE, such as broker-1 [default: for each partition the "
    "one with most bytes].",
)
@click.option(
    "--snapshot",
    metavar="NAME",
    help="Of a catalog: a snapshot by name, number or id [default: the newest].",
)
@click.option(
    "--from",
    "begin",
    callback=_moment,
    metavar="TIME",
    help="Restore segments from the one with the first record at or after TIME. Consumers do not "
    "see the records before it.",
)
@click.option(
    "--until",
    "end",
    callback=_moment,
    metavar="TIME",
    help="Restore segments that begin before the first record at or after TIME.",
)
@click.option(
    "--truncate",
    "is_truncated",
    is_flag=True,
    help="With --until: also cut the last segment there, as Kafka truncates a log.",
)
@click.option(
    "--from-offsets",
    metavar="FILE",
    help="Offsets to start at: CSV topic,partition,offset, or the output of "
    "kafka-consumer-groups.sh --describe. Other partitions are restored from their beginning.",
)
@click.option(
    "--topic-ids",
    metavar="FILE",
    help="Topic ids: the output of kafka-topics.sh --describe, or a JSON object. Not needed for "
    "partitions whose empty directories are in LOG_DIR, or whose source has them.",
)
@click.option(
    "--bootstrap-server",
    metavar="HOST:PORT",
    help="Ask a running cluster for the topic ids (pip install 'kip33[kafka]').",
)
@click.option(
    "--leader-epoch",
    type=click.IntRange(0, MAX_INT32),
    metavar="N",
    help="Write N into batches with a later leader epoch. For a new cluster give 0: its epochs "
    "begin there, and replicas do not join a log with later ones.",
)
@click.option(
    "--link/--copy",
    "is_linked",
    default=False,
    help="Make hard links of the logs instead of copies, except of each partition's last log, to "
    "which a broker appends. Then a broker that truncates a log changes SOURCE, too.",
)
@click.option(
    "--allow-holes",
    is_flag=True,
    help="Restore partitions with missing offsets, too.",
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="Show the plan and change nothing. Logs are read only for --from and --until, so damage "
    "and missing offsets are found only with a catalog.",
)
@click.option(
    "--abandon",
    "is_abandoned",
    is_flag=True,
    help="Give up a restore that was interrupted: remove what it copied. Needs no SOURCE.",
)
@layout_option
@topic_setting_options
@summary_option
@session_options
@engine_options
@format_option("table", "json")
@makes_request(RestoreCommand)
def restore(command: RestoreCommand) -> None:
    """Restore partitions of an archive into a broker's log directory.

    SOURCE is an archive or a catalog of one. With a catalog, damage and missing offsets are known
    before a log is read.

    A broker starts on the result without recovery: beside each log there are its indexes, the
    producers' snapshots, the leader epochs and the topic's id; the log directory gets its
    checkpoints and the clean-shutdown file. Each log is checked while it is copied. The end of a
    damaged last log is cut as a broker cuts it; other damage and missing offsets refuse the
    partition.

    On Spark the tasks write to LOG_DIR, so it must be mounted on their machines, too.

    The broker must be stopped; its .lock is held meanwhile. Nothing is replaced but the empty
    partitions of topics that were just created. If it is interrupted, the same command continues,
    and another one is refused; --abandon gives it up. Exit codes: 0 all partitions are restored,
    1 the restore is not complete or no log could be read, 4 some partitions are refused and the
    others are restored.
    """
    from kip33.audits.timestamp_plan import is_catalog
    from kip33.catalog.catalog import Catalog
    from kip33.cli.output import choose_and_warn
    from kip33.restore.restore_apply import may_continue, planned_or_begun
    from kip33.restore.restore_apply import restore as apply_restore
    from kip33.restore.restore_complete import abandon
    from kip33.stores.locations import Location

    if command.is_abandoned:
        _print_abandoned(abandon(Location.of(command.log_dir)), command.output_format)
        return
    started = time.monotonic()
    request = _request(command)
    if may_continue(request) is None:
        place = request.source
        if is_catalog(place):
            chosen = choose_and_warn(Catalog(place), command.snapshot).snapshot
            archive = Location.of(chosen.source)
            request = replace(
                request, source=archive, catalog=(place, chosen), layout=chosen.layout
            )
        elif command.snapshot is not None:
            raise click.UsageError("--snapshot is for a catalog")
        topic_ids = _topic_ids(command.topic_ids, command.bootstrap_server)
        request = replace(request, topic_ids=topic_ids)
    with progress_line("restore") as on_progress:
        engine = open_engine(command.engine, on_progress)
        if command.dry_run:
            summary = planned_or_begun(request, on_progress)
        else:
            summary = apply_restore(request, engine, on_progress)
            summary |= {"engine": engine.name, "workers": engine.workers}
    summary = summary | {"seconds": round(time.monotonic() - started, 3)}
    _report(summary, command.summary_file, command.output_format)


def _request(command: RestoreCommand) -> "RestoreRequest":
    """Return what is restored, after reading the files of the options."""
    from kip33.builds.build_options import load_topic_settings
    from kip33.restore.restore_request import RestoreRequest
    from kip33.stores.locations import Location

    return RestoreRequest(
        source=Location.of(command.source or ""),
        log_dir=Location.of(command.log_dir),
        options=_asked(click.get_current_context()),
        topics=command.topics,
        partitions=command.partitions,
        layout=command.layout,
        replica=command.replica,
        settings=load_topic_settings(command.settings, command.kafka_configs),
        from_ms=command.begin.ms if command.begin else None,
        until_ms=command.end.ms if command.end else None,
        from_offsets=_offsets(command.from_offsets),
        is_truncated=command.is_truncated,
        leader_epoch=command.leader_epoch,
        is_linked=command.is_linked,
        allow_holes=command.allow_holes,
    )


def _asked(context: click.Context) -> dict[str, Any]:
    """Return the options that decide what is restored, not where and how, as they were given."""
    return {
        "SOURCE" if isinstance(one, click.Argument) else one.opts[0]: _plain(one.name, given)
        for one in context.command.params
        if one.name not in _HOW and (given := context.params.get(one.name or "")) is not None
    }


def _plain(name: str | None, given: Any) -> Any:
    """Return an option's value for JSON; of a file also its checksum."""
    from kip33.stores.files import read_whole
    from kip33.stores.locations import Location

    if isinstance(given, _Moment):
        return given.text
    if isinstance(given, (tuple, frozenset)):
        return sorted(given)
    if name == "source":
        return Location.of(given).uri
    if name not in _FILES:
        return given
    place = Location.of(given)
    try:
        data = read_whole(place, most_bytes=_MOST_FILE_BYTES)
    except OSError:  # reported where the file is used
        data = b""
    return f"{place.uri} (SHA-256 {hashlib.sha256(data).hexdigest()[:16]})"


def _topic_ids(file: str | None, bootstrap_server: str | None) -> dict[str, str]:
    from kip33.restore.restore_plan import ask_topic_ids, load_topic_ids

    if file is not None:
        return load_topic_ids(file)
    return ask_topic_ids(bootstrap_server) if bootstrap_server is not None else {}


def _offsets(file: str | None) -> dict[tuple[str, int], int]:
    """Return the offsets of a file; UsageError for two of one partition."""
    from kip33.search.answers import load_group_offsets

    found: dict[tuple[str, int], int] = {}
    for one in load_group_offsets(file) if file is not None else ():
        if found.setdefault((one.topic, one.partition), one.offset) != one.offset:
            raise click.UsageError(
                f"--from-offsets: {one.topic}-{one.partition} has two offsets; give one group's"
            )
    return found


def _report(summary: dict[str, Any], place: "Location | None", output_format: str) -> None:
    publish_summary(place, summary)
    _print_restore(summary, output_format)
    is_unread = 0 < summary["unreadable_logs"] == summary["logs"]
    sys.exit(exit_code_of(incomplete=is_unread, refused=bool(summary["partitions_refused"])))


def _print_restore(summary: dict[str, Any], output_format: str) -> None:
    """Print the summary as `table` or `json`; problems and notes are lines on standard error."""
    show(Output(page=_page(summary), summary=summary), output_format)
    for row in summary["partitions"]:
        name = f"{row['topic']}-{row['partition']}"
        for note in row["notes"]:
            warn(f"{name}: {note}")
        if row["problem"]:
            warn(f"{name} is not restored: {row['problem']}")
    for line in (*summary["problems"], *summary["notes"]):
        warn(line)
    if first := summary["unreadable_example"]:
        warn(unreadable_logs_text(summary["unreadable_logs"], first, of=summary["logs"]))
    without_id = sorted(
        {row["topic"] for row in summary["partitions"] if not (row["problem"] or row["topic_id"])}
    )
    if without_id:
        more = f" and {len(without_id) - 1:,} other topics" if len(without_id) > 1 else ""
        warn(
            f"{without_id[0]}{more}: the topic id is not known, so there is no "
            "partition.metadata; a broker of a KRaft cluster does not start with such a partition: "
            "create the topic first and restore over its empty directories"
        )
    if not summary["applied"]:
        warn("nothing was changed; the same command without --dry-run carries this out")


def _print_abandoned(summary: dict[str, Any], output_format: str) -> None:
    """Print what `--abandon` did, as `table` or `json`."""
    in_place = summary["partitions_in_place"]
    if output_format == "table":
        for name in in_place:
            warn(f"{name} was in its place already, and stays")
    table = facts(
        "abandoned",
        ("log directory", summary["log_dir"]),
        ("partitions removed", f"{summary['partitions_removed']:,}"),
        ("partitions in their places", f"{len(in_place):,}"),
    )
    show(Output(page=[table], summary=summary), output_format)


def _page(summary: Row) -> Iterator[Table]:
    done = "restored" if summary["partitions_restored"] else "nothing is restored"
    title = done if summary["applied"] else "to restore"
    yield Table(_COLUMNS, summary["partitions"], title, "partitions", full_format="json")
    yield facts(
        "restore",
        ("log directory", summary["log_dir"]),
        ("partitions", f"{summary['partitions_restored']:,}"),
        ("refused", f"{summary['partitions_refused']:,}"),
        ("segments", f"{summary['segments']:,}"),
        ("log bytes", human_bytes(summary["log_bytes"])),
        *_figures(summary),
    )


def _figures(summary: Row) -> list[tuple[str, str]]:
    if not summary["applied"]:
        return [("free", human_bytes(summary["free_bytes"]))]
    return [
        ("copied", human_bytes(summary["bytes_copied"])),
        ("linked", human_bytes(summary["bytes_linked"])),
        ("copied before", human_bytes(summary["bytes_there"])),
        ("clean shutdown", "yes" if summary["clean_shutdown"] else "no"),
    ]


def _offset_range(row: Row) -> str | None:
    if row["end_offset"] is None:
        return None
    return f"{row['start_offset']:,} to {row['end_offset']:,}"


_COLUMNS: Final = (
    Column("partition", lambda row: f"{row['topic']}-{row['partition']}", is_name=True),
    Column("from", lambda row: row["replica"] or "."),
    Column("replicas", "replicas", rank=3),
    Column("segments", "segments", rank=2),
    Column("bytes", "log_bytes", human_bytes),
    Column("offsets", _offset_range, none=""),
    Column("result", lambda row: "refused" if row["problem"] else "", rank=0),
)
