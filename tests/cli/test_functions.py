"""`import kip33` does what the commands do, without Spark: one way through, two ways to ask."""

import inspect
import json
import re
import shutil
import sys
import typing
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import kip33
import kip33.spark
from kip33.cli.main import get_command
from kip33.cli.output import without_sentinels
from kip33.drafts.designs import DESIGNS
from kip33.errors import RestoreError
from kip33.records.reading import Isolation, Level
from kip33.records.record_request import OnError
from kip33.restore import restore_apply
from kip33.rules.index_entries import DIALECTS
from kip33.rules.untimestamped import RULES
from kip33.stores import own_files
from tests.cases import rows_in_ms
from tests.cli.command_lines import CATALOG
from tests.cli.console import Command, subprocess_of


@pytest.fixture
def folder(tmp_path: Path, built: Path, command: Command) -> Path:
    """The working directory of `command`, with an archive of its own, its indexes and catalog."""
    (tmp_path / "archive").unlink()
    shutil.copytree(built, tmp_path, dirs_exist_ok=True)
    (tmp_path / "data").mkdir()
    return tmp_path


class Same(NamedTuple):
    """A command, and the call that does the same to copies; `{}` is the folder that both write."""

    command: tuple[str, ...]
    call: Callable[[str], Any]


def _built(here: str) -> Any:
    return vars(kip33.build_index("archive", here, topics=["orders", "clicks"], offset_index=True))


def _verdicts(table: Any) -> Any:
    return {"verdicts": table.to_pylist()}


def _catalog() -> kip33.OpenedCatalog:
    return kip33.open_catalog(CATALOG)


def _counted(per: str, **options: Any) -> Any:
    return {"counts": rows_in_ms(kip33.count_records(CATALOG, per, **options))}


def _compared(**options: Any) -> Any:
    return {"dialects": rows_in_ms(kip33.compare_dialects("archive", **options))}


def _rolled(table: Any) -> Any:
    return {"segments": [*map(without_sentinels, rows_in_ms(table))]}


def _repaired(here: str, *, apply: bool) -> Any:
    shutil.copytree("archive", f"{here}/logs")
    summary = kip33.repair(f"{here}/logs/broker-2", apply=apply, topics=("!metrics",))
    return summary.as_record() | {"repairs": summary.table().to_pylist()}


def _restored(here: str, *, dry_run: bool) -> Any:
    how = {"topics": ["orders", "clicks"], "partitions": [0, 1], "from_": "2023-11-15T12:00Z"}
    done = kip33.restore_archive("indexes/_catalog", here, **how, allow_cut=True, dry_run=dry_run)
    return done.as_record()


INDEXED = "indexes/broker-1/payments-0/00000000000000000000.timeindex"


def _segments(**which: Any) -> Any:
    columns = ["log_uri", "status", "error"]
    return kip33.open_catalog(CATALOG).segments(columns=columns, **which).to_pylist()


