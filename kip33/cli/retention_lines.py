"""The output of `kip33 retention` for programs: JSON and CSV, a piece at a time."""

import json
from collections.abc import Iterator
from typing import Any

import click

from kip33.cli.retention_answer import RetentionAnswer
from kip33.cli.standard_output import exact_output


def print_lines(answer: RetentionAnswer) -> None:
    """Print one JSON object per line: segments, then partitions, then the rows of `freed`."""
    for lines in (
        answer.segment_lines("segment"),
        answer.partition_lines("partition"),
        answer.freed_lines("freed"),
    ):
        for line in lines:
            click.echo(line)


def print_object(answer: RetentionAnswer, summary: dict[str, Any]) -> None:
    """Print one JSON object on one line, for any number of segments."""
    click.echo('{"segments": [', nl=False)
    _print_joined(answer.segment_lines(None))
    click.echo('], "partitions": [', nl=False)
    _print_joined(answer.partition_lines(None))
    if answer.tells_freed:
        click.echo('], "freed": [', nl=False)
        _print_joined(answer.freed_lines(None))
    click.echo(f'], "summary": {json.dumps(summary)}}}')


def print_csv(answer: RetentionAnswer) -> None:
    """Print a header and one line per segment; lists are joined by spaces."""
    for line in answer.csv_lines():
        click.echo(line, exact_output(), color=True)


def _print_joined(lines: Iterator[str]) -> None:
    for number, line in enumerate(lines):
        click.echo((", " if number else "") + line, nl=False)
