"""A session of the command line: the settings of its JVM, and how they are passed."""

import json
import os
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from kip33.spark import session as jvm
from kip33.spark import tasks as failures
from kip33.spark.store_settings import submitted_settings, use_session
from tests.faults.processes import of_session

pytestmark = pytest.mark.spark
SECRETS = {
    "spark.hadoop.fs.s3a.access.key": "hidden-access-key",
    "spark.hadoop.fs.s3a.bucket.archive.secret.key": "hidden-secret-key",
    "spark.hadoop.fs.s3a.encryption.key": "hidden-customer-key",
    "spark.hadoop.fs.azure.account.key.store.dfs.core.windows.net": "hidden-account-key",
    "spark.ssl.keyStorePassword": "hidden-password",
}
SHOWN = {"spark.hadoop.fs.s3a.endpoint": "http://store:9000"}
AT_START = {
    "spark.driver.extraJavaOptions": "-Dasked.for=1 -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
}
SESSION = """\
import json, os, sys, time
from pyspark.sql import SparkSession
from kip33.spark.jobs import cores, cores_to_come
from kip33.spark.session import create_context, create_session
from kip33.spark.store_settings import use_session

before, conf = dict(os.environ), json.load(sys.stdin)
context = create_context(master="local[1]", conf=conf)
use_session(context)
cores(context), cores_to_come(context)
has_sql = SparkSession._instantiatedSession is not None
session = create_session(master="local[1]", conf=conf)
hadoop = session._jsc.hadoopConfiguration()
keys = [key for key in sys.argv[1:] if key.startswith("spark.hadoop.")]
answer = {
    "has_sql": has_sql,
    "is_one_context": session.sparkContext is context,
    "hadoop": {key: hadoop.get(key.removeprefix("spark.hadoop.")) for key in keys},
    "spark": {key: session.sparkContext.getConf().get(key) for key in sys.argv[1:]},
    "property": session._jvm.System.getProperty("asked.for"),
    "environment": sorted(dict(os.environ.items() - before.items())),
}
print(json.dumps(answer), flush=True)
sys.stdin.close()
time.sleep(3_600)  # until it was looked at
"""


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return what a session has, and the command lines of all that it started."""
    folder = tmp_path_factory.mktemp("session")
    script = folder / "session.py"
    script.write_text(SESSION)
    conf = folder / "conf.json"
    conf.write_text(json.dumps(SECRETS | SHOWN | AT_START))
    project = Path(__file__).parents[2]
    with (
        conf.open() as said,
        subprocess.Popen(
            [sys.executable, script, *SECRETS, *SHOWN],
            stdin=said,
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": str(project)},
            text=True,
            start_new_session=True,
        ) as process,
    ):
        assert process.stdout is not None
        try:
            answer: dict[str, Any] = json.loads(process.stdout.readline())
            commands = [one.command for one in of_session(process.pid)]
        finally:
            process.kill()
    return answer | {"commands": commands}


def test_the_jvm_has_all_settings(seen: dict[str, Any]) -> None:
    assert seen["spark"] == SECRETS | SHOWN
    in_hadoop = {key: v for key, v in (SECRETS | SHOWN).items() if key.startswith("spark.hadoop.")}
    assert seen["hadoop"] == in_hadoop
    assert seen["property"] == "1", "what a JVM needs when it starts"


def test_a_build_starts_no_sql_and_a_later_session_has_its_context(seen: dict[str, Any]) -> None:
    """Loading Spark's SQL takes seconds."""
    assert (seen["has_sql"], seen["is_one_context"]) == (False, True)


def test_what_the_process_starts_later_has_no_settings_of_this_jvm(seen: dict[str, Any]) -> None:
    """A second Spark of the same shell once started with this session's settings, or not quiet."""
    assert "PYSPARK_SUBMIT_ARGS" not in seen["environment"]


def test_no_secret_is_on_a_command_line(seen: dict[str, Any]) -> None:
    [jvm] = [command for command in seen["commands"] if "org.apache.spark.deploy" in command]
    assert SHOWN["spark.hadoop.fs.s3a.endpoint"] in jvm
    assert not [secret for secret in SECRETS.values() if secret in "".join(seen["commands"])]


def test_a_session_that_does_not_start_says_why_not_what_its_jvm_warned_of() -> None:
    """What py4j brings of the JVM's exception counts where the JVM's own output does not tell."""
    error = (
        "An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.\n"
        ": java.lang.IllegalArgumentException: Can't get Kerberos realm\n"
        "\tat org.apache.hadoop.security.HadoopKerberosName.setConfiguration(...)\n"
        "\t... 17 more"
    )
    warned = "WARNING: Using incubator modules: jdk.incubator.vector"
    assert failures.java_reason(f"{error}\n{warned}") == (
        "java.lang.IllegalArgumentException: Can't get Kerberos realm"
    )
    assert failures.java_reason(f"it said this\n{warned}") == "it said this"


COLLECTORS = {
    "": True,
    "-Xmx2g -XX:+UseStringDeduplication": True,
    "-Xmx2g -XX:+UseZGC": False,
    "-XX:+UseG1GC -Xmx2g": False,
}


def test_a_collector_of_the_user_is_the_only_one(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS")
    for said_in, (options, has_ours) in product((*names, "a setting"), COLLECTORS.items()):
        for name in names:
            monkeypatch.delenv(name, raising=False)
        if said_in != "a setting":
            monkeypatch.setenv(said_in, options)
        ours = jvm._jvm_options(options if said_in == "a setting" else "")
        assert (jvm.COLLECTOR in ours) is has_ours, (said_in, options)


def test_settings_of_spark_submit_are_those_of_its_session(spark: SparkSession) -> None:
    conf = {"spark.hadoop.fs.s3a.endpoint": "http://store:9000", "spark.app.name": "not Hadoop's"}

    found = submitted_settings(conf)

    assert found == {**use_session(spark), "fs.s3a.endpoint": "http://store:9000"}
