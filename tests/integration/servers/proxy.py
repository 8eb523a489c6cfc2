"""Stands between a client and an HTTP server on loopback, and does harm when told to.

    with FaultProxy(server.port) as proxy:
        files = server.filesystem(endpoint_override=proxy.endpoint)
        proxy.fail_next(2)
        files.open_input_stream("archive/key").read()
        assert proxy.count("GET", "/key") == 3

Messages pass byte by byte, the Host header too, so that signatures over it stay true.
"""

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from typing import BinaryIO, Self
from urllib.parse import unquote

from tests.integration.servers.faults import Fault, Request
from tests.integration.servers.http_messages import ConnectionEndedError, Head, read_body, read_head
from tests.integration.servers.processes import free_port

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
BODILESS = (204, 304)


class FaultProxy:
    """Passes HTTP between clients of `endpoint` and a server's port.

    `requests` lists all it saw, in order. `before` is called with each request once its head is
    read and before the server sees it: the place to stop a server in the middle of a build.
    """

    def __init__(self, server_port: int) -> None:
        self.port = free_port()
        self.requests: list[Request] = []
        self.before: Callable[[Request], None] | None = None
        self._server_port = server_port
        self._delay_s = 0.0
        self._faults: list[Fault] = []
        self._lock = threading.Lock()
        self._listener: socket.socket | None = None
        self._connections: set[socket.socket] = set()

    @property
    def endpoint(self) -> str:
        """Return host and port, as `endpoint_override` takes them."""
        return f"127.0.0.1:{self.port}"

    def count(self, method: str | None = None, target: str = "") -> int:
        """Return how many requests were seen of a method, with this text in their target."""
        with self._lock:
            return sum(method in (None, r.method) and target in r.target for r in self.requests)

    def delay(self, milliseconds: float) -> None:
        """Let each answer from now on wait so long before its first byte."""
        self._delay_s = milliseconds / 1000

    def fail_next(
        self,
        count: int = 1,
        *,
        status: int = 503,
        code: str = "SlowDown",
        method: str | None = None,
        target: str = "",
    ) -> None:
        """Answer the next such requests with an S3 error; the server never sees them."""
        self._add(Fault(count, method, target, status=status, code=code))

    def cut_next(
        self, count: int = 1, *, after_bytes: int, method: str | None = "GET", target: str = ""
    ) -> None:
        """Close the connection after so many bytes of the next such answers' bodies.

        An answer with a shorter body loses its connection only.
        """
        self._add(Fault(count, method, target, after_bytes=after_bytes))

    def heal(self) -> None:
        """Forget the delay and all faults to come; accept connections."""
        with self._lock:
            self._faults.clear()
        self._delay_s = 0.0
        self.accept()

    def refuse(self) -> None:
        """Close all connections, and refuse new ones until `accept` or `heal`."""
        listener, self._listener = self._listener, None
        if listener is not None:
            _shut(listener)  # wakes the thread that accepts
            listener.close()
        with self._lock:
            connections = list(self._connections)
        for connection in connections:
            _shut(connection)

    def accept(self) -> None:
        """Accept connections, as at the start."""
        if self._listener is None:
            self._listener = socket.create_server(("127.0.0.1", self.port), backlog=256)
            threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def __enter__(self) -> Self:
        self.accept()
        return self

    def __exit__(self, *_: object) -> None:
        self.refuse()

    def _add(self, fault: Fault) -> None:
        with self._lock:
            self._faults.append(fault)

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):  # the listener is closed
            while True:
                client, _ = listener.accept()
                threading.Thread(target=self._converse, args=(client,), daemon=True).start()

    def _converse(self, client: socket.socket) -> None:
        """Pass on one client's requests, one after another, until either side ends it."""
        with client, contextlib.suppress(OSError, ConnectionEndedError):
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._connections.add(client)
            try:
                with client.makefile("rb") as stream, _Upstream(self._server_port) as upstream:
                    while self._exchange(client, stream, upstream):
                        pass
            finally:
                with self._lock:
                    self._connections.discard(client)

    def _exchange(self, client: socket.socket, stream: BinaryIO, upstream: "_Upstream") -> bool:
        """Pass on one request and its answer; return whether another may follow."""
        head = read_head(stream)
        method, target, _ = head.first_line.split(" ", 2)
        request = Request(method, unquote(target), head.headers.get("range"))
        with self._lock:
            self.requests.append(request)
            fault = next((fault for fault in self._faults if fault.strikes(request)), None)
        if self.before is not None:
            self.before(request)
        if "expect" in head.headers:
            client.sendall(CONTINUE)
        refused = fault is not None and fault.status != 0
        if not refused:
            upstream.send(head.wire)
        for block in read_body(stream, head, is_answer=False):
            request.received_bytes += len(block)
            if not refused:
                upstream.send(block)
        if fault is not None and refused:
            time.sleep(self._delay_s)
            request.status = fault.status
            answer = fault.answer()
            client.sendall(answer.partition(b"<")[0] if method == "HEAD" else answer)
            return True
        answer_head = upstream.answer()
        time.sleep(self._delay_s)
        request.status = int(answer_head.first_line.split()[1])
        client.sendall(answer_head.wire)
        if method != "HEAD" and request.status not in BODILESS:
            for block in read_body(upstream.stream, answer_head, is_answer=True):
                if fault is not None:
                    block = block[: fault.after_bytes - request.sent_bytes]
                request.sent_bytes += len(block)
                client.sendall(block)
                if fault is not None and request.sent_bytes == fault.after_bytes:
                    break
        return fault is None and not (head.closes or answer_head.closes)


class _Upstream:
    """The connection to the server: one for each client's, ended with it."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.stream = self._socket.makefile("rb")

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def answer(self) -> Head:
        """Return the head of the final answer; the client has got its 100 Continue already."""
        while (head := read_head(self.stream)).first_line.split()[1].startswith("1"):
            pass
        return head

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stream.close()
        self._socket.close()


def _shut(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
