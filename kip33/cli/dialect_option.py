"""The option `--dialect` of the commands that judge index files."""

import click

from kip33.rules.index_entries import DIALECTS

dialect_option = click.option(
    "--dialect",
    type=click.Choice(list(DIALECTS)),
    default="recover",
    show_default=True,
    help="How to read .timeindex entries: kip33 for files that were built in that dialect; "
    "recover and live are both Kafka's, and files of either are accepted.",
)