RESTORE = (
    *("restore", "indexes/_catalog", "--to", "{}", "--partitions", "0-1"),
    *("--topic", "orders", "--topic", "clicks", "--from", "2023-11-15T12:00Z"),
    "--allow-cut",
)
REPAIR = ("repair", "{}/logs/broker-2", "--topic", "!metrics")
BUILD = ("build", "archive", "--index-dir", "{}", "--offset-index", "--topic", "orders")
REPORT = ("report", "indexes/_catalog", "--output", "{}/page.html")
SAME = {
    "build": Same((*BUILD, "--topic", "clicks"), _built),
    "verify": Same(
        ("verify", "archive", "--index-dir", "indexes", "--topic", "!metrics"),
        lambda _: _verdicts(kip33.verify_index("archive", "indexes", topics=["!metrics"])),
    ),
    "verify quick": Same(
        ("verify", "quick", "archive", "--index-dir", "{}"),
        lambda here: {"not_identical": kip33.verify_quick("archive", here).to_pylist()},
    ),
    "verify a share": Same(
        ("verify", "archive", "--share", "2/3", "--as-of", "2024-05-01"),
        lambda _: _verdicts(kip33.verify_index("archive", share="2/3", as_of="2024-05-01")),
    ),
    "retention apply": Same(
        ("retention", "apply", "plan.jsonl", "--dry-run"),
        lambda _: {
            "partitions": [one._asdict() for one in kip33.apply_plan("plan.jsonl").partitions]
        },
    ),
    "retention undo": Same(
        ("retention", "undo", "plan.jsonl", "--trash", "{}/trash", "--dry-run"),
        lambda here: {
            "partitions": [
                one._asdict() for one in kip33.undo_plan("plan.jsonl", f"{here}/trash").partitions
            ]
        },
    ),
    "repair": Same(REPAIR, lambda here: _repaired(here, apply=False)),
    "repair --apply": Same((*REPAIR, "--apply"), lambda here: _repaired(here, apply=True)),
    "restore": Same(RESTORE, lambda here: _restored(here, dry_run=False)),
    "restore --dry-run": Same((*RESTORE, "--dry-run"), lambda here: _restored(here, dry_run=True)),
    "roll": Same(
        ("roll", CATALOG, "--segment-ms", "1h", "--read-headers", "--topic", "orders"),
        lambda _: _rolled(_catalog().roll(segment_ms="1h", read_headers=True, topics=["orders"])),
    ),
    "roll what-if": Same(
        ("roll", "what-if", CATALOG, "--retention-ms", "1d", "--topic", "payments"),
        lambda _: _rolled(_catalog().roll_what_if(retention_ms="1d", topics=["payments"])),
    ),
    "dump": Same(
        ("dump", INDEXED),
        lambda _: {"rows": [{"file": INDEXED} | row for row in kip33.dump_log(INDEXED)]},
    ),
    "catalog segments": Same(
        ("catalog", "segments", CATALOG, "--topic", "!orders", "--status", "truncated"),
        lambda _: {"segments": _segments(topics=["!orders"], statuses=["truncated"])},
    ),
    "catalog holes": Same(
        ("catalog", "holes", CATALOG, "--topic", "!sensors"),
        lambda _: {"holes": kip33.open_catalog(CATALOG).holes(topics=["!sensors"]).to_pylist()},
    ),
    "catalog orphans": Same(
        ("catalog", "orphans", CATALOG),
        lambda _: {"leftovers": rows_in_ms(kip33.open_catalog(CATALOG).orphans())},
    ),
    "catalog prune": Same(
        ("catalog", "prune", CATALOG, "--keep", "1"),
        lambda _: {"removed": kip33.open_catalog(CATALOG).prune(keep=1).to_pylist()},
    ),
    "timestamps": Same(
        ("timestamps", CATALOG, "--topic", "orders", "--clock", "now", "--now", "2023-12-01"),
        lambda _: {
            "timestamps": rows_in_ms(
                kip33.timestamp_profile(CATALOG, topics=["orders"], clock="now", now="2023-12-01")
            )
        },
    ),
    "count": Same(
        ("count", CATALOG, "--per", "1h", "--topic", "orders", "--from", "2023-11-15"),
        lambda _: _counted("1h", topic="orders", start_time="2023-11-15"),
    ),
    "dialects": Same(
        ("dialects", "archive", "--topic", "orders", "--targets", "3", "--dialect", "bucket"),
        lambda _: _compared(topics=["orders"], targets=3, dialects=["bucket"]),
    ),
    "report": Same(
        (*REPORT, "--retention-ms", "7d", "--now", "2023-12-01"),
        lambda here: kip33.write_report(
            "indexes/_catalog", f"{here}/page.html", retention_ms="7d", now="2023-12-01"
        ).as_record(),
    ),
    "status": Same(
        ("status", CATALOG, "--retention-ms", "7d", "--now", "2023-12-01"),
        lambda _: kip33.archive_status(CATALOG, retention_ms="7d", now="2023-12-01").as_record(),
    ),
}
OF_THE_RUN = {"engine", "workers", "seconds", "free_bytes"}


def told(answer: dict[str, Any], folder: str) -> dict[str, Any]:
    """Return an answer as JSON has it, without what differs between two runs."""
    text = json.dumps({name: one for name, one in answer.items() if name not in OF_THE_RUN})
    text = re.sub(r"(\d{20})-[0-9a-f]{12}", r"\1", text.replace(f"/{folder}", "/HERE"))
    found: dict[str, Any] = json.loads(text)
    return found


def files_of(folder: Path) -> dict[str, int]:
    """Return the names and sizes of files; those of catalogs and journals have ids in them."""
    names = (path for path in folder.rglob("*") if path.is_file() and "_catalog" not in path.parts)
    return {str(path.relative_to(folder)): path.stat().st_size for path in names}


