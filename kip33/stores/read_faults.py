"""Convert what a store raises to FileReadError; failures of this machine stay as they are.

All modules that read need this, and it needs none of them.
"""

from types import TracebackType
from typing import Final

from kip33.errors import FileReadError, is_of_the_machine


class _ReadFaults:
    """The context in which a store is called.

    One object without a state serves all `with` blocks: a generator would take longer than a read.
    """

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not isinstance(error, OSError | ValueError):  # pyarrow's ArrowInvalid is a ValueError
            return
        if not isinstance(error, FileReadError) and not is_of_the_machine(error):
            raise FileReadError.of(error) from error


READ_FAULTS: Final = _ReadFaults()
