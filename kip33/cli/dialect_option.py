"""The option `--dialect` of the commands that judge index files."""

import click

from kip33.rules.index_entries import DIALECTS

dialect_option = click.option(
    "--dialect",
    type=click.Choice(list(DIALECTS)),
    default="recover",
    show_default=True,
    help="How to read .timeindex entries. kip33: for files that were built with that "
    "dialect. recover or live: for Kafka's files; both accept the files of either.",
)
