"""`kip33 demo`: a small archive to try the commands on, and what is wrong with it."""

import shlex
from pathlib import Path
from typing import Final

import click

from kip33.cli.output import Column, Output, RowList, Table
from kip33.cli.runs import CommandRun, runs
from kip33.errors import counted

_COLUMNS: Final = (
    Column("file", lambda oddity: oddity.path, is_name=True),
    Column("kip33 says", lambda oddity: f"{oddity.shown_by}: {oddity.answer}", rank=0),
    Column("what is wrong", lambda oddity: oddity.what, is_remark=True),
)


@click.command(epilog="Example: kip33 demo archive, then kip33 verify archive")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path, file_okay=False))
@runs(work="local", summary=False)
def demo(folder: Path, run: CommandRun) -> Output:
    """Make a small archive in DIR, which is new or empty: log directories of two brokers.

    It has 25 segments, 12 MB, always the same bytes. Some logs and index files are damaged or
    unusual; a table says which, how, and what kip33 will say of them. The examples of the tutorial
    and of the how-to pages run on this archive. Remove it when you are done: rm -r DIR.
    """
    from kip33.demo import ODDITIES, make_demo

    if "://" in str(folder) or ":/" in str(folder):
        raise click.UsageError(f"{folder}: a URI found, expected a directory of this machine")
    if folder.exists() and any(folder.iterdir()):
        raise click.UsageError(f"{folder}: not empty; nothing is written: give a new directory")
    segments = make_demo(folder)
    page = (
        f"{counted(segments, 'segment')} of two brokers written to {folder}",
        Table(_COLUMNS, ODDITIES, title="damaged or unusual files"),
        "The other index files are missing: an archive often has only logs.",
        f"next: $ {shlex.join(['kip33', 'verify', str(folder)])}",
        f"then: $ {shlex.join(['kip33', 'build', str(folder), '--index-dir', 'indexes'])}",
    )
    oddities = RowList("oddities", (one._asdict() for one in ODDITIES), "oddity")
    summary = {"archive": str(folder.absolute()), "segments": segments}
    return Output(page=page, rows=[oddities], summary=summary)
