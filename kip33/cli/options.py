"""Options shared by several commands."""

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
from click.core import ParameterSource

from kip33.archive import common_options as common
from kip33.archive.bins import EngineName
from kip33.cli.config_file import config_option
from kip33.cli.declared_options import option_of
from kip33.cli.engine_option import (
    AUTO,
    BY_SPARK_SUBMIT,
    ENGINE_VARIABLE,
    TYPED_CONF,
    SparkJob,
)
from kip33.cli.output import FORMATS, RESULT_LINE, TIMES
from kip33.errors import without_secrets
from kip33.formats.printed_fields import json_text
from kip33.stores.settings import configured, settings_from

if TYPE_CHECKING:
    from kip33.stores.locations import Location


_Command = TypeVar("_Command", bound=Callable[..., Any])


REPLACED_FILES: Final = "kip33.replaced files"  # their checks, in click's `meta`


def together(*options: Callable[[Any], Any]) -> Callable[[_Command], _Command]:
    """Return a decorator that adds these options, in this order."""

    def add(command: _Command) -> _Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add


_YARN_CONTAINER: Final = "CONTAINER_ID"  # set by YARN for each process in a container


def _take_conf(ctx: click.Context, param: click.Parameter, values: Sequence[str]) -> dict[str, str]:
    """Return the pairs, those of --config first; stores use them besides Spark's settings."""
    given = _pairs_of(values)
    if ctx.get_parameter_source("conf") == ParameterSource.COMMANDLINE:
        ctx.meta[TYPED_CONF] = given
    pairs = _pairs_of((ctx.default_map or {}).get("conf") or ()) | given
    settings_from(lambda: _hadoop_settings(pairs))
    is_submitted = isinstance(ctx.obj, SparkJob) and BY_SPARK_SUBMIT in os.environ
    if is_submitted and _YARN_CONTAINER in os.environ:
        from kip33.spark.session import start_if_yarn_waits

        start_if_yarn_waits(pairs)
    return pairs


def _pairs_of(values: Sequence[str]) -> dict[str, str]:
    pairs = {}
    for value in values:
        key, sign, setting = value.partition("=")
        if not sign or not key:
            raise click.BadParameter(f"{value!r}: expected KEY=VALUE")
        pairs[key] = setting
    return pairs


def _hadoop_settings(conf: Mapping[str, str]) -> Mapping[str, str]:
    """Return the settings of stores, including those of spark-submit if it started this process."""
    if BY_SPARK_SUBMIT not in os.environ:
        return configured(conf)
    from kip33.spark.store_settings import submitted_settings

    return submitted_settings(conf)


_CONF: Final = click.option(
    "--conf",
    multiple=True,
    metavar="KEY=VALUE",
    callback=_take_conf,
    help="Spark setting. Settings such as spark.hadoop.fs.s3a.* also configure access to stores.",
)
session_options: Final = together(
    click.option(
        "--master",
        help="Spark master [default: spark-submit's, else that of --conf, SPARK_MASTER, "
        "SPARK_REMOTE or spark-defaults.conf, else local[*]].",
    ),
    _CONF,
    config_option,
)
store_options: Final = together(  # for commands without Spark
    config_option,
    click.option(
        "--conf",
        multiple=True,
        metavar="KEY=VALUE",
        callback=_take_conf,
        expose_value=False,
        help="Setting for access to stores, such as spark.hadoop.fs.s3a.endpoint=...",
    ),
)
workers_option: Final = option_of("workers", common.MostWorkers)
engine_options: Final = together(
    click.option(
        "--engine",
        type=click.Choice([AUTO, *(name.value for name in EngineName)]),
        default=AUTO,
        show_default=True,
        envvar=ENGINE_VARIABLE,
        show_envvar=True,
        help="What does the work. local: processes of this machine. auto: Spark under "
        "spark-submit, in a Spark session, or if a Spark master is configured (--master, "
        "SPARK_MASTER, SPARK_REMOTE, spark.master, spark.remote), else local.",
    ),
    workers_option,
    click.option(
        "-v", "--verbose", is_flag=True, help="Also print which engine does the work, and why."
    ),
)
spark_options: Final = together(option_of("parallelism", common.Parallelism), session_options)


def _keep_result_line(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    ctx.meta[RESULT_LINE] = value


result_line_option: Final = click.option(
    "--result-line",
    is_flag=True,
    expose_value=False,
    callback=_keep_result_line,
    help="Also print the summary on standard error, as one line KIP33_RESULT {...}, for programs "
    "that have only the log of a job.",
)
format_option: Final = together(
    click.option(
        "--format",
        "output_format",
        type=click.Choice(FORMATS),
        default=FORMATS[0],
        show_default=True,
        help="Output format. With json, jsonl and csv, standard output has only data.",
    ),
    click.option(
        "--times",
        "time_format",
        type=click.Choice(TIMES),
        default=TIMES[0],
        show_default=True,
        help="Times in json, jsonl and csv: ms since 1970, or iso, such as "
        "2024-05-01T12:00:00.000Z.",
    ),
    click.option("--guard-formulas", "guards_csv", is_flag=True, help=common.GUARD_FORMULAS),
    result_line_option,
)


def replaced_file(
    suffix: str, require: Callable[["Location"], None]
) -> Callable[[click.Context, click.Parameter, str | None], "Location | None"]:
    """Return what makes a place of a text; `require` raises for a file that must stay.

    It is asked when all options are read (`makes_request`), because it looks into a store.
    """

    def place_of(ctx: click.Context, _: click.Parameter, text: str | None) -> "Location | None":
        from kip33.stores.locations import Location

        if text is None:
            return None
        if not text.endswith(suffix):  # a slip must not replace a segment, index or Parquet file
            raise click.BadParameter(
                f"{without_secrets(text)!r} found, expected a name that ends in {suffix}"
            )
        place = Location.of(text)
        ctx.meta.setdefault(REPLACED_FILES, []).append(functools.partial(require, place))
        return place

    return place_of


def _require_summary(place: "Location") -> None:
    from kip33.archive.output_files import require_summary_place

    require_summary_place(place)


summary_option: Final = click.option(
    "--summary",
    "summary_file",
    metavar="FILE",
    callback=replaced_file(".json", _require_summary),
    help="Write a summary of the run to FILE (*.json) as one object, for example for a "
    "scheduler. Written in every --format and also before an exit 3. Replaces FILE "
    "only if it is a summary.",
)


def publish_summary(place: "Location | None", summary: Mapping[str, Any]) -> None:
    """Publish the summary, replacing an earlier one; PublishError if that fails."""
    from kip33.stores.own_files import publish_or_raise

    if place:
        _require_summary(place)
        data = (json_text(summary, indent=1) + "\n").encode()
        publish_or_raise(place, data, "the run is complete, only its summary is missing")
