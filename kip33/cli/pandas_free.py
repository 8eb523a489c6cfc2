"""pyarrow without pandas, in a process that is a command and nothing else.

pyarrow imports pandas at the first Python value it converts, where pandas is installed: 0.4 s for
what no command needs. It tries once: where pandas cannot be imported then, it goes on without.
"""

import sys
from typing import Final

import pyarrow as pa

_COMMANDS: Final = ("kip33", "kip33/__main__.py")  # the script, and `python -m kip33`


class _NoPandas:
    """A finder of modules that finds no pandas, though it is installed."""

    def find_spec(self, name: str, *_: object) -> None:
        """Raise ModuleNotFoundError for pandas."""
        if name == "pandas":
            raise ModuleNotFoundError(name)


def leave_pandas_out(*, is_submitted: bool = False) -> None:
    """Let pyarrow find no pandas; does nothing in a process that others use as well.

    A process of `kip33` is used by nothing else, nor is the one that spark-submit starts for a job.
    """
    main_file = getattr(sys.modules["__main__"], "__file__", None) or ""
    is_command = f"/{main_file}".endswith(tuple(f"/{name}" for name in _COMMANDS))
    if "pandas" in sys.modules or not (is_command or is_submitted):
        return
    finder = _NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        pa.array([0])
    finally:
        sys.meta_path.remove(finder)
