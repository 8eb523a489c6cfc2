"""How every command runs: it is asked, it answers, and the rest is done here, for all of them.

A command is a function of its options and a `CommandRun`, and returns an `Output`. `runs` gives it
the options that all commands have. Around the function it shows the progress; behind it come the
time, the summary file, the metrics, the output in the format asked for, and the exit code.
"""

import functools
import inspect
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, is_dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias, TypeVar, is_typeddict

import click

from kip33 import __version__
from kip33.archive.moments import current_ms
from kip33.cli.config_file import config_option, drop_unused, naming_config, show_config
from kip33.cli.declared_options import ChoiceList
from kip33.cli.engine_option import EngineOptions, engine_choice, open_engine
from kip33.cli.metrics_file import MetricsRequest, metrics_options, publish_metrics
from kip33.cli.options import (
    REPLACED_FILES,
    engine_options,
    format_option,
    publish_summary,
    session_options,
    spark_options,
    store_options,
    summary_option,
    together,
)
from kip33.cli.output import (
    MOST_FINDING_LINES,
    TIMES,
    Output,
    OutputFinding,
    counted,
    show,
    warn,
    warn_of_unreadable,
)
from kip33.cli.progress import progress_line
from kip33.cli.standard_output import OutputError
from kip33.errors import ExitCode, Kip33Error, without_secrets
from kip33.formats.times import TimesName
from kip33.stores.progress import OnProgress, tell_nobody

if TYPE_CHECKING:
    from kip33.archive.bins import Engine
    from kip33.stores.locations import Location

_Request = TypeVar("_Request")
_Command: TypeAlias = Callable[..., None]


class Findings(NamedTuple):
    """What `--fail-on` takes: the findings, its help, and the placeholder of long lists."""

    names: Sequence[str]
    help: str = "Exit 3 if there is any."
    metavar: str | None = None


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """The options of a run; None: the command has no such option, or it is not given."""

    output_format: str | None
    time_format: TimesName = TIMES[0]
    guards_csv: bool = False
    fail_on: tuple[str, ...] = ()
    summary_file: "Location | None" = None
    metrics: MetricsRequest | None = None
    engine: EngineOptions | None = None

    @classmethod
    def taken(cls, values: dict[str, Any]) -> "RunOptions":
        """Return those that are taken out of the values of a command's options."""
        engine = _made_of(EngineOptions, values) if "engine" in values else None
        metrics = _made_of(MetricsRequest, values) if "metrics_file" in values else None
        plain = {name: values.pop(name) for name in cls.__annotations__ if name in values}
        return cls(**plain, engine=engine, metrics=metrics)


class CommandRun:
    """A run of a command: its options, who is told how far it is, and the engine that works."""

    def __init__(self, options: RunOptions, on_progress: OnProgress) -> None:
        """Begin now."""
        self.options, self.on_progress = options, on_progress
        self.started_ms = current_ms()
        self._began = time.monotonic()
        self._ran: tuple[str, int] | None = None
        self._engine: Engine | None = None
        self._facts: dict[str, Any] = {}

    @property
    def engine_options(self) -> EngineOptions:
        """Return the options of a command that has --engine."""
        assert self.options.engine is not None, "the command has no --engine"
        return self.options.engine

    def open_engine(self) -> "Engine":
        """Return the engine that the options choose, the same at each call."""
        if self._engine is None:
            self._engine = open_engine(self.engine_options, self.on_progress)
        return self._engine

    def ran_on(self, name: str, workers: int) -> None:
        """Say which engine worked, if it was not that of `open_engine`."""
        self._ran = name, workers

    def facts(self) -> dict[str, Any]:
        """Return the end of every summary: `engine`, `workers`, `seconds` up to the first call."""
        if not self._facts:
            seconds = {"seconds": round(time.monotonic() - self._began, 3)}
            self._facts = self._of_engine() | seconds
        return self._facts

    def _of_engine(self) -> dict[str, Any]:
        if self.options.engine is None:
            return {}
        if self._engine is not None:
            self._ran = self._engine.name, self._engine.workers
        if self._ran is None:
            engine_choice(self.options.engine._replace(verbose=False))  # refuses contradictions
        engine, workers = self._ran or ("local", 1)
        return {"engine": engine, "workers": workers}


