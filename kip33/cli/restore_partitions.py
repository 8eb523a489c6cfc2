"""`--partitions 0,2-5` of `kip33 restore`."""

import re
from typing import Any, Final

import click

from kip33.formats.batch import MAX_INT32

_PART: Final = re.compile(r"([0-9]{1,10})(?:-([0-9]{1,10}))?", re.ASCII)
_MOST: Final = 1_000_000


class PartitionNumbers(click.ParamType):  # type: ignore[type-arg]  # generic since 8.4; 8.1 serves
    """Numbers and ranges of partitions."""

    name = "partitions"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> frozenset[int]:
        """Return the numbers, or end the command with what was found and expected."""
        if isinstance(value, frozenset):
            return value
        numbers: set[int] = set()
        for part in str(value).split(","):
            found = _PART.fullmatch(part.strip())
            first = int(found[1]) if found else -1
            last = int(found[2] or found[1]) if found else -1
            if found is None or not first <= last <= MAX_INT32 or last - first >= _MOST:
                self.fail(f"{str(value)[:80]!r} found, expected numbers such as 0,2-5", param, ctx)
            numbers.update(range(first, last + 1))
        return frozenset(numbers)


PARTITION_NUMBERS: Final = PartitionNumbers()
