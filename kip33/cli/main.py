"""The `kip33` command: a group whose commands are imported only when they run.

`kip33.errors.ExitCode` has the exit codes.
"""

import importlib
import logging
import os
import re
import signal
import sys
import tempfile
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache, wraps
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NoReturn

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from kip33 import __version__
from kip33.cli.completion import COMPLETION_VARIABLE, completing
from kip33.cli.standard_output import OutputError, guarded_output
from kip33.errors import ExitCode, Kip33Error, is_of_the_machine, without_secrets
from kip33.formats.printed_fields import escaped, printable

GROUPS: Final = {
    "Make and check an index": {
        "build": "Build .timeindex files and a catalog snapshot from log segments.",
        "verify": "Verify every index file against its log; one verdict per file.",
        "repair": "Repair the index files in a stopped broker's log directory.",
        "dump": "Show the contents of index files and logs as text or JSON.",
        "demo": "Make a small archive with damage, to try the other commands on.",
        "init": "Write configuration, job scripts and a DAG for a deployment.",
    },
    "Ask the index": {
        "search": "Find the offsets of timestamps, exact to the record.",
        "records": "Show records between two times; write JSON, CSV or Parquet.",
        "count": "Count records per minute, hour or day.",
        "status": "Show what is wrong, what is new, and what looks closer.",
        "catalog": "Show snapshots, segments, holes, leftovers; prune snapshots.",
        "failover": "Translate group offsets to another cluster, by timestamp.",
        "lag": "Show the lag of committed offsets in records and in time.",
    },
    "Retention and restore": {
        "retention": "Show what retention deletes and what blocks it; delete by plan.",
        "restore": "Restore partitions of an archive into a broker's log directory.",
        "truncate": "Cut a copied partition at an offset, as Kafka does.",
    },
    "Audits": {
        "roll": "Show why segments ended; what other settings would have given.",
        "timestamps": "Show types, order, limits and latency of timestamps.",
        "dialects": "Compare index designs of Kafka and KIP-33 on your data.",
    },
    "Others": {
        "report": "Write a page about an archive: findings, timelines, retention.",
        "completion": "Print the script with which bash, zsh or fish completes kip33.",
    },
}
COMMANDS: Final = {name: line for group in GROUPS.values() for name, line in group.items()}

CONFIG_META: Final = "kip33.config"  # where click's `meta` has the configuration file
_SYNONYMS: Final = {  # of other programs
    **dict.fromkeys(("check", "fsck", "validate"), "verify"),
    **dict.fromkeys(("index", "rebuild"), "build"),
    **dict.fromkeys(("find", "lookup", "offsets"), "search"),
    **dict.fromkeys(("cat", "consume", "export", "read"), "records"),
    **dict.fromkeys(("ls", "list", "segments"), "catalog"),
    **dict.fromkeys(("delete", "expire", "purge"), "retention"),
    **{"fix": "repair", "info": "status", "histogram": "count", "generate": "demo"},
    **dict.fromkeys(("--since", "--after", "--start", "--start-time"), "--from"),
    **dict.fromkeys(("--before", "--end", "--end-time"), "--until"),
    **dict.fromkeys(("--jobs", "--threads", "--processes"), "--workers"),
    **dict.fromkeys(("--out", "--output-file", "--write"), "--output"),
    **{"--catalog-dir": "--catalog", "--timestamp": "--time", "--to-datetime": "--time"},
    **{"--max": "--limit", "--head": "--limit", "--period": "--per", "--filter": "--grep"},
    **{"--key": "--where-key", "--what-if": "--dry-run", "--json": "--format"},
}
_READ_NO_LOGS: Final = {
    *("catalog", "completion", "demo", "init", "report", "retention", "status"),
    "verify quick",
}
_LONGEST: Final = max(map(len, COMMANDS))
_PACKAGE: Final = Path(__file__).parent.parent
_NO_THREAD: Final = "can't start new thread"  # Python's RuntimeError


