"""Headless Chromium, asked by its DevTools protocol over two pipes; no package is needed."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")
MESSAGES = {"Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown"}


class ChromiumMissingError(Exception):
    """There is no Chromium on this machine."""


class Chromium:
    """A running browser with one page."""

    def __init__(self, to: Any, back: Any) -> None:
        """Take the pipes, and open an empty page."""
        self._to, self._back = to, back
        self._number = 0
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        attached = self.ask("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """Return the answer to a question; events before it are kept."""
        self._number += 1
        question = {"id": self._number, "method": method, "params": params}
        if self._session:
            question["sessionId"] = self._session
        self._to.write(json.dumps(question).encode() + b"\0")
        self._to.flush()
        while True:
            found = self._next()
            if found.get("id") == self._number:
                assert "error" not in found, found
                answer: dict[str, Any] = found["result"]
                return answer
            self.events.append(found)

    def _next(self) -> dict[str, Any]:
        data = bytearray()
        while (byte := self._back.read(1)) != b"\0":
            assert byte, "Chromium has ended"
            data += byte
        found: dict[str, Any] = json.loads(data)
        return found

    def open(self, page: Path, *, width: int, scheme: str) -> None:
        """Load a page in a window of a width, light or dark, and wait until it is there."""
        self.ask(
            "Emulation.setDeviceMetricsOverride",
            **{"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False},
        )
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.ask("Emulation.setEmulatedMedia", features=features)
        self.events.clear()
        self.ask("Page.navigate", url=page.as_uri())
        while not any(one.get("method") == "Page.loadEventFired" for one in self.events):
            self.events.append(self._next())

    def value_of(self, script: str) -> Any:
        """Return what an expression gives on the page."""
        asked = {
            "expression": script,
            "returnByValue": True,
            "awaitPromise": True,
            "userGesture": True,
        }
        return self.ask("Runtime.evaluate", **asked)["result"]["value"]

    @property
    def messages(self) -> list[dict[str, Any]]:
        """Return what the console of the page has."""
        return [one for one in self.events if one.get("method") in MESSAGES]

    @property
    def requests(self) -> list[str]:
        """Return the addresses that the page asked for."""
        asked = [one for one in self.events if one.get("method") == "Network.requestWillBeSent"]
        return [one["params"]["request"]["url"] for one in asked]


@contextmanager
def chromium(profile: Path) -> Iterator[Chromium]:
    """Start the browser with an empty profile; ChromiumMissingError if there is none."""
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        raise ChromiumMissingError("no Chromium on the PATH (Debian: apt-get install chromium)")
    questions, to = os.pipe()
    back, answers = os.pipe()
    options = [
        *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
        *("--no-first-run", "--remote-debugging-pipe", f"--user-data-dir={profile}"),
    ]
    shell = 'exec "$0" "$@" 3<&%d 4>&%d' % (questions, answers)  # noqa: UP031
    process = subprocess.Popen(
        ["bash", "-c", shell, program, *options],
        pass_fds=(questions, answers),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(questions)
    os.close(answers)
    try:
        with os.fdopen(to, "wb") as asking, os.fdopen(back, "rb") as answering:
            yield Chromium(asking, answering)
    finally:
        process.terminate()
        process.wait(30)
