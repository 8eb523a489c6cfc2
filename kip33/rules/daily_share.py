"""A share of the segments for each day, so that all of them are taken within a few days.

A segment's part depends on its own path alone. New and deleted segments change nothing for the
others, so a segment that stays is taken once in each round, whatever happens to the archive.
"""

import re
import zlib
from typing import Final, NamedTuple, Self

MOST_PARTS: Final = 366
ONE_DAY_MS: Final = 86_400_000
_SHARE: Final = re.compile(r"([0-9]{1,3})/([0-9]{1,3})", re.ASCII)


class DailyShare(NamedTuple):
    """`taken` of `parts` parts a day, the next ones on the next day."""

    taken: int
    parts: int

    @classmethod
    def of(cls, text: str) -> Self:
        """Return the share in a text such as `1/7`; ValueError for another text.

        >>> DailyShare.of("1/7")
        DailyShare(taken=1, parts=7)
        """
        found = _SHARE.fullmatch(text.strip())
        share = cls(int(found[1]), int(found[2])) if found else None
        if share is None or not 1 <= share.taken <= share.parts <= MOST_PARTS:
            raise ValueError(
                f"{text!r} found, expected a share such as 1/7, from 1/{MOST_PARTS} to 1/1"
            )
        return share

    @property
    def days(self) -> int:
        """Return the days in which every part is taken."""
        return -(-self.parts // self.taken)

    def parts_on(self, now_ms: int) -> frozenset[int]:
        """Return the parts of the day, in UTC, that a time is in.

        >>> [sorted(DailyShare(2, 7).parts_on(day * ONE_DAY_MS)) for day in range(4)]
        [[0, 1], [2, 3], [4, 5], [0, 6]]
        """
        first = now_ms // ONE_DAY_MS * self.taken
        return frozenset((first + number) % self.parts for number in range(self.taken))

    def part_of(self, path: str) -> int:
        """Return the part of a segment by the path of its log below SOURCE.

        >>> DailyShare(1, 7).part_of("orders-0/00000000000000000042.log")
        4
        """
        return zlib.crc32(path.encode()) % self.parts

    def __str__(self) -> str:
        """Return the text of `of`."""
        return f"{self.taken}/{self.parts}"