_WORK: Final = {  # the options of each kind of work
    "tasks": (engine_options, spark_options),
    "session": (engine_options, session_options),
    "here": (store_options,),
    "local": (config_option,),
}


def runs(
    *,
    work: Literal["tasks", "session", "here", "local"] = "tasks",
    summary: bool = True,
    metrics: bool = False,
    findings: Findings | None = None,
    formats: Callable[[_Command], _Command] = format_option,
    shows_progress: bool = True,
) -> Callable[[Callable[..., Output | None]], _Command]:
    """Return a decorator that makes a command of a function; see the module.

    The function's parameters are `run` and the command's own options. One whose type is a named
    tuple, typed dict or dataclass is made of several options, its fields. `check` of what is made,
    if it has one, raises UsageError for options that contradict each other.

    `work`: `tasks` of an engine, whose number an option says; an engine or Spark `session`; else
    `here`, with the options of stores alone; `local` has not even these. A command that prints
    while it works has its own `formats`, shows its progress itself, and returns no output.
    """
    options = together(
        *([_fail_on(findings)] if findings else []),
        *([summary_option] if summary else []),
        *([metrics_options] if metrics else []),
        *_WORK[work],
        formats,
    )

    def decorated(function: Callable[..., Output | None]) -> _Command:
        name = function.__name__.partition("_")[0]  # of `catalog_diff` it is `catalog`

        @functools.wraps(function)
        @naming_config()
        def command(**values: object) -> None:
            drop_unused(values)
            options = RunOptions.taken(values)
            arguments = _fields_of(function, values)
            assert not values, f"{name} has no parameters {', '.join(values)}"
            if options.engine and options.engine.verbose:
                show_config()
            for require in click.get_current_context().meta.pop(REPLACED_FILES, ()):
                require()
            shown = progress_line(name) if shows_progress else nullcontext(tell_nobody)
            with shown as on_progress:
                run = CommandRun(options, on_progress)
                try:
                    output = function(**arguments, run=run)
                except ValueError as error:
                    if type(error) is not ValueError:  # pyarrow's errors are subclasses
                        raise
                    raise click.UsageError(str(error)) from error
            sys.exit(_ended(output, run, name) if output else ExitCode.DONE)

        return options(command)

    return decorated


def _fail_on(findings: Findings) -> Callable[[_Command], _Command]:
    return click.option(
        "--fail-on",
        multiple=True,
        type=ChoiceList(findings.names),
        callback=ChoiceList.joined,
        metavar=findings.metavar or f"[{'|'.join(findings.names)}],...",
        help=findings.help,
    )


def _ended(output: Output, run: CommandRun, name: str) -> ExitCode:
    """Publish and print what was found; return the exit code."""
    if output.summary and not output.is_streamed:
        output = replace(output, summary={**output.summary, **run.facts()})
    options = run.options
    code, because = _exit_code(output, options.fail_on)
    if options.summary_file:
        of_run = run_record(run, code, output.findings)
        publish_summary(options.summary_file, {**output.summary, **output.more, "run": of_run})
    is_success = code != ExitCode.INCOMPLETE  # else the time of the last success stays old
    if options.metrics and options.metrics.metrics_file and is_success:
        gauges = output.gauges(output.summary, options.metrics)
        publish_metrics(options.metrics, name, output.labels, gauges)
    _show(output, options)
    warn(*output.remarks)
    warn_of_unreadable(output.unread, of=output.logs)
    if because:
        _tell_why(output, code, because)
    elif code == ExitCode.INCOMPLETE:
        _tell(f"exit {code.value}: none of {counted(output.logs, 'log')} could be read")
    return code


