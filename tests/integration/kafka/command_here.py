"""The `kip33` command in the process of the tests, for those whose fixtures outlive one test."""

import sys
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from typing import Any

import pytest

from kip33.cli.main import main
from tests.cli.console import Finished


def kip33_here(*arguments: Any) -> Finished:
    """Run the command to its end."""
    out, err = StringIO(), StringIO()
    with (
        pytest.MonkeyPatch.context() as patched,
        redirect_stdout(out),
        redirect_stderr(err),
        pytest.raises(SystemExit) as exit_,
    ):
        patched.setattr(sys, "argv", ["kip33", *map(str, arguments)])
        main()
    return Finished(exit_.value.code or 0, out.getvalue(), err.getvalue())
