"""When a file that looks unchanged may have changed all the same."""

from typing import Final

import numpy as np
import numpy.typing as npt

SETTLED_MS: Final = 2_000  # the coarsest clock of a file store: two changes within it look like one
SET_AHEAD_MS: Final = 86_400_000


def may_change_unseen(
    last_modified_ms: npt.NDArray[np.int64], listed_ms: int
) -> npt.NDArray[np.bool_]:
    """Return for each file whether a change after its listing could leave its time as it was.

    So it is for one modified less than 2 s before the listing began, or since. A time more than
    a day ahead is no clock's: somebody set it, and it stands still.

    >>> may_change_unseen(np.array([7_000, 8_001, 12_000, 90_000_000]), 10_000).tolist()
    [False, True, True, False]
    """
    age_ms = np.int64(listed_ms) - last_modified_ms
    fresh: npt.NDArray[np.bool_] = (age_ms < SETTLED_MS) & (age_ms > -SET_AHEAD_MS)
    return fresh