def test_a_function_gives_and_writes_what_its_command_does(
    folder: Path, command: Command, subtests: pytest.Subtests
) -> None:
    for name, same in SAME.items():
        with subtests.test(name):
            for here in ("asked", "called"):
                shutil.rmtree(here, ignore_errors=True)
                Path(here).mkdir()
                if name == "verify quick":
                    kip33.build_index("archive", here)
                    next(Path(here).rglob("*.timeindex")).unlink()
            if name == "retention apply":
                week = {"defaults": {"retention.ms": "7d", "cleanup.policy": "delete"}}
                opened = kip33.open_catalog("indexes/_catalog")
                kip33.write_plan(opened.plan_retention(week, now="2023-12-01"), "plan.jsonl")
            if name == "retention undo":
                kip33.apply_plan("plan.jsonl", trash="asked/trash", dry_run=False)
                shutil.copytree("asked/trash", "called/trash")
            if name.startswith("repair"):
                shutil.copytree("archive", "asked/logs")
            words = [word.replace("{}", "asked") for word in same.command]
            by_command = command(*words, "--format", "json")
            assert by_command.exit_code in (0, 1), by_command.stderr
            (asked,) = by_command.lines
            called = told(same.call("called"), "called")
            expected = told(asked, "asked")
            assert called == {key: expected[key] for key in called}
            assert files_of(folder / "called").keys() == files_of(folder / "asked").keys()
            if name == "retention undo":
                kip33.undo_plan("plan.jsonl", "asked/trash", dry_run=False)
                for mark in Path("indexes/_catalog/commits").glob("*.changed"):
                    mark.unlink()  # all files are in their places again
            if name.startswith(("build", "repair", "restore")):
                assert called.keys() == expected.keys()


OF_THE_COMMAND = {
    *("format", "times", "summary", "result_line", "fail_on"),
    *("metrics", "metrics_by", "metrics_limit"),
    *("engine", "verbose", "master", "conf", "config", "guard_formulas"),
}
OTHER_NAMES = {
    ("build", "only"): "only_damaged",
    ("restore", "from"): "from_",
    ("report", "catalog_dir"): "catalog",
    ("status", "catalog_dir"): "catalog",
    ("count", "topic"): "topic",
    ("count", "from"): "start_time",
    ("count", "until"): "end_time",
    ("retention apply", "plan_file"): "plan",
    ("retention undo", "plan_file"): "plan",
    ("dialects", "dialect"): "dialects",
    ("dialects", "time_index_interval"): "interval_ms",
    ("timestamps", "policy"): "policies",
    ("timestamps", "message_timestamp_before_max_ms"): "before_max_ms",
    ("timestamps", "message_timestamp_after_max_ms"): "after_max_ms",
    ("timestamps", "message_timestamp_difference_max_ms"): "difference_max_ms",
    ("roll", "source"): "catalog",
    ("roll", "policy"): "policies",
    ("roll what-if", "source"): "catalog",
    ("roll what-if", "policy"): "policies",
    ("search", "as"): "as_kafka",
    ("search", "catalog_dir"): "catalog",
    ("lag", "policy"): "policies",
    ("failover", "to"): "other",
    ("failover", "buffer"): "buffer_ms",  # a number, or `auto`
    ("dump", "files"): "file",
    ("catalog segments", "status"): "statuses",
    ("catalog holes", "policy"): "policies",
}
PLACES = {"catalog_dir", "remote_dir", "from"}  # what was opened
OF_REQUESTS = {"time", "partition", "topics", "now"}  # a program makes tuples of them
OF_POLICIES = {"kafka_configs", "retention_ms"}  # of `policies`, an object
NOT_TAKEN = {
    "restore": {"abandon", "other_source"},  # kip33.abandon_restore; a list of two sources
    "search": PLACES | OF_REQUESTS | {"workers"},  # threads of the process
    "OpenedCatalog.offsets_for_times": {"catalog", "emit", "allow_unsafe"},
    "OpenedCatalog.offsets_to_emit": {"catalog", "until"},
    "OpenedTiers.offsets_for_times": {"catalog", "emit", "allow_unsafe", "snapshot"},
    "OpenedTiers.offsets_to_emit": {"catalog", "until", "snapshot"},
    "offsets_for_times": {"emit", "allow_unsafe", "until", "snapshot"},  # a query can go on
    "roll": {"layout", "now"} | OF_POLICIES,  # a catalog is taken; `now` is of the summary
    "OpenedCatalog.roll": {"catalog"},
    "audit_roll": {"snapshot", "topics", "read_headers", "parallelism"},  # of rows; no log is read
    "roll what-if": {"catalog", "layout", "kafka_configs"},
    "count": {"remote"},  # `open_catalog` takes both tiers
    "timestamps": {"kafka_configs"},
    "lag": PLACES | OF_POLICIES,
    "failover": PLACES | {"emit"},  # two methods
}
OF_A_PROGRAM = {"on_progress", "on_record", "storage_options", "filesystem"}
OF_A_CATALOG = {"self", "catalog_dir", "remote_dir", "columns"}  # a method reads the one it is of
OF_TWO = {"snapshot"}  # the newest one of each
OF_SPARK = {"spark", "now_ms"}  # of the session; a job of Spark reads no clock


