"""The topics of one name: which topic ids are of one topic, and which topic is the newest.

A topic that was deleted and created again has the same name and another topic id. Its offsets begin
at 0 again, so its logs must not be mixed with those before. Ids are random: the newest topic is the
one with the latest record if each has a record with a time, else the one whose files changed last.
Logs whose id is not known belong to the only topic there is; with several they belong to none.

Replicas of one topic may have different ids, too (KAFKA-12835). Equal batches show it: their CRCs
cover times, keys and values.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from kip33.formats.batch import NO_TIMESTAMP


class LastChange(NamedTuple):
    """When a topic was last written, as far as its logs show it."""

    record_ms: int = NO_TIMESTAMP  # the largest timestamp of a record; no copy changes it
    modified_ms: int = 0  # of a log file; most copies are newer than what they copy

    def later(self, other: "LastChange") -> "LastChange":
        """Return the later of both times."""
        return LastChange(
            max(self.record_ms, other.record_ms), max(self.modified_ms, other.modified_ms)
        )


class TopicsOfName(NamedTuple):
    """The topics of one name, as seen from the newest."""

    newest_ids: tuple[str, ...] = ()  # of the newest topic; empty: there is one topic at most
    by_files: bool = False  # no times of records show that it is the newest
    is_unsure: bool = False  # file times say that another one is

    def is_older(self, topic_id: str | None) -> bool:
        """Return whether a log with this topic id is not one of the newest topic."""
        return bool(self.newest_ids) and topic_id not in self.newest_ids


def topics_of_name(
    changes: Mapping[str | None, LastChange], copies: Iterable[Collection[str]] = ()
) -> TopicsOfName:
    """Return which topic is the newest; `copies` are ids of logs with a segment in common.

    >>> topics_of_name({"A": LastChange(5, 9), "B": LastChange(7, 8), None: LastChange(9, 9)})
    TopicsOfName(newest_ids=('B',), by_files=False, is_unsure=True)
    >>> topics_of_name({"A": LastChange(5, 9), "B": LastChange(-1, 8)})
    TopicsOfName(newest_ids=('A',), by_files=True, is_unsure=False)
    >>> ids = {"A": LastChange(5, 9), "B": LastChange(7, 8), "C": LastChange(2, 2)}
    >>> topics_of_name(ids, [("A", "B")])
    TopicsOfName(newest_ids=('A', 'B'), by_files=False, is_unsure=False)
    >>> topics_of_name({"A": LastChange(5, 9), None: LastChange(9, 9)})
    TopicsOfName(newest_ids=(), by_files=False, is_unsure=False)
    """
    last: dict[tuple[str, ...], LastChange] = {}
    for topic_id, ids in ids_of_topics((one for one in changes if one is not None), copies).items():
        last[ids] = changes[topic_id].later(last.get(ids, LastChange()))
    if len(last) < 2:
        return TopicsOfName()
    by_files = any(one.record_ms < 0 for one in last.values())
    newest = max(last, key=lambda ids: (0 if by_files else last[ids].record_ms, last[ids][1], ids))
    is_unsure = last[newest].modified_ms < max(one.modified_ms for one in last.values())
    return TopicsOfName(newest, by_files, is_unsure)


def ids_of_topics(
    topic_ids: Iterable[str], copies: Iterable[Collection[str]]
) -> dict[str, tuple[str, ...]]:
    """Return for each topic id all ids of its topic, sorted.

    >>> ids_of_topics("ABCD", [("A", "B"), ("D", "B")])
    {'A': ('A', 'B', 'D'), 'B': ('A', 'B', 'D'), 'C': ('C',), 'D': ('A', 'B', 'D')}
    """
    topics = {topic_id: {topic_id} for topic_id in topic_ids}
    for ids in copies:
        together = set[str]().union(*(topics[one] for one in ids))
        topics.update(dict.fromkeys(together, together))
    return {topic_id: tuple(sorted(ids)) for topic_id, ids in topics.items()}
