"""`kip33` as its console script runs it, on the local engine.

python -m tests.faults.console build SOURCE --index-dir DIR ...
"""

import os

import kip33.cli.main
from kip33.cli.engine_option import ENGINE_VARIABLE


def main() -> None:
    os.environ[ENGINE_VARIABLE] = "local"
    kip33.cli.main.main()


if __name__ == "__main__":
    main()
