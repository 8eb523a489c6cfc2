"""`kip33 restore`: its options, the request that they make, and its output."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import click

from kip33.cli.declared_options import options_of
from kip33.cli.option_groups import GroupedCommand
from kip33.cli.output import (
    Column,
    Output,
    OutputFinding,
    Row,
    RowList,
    Table,
    counted,
    facts,
    human_bytes,
    some,
    warn,
)
from kip33.cli.runs import CommandRun, runs
from kip33.cli.times import Quantity
from kip33.restore.restore_request import Moment, RestoreOptions, RestoreQuestion, require_valid
from kip33.rules.broker_directory import STRAY

if TYPE_CHECKING:
    from kip33.restore.restore_complete import AbandonedRestore


_MOMENT: Final = Quantity("moment", Moment.of, "2024-05-01T12:00:00Z")


@dataclass(frozen=True, kw_only=True)
class RestoreCommand:
    """The options of `kip33 restore`."""

    restore: RestoreQuestion
    is_abandoned: bool

    def check(self) -> None:
        """Raise UsageError for options that contradict each other."""
        if self.is_abandoned:
            if self.restore["dry_run"]:
                raise click.UsageError("give --abandon or --dry-run, not both")
            return
        try:
            require_valid(self.restore)
        except ValueError as error:
            raise click.UsageError(str(error)) from error


@click.command(
    cls=GroupedCommand,
    epilog="Example: kip33 restore /backup/broker-1 --to /var/lib/kafka/data --topic orders "
    "--dry-run, then the same without --dry-run (of two tiers: kip33 restore local/_catalog "
    "remote/_catalog --to ...). kip33/restore/README.md has the steps and what a broker finds "
    "after each.",
)
@click.argument("source", required=False)
@click.argument("other_source", metavar="[REMOTE]", required=False)
@click.option(
    "--to",
    "log_dir",
    required=True,
    metavar="LOG_DIR",
    help="The log directory of a stopped broker, on this machine.",
)
@options_of(RestoreOptions, from_=_MOMENT, until=_MOMENT)
@click.option(
    "--abandon",
    "is_abandoned",
    is_flag=True,
    help="Give up a restore that was interrupted: remove what it copied. Needs no SOURCE.",
)
@runs(work="session")
def restore(command: RestoreCommand, run: CommandRun) -> Output:
    """Restore partitions of an archive into a broker's log directory.

    SOURCE is an archive or a catalog of one. With a catalog, damage and missing offsets are known
    before a log is read. With tiered storage, give the catalog of the log directories and that of
    the remote tier, in any order: the segments of both become one log directory, each record once.

    A broker starts on the result without recovery: beside each log there are its indexes, the
    producers' snapshots, the leader epochs and the topic's id; the log directory gets its
    checkpoints and the clean-shutdown file. Each log is checked while it is copied. The damaged end
    of a last log is cut as a broker cuts it, if it is a tenth of the log or less; other damage,
    missing offsets and logs without any batch refuse the partition.

    On Spark the tasks write to LOG_DIR, so it must be mounted on their machines, too.

    The broker must be stopped; its .lock is held meanwhile. Nothing is replaced but the empty
    partitions of topics that were just created; what is byte for byte as it would be written is
    there already, and stays. If it is interrupted, the same command continues, and another one is
    refused; --abandon gives it up. Exit codes: 0 all partitions are restored or there already, 1
    the restore is not complete or no log could be read, 4 some partitions are refused and the
    others are restored.
    """
    from kip33.api.restore_archive import run_restore
    from kip33.restore.restore_complete import abandon
    from kip33.stores.locations import Location

    if command.is_abandoned:
        return _abandoned(abandon(Location.of(command.restore["log_dir"])), run)
    engine = run.open_engine()
    done = run_restore(command.restore, engine, warn=warn, on_progress=run.on_progress)
    summary = done.as_record()
    remarks = [*_remarks(summary)]
    partitions = summary.pop("partitions")
    return Output(
        page=lambda complete: _page({**complete, "partitions": partitions}),
        rows=[RowList("partitions", partitions, "partition")],
        summary=summary,
        more={"partitions": partitions},
        findings={
            "unreadable": OutputFinding(summary["unreadable_logs"], "log"),
            "refused": OutputFinding(summary["partitions_refused"], "partition"),
        },
        incomplete=["unreadable"] if summary["unreadable_logs"] == summary["logs"] else [],
        refused=["refused"],
        remarks=remarks,
    )


def _remarks(summary: Row) -> Iterator[str]:
    """Yield problems and notes."""
    for row in summary["partitions"]:
        name = f"{row['topic']}-{row['partition']}"
        for note in row["notes"]:
            yield f"{name}: {note}"
        if row["problem"]:
            yield f"{name} is not restored: {row['problem']}"
    yield from (*summary["problems"], *summary["notes"])
    without_id = sorted(
        {row["topic"] for row in summary["partitions"] if not (row["problem"] or row["topic_id"])}
    )
    if without_id:
        more = f" and {counted(len(without_id) - 1, 'other topic')}" if len(without_id) > 1 else ""
        yield (
            f"{without_id[0]}{more}: the topic id is not known, so there is no "
            f"partition.metadata; {STRAY}: create the topic first and restore over its empty "
            "directories, or give --topic-ids"
        )
    if not summary["applied"]:
        yield "nothing was changed; the same command without --dry-run carries this out"


def _abandoned(abandoned: "AbandonedRestore", run: CommandRun) -> Output:
    """Return what `--abandon` did."""
    in_place = abandoned.partitions_in_place
    if run.options.output_format == "table":
        for name in in_place:
            warn(f"{name} was in its place already, and stays")
    table = facts(
        "abandoned",
        ("log directory", abandoned.log_dir),
        ("partitions removed", f"{abandoned.partitions_removed:,}"),
        ("partitions in their places", f"{len(in_place):,}"),
    )
    summary = {
        "log_dir": abandoned.log_dir,
        "abandoned": True,
        "partitions_removed": abandoned.partitions_removed,
        "partitions_in_place": list(in_place),
    }
    return Output(page=[table], summary=summary)


def _page(summary: Row) -> Iterator[Table]:
    nothing = "there already" if summary["partitions_there"] else "nothing is restored"
    done = "restored" if summary["partitions_restored"] else nothing
    title = done if summary["applied"] else "to restore"
    columns = [one for one in _COLUMNS if one is not _REMOTE or summary["remote_source"]]
    yield Table(columns, summary["partitions"], title, "partitions")
    yield facts(
        "restore",
        ("log directory", summary["log_dir"]),
        ("partitions", f"{summary['partitions_restored']:,}"),
        ("there already", some(summary["partitions_there"], "{:,}")),
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


def _result(row: Row) -> str:
    return "refused" if row["problem"] else "there already" if row["is_there"] else ""


def _offset_range(row: Row) -> str | None:
    if row["end_offset"] is None:
        return None
    if row["end_offset"] == row["start_offset"]:
        return "none"
    return f"{row['start_offset']:,} to {row['end_offset'] - 1:,}"


_REMOTE: Final = Column("remote", "remote_segments", rank=3)
_COLUMNS: Final = (
    Column("partition", lambda row: f"{row['topic']}-{row['partition']}", is_name=True),
    Column("from", lambda row: row["replica"] or "."),
    Column("replicas", "replicas", rank=3),
    Column("segments", "segments", rank=2),
    _REMOTE,
    Column("bytes", "log_bytes", human_bytes),
    Column("offsets", _offset_range, none=""),
    Column("result", _result, rank=0),
)
