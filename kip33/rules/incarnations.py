"""Incarnations of a topic: topics of one name with different ids.

A topic that was deleted and created again has the same name and another topic id. Its offsets begin
at 0 again, so its logs must not be mixed with those before. Ids are random: the newest incarnation
is the one whose logs changed last. Logs whose topic id is not known belong to the only incarnation
there is; with several they belong to none of them.
"""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]


def newest_topic_id(last_modified_ms: Mapping[str | None, int]) -> str | None:
    """Return the id of the newest incarnation; None if there are less than two.

    `last_modified_ms` has the time of the last change of a log by topic id; None: not known.

    >>> newest_topic_id({"A": 5, "B": 7, None: 9})
    'B'
    >>> newest_topic_id({"A": 5, None: 9}) is None
    True
    """
    known = {topic_id: ms for topic_id, ms in last_modified_ms.items() if topic_id is not None}
    if len(known) < 2:
        return None
    return max(known, key=lambda topic_id: (known[topic_id], topic_id))


def incarnation_codes(topics: Int64s, topic_ids: Int64s) -> Int64s:
    """Return a number for the incarnation of each row's topic, equal if there are less than two.

    `topics` and `topic_ids` are numbers of names and ids from 0 on; a topic id below 0 is unknown.

    >>> incarnation_codes(np.array([0, 0, 1, 1, 1]), np.array([4, -1, 5, 6, -1])).tolist()
    [-1, -1, 5, 6, -1]
    """
    known = topic_ids >= 0
    if not known.any():
        return np.full(topics.size, -1, np.int64)
    width = int(topic_ids.max()) + 1
    pairs = np.unique(topics[known] * width + topic_ids[known])
    ids_of_topic = np.bincount(pairs // width, minlength=int(topics.max()) + 1)
    return np.where(ids_of_topic[topics] > 1, topic_ids, -1)
