"""`--engine`: which engine does the work, why, and that the two give the same."""

import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from pyspark import SparkConf

import kip33
from kip33.cli.engine_option import (
    ENGINE_VARIABLE,
    EngineOptions,
    SparkJob,
    engine_choice,
    open_session,
)
from kip33.cli.main import get_command
from kip33.cli.options import engine_options, session_options
from kip33.spark.session import is_yarn_driver
from tests.cli.console import PROJECT, Command, Finished, subprocess_of

Ask = Callable[..., tuple[str, str]]
COMMANDS_OF_JOBS = ("build", "verify", "search", "retention", "lag", "failover", "timestamps")
STARTS = "STARTS_A_SESSION"
NOT_OF_THE_WORK = ("snapshot", "catalog", "engine", "workers", "seconds")


@click.command()
@engine_options
@session_options
def asking(engine: str, workers: int | None, verbose: bool, master: Any, conf: Any) -> None:
    options = EngineOptions(engine, workers, verbose, master, conf)
    choice = engine_choice(options)
    click.echo(f"{choice.name}|{choice.why}")
    if STARTS in os.environ and choice.name == "spark":
        open_session(options)


@pytest.fixture
def ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ask:
    """Return a function that gives the engine and why, with no master configured anywhere."""
    names = (ENGINE_VARIABLE, "PYSPARK_GATEWAY_PORT", "SPARK_MASTER", "SPARK_REMOTE")
    for name in (*names, "SPARK_CONF_DIR", "SPARK_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("kip33.cli.engine_option._has_session", lambda: False)
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str, of_job: object = None, **environment: str) -> tuple[str, str]:
        done = CliRunner().invoke(asking, arguments, obj=of_job, env=environment)
        assert done.exit_code == 0, done.output
        name, _, why = done.stdout.strip().partition("|")
        return name, why

    return run


@pytest.fixture
def started(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, str]]:
    """Return the settings of sessions, which are started but for Spark's own part."""
    found: list[dict[str, str]] = []
    monkeypatch.setattr(
        "pyspark.sql.SparkSession.Builder.getOrCreate",
        lambda builder: found.append(dict(builder._options)),
    )
    monkeypatch.setattr("kip33.spark.session._start_jvm", lambda settings: None)
    monkeypatch.setattr("kip33.spark.session.use_session", lambda session: None)
    monkeypatch.setenv(STARTS, "1")
    return found


def master_of(settings: dict[str, str]) -> str | None:
    """Return the only master; Spark refuses two."""
    found = [settings[key] for key in ("spark.master", "spark.remote") if key in settings]
    assert len(found) < 2
    return found[0] if found else None


def test_without_a_word_of_spark_it_is_this_machine(ask: Ask) -> None:
    assert ask() == ("local", "no Spark master is configured")


LOCAL_HOST = "127.0.0.1"


@pytest.mark.spark  # needs Java
def test_spark_is_taken_where_the_user_says_so_and_runs_there(
    ask: Ask, started: list[dict[str, str]], subtests: pytest.Subtests
) -> None:
    for arguments, environment, why, master, host in [
        ([], {"PYSPARK_GATEWAY_PORT": "4711"}, "spark-submit started this", None, None),
        (["--master", "local[2]"], {}, "--master is given", "local[2]", LOCAL_HOST),
        ([], {"SPARK_MASTER": "spark://h:7077"}, "SPARK_MASTER is set", "spark://h:7077", None),
        ([], {"SPARK_REMOTE": "sc://host"}, "SPARK_REMOTE is set", "sc://host", None),
        (["--conf", "spark.master=yarn"], {}, "--conf has spark.master", "yarn", None),
        (["--conf", "spark.remote=sc://h"], {}, "--conf has spark.remote", "sc://h", None),
        (["--engine", "spark"], {}, "--engine asks for it", "local[*]", LOCAL_HOST),
        ([], {ENGINE_VARIABLE: "spark"}, "KIP33_ENGINE asks for it", "local[*]", LOCAL_HOST),
        (["--master", "yarn"], {"SPARK_REMOTE": "sc://h"}, "--master is given", "yarn", None),
    ]:
        with subtests.test(f"{arguments}"):
            assert ask(*arguments, **environment) == ("spark", why)
            [settings] = started
            started.clear()
            assert (master_of(settings), settings.get("spark.driver.host")) == (master, host)


