"""The steps of a decoder: how many bytes it takes and gives at once."""

from typing import Final

DECOMPRESSED_CHUNK_BYTES: Final = 256 * 1024
_LARGE_STEP_BYTES: Final = 4096


class Steps:
    """The number of bytes a decoder takes and gives in one step, and its totals so far.

    Steps are large up to a mark and small after it.
    """

    def __init__(
        self,
        *,
        taken: int = DECOMPRESSED_CHUNK_BYTES,
        given: int = DECOMPRESSED_CHUNK_BYTES,
        marks: tuple[int, int] = (0, 0),
    ) -> None:
        """Take the marks and the sizes of a small step, for bytes taken and bytes given."""
        self._small_taken, self._small_given = taken, given
        self._taken_mark, self._given_mark = marks
        self.bytes_taken = self.bytes_given = 0
        self.last_taken_at = 0  # position at which the last step took its bytes
        self.count = 0

    def next_taken(self) -> int:
        """Return how many bytes to take now."""
        return self._next(self.bytes_taken, self._taken_mark, self._small_taken)

    def next_given(self) -> int:
        """Return the largest number of bytes to give now."""
        return self._next(self.bytes_given, self._given_mark, self._small_given)

    def took(self, count: int) -> None:
        """Record that a step took `count` bytes."""
        self.last_taken_at = self.bytes_taken
        self.bytes_taken += count
        self.count += 1

    def gave(self, count: int) -> None:
        """Record that a step gave `count` bytes."""
        self.bytes_given += count
        self.count += 1

    def _next(self, done: int, mark: int, small: int) -> int:
        return min(mark - done, _LARGE_STEP_BYTES) if done < mark else small