def test_the_functions_have_the_options_of_their_command(subtests: pytest.Subtests) -> None:
    for name, function in [
        ("build", kip33.build_index),
        ("build", kip33.spark.build_index),
        ("verify", kip33.verify_index),
        ("verify", kip33.spark.verify_index),
        ("verify quick", kip33.verify_quick),
        ("verify quick", kip33.spark.verify_quick),
        ("repair", kip33.repair),
        ("restore", kip33.restore_archive),
        ("retention apply", kip33.apply_plan),
        ("retention undo", kip33.undo_plan),
        ("report", kip33.write_report),
        ("status", kip33.archive_status),
        ("search", kip33.OpenedCatalog.offsets_for_times),
        ("search", kip33.OpenedCatalog.offsets_to_emit),
        ("search", kip33.OpenedTiers.offsets_for_times),
        ("search", kip33.OpenedTiers.offsets_to_emit),
        ("search", kip33.spark.offsets_for_times),
        ("lag", kip33.OpenedCatalog.group_lags),
        ("failover", kip33.OpenedCatalog.resume_points),
        ("failover", kip33.OpenedCatalog.offsets_to_resume),
        ("dump", kip33.dump_log),
        ("catalog segments", kip33.OpenedCatalog.segments),
        ("catalog segments", kip33.OpenedTiers.segments),
        ("catalog holes", kip33.OpenedCatalog.holes),
        ("catalog holes", kip33.OpenedTiers.holes),
        ("catalog prune", kip33.OpenedCatalog.prune),
        ("count", kip33.count_records),
        ("dialects", kip33.compare_dialects),
        ("timestamps", kip33.timestamp_profile),
        ("timestamps", kip33.spark.timestamp_profile),
        ("roll", kip33.OpenedCatalog.roll),
        ("roll", kip33.spark.audit_roll),
        ("roll what-if", kip33.OpenedCatalog.roll_what_if),
    ]:
        is_of_spark = function.__module__.startswith("kip33.spark")
        with subtests.test(name, is_of_spark=is_of_spark):
            not_taken = OF_THE_COMMAND | NOT_TAKEN.get(name, set())
            not_taken |= NOT_TAKEN.get(function.__qualname__, set())
            not_taken |= {"workers", "now"} if is_of_spark else set()
            not_taken |= OF_TWO if "OpenedTiers" in function.__qualname__ else set()
            parameters = inspect.signature(function).parameters
            taken = parameters.keys() - OF_A_PROGRAM - OF_SPARK - OF_A_CATALOG
            assert taken == {*options_of(name)} - not_taken - OF_A_CATALOG
            keywords = [one for one in parameters.values() if one.kind is one.KEYWORD_ONLY]
            assert len(parameters) - len(keywords) <= 3


OF_FILES = {"catalog_dir", "policy", "kafka_configs", "output", "emit", "plan", "workers"}
OF_A_DATAFRAME = {"catalog", "policies", "boundary"}  # it names no snapshot, tier or archive
NOT_OF_A_DATAFRAME = {
    *("at", "forecast"),  # kip33.spark.freed_by
    *("now", "other", "snapshot", "topics", "broker_version", "trust_last_modified"),
}


def test_retention_has_the_options_of_its_command_in_python_and_spark() -> None:
    asked = {*options_of("retention")} - OF_THE_COMMAND - OF_FILES
    opened = kip33.OpenedCatalog
    methods = (
        *(opened.retention, opened.retention_sums, opened.plan_retention),
        opened.records_to_delete,
    )
    taken = {name for one in methods for name in inspect.signature(one).parameters}
    assert taken - {"self", "policies"} == asked
    of_spark = inspect.signature(kip33.spark.evaluate_retention).parameters.keys()
    assert of_spark - OF_A_DATAFRAME - OF_SPARK == asked - NOT_OF_A_DATAFRAME


