"""A store that does not answer is told, with what is tried; one that answers slowly is not."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from pyarrow import fs

from kip33.stores import watch as watch_module
from kip33.stores.files import read_whole
from kip33.stores.locations import Location
from kip33.stores.s3 import name_of_bucket
from kip33.stores.settings import use_settings
from kip33.stores.watch import SILENT_TICKS, StoreName, StoreWatch, tell_of_silence
from tests.cases import each_case

STORE = StoreName("http://store:9000", "each request is tried 2 times")


class Told(list[str]):
    """Lines, and a watch that tells them."""

    def __init__(self) -> None:
        super().__init__()
        self.watch = StoreWatch(self.append)

    def tick(self, ticks: int) -> None:
        for _ in range(ticks):
            self.watch.tick()


def test_a_silent_store_is_told_after_five_ticks_and_each_thirty_and_when_it_answers() -> None:
    told = Told()
    with told.watch.waiting(STORE, "listing s3a://archive/logs"):
        told.tick(SILENT_TICKS - 1)
        assert told == []
        told.tick(1)
        assert told == [
            "http://store:9000 has not answered for 5 s, still trying: listing s3a://archive/logs; "
            "each request is tried 2 times"
        ]
        told.tick(54)
        assert [line[:44] for line in told[1:]] == ["http://store:9000 has not answered for 30 s,"]
    assert told[2:] == ["http://store:9000 answers again after 59 s"]


def test_a_store_without_operations_is_not_silent() -> None:
    told = Told()
    with told.watch.waiting(STORE, "opening s3a://archive/0.log"):
        told.tick(4)
    told.tick(60)
    with told.watch.waiting(STORE, "opening s3a://archive/1.log"):
        told.tick(4)
    assert told == []


def test_answers_that_come_one_after_another_are_no_silence() -> None:
    told = Told()
    with told.watch.waiting(STORE, "reading s3a://archive/0.log"):
        for _ in range(5):
            told.tick(4)
            with told.watch.waiting(STORE, "reading s3a://archive/1.log"):
                pass
    assert told == []


def test_several_operations_are_one_line() -> None:
    told = Told()
    with (
        told.watch.waiting(STORE, "reading s3a://archive/0.log"),
        told.watch.waiting(STORE, "reading s3a://archive/1.log"),
    ):
        told.tick(5)
    assert len(told) == 2
    assert "still trying: reading s3a://archive/0.log and 1 more;" in told[0]


@each_case(("error", "answers"), ((FileNotFoundError(), True), (OSError("curlCode: 7"), False)))
def test_an_error_of_the_connection_is_no_answer(error: Any, answers: bool) -> None:
    told = Told()
    with suppress(OSError), told.watch.waiting(STORE, "opening s3a://archive/0.log"):
        told.tick(5)
        raise error
    assert told[1:] == (["http://store:9000 answers again after 5 s"] if answers else [])
    with told.watch.waiting(STORE, "opening s3a://archive/1.log"):
        told.tick(4)
    assert told[-1] == f"http://store:9000 answers again after {5 if answers else 9} s"


BUCKETS = [
    ({"endpoint": "http://store:9000"}, "http://store:9000", "tried 6 times, for 10 to 30 s"),
    ({"endpoint": "user:secret@store"}, "https://store", "tried 6 times, for 10 to 30 s"),
    ({}, "Amazon S3", "tried 6 times, for 10 to 30 s"),
    (
        {"proxy.host": "p", "proxy.username": "user", "proxy.password": "secret"},
        "Amazon S3 through the proxy p:80",
        "tried 6 times, for 10 to 30 s",
    ),
    ({"attempts.maximum": "2"}, "Amazon S3", "each request is tried 2 times"),
]


@each_case(("settings", "host", "patience"), BUCKETS)
def test_a_bucket_is_named_by_its_server_without_secrets(
    settings: Any, host: str, patience: str
) -> None:
    name = name_of_bucket({f"fs.s3a.{key}": value for key, value in settings.items()}, "archive")
    assert name.host == host
    assert patience in name.patience
    assert "secret" not in str(name)


class Server(ThreadingHTTPServer):
    """Answers every request when it may."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.may_answer = threading.Event()


class Handler(BaseHTTPRequestHandler):
    """An object of five bytes at every path."""

    server: Server

    def do_HEAD(self) -> None:
        self.server.may_answer.wait()
        self.send_response(200)
        self.send_header("Content-Length", "5")
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(b"hello")

    do_GET = do_HEAD  # noqa: N815 - as http.server names it

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def bucket_at(port: int) -> Iterator[Location]:
    use_settings(
        {
            "fs.s3a.endpoint": f"http://127.0.0.1:{port}",
            "fs.s3a.access.key": "key",
            "fs.s3a.secret.key": "secret",
            "fs.s3a.attempts.maximum": "2",
        }
    )
    try:
        yield Location.of("s3a://archive/orders-0/0.log")
    finally:
        use_settings({})


@contextmanager
def served() -> Iterator[Server]:
    with Server() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server
        finally:
            server.may_answer.set()
            server.shutdown()


def test_a_server_that_answers_late_is_told_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    with served() as server, bucket_at(server.server_port) as log:

        def on_line(line: str) -> None:
            lines.append(line)
            server.may_answer.set()

        monkeypatch.setattr(watch_module, "_TICK_SECONDS", 0.01)
        with tell_of_silence(on_line):
            assert read_whole(log, most_bytes=10) == b"hello"
    assert lines[0].startswith(
        f"http://127.0.0.1:{server.server_port} has not answered for 5 s, still trying: opening "
        "s3a://archive/orders-0/0.log; each request is tried 2 times"
    )
    assert lines[-1].startswith(f"http://127.0.0.1:{server.server_port} answers again after ")


def test_without_a_listener_stores_are_pyarrows_own() -> None:
    with bucket_at(9) as log:
        assert isinstance(log.filesystem(), fs.S3FileSystem)