def test_a_driver_on_yarn_is_known_by_its_settings() -> None:
    for master, mode, is_one in [
        ("yarn", "cluster", True),
        ("yarn", "client", False),
        ("yarn", "", False),
        ("k8s://host", "cluster", False),
    ]:
        conf = SparkConf(loadDefaults=False).set("spark.master", master)
        assert is_yarn_driver(conf.set("spark.submit.deployMode", mode)) is is_one
    assert not is_yarn_driver(SparkConf(loadDefaults=False))


@pytest.mark.spark
def test_on_yarn_every_job_starts_its_session_first(
    started: list[dict[str, str]],
    spark: Any,
    monkeypatch: pytest.MonkeyPatch,
    subtests: pytest.Subtests,
) -> None:
    """YARN reports a job as failed that ends without a SparkContext, or starts it too late."""
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "4711")
    monkeypatch.setenv("CONTAINER_ID", "container_1_1_01_000001")
    for name in COMMANDS_OF_JOBS:
        for is_waiting in [True, False]:
            with subtests.test(f"{name}, {is_waiting}"):
                started.clear()
                monkeypatch.setattr(
                    "kip33.spark.session.is_yarn_driver", lambda conf, found=is_waiting: found
                )
                CliRunner().invoke(get_command(name), ["--conf", "a.b=c"], obj=SparkJob())

                assert [settings["a.b"] for settings in started] == (["c"] if is_waiting else [])


def test_a_submitted_job_with_nothing_to_do_imports_neither_pyspark_nor_pandas(
    archive: Path, tmp_path: Path
) -> None:
    made = (str(archive), "--index-dir", str(tmp_path / "indexes"))
    kip33.build_index(archive, tmp_path / "indexes")

    done = subprocess_of(
        *(sys.executable, "-X", "importtime", PROJECT / "jobs" / "run_kip33.py", "build", *made),
        cwd=tmp_path,
        PYSPARK_GATEWAY_PORT="1",  # of spark-submit: nothing answers there
    )

    assert done.exit_code == 0, done.stderr[-2000:]
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "kip33.spark.spark_engine" in imported
    assert not {"pyspark", "py4j", "pandas.core", "numba"} & imported


def test_every_script_of_jobs_is_a_spark_job(subtests: pytest.Subtests) -> None:
    for script in sorted((PROJECT / "jobs").glob("*.py")):
        with subtests.test(f"{script}"):
            assert re.search(r"\brun\([^\n]+, SparkJob\(\)\)", script.read_text())


def test_a_master_in_spark_defaults_is_one(tmp_path: Path, ask: Ask) -> None:
    for variable, folder in (("SPARK_CONF_DIR", tmp_path / "a"), ("SPARK_HOME", tmp_path / "b")):
        settings = folder / ("conf" if variable == "SPARK_HOME" else "") / "spark-defaults.conf"
        settings.parent.mkdir(parents=True)
        settings.write_text("spark.eventLog.enabled false\n")
        assert ask(**{variable: str(folder)})[0] == "local"

        settings.write_text("spark.master  yarn\n")
        found = ask(**{variable: str(folder)})
        assert found == ("spark", "spark-defaults.conf has spark.master")


