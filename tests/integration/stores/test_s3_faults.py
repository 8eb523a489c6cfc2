"""What goes wrong with a bucket: it is tried again, then said in one line; nothing is half done."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kip33.demo import make_archive
from tests.integration.servers.faults import Request
from tests.integration.servers.proxy import FaultProxy
from tests.integration.servers.s3 import S3Server
from tests.integration.stores.places import Place, Ran

pytestmark = pytest.mark.integration
ENDPOINT = "spark.hadoop.fs.s3a.endpoint"
ATTEMPTS = "spark.hadoop.fs.s3a.attempts.maximum"


class Archive:
    """The demo archive in a bucket, and builds of it through a proxy that does harm."""

    def __init__(self, place: Place, proxy: FaultProxy, tree: Path) -> None:
        self.place, self.proxy = place, proxy
        make_archive(tree)
        place.put(tree, "logs")
        self.source = f"{place.uri}/logs"

    def build(self, name: str, *, through: bool = True, **conf: str) -> Ran:
        """Build into a directory of this name."""
        said = {ENDPOINT: f"http://{self.proxy.endpoint}"} if through else {}
        said |= {ATTEMPTS: conf["attempts"]} if "attempts" in conf else {}
        arguments = ("build", self.source, "--index-dir", f"{self.place.uri}/{name}")
        return self.place.run(*arguments, "--format", "json", conf=said)

    def indexes(self, name: str) -> dict[str, bytes]:
        """Return the index files in a directory of this name."""
        files = self.place.files(name)
        return {path: data for path, data in files.items() if path.endswith("index")}

    def snapshots(self, name: str) -> list[str]:
        """Return the commits in a directory of this name."""
        return [path for path in self.place.files(name) if "/commits/" in path]


@pytest.fixture
def archive(new_place: Callable[[str], Place], s3_proxy: FaultProxy, tmp_path: Path) -> Archive:
    return Archive(new_place("s3a"), s3_proxy, tmp_path / "demo")


@pytest.fixture
def expected(archive: Archive) -> dict[str, bytes]:
    """Return the index files of a build that nothing disturbs."""
    assert archive.build("undisturbed", through=False).code == 0
    return archive.indexes("undisturbed")


def test_requests_that_fail_now_and_then_are_tried_again(
    archive: Archive, expected: dict[str, bytes]
) -> None:
    proxy = archive.proxy
    proxy.delay(20)
    for method in ("GET", "PUT", "HEAD"):
        proxy.fail_next(3, method=method)
        proxy.fail_next(2, status=500, code="InternalError", method=method, target="orders")
    proxy.cut_next(2, after_bytes=1000, target=".log")
    ran = archive.build("indexes")
    assert ran.code == 0, ran.err
    assert ran.record["by_status"].get("unreadable", 0) == 0
    assert archive.indexes("indexes") == expected


def test_a_server_that_restarts_in_the_middle_of_a_build_is_waited_for(
    archive: Archive, expected: dict[str, bytes], s3_server: S3Server
) -> None:
    restarts = []
    lock = threading.Lock()

    def restart() -> None:
        time.sleep(3)
        s3_server.start()

    def before(request: Request) -> None:
        with lock:
            if not restarts and ".log" in request.target and request.method == "GET":
                s3_server.kill()
                restarts.append(threading.Thread(target=restart))
                restarts[0].start()

    archive.proxy.before = before
    ran = archive.build("indexes")
    restarts[0].join()
    archive.proxy.before = None
    assert ran.code == 0, ran.err
    assert ran.record["by_status"].get("unreadable", 0) == 0
    assert archive.indexes("indexes") == expected


def test_logs_that_cannot_be_read_are_rows_and_the_next_build_completes_them(
    archive: Archive, expected: dict[str, bytes]
) -> None:
    archive.proxy.fail_next(1000, method="GET", target="payments-0/00000000000000000000.log")
    ran = archive.build("indexes", attempts="2")
    assert ran.code == 0, ran.err
    assert ran.record["by_status"]["unreadable"] == 1
    archive.proxy.heal()
    again = archive.build("indexes")
    assert again.record["by_status"].get("unreadable", 0) == 0
    assert archive.indexes("indexes") == expected


def test_a_server_that_stays_down_ends_the_build_in_one_line(
    archive: Archive, expected: dict[str, bytes]
) -> None:
    def before(request: Request) -> None:
        if request.method == "PUT":
            archive.proxy.refuse()

    archive.proxy.before = before
    ran = archive.build("indexes", attempts="2")
    archive.proxy.before = None
    assert ran.code in (1, 2)
    assert ran.line
    assert archive.snapshots("indexes") == []
    archive.proxy.heal()
    again = archive.build("indexes")
    assert again.code == 0, again.err
    assert archive.indexes("indexes") == expected


WRONG = {
    "a wrong secret": ({"secret.key": "wrong"}, "SOURCE cannot be read", "fs.s3a.secret.key"),
    "nobody's key": ({"access.key": "nobody"}, "SOURCE cannot be", "fs.s3a.access.key"),
    "nobody there": ({"endpoint": "http://127.0.0.1:9"}, "SOURCE cannot be read", "endpoint"),
}


def test_a_bucket_that_lets_nobody_in_is_one_line(
    archive: Archive, subtests: pytest.Subtests
) -> None:
    for wrong, (settings, said, advice) in WRONG.items():
        with subtests.test(wrong):
            conf = {f"spark.hadoop.fs.s3a.{key}": value for key, value in settings.items()}
            ran = archive.place.run("verify", archive.source, conf=conf | {ATTEMPTS: "2"})
            assert ran.code == (1 if wrong == "nobody there" else 2)
            assert said in ran.line
            assert advice in ran.line
            assert not any(
                value in ran.line for key, value in settings.items() if key == "secret.key"
            )
    with subtests.test("a bucket that is not there"):
        ran = archive.place.run("verify", "s3a://no-such-bucket/logs")
        assert ran.code == 2
        assert ran.line == "Error: s3a://no-such-bucket/logs: SOURCE does not exist"


READS: dict[str, tuple[str, ...]] = {
    "records": ("records", "logs", "--topic", "orders", "--format", "jsonl"),
    "restore": ("restore", "logs/broker-1", "--to", "TARGET", "--format", "json"),
}


def read(archive: Archive, name: str, target: Path, **conf: str) -> tuple[Ran, Any]:
    """Run a command that reads logs through the proxy; return also what it gave."""
    command, source, *options = READS[name]
    said = {ENDPOINT: f"http://{archive.proxy.endpoint}"}
    said |= {f"spark.hadoop.fs.s3a.{key.replace('_', '.')}": value for key, value in conf.items()}
    words = (str(target) if word == "TARGET" else word for word in options)
    ran = archive.place.run(command, f"{archive.place.uri}/{source}", *words, conf=said)
    logs = {path.relative_to(target): path.read_bytes() for path in target.rglob("*-0/*.log")}
    return ran, (ran.out if name == "records" else logs)


LASTING: dict[str, Callable[[FaultProxy], None]] = {
    "503": lambda proxy: proxy.fail_next(10_000, method="GET", target=".log"),
    "an expired key": lambda proxy: proxy.fail_next(
        10_000, status=403, code="ExpiredToken", method="GET", target=".log"
    ),
    "a cut connection": lambda proxy: proxy.cut_next(10_000, after_bytes=1000, target=".log"),
    "a slow answer": lambda proxy: proxy.delay(4_000),
}


@pytest.mark.parametrize("name", READS)
def test_reads_are_complete_or_name_the_log_and_give_no_part_for_the_whole(
    archive: Archive, name: str, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    undisturbed, expected = read(archive, name, tmp_path / "undisturbed")
    assert expected, undisturbed.err

    def require_complete(target: Path) -> None:
        ran, got = read(archive, name, target)
        assert ran.code == undisturbed.code, ran.err
        assert got == expected

    with subtests.test("faults that end"):
        archive.proxy.delay(20)
        archive.proxy.fail_next(3, method="GET")
        archive.proxy.fail_next(2, method="HEAD")
        archive.proxy.cut_next(2, after_bytes=1000, target=".log")
        require_complete(tmp_path / "faults that end")
    for fault, harm in LASTING.items():
        archive.proxy.heal()
        with subtests.test(fault):
            harm(archive.proxy)
            target = tmp_path / fault
            ran, got = read(archive, name, target, attempts_maximum="1", connection_timeout="1500")
            archive.proxy.heal()
            assert "Traceback" not in ran.err
            if got == expected:
                assert ran.code == undisturbed.code, ran.err
            elif ran.err.startswith("Error: "):  # the listing failed already
                assert ran.code in (1, 2)
                assert f"{archive.place.uri}/logs" in ran.line
            elif name == "restore":
                assert ran.code == 1
                assert "is not restored: " in ran.err
            else:  # rows are missing, none is wrong, and the log that was not read is named
                assert set(got.splitlines()) < set(expected.splitlines())
                assert ran.code == 1
                assert f"{archive.place.uri}/logs" in ran.err
            require_complete(target)