def _exit_code(output: Output, fail_on: Sequence[str]) -> tuple[ExitCode, Sequence[str]]:
    """Return the exit code, and the names of the findings that make it."""
    there = [name for name, found in output.findings.items() if found.count]
    if output.logs and len(output.unread) == output.logs:
        return ExitCode.INCOMPLETE, ()
    for code, names in (
        (ExitCode.FINDINGS, fail_on),
        (ExitCode.INCOMPLETE, output.incomplete),
        (ExitCode.REFUSED, output.refused),
    ):
        if because := [name for name in dict.fromkeys(names) if name in there]:
            return code, because
    return ExitCode.DONE, ()


def _tell_why(output: Output, code: ExitCode, because: Sequence[str]) -> None:
    """Print the findings that make the exit code, new ones first, and then the code."""
    from kip33.catalog.segment_findings import NEW

    findings = {name: output.findings[name] for name in because}
    every = [
        (name, example)
        for name, found in findings.items()
        for example in islice(found.examples(), MOST_FINDING_LINES)
    ]
    lines = sorted(every, key=lambda one: not one[1].startswith(NEW))[:MOST_FINDING_LINES]
    for name, example in lines:
        _tell(f"{name}: {example}")
    for name, found in findings.items():
        if found.command and found.count > sum(shown == name for shown, _ in lines):
            _tell(f"all: {found.command}")
    counts = ", ".join(
        f"{name}: {counted(found.count, found.unit)}" for name, found in findings.items()
    )
    option = "--fail-on " if code == ExitCode.FINDINGS else ""
    _tell(f"exit {code.value}: {option}{counts}")


def _tell(line: str) -> None:
    click.echo(" ".join(without_secrets(line).split()), err=True)


def run_record(
    run: CommandRun,
    code: ExitCode = ExitCode.DONE,
    findings: Mapping[str, OutputFinding] | None = None,
) -> dict[str, Any]:
    """What a summary file says of its run, by which the next run knows the file as a summary.

    With the first examples of each finding.
    """
    return {
        "kip33_version": __version__,
        "command": " ".join(["kip33", *click.get_current_context().command_path.split()[1:]]),
        "started_ms": run.started_ms,
        "ended_ms": current_ms(),
        "exit_code": code.value,
        "findings": [
            {
                "finding": name,
                "count": found.count,
                "unit": found.unit,
                "examples": list(islice(found.examples(), MOST_FINDING_LINES)),
            }
            for name, found in (findings or {}).items()
            if found.count and found.is_wrong
        ],
    }


def _show(output: Output, options: RunOptions) -> None:
    """Print what was found; OutputError says what was done, if the command did something."""
    try:
        show(
            output,
            options.output_format or "table",
            options.time_format,
            guard_formulas=options.guards_csv,
        )
        if output.if_unwritten:
            sys.stdout.flush()
    except OutputError as error:
        if not output.if_unwritten:
            raise
        untold = Kip33Error(f"{error}; {output.if_unwritten}")
        untold.exit_code = error.exit_code
        raise untold from error


def _made_of(kind: Callable[..., _Request], values: dict[str, object]) -> _Request:
    """Return an object of a class whose fields are taken out of `values`."""
    made = kind(**_fields_of(kind, values))
    if check := getattr(made, "check", None):
        check()
    return made


def _fields_of(kind: Callable[..., Any], values: dict[str, object]) -> dict[str, object]:
    """Return the fields of a class, or arguments of a function, that are taken out of `values`."""
    fields: dict[str, object] = {}
    for name, of_field in inspect.get_annotations(kind).items():
        if name != "return" and _is_made_of_options(of_field):
            fields[name] = _made_of(of_field, values)
        elif name in values:
            fields[name] = values.pop(name)
    return fields


def _is_made_of_options(kind: Any) -> bool:
    has_fields = is_dataclass(kind) or is_typeddict(kind) or hasattr(kind, "_fields")
    return isinstance(kind, type) and has_fields