def test_an_active_session_is_used(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    import pyspark.sql  # noqa: F401 - it is looked for where it has been imported

    monkeypatch.setattr("kip33.cli.engine_option._has_session", lambda: True)

    assert ask() == ("spark", "a Spark session is active")


def test_a_script_of_jobs_is_a_spark_job_unless_told_otherwise(ask: Ask) -> None:
    assert ask(of_job=SparkJob()) == ("spark", "this is a Spark job")
    assert ask("--engine", "local", of_job=SparkJob()) == ("local", "--engine asks for it")


def test_local_is_taken_where_it_is_asked_for(tmp_path: Path, ask: Ask) -> None:
    (tmp_path / "kip33.toml").write_text("engine = 'local'\nmaster = 'yarn'\n")

    assert ask("--engine", "local", SPARK_MASTER="yarn")[0] == "local"
    assert ask(KIP33_ENGINE="local", SPARK_MASTER="yarn") == ("local", "KIP33_ENGINE asks for it")
    assert ask("--config", "kip33.toml") == ("local", "--config asks for it")
    assert ask("--conf", "a.b=c", KIP33_ENGINE="local") == ("local", "KIP33_ENGINE asks for it")
    assert ask("--config", "kip33.toml", "--engine", "spark") == ("spark", "--engine asks for it")


def test_a_typed_master_is_used_whatever_engine_the_environment_or_a_file_asks_for(
    tmp_path: Path, ask: Ask
) -> None:
    (tmp_path / "kip33.toml").write_text("engine = 'local'\nconf = ['spark.master=local[1]']\n")
    for typed in (["--master", "yarn"], ["--conf", "spark.master=yarn"]):
        given = f"{' '.join(typed).removesuffix('=yarn').removesuffix(' yarn')} is given"
        assert ask(*typed, "--config", "kip33.toml") == ("spark", given)
        assert ask(*typed, KIP33_ENGINE="local") == ("spark", given)


def test_spark_defaults_that_cannot_be_read_do_not_stop_local_work(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "spark-defaults.conf").write_text("spark.master \\uXYZ\n")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    monkeypatch.delenv(ENGINE_VARIABLE)
    monkeypatch.delenv("SPARK_MASTER", raising=False)
    monkeypatch.setattr("kip33.cli.engine_option._has_session", lambda: False)
    build = ("build", "archive", "--index-dir", "indexes")

    refused = command(*build)
    built = command(*build, "--engine", "local")

    assert (refused.exit_code, refused.stderr.count("\n")) == (2, 1)
    assert refused.stderr.endswith("; fix this line, or give --engine local\n")
    assert built.exit_code == 0


def test_what_contradicts_itself_is_wrong_usage(ask: Ask, subtests: pytest.Subtests) -> None:
    for arguments, said in [
        (["--engine", "local", "--conf", "spark.master=yarn"], "--conf spark.master is for Spark"),
        (["--engine", "local", "--master", "yarn"], "--master is for Spark"),
        (["--engine", "spark", "--workers", "2"], "--workers is for the local engine"),
        (["--master", "yarn", "--workers", "2"], "this runs on Spark: --master is given"),
        (["--workers", "0"], "0 is not in the range"),
        (["--engine", "dask"], "'dask' is not one of"),
    ]:
        with subtests.test(f"{arguments}"):
            done = CliRunner().invoke(asking, arguments)

            assert done.exit_code == 2
            assert said in done.output


def test_v_says_which_engine_and_why(command: Command, tmp_path: Path) -> None:
    done = command("build", "archive", "--index-dir", "indexes", "-v")

    assert done.stderr == "Engine: local, because KIP33_ENGINE asks for it\n"
    assert "│ engine        │ local, 1 worker" in done.stdout


def test_a_few_searches_say_that_they_need_no_spark(
    command: Command, no_spark: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert command("build", "archive", "--index-dir", "indexes").exit_code == 0
    monkeypatch.delenv(ENGINE_VARIABLE)
    monkeypatch.setenv("SPARK_MASTER", "spark://host:7077")

    asked = "search indexes/_catalog --topic orders --time earliest --format json -v"
    done = command(*asked.split())

    why = "up to 500 searches need no Spark, and this has "
    assert re.fullmatch(rf"Engine: local, because {why}\d+\n", done.stderr)
    summary = json.loads(done.stdout)["summary"]
    assert (summary["engine"], summary["workers"]) == ("local", 1)


def files_below(root: Path) -> dict[str, bytes]:
    names = (".timeindex", ".index", ".txnindex")
    found = (path for path in root.rglob("*") if path.suffix in names)
    return {str(path.relative_to(root)): path.read_bytes() for path in found}


def of_the_work(done: Finished) -> dict[str, Any]:
    return {key: one for key, one in json.loads(done.stdout).items() if key not in NOT_OF_THE_WORK}


@pytest.mark.spark
def test_both_engines_leave_the_same(spark_command: Command, tmp_path: Path) -> None:
    """What tasks and worker processes do to an archive: tests/spark/test_build.py, tests/local."""
    said = []
    for engine in ("spark", "local"):
        place = ("archive", "--index-dir", engine, "--engine", engine, "--format", "json")
        built = spark_command("build", *place, "--offset-index", "--fail-on", "invalid")
        verified = spark_command("verify", *place, "--fail-on", "missing")
        assert {json.loads(one.stdout)["engine"] for one in (built, verified)} == {engine}
        assert (built.exit_code, verified.exit_code) == (3, 3)
        text = json.dumps([of_the_work(one) for one in (built, verified)])
        said.append(text.replace(f"/{engine}/", "/indexes/"))

    assert said[0] == said[1]
    assert files_below(tmp_path / "local") == files_below(tmp_path / "spark") != {}
