"""`--engine`: choose whether a command's work runs on this machine or on Spark.

A command calls `engine_choice` once, and then `open_engine`; a command without bins uses the choice
itself. pyspark is imported only if Spark is chosen.
"""

import os
import sys
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final, NamedTuple

import click
from click.core import ParameterSource

from kip33.archive.bins import EngineName
from kip33.cli.output import warn
from kip33.errors import LocationError
from kip33.stores.progress import OnProgress, tell_nobody

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kip33.archive.bins import Engine
    from kip33.spark.store_settings import Session


AUTO: Final = "auto"
BY_SPARK_SUBMIT: Final = "PYSPARK_GATEWAY_PORT"
TYPED_CONF: Final = "kip33.typed_conf"  # where `--conf` keeps the pairs of the command line
_MASTERS: Final = ("spark.master", "spark.remote")

ENGINE_VARIABLE: Final = "KIP33_ENGINE"


class SparkJob:
    """Set by the scripts in `jobs/`: the command is a Spark job, however it was started."""


class EngineOptions(NamedTuple):
    """A user's options about the engine."""

    engine: str
    workers: int | None
    verbose: bool
    master: str | None
    conf: Mapping[str, str]
    parallelism: int | None = None


class EngineChoice(NamedTuple):
    """The engine of a command, and the reason."""

    name: EngineName
    why: str
    is_asked_for: bool  # by --engine, KIP33_ENGINE or a configuration file


def engine_choice(options: EngineOptions) -> EngineChoice:
    """Return the engine to use; UsageError for options that contradict each other.

    With -v a line on standard error gives the reason.
    """
    choice = _choice(options)
    master = _typed_master()
    if master and is_typed("engine") and choice.name == EngineName.LOCAL:
        raise click.UsageError(f"{master} is for Spark: leave it out, or give --engine spark")
    if is_typed("workers") and choice.name == EngineName.SPARK:
        raise click.UsageError(
            f"--workers is for the local engine, and this runs on Spark: {choice.why}; give "
            "--engine local, or --parallelism"
        )
    if choice.name == EngineName.SPARK and not find_spec("pyspark"):
        raise click.UsageError(
            f"Spark is not installed, but {choice.why}: pip install pyspark, or give --engine local"
        )
    if options.verbose:
        show_engine(choice)
    return choice


def show_engine(choice: EngineChoice) -> None:
    """Print the engine and the reason on standard error."""
    click.echo(f"Engine: {choice.name}, because {choice.why}", err=True)


def open_engine(options: EngineOptions, on_progress: OnProgress = tell_nobody) -> "Engine":
    """Return the engine. A Spark session is started when there is work."""
    engine = engine_choice(options).name
    if engine == EngineName.LOCAL:
        from kip33.local.local_engine import LocalEngine

        return LocalEngine(options.workers, options.parallelism, on_progress, tell=warn)
    from kip33.spark.spark_engine import SparkEngine

    return SparkEngine(cache(lambda: _open_context(options)), options.parallelism, on_progress)


def _open_context(options: EngineOptions) -> "Session":
    from kip33.spark import session

    return session.create_context(master=options.master, conf=options.conf)


def open_session(options: EngineOptions) -> "SparkSession":
    """Return Spark's session; SparkStartError or JavaMissingError if it does not start."""
    from kip33.spark import session

    return session.create_session(master=options.master, conf=options.conf)


def _choice(options: EngineOptions) -> EngineChoice:
    if options.engine == EngineName.LOCAL and not is_typed("engine") and (said := _typed_master()):
        return EngineChoice(EngineName.SPARK, f"{said} is given", True)
    if options.engine != AUTO:
        return EngineChoice(EngineName(options.engine), _who_asks(), True)
    why = _why_spark(options)
    if why:
        return EngineChoice(EngineName.SPARK, why, False)
    return EngineChoice(EngineName.LOCAL, "no Spark master is configured", False)


def _who_asks() -> str:
    context = click.get_current_context()
    source = context.get_parameter_source("engine")
    names = {ParameterSource.ENVIRONMENT: ENGINE_VARIABLE, ParameterSource.DEFAULT_MAP: "--config"}
    return f"{names.get(source, '--engine') if source else '--engine'} asks for it"


def _why_spark(options: EngineOptions) -> str | None:
    """Return which option or environment selects Spark, else None."""
    if BY_SPARK_SUBMIT in os.environ:
        return "spark-submit started this"
    if isinstance(click.get_current_context().obj, SparkJob):
        return "this is a Spark job"
    if options.master:
        return "--master is given"
    for key in _MASTERS:
        if options.conf.get(key):
            return f"--conf has {key}"
    for name in ("SPARK_MASTER", "SPARK_REMOTE"):
        if os.environ.get(name):
            return f"{name} is set"
    from kip33.stores.settings import spark_defaults

    try:
        defaults = spark_defaults()
    except LocationError as error:
        raise LocationError(f"{error}, or give --engine local") from error
    for key in _MASTERS:
        if defaults.get(key):
            return f"spark-defaults.conf has {key}"
    if "pyspark.sql" in sys.modules and _has_session():
        return "a Spark session is active"
    return None


def _has_session() -> bool:
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession() is not None


def _typed_master() -> str | None:
    """Return the option on the command line that gives a master, else None."""
    if is_typed("master"):
        return "--master"
    context = click.get_current_context()
    typed = context.meta.get(TYPED_CONF, {})
    return next((f"--conf {key}" for key in _MASTERS if typed.get(key)), None)


def is_typed(name: str) -> bool:
    """Return whether an option is on the command line."""
    source = click.get_current_context().get_parameter_source(name)
    return source == ParameterSource.COMMANDLINE
