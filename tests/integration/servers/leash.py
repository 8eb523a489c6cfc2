"""Runs a server that dies with its owner, however the owner dies.

    python leash.py PROGRAM ARGUMENT...

The owner holds the other end of standard input. When it closes, the server's whole process group is
killed; a SIGTERM is passed on to the server alone, which may then end as it likes.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading


def main(command: list[str]) -> int:
    """Return the server's exit status, once it and all it started are gone."""
    server = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    signal.signal(signal.SIGTERM, lambda *_: os.kill(server.pid, signal.SIGTERM))
    threading.Thread(target=_kill_at_the_end_of_input, args=(server.pid,), daemon=True).start()
    status = server.wait()
    _kill_group(server.pid)  # what it started and did not end, such as a worker's executors
    return status if status >= 0 else 128 - status


def _kill_at_the_end_of_input(group: int) -> None:
    while os.read(0, 1024):
        pass
    _kill_group(group)


def _kill_group(group: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
