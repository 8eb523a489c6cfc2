"""Progress of bins: what was read of them is added up, and never shrinks."""

import numpy as np

from kip33.archive.bins import READING_LOGS, BinProgress, Work
from kip33.stores.progress import Phase, Progress, Read
from tests.cases import each_case

SIZES = np.array([100, 30, 20, 10])
PACKED = [np.array([0]), np.array([1, 2]), np.array([3])]
PARTITIONS = Work(Phase.READING_LOGS, "partition")
SEARCH = Work(Phase.SEARCHING, "partition", has_bytes=False)


@each_case(
    ("work", "finished", "under_way", "done", "done_bytes"),
    {
        "nothing yet": (READING_LOGS, [], {}, 0, 0),
        "a bin is finished": (READING_LOGS, [1], {}, 2, 50),
        "another is under way": (READING_LOGS, [2], {1: Read(1, 34)}, 2, 44),
        "a log was read twice": (READING_LOGS, [], {2: Read(3, 25)}, 1, 10),
        "all": (READING_LOGS, [0, 1, 2], {}, 4, 160),
        "logs are not partitions": (PARTITIONS, [], {0: Read(3, 60)}, 0, 60),
        "weights of searches are not bytes": (SEARCH, [1], {}, 2, 0),
    },
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
