"""The values of --conf: settings of Spark and of stores."""

import os
from collections.abc import Mapping, Sequence
from typing import Final

import click
from click.core import ParameterSource

from kip33.cli.engine_option import BY_SPARK_SUBMIT, TYPED_CONF, SparkJob
from kip33.stores.settings import configured, settings_from

YARN_CONTAINER: Final = "CONTAINER_ID"  # set by YARN for each process in a container


def take_conf(ctx: click.Context, param: click.Parameter, values: Sequence[str]) -> dict[str, str]:
    """Return the pairs, those of --config first; stores use them besides Spark's settings."""
    given = _pairs_of(values)
    if ctx.get_parameter_source("conf") == ParameterSource.COMMANDLINE:
        ctx.meta[TYPED_CONF] = given
    pairs = _pairs_of((ctx.default_map or {}).get("conf") or ()) | given
    settings_from(lambda: _hadoop_settings(pairs))
    is_submitted = isinstance(ctx.obj, SparkJob) and BY_SPARK_SUBMIT in os.environ
    if is_submitted and YARN_CONTAINER in os.environ:
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
