"""Progress of bins: what was read of them is added up, and never shrinks."""

import numpy as np
import pytest

from kip33.archive.bins import READING_LOGS, BinProgress, Work
from kip33.stores.progress import Phase, Progress, Read

SIZES = np.array([100, 30, 20, 10])
PACKED = [np.array([0]), np.array([1, 2]), np.array([3])]
PARTITIONS = Work(Phase.READING_LOGS, "partition")
SEARCH = Work(Phase.SEARCHING, "partition", has_bytes=False)


@pytest.mark.parametrize(
    ("work", "finished", "under_way", "done", "done_bytes"),
    [
        pytest.param(READING_LOGS, [], {}, 0, 0, id="nothing yet"),
        pytest.param(READING_LOGS, [1], {}, 2, 50, id="a bin is finished"),
        pytest.param(READING_LOGS, [2], {1: Read(1, 34)}, 2, 44, id="another is under way"),
        pytest.param(READING_LOGS, [], {2: Read(3, 25)}, 1, 10, id="a log was read twice"),
        pytest.param(READING_LOGS, [0, 1, 2], {}, 4, 160, id="all"),
        pytest.param(PARTITIONS, [], {0: Read(3, 60)}, 0, 60, id="logs are not partitions"),
        pytest.param(SEARCH, [1], {}, 2, 0, id="weights of searches are not bytes"),
    ],
)
def test_finished_bins_and_what_was_read_of_others_are_added(
    work: Work, finished: list[int], under_way: dict[int, Read], done: int, done_bytes: int
) -> None:
    told: list[Progress] = []
    BinProgress(SIZES, PACKED, work, told.append).tell(finished, under_way)
    total_bytes = 160 if work.has_bytes else None
    assert told == [Progress(work.phase, done, 4, done_bytes, total_bytes, work.unit)]


def test_a_bin_that_begins_again_takes_nothing_back() -> None:
    told: list[Progress] = []
    progress = BinProgress(SIZES, PACKED, READING_LOGS, told.append)
    progress.tell([1], {0: Read(0, 90)})
    progress.tell([1], {0: Read(0, 5)})
    assert told[0] == told[1]