@cache
def get_command(name: str) -> click.Command:
    """Import and return the command `kip33.cli.<name>.<name>`.

    If it reads logs and there is no compiled code, it says so when it begins.
    """
    command: click.Command = getattr(importlib.import_module(f"kip33.cli.{name}"), name)
    _keep_pandas_out()
    modes = getattr(command, "modes", {})
    for words, one in ((name, command), *((f"{name} {word}", modes[word]) for word in modes)):
        if not {name, words} & _READ_NO_LOGS:
            one.callback = _saying(one.callback)
    return command


def _saying(run_command: Any) -> Any:
    @wraps(run_command)
    def run_and_say(*arguments: Any, **options: Any) -> Any:
        _warn_of_plain_code()
        return run_command(*arguments, **options)

    return run_and_say


class _WithoutPandas:
    """Finds no pandas, though it is installed."""

    @staticmethod
    def find_spec(name: str, *_: object) -> None:
        """Raise ImportError for pandas; leave other modules to the next finder."""
        if name == "pandas":
            raise ImportError(name)


def _keep_pandas_out() -> None:
    """Make pyarrow find no pandas at its first conversion.

    The import takes 150 ms, and no command uses it. `to_pandas` looks again.
    """
    if "pyarrow" in sys.modules and "pandas" not in sys.modules:
        import pyarrow as pa

        finder: Any = _WithoutPandas
        sys.meta_path.insert(0, finder)
        try:
            pa.array([None])
        finally:
            sys.meta_path.remove(finder)


def _warn_of_plain_code() -> None:
    from kip33.cli.output import warn
    from kip33.formats import native

    if native.how() == native.PLAIN:
        warn(
            "there is no compiled code for this machine, so logs are read some 500 times as "
            "slowly, 5 to 10 MB a second: pip install 'kip33[compile]', or take the wheel for "
            "this platform"
        )


class LazyGroup(click.Group):
    """A group that has its commands' names and first lines without importing them."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take `help build` as `build --help`, and `version` as `--version`."""
        if args[:1] == ["help"]:
            args = [*args[1:], "--help"]
        elif args[:1] == ["version"]:
            args = ["--version", *args[1:]]
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command, None for an unknown name."""
        if cmd_name not in COMMANDS:
            return None
        command = get_command(cmd_name)
        return completing(command) if ctx.resilient_parsing else command  # a shell completes it

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the commands that begin so, without importing them, and options."""
        commands = [
            CompletionItem(name, help=line)
            for name, line in COMMANDS.items()
            if name.startswith(incomplete)
        ]
        return commands + click.Command.shell_complete(self, ctx, incomplete)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command; UsageError for an unknown one, with the nearest."""
        if args[0] not in COMMANDS and not args[0].startswith("-"):
            from kip33.rules.policies import nearest

            meant = _SYNONYMS.get(args[0], args[0])
            ctx.fail(f"No such command {args[0]!r}{nearest([meant], COMMANDS)}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands by group, from GROUPS alone."""
        for heading, commands in GROUPS.items():
            with formatter.section(heading):
                formatter.write_dl(
                    [(f"{name:{_LONGEST}}", line) for name, line in commands.items()]
                )


@click.group(
    cls=LazyGroup,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Example: kip33 build /archive/kafka-logs --index-dir /archive/indexes",
)
@click.option("-V", "--version", is_flag=True, help="Show the version and exit.")
@click.option("-v", "--verbose", is_flag=True, help="With --version: also show how logs are read.")
@click.pass_context
def kip33(ctx: click.Context, *, version: bool, verbose: bool) -> None:
    """Rebuild, verify and catalog the time index (KIP-33) of archived Kafka segments."""
    if verbose and not version:
        raise click.UsageError("-v is for --version, or stands behind a command")
    if version:
        click.echo(f"kip33, version {__version__}")
        if verbose:
            from kip33.formats import native

            click.echo(f"kernels: {native.how()}")
        ctx.exit()
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


class Interrupted(BaseException):
    """SIGINT or SIGTERM arrived. Not a KeyboardInterrupt: py4j would log its trace."""

    def __init__(self, number: int) -> None:
        """Take the signal's number."""
        super().__init__(signal.Signals(number).name)
        self.exit_code = ExitCode(128 + number)