def options_of(name: str) -> Iterator[str]:
    """Yield the options and arguments of a command, by the keywords of its function."""
    command, _, mode = name.partition(" ")
    of_name = get_command(command)
    for parameter in (of_name.modes[mode] if mode else of_name).params:
        if getattr(parameter, "hidden", False):
            continue
        words = [form.lstrip("-") for form in parameter.opts if len(form) > 2] or [""]
        word = words[0].removeprefix("no-").replace("-", "_")
        yield OTHER_NAMES.get((name, word), "topics" if word == "topic" else word)


PROGRAM = """
import sys
from kip33.demo import make_archive
from pathlib import Path
import kip33

make_archive(Path("archive"))
Path("data").mkdir()
kip33.build_index("archive", "indexes", workers=2)
kip33.verify_index("archive", "indexes")
kip33.repair("archive/broker-1", apply=True)
kip33.restore_archive("archive", "data", topics=["orders"])
kip33.write_report("indexes/_catalog", "report.html")
print(*{name.partition(".")[0] for name in sys.modules} & {"pyspark", "py4j", "click"})
"""


def test_nothing_of_spark_or_the_commands_is_imported(tmp_path: Path) -> None:
    done = subprocess_of(sys.executable, "-c", PROGRAM, cwd=tmp_path)
    assert (done.exit_code, done.stdout) == (0, "\n"), done.stderr


def test_a_type_checker_knows_the_names_that_a_parameter_takes() -> None:
    for function, parameter, names in (
        (kip33.build_index, "dialect", DESIGNS),
        (kip33.build_index, "untimestamped", RULES),
        (kip33.build_index, "read", ["log", "tail"]),
        (kip33.verify_index, "dialect", DIALECTS),
        (kip33.verify_segment, "dialect", DIALECTS),
        (kip33.read_arrow, "level", Level),
        (kip33.read_arrow, "isolation", Isolation),
        (kip33.read_arrow, "on_error", OnError),
        (kip33.spark.build_index, "dialect", DESIGNS),
    ):
        annotation = inspect.signature(function).parameters[parameter].annotation
        assert list(typing.get_args(annotation)) == [*names], (function, parameter)


class Stop(BaseException):
    """Stands for Ctrl-C: a KeyboardInterrupt would end the tests."""


CALLS = {
    "build": lambda **how: kip33.build_index("archive", "other", offset_index=True, **how),
    "verify": lambda **how: kip33.verify_index("archive", "indexes", **how),
    "repair": lambda **how: kip33.repair("archive/broker-1", apply=True, **how),
    "restore": lambda **how: kip33.restore_archive("archive", "data", topics=["orders"], **how),
    "report": lambda **how: kip33.write_report("indexes/_catalog", "report.html", **how),
}


def progress_of(call: Callable[..., Any]) -> list[kip33.Progress]:
    told: list[kip33.Progress] = []
    call(on_progress=told.append)
    return told


def test_progress_is_told_as_plain_values_up_to_the_end(
    folder: Path, subtests: pytest.Subtests
) -> None:
    for name in CALLS:
        with subtests.test(name):
            told = progress_of(CALLS[name])
            assert told
            assert all(isinstance(one, kip33.Progress) for one in told)
            counted = [one for one in told if one.total is not None]
            assert bool(counted) == (name != "report")  # one step, without numbers
            assert all(one.done == one.total for one in counted[-1:])


def test_a_restore_that_a_program_began_is_completed_by_the_command(
    folder: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object) -> None:
        raise Stop

    with monkeypatch.context() as patched, pytest.raises(Stop):
        patched.setattr(restore_apply, "complete", stop)
        _restored("data", dry_run=False)
    with pytest.raises(RestoreError, match="was begun and has not ended"):
        kip33.restore_archive("archive", "data", topics=["orders"])
    done = command(*(word.replace("{}", "data") for word in RESTORE), "--format", "json")
    assert done.exit_code == 0, done.stderr
    assert done.lines[0]["notes"][0].startswith("continues the restore that was begun with SOURCE")


