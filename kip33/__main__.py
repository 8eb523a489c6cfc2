"""The program kip33, also `python -m kip33`."""

import os
import signal


def _end(number: int, _: object) -> None:
    os._exit(128 + number)


def main() -> None:
    """Run the command; Ctrl-C before it begins, while modules are imported, ends it silently."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # nohup ignores it
        signal.signal(signal.SIGINT, _end)
    from kip33.cli.main import main as run_command

    run_command()


if __name__ == "__main__":
    main()
