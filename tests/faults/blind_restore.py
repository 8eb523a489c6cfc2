"""A restore that does not look at the free space before: SOURCE LOG_DIR, as a program."""

import sys

from kip33.errors import Kip33Error
from kip33.local.local_engine import LocalEngine
from kip33.restore import restore_apply
from tests.faults.forks import restore_request


def main() -> None:
    restore_apply._require_space = lambda plan, job: None
    try:
        restore_apply.restore(restore_request(*sys.argv[1:3]), LocalEngine())
    except Kip33Error as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