def test_a_build_without_flushing_is_the_only_one(folder: Path, subtests: pytest.Subtests) -> None:
    for ends in ("well", "by an interrupt"):
        with subtests.test(ends):
            was_on: list[bool] = []

            def tell(_: kip33.Progress, was_on: list[bool] = was_on, ends: str = ends) -> None:
                was_on.append(own_files.is_flushing())
                if ends != "well" and not was_on[-1]:
                    raise Stop

            with suppress(Stop):
                kip33.build_index("archive", "other", fsync=False, full=True, on_progress=tell)
            assert False in was_on
            assert own_files.is_flushing()


def test_an_integer_that_may_be_seconds_is_refused_with_both_readings(
    folder: Path, subtests: pytest.Subtests
) -> None:
    seconds = 1_700_003_600
    catalog = kip33.open_catalog(CATALOG)
    log = "archive/broker-1/orders-0"
    calls: dict[str, Callable[[], object]] = {
        "find_offset": lambda: kip33.find_offset(log, seconds),
        "offsets_for_times": lambda: catalog.offsets_for_times([("orders", 0, seconds)]),
        "read_arrow from": lambda: kip33.read_arrow("archive", start_time=seconds, on_error="row"),
        "read_arrow until": lambda: kip33.read_arrow("archive", end_time=seconds, on_error="row"),
        "scan_polars": lambda: kip33.scan_polars("archive", start_time=seconds, on_error="row"),
        "retention": lambda: catalog.retention(kip33.Policies(), now=seconds),
        "restore from": lambda: kip33.restore_archive("archive", "data", from_=seconds),
        "restore until": lambda: kip33.restore_archive("archive", "data", until=seconds),
        "verify": lambda: kip33.verify_index("archive", share="1/7", as_of=seconds),
        "a time index": lambda: kip33.TimeIndex.from_bytes(b"", base_offset=0).lookup(seconds),
    }
    for name, call in calls.items():
        with (
            subtests.test(name),
            pytest.raises(ValueError, match=r"milliseconds it is 1970-01-20.* seconds 2023-11-14"),
        ):
            call()


def test_a_wrong_argument_is_a_public_error(folder: Path, subtests: pytest.Subtests) -> None:
    restored, reported = kip33.restore_archive, kip33.write_report
    catalog, both = "indexes/_catalog", {"policy": kip33.Policies(), "retention_ms": 5}
    searched = kip33.open_catalog(catalog).offsets_for_times
    for call, error, words in [
        (lambda: kip33.build_index("nowhere", "i"), kip33.LocationError, "nowhere"),
        (
            lambda: kip33.build_index("archive", "i", full="no"),
            ValueError,
            "expected True or False",
        ),
        (lambda: kip33.read_arrow("archive", start_offset="5"), ValueError, "expected a number"),
        (lambda: kip33.read_arrow("archive", partition="0"), ValueError, "such as [0]"),
        (
            lambda: searched(("orders", 0, 5)),
            ValueError,
            "'orders': expected (topic, partition, ti",
        ),
        (lambda: searched([("orders", "0", 5)]), ValueError, "partition '0': expected a number"),
        (lambda: kip33.build_index("archive"), ValueError, "give an index directory"),
        (lambda: kip33.build_index("archive", flush=False), TypeError, "build_index() got an unex"),
        (lambda: kip33.build_index("archive", "i", layout="x"), ValueError, "layout 'x': expected"),
        (lambda: kip33.verify_index("archive", as_of=0), ValueError, "as_of requires share"),
        (lambda: kip33.verify_index("archive", share="9/7"), ValueError, "expected a share"),
        (lambda: kip33.repair("s3://bucket/logs"), kip33.LocationError, "on this machine"),
        (lambda: restored("archive", "s3://bucket/l"), kip33.Kip33Error, "s3a://bucket/l"),
        (lambda: restored("archive", "data", truncate=True), ValueError, "truncate is for"),
        (lambda: kip33.write_record_file("archive", "r.csv", limit=-1), ValueError, "limit -1:"),
        (lambda: restored("archive", "data", from_=-1), ValueError, "not before 1970"),
        (lambda: kip33.abandon_restore("indexes"), kip33.RestoreError, "no restore was begun"),
        (lambda: reported(catalog, "r.txt"), ValueError, "ends in .html"),
        (lambda: reported("archive", "r.html"), kip33.CatalogError, "archive"),
        (lambda: reported(catalog, "r.html", **both), ValueError, "leave out kafka_configs and"),
    ]:
        with subtests.test(words), pytest.raises(error, match=re.escape(words)):
            call()
