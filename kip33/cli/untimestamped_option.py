"""The option `--untimestamped` of the commands that write and verify index files."""

import click

from kip33.rules.untimestamped import RULES, Untimestamped, rule_of


def _rule(_: click.Context, __: click.Parameter, text: str) -> str:
    return rule_of(text).value


untimestamped_option = click.option(
    "--untimestamped",
    type=click.Choice(RULES),
    default=Untimestamped.NONE.value,
    show_default=True,
    callback=_rule,
    help="The index of a closed segment whose records have no timestamps. none: empty, as Kafka "
    "writes it. Else one entry with the log file's modification time, as KIP-33 planned: "
    "next-base-offset (or entry) with the next segment's base offset, the accepted text; "
    "first-offset with the segment's own, an earlier text.",
)