@contextmanager
def _interruptible() -> Iterator[None]:
    """Make SIGINT and SIGTERM raise Interrupted; restore the previous handlers afterwards.

    Errors after an interrupt, because the JVM has ended too, are not reported.
    """
    came: list[Interrupted] = []

    def interrupt(number: int, _: object) -> NoReturn:
        came.append(Interrupted(number))
        raise came[0]

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        for number, handler in before.items():
            if handler != signal.SIG_IGN:  # ignored by nohup and a shell's `&`
                signal.signal(number, interrupt)
        yield
    except Exception:
        if came:
            raise came[0] from None
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def run(command: click.Command, of_job: object = None) -> None:
    """Run a command; errors that a user can fix become one line on standard error and exit 2.

    `of_job` is what a script of `jobs/` says of itself (`kip33.cli.engine_option.SparkJob`).
    """
    logging.getLogger().addHandler(logging.NullHandler())  # py4j logs traces of an ended JVM
    sys.excepthook = _show_bug
    _require_text(sys.argv[1:])
    try:
        with _interruptible(), guarded_output(), _silent_stores_told():
            sys.exit(command.main(standalone_mode=False, obj=of_job))
    except OutputError as error:
        if error.is_closed:
            sys.exit(error.exit_code)
        _fail(str(error), exit_code=error.exit_code)
    except Interrupted as interrupted:
        _fail(
            f"interrupted by {interrupted}; no file is half-written: run the command again",
            exit_code=interrupted.exit_code,
        )
    except click.Abort:
        _fail("aborted", exit_code=ExitCode.INTERRUPTED)
    except click.ClickException as error:
        _fail(_usage_text(error))
    except Kip33Error as error:
        _fail(_noted(error, str(error)), exit_code=_exit_code_of(error))
    except ImportError as error:  # a library that is damaged, or for which memory is missing
        why = str(error.__cause__ or error).strip().splitlines()[:1]
        what = f"{error.name or 'a library'} cannot be imported: {' '.join(why)}"
        _fail(
            f"{what}; install kip33 again, or allow more memory (ulimit -v)",
            exit_code=ExitCode.INCOMPLETE,
        )
    except MemoryError as error:
        _fail(_of_the_machine(f"{error}" or "no memory is left"), exit_code=ExitCode.INCOMPLETE)
    except OSError as error:  # for example, a missing permission
        if is_of_the_machine(error):
            _fail(_of_the_machine(str(error)), exit_code=ExitCode.INCOMPLETE)
        _fail(f"{error}; fix it and run the command again", exit_code=ExitCode.INCOMPLETE)
    except Exception as error:
        if type(error) is ValueError:  # for a wrong argument; pyarrow's errors are subclasses
            _fail(str(error))
        if _NO_THREAD in str(error):
            _fail(_of_the_machine(str(error)), exit_code=ExitCode.INCOMPLETE)
        if not type(error).__module__.startswith(("py4j", "pyspark")):
            raise  # a bug, for `_show_bug`
        from kip33.spark.tasks import job_failure

        _fail(job_failure(error), exit_code=ExitCode.INCOMPLETE)


def _exit_code_of(error: Kip33Error) -> int:
    """Return the exit code of an error; a store that does not answer is no wrong input."""
    if error.exit_code == ExitCode.USAGE and error.__cause__:
        from kip33.stores.files import is_unreachable

        return ExitCode.INCOMPLETE if is_unreachable(error.__cause__) else ExitCode.USAGE
    return error.exit_code


class ConfigNote(str):
    """A note on an error: which place of a file it is about. Other notes are for programs."""


def _noted(error: Exception, text: str) -> str:
    notes = getattr(error, "__notes__", ())
    return "; ".join((text, *(one for one in notes if isinstance(one, ConfigNote))))


