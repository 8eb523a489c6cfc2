"""A line for each command that does its work, beside ./archive, ./indexes and ./offsets.csv."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

from kip33.cli.main import COMMANDS, get_command

CATALOG: Final = "indexes/_catalog"
NOW: Final = "--now 2023-12-01"
JUDGED: Final = f"{CATALOG} --retention-ms 8d {NOW}"
DONE: Final = {
    "build": "archive --index-dir new-indexes --topic orders",
    "verify": "archive --topic orders",
    "repair": "archive/broker-2 --topic metrics",
    "restore": f"{CATALOG} --to new-data --topic payments --dry-run",
    "truncate": "archive/broker-1/orders-0 --to 100",
    "dump": "archive/broker-1/payments-0/00000000000000000000.log",
    "retention": JUDGED,
    "roll": f"{CATALOG} {NOW}",
    "search": f"{CATALOG} --time 2023-11-14T22:30:00Z",
    "records": f"{CATALOG} --topic payments",
    "count": f"{CATALOG} --per 1d --topic orders",
    "timestamps": f"{CATALOG} --topic orders {NOW}",
    "lag": f"{CATALOG} --offsets offsets.csv",
    "failover": f"--from {CATALOG} --to {CATALOG} --offsets offsets.csv --buffer 15m",
    "dialects": "archive --topic orders --dialect recover",
    "catalog": CATALOG,
    "report": f"{JUDGED} --output out.html",
    "status": CATALOG,
    "init": "new-home",
    "completion": "bash",
    "demo": "new-archive",
}
OF_MODES: Final = {
    "roll what-if": f"{CATALOG} --topic payments",
    "verify quick": f"archive --catalog {CATALOG}",
    "retention apply": "plan.jsonl --dry-run",  # not there, but the options are read
    "retention undo": "plan.jsonl --trash trash --dry-run",
    "catalog snapshots": CATALOG,
    "catalog diff": f"{CATALOG} 1 1",
    "catalog holes": CATALOG,
    "catalog segments": CATALOG,
    "catalog orphans": CATALOG,
    "catalog prune": f"{CATALOG} --keep 1",
}
OF_CATALOGS: Final = {name: f"{name} {line}" for name, line in DONE.items() if CATALOG in line}


def write_offsets() -> None:
    Path("offsets.csv").write_text("topic,partition,offset\norders,0,100\n")


def commands_and_modes() -> Iterator[tuple[str, click.Command]]:
    """Yield each command by its words, behind it its modes, such as `verify quick`."""
    for name in COMMANDS:
        command = get_command(name)
        yield name, command
        for word, mode in getattr(command, "modes", {}).items():
            yield f"{name} {word}", mode