def _origin_of(error: click.BadParameter) -> str:
    """Return which configuration file an option's value is from, if it is from one."""
    context, name = error.ctx, error.param and error.param.name
    config = context.meta.get(CONFIG_META) if context else None
    if (
        context
        and config
        and context.get_parameter_source(name or "") is ParameterSource.DEFAULT_MAP
    ):
        return f" (from {config.path})"
    return ""


_NOT_A_CHOICE: Final = re.compile("'(.*)' is not one of ")


def _usage_text(error: click.ClickException) -> str:
    """Return one line on a wrong command line: what may have been meant, and where the help is."""
    from kip33.rules.policies import nearest

    text, context = error.format_message(), getattr(error, "ctx", None)
    if isinstance(error, click.NoSuchOption) and context:
        shown = (one for one in context.command.params if not getattr(one, "hidden", False))
        names = [name for one in shown for name in one.opts if name.startswith("--")]
        meant = _SYNONYMS.get(error.option_name, error.option_name)
        text = f"No such option {error.option_name!r}{nearest([meant], names)}"
    elif isinstance(error, click.BadParameter) and error.param:
        found = _NOT_A_CHOICE.match(error.message)
        if found and isinstance(error.param.type, click.Choice):
            choices = map(str, error.param.type.choices)
            text = text.rstrip(".") + nearest([found[1]], choices)
        text = text.rstrip(".") + _origin_of(error)
    text = _noted(error, text.rstrip("."))
    if context is None:
        return text
    end = "" if text.endswith("?") else "."
    return f"{text}{end} Try '{context.command_path} --help' for help."


@contextmanager
def _silent_stores_told() -> Iterator[None]:
    """Print a line on each store that does not answer."""
    from kip33.stores.watch import tell_of_silence

    def tell(line: str) -> None:
        with suppress(OSError):
            click.echo(line, err=True)

    with tell_of_silence(tell):
        yield


def _of_the_machine(what: str) -> str:
    """Return one line on a command that this machine's limits ended."""
    return (
        f"{what}: this machine does not give the command enough memory, threads or open files; no "
        "file is half-written: give fewer --workers, or raise the limits (ulimit -v, -u, -n), and "
        "run the command again"
    )


def _fail(message: str, *, exit_code: int = ExitCode.USAGE) -> NoReturn:
    click.echo(escaped("Error: " + " ".join(without_secrets(message).split())), err=True)
    sys.exit(exit_code)


def _show_bug(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print one line on a bug, and write its trace to a new file: `sys.excepthook`.

    Both are without keys in URIs. The trace is printed if the file cannot be written, and for an
    interrupt while Python starts or ends, which is no bug.
    """
    lines = traceback.format_exception(kind, error, trace)
    text = printable(without_secrets("".join(lines)))
    if not isinstance(error, Exception):
        click.echo(text, nl=False, err=True)
        return
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="kip33-trace-", suffix=".txt", encoding="utf-8", delete=False
        ) as file:
            file.write(text)
    except OSError:
        click.echo(text, nl=False, err=True)
        return
    frames = traceback.extract_tb(trace)
    own = [one for one in frames if Path(one.filename).is_relative_to(_PACKAGE)] or frames
    place = f" ({Path(own[-1].filename).name}:{own[-1].lineno})" if own else ""
    what = " ".join(without_secrets(f"{kind.__name__}: {error}").split())
    click.echo(
        escaped(
            f"Error: kip33 itself failed: {what}{place}; nothing of it is an answer; please report "
            f"it with the trace in {file.name}"
        ),
        err=True,
    )


def _require_text(arguments: Sequence[str]) -> None:
    """End the command, one line, for an argument that is not UTF-8: it may be written to files."""
    for argument in arguments:
        try:
            argument.encode()
        except UnicodeEncodeError:
            _fail(f"{argument!a}: the argument is not UTF-8; give names and values in UTF-8")


def main() -> None:
    """Run `kip33`: the console script. A shell that completes gets its answer, or nothing."""
    if COMPLETION_VARIABLE in os.environ:
        with suppress(Exception):
            kip33.main(prog_name="kip33", complete_var=COMPLETION_VARIABLE)
        return
    run(kip33)
