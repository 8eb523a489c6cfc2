"""The findings of a report, the worst first, each with the command that looks closer."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from kip33.catalog.catalog import CHANGED_AFTER, Snapshot
from kip33.catalog.holes import hole_key, hole_text
from kip33.catalog.logs import LogNote
from kip33.catalog.segment_findings import UNWRITTEN, FoundSegments, new_first
from kip33.catalog.tier_findings import TierFinding
from kip33.catalog.topic_totals import TopicTotals
from kip33.errors import counted
from kip33.formats.times import iso_time
from kip33.report.facts import FindingLevel, ReportFinding
from kip33.report.segment_sums import MOST_EXAMPLES, Doubt, SegmentSums
from kip33.retention.partition_texts import block_sentence, name_of
from kip33.rules.offset_holes import HoleKind
from kip33.rules.policies import human_bytes
from kip33.rules.search import NEWEST_KAFKA
from kip33.rules.segment_summary import SegmentStatus
from kip33.rules.suspicious_timestamps import Suspicion
from kip33.rules.which_log import Kind
from kip33.stores.locations import Location

_LEVELS: Final = tuple(FindingLevel)
_DAMAGE: Final = {
    SegmentStatus.TRUNCATED: "a part of the log is not valid, and a broker would cut it there",
    SegmentStatus.INVALID: "the log is not valid, and a broker would not keep it",
    SegmentStatus.UNREADABLE: "the build could not read it",
    SegmentStatus.ARCHIVED: "in S3 Glacier; its timestamps are not known until it is restored",
    UNWRITTEN: "of segments of this size; the next build tries again",
}
_HOLES: Final = {
    HoleKind.CERTAIN: (FindingLevel.PROBLEM, "no segment has them"),
    HoleKind.AFTER_DAMAGE: (FindingLevel.PROBLEM, "the segment before is damaged"),
    HoleKind.POSSIBLE: (
        FindingLevel.NOTE,
        "the topic is compacted, so there may never have been records",
    ),
    HoleKind.FILLED: (FindingLevel.NOTE, "other replicas have them"),
}


class CommandWords(NamedTuple):
    """The words of the commands that findings name."""

    catalog: str
    snapshot: str  # its id
    policy: tuple[str, ...]  # options of policies; empty: there is no policy
    now_ms: int
    remote: str | None  # the catalog of the remote tier
    broker_version: tuple[int, int] = NEWEST_KAFKA

    def of_catalog(self, mode: str = "", *options: str) -> str:
        """Return a command line of `kip33 catalog`, or of one of its commands."""
        of = ("catalog", mode) if mode else ("catalog",)
        words = ["kip33", *of, self.catalog, "--snapshot", self.snapshot, *options]
        return shlex.join(words)

    def of_holes(self) -> str:
        """Return the command that shows the holes."""
        with_file = self.policy[:2] if self.policy[:1] == ("--policy",) else ()
        return self.of_catalog("holes", *with_file)

    def of_timestamps(self) -> str:
        """Return the command that shows suspicious timestamps without a policy."""
        return shlex.join(["kip33", "timestamps", self.catalog, "--snapshot", self.snapshot])

    def of_tiers(self) -> str:
        """Return the command that shows what is wrong between the tiers."""
        return shlex.join(["kip33", "catalog", self.catalog, self.remote or ""])

    def of_remote_retention(self) -> str | None:
        """Return a command line that judges the remote tier, None without a policy."""
        return self._judging(self.remote or "", self.catalog)

    def of_retention(self, *options: str) -> str | None:
        """Return a command line of `kip33 retention`, None without a policy."""
        other = (self.remote,) if self.remote else ()
        return self._judging(self.catalog, *other, "--snapshot", self.snapshot, *options)

    def _judging(self, *words: str) -> str | None:
        if not self.policy:
            return None
        how = ["--now", iso_time(self.now_ms)]
        if self.broker_version != NEWEST_KAFKA:
            how += ["--broker-version", ".".join(map(str, self.broker_version))]
        return shlex.join(["kip33", "retention", *words, *self.policy, *how])


class FindingSources(NamedTuple):
    """What findings are made of."""

    sums: SegmentSums
    partitions: pa.Table  # `evaluated_tables.partitions_table`
    holes: pa.Table
    holes_before: pa.Table | None  # of the snapshot before; None: this is the first
    segments: Mapping[str, FoundSegments]  # by status, or `unwritten`
    replicas: Sequence[LogNote]
    topics: Sequence[TopicTotals]
    words: CommandWords
    snapshot: Snapshot
    warnings: Sequence[str]
    build: str | None  # that updates the catalog, if it is behind an apply or undo
    between_tiers: pa.Table | None  # of `catalog.tier_findings`; None: without a remote catalog


def findings_of(sources: FindingSources) -> tuple[ReportFinding, ...]:
    """Return the findings: problems, then warnings, then notes; of each, new ones first."""
    found = [
        *_ignored_snapshots(sources),
        *_behind(sources),
        *_between_tiers(sources),
        *_holes(sources),
        *_damage(sources),
        *_replicas(sources),
        *_overlaps(sources),
        *_older_topics(sources),
        *_blocked(sources),
        *_doubts(sources),
        *_healed(sources),
        *_orphans(sources),
        *_deletable(sources),
    ]
    return tuple(sorted(found, key=lambda one: (_LEVELS.index(one.level), not one.new)))


def _ignored_snapshots(sources: FindingSources) -> Iterator[ReportFinding]:
    if sources.warnings:
        count, examples = len(sources.warnings), tuple(sources.warnings[:MOST_EXAMPLES])
        what = counted(count, "newer snapshot")
        text = f"{what} of the catalog cannot be used; this report is about an older one."
        command = shlex.join(["kip33", "catalog", sources.words.catalog])
        yield ReportFinding(FindingLevel.PROBLEM, count, text, examples, command)


def _behind(sources: FindingSources) -> Iterator[ReportFinding]:
    if sources.build:
        text = f"{CHANGED_AFTER[0].upper()}{CHANGED_AFTER[1:]} {sources.snapshot.name}."
        yield ReportFinding(FindingLevel.WARNING, 1, text, (), sources.build)


def _between_tiers(sources: FindingSources) -> Iterator[ReportFinding]:
    rows = [] if sources.between_tiers is None else sources.between_tiers.to_pylist()
    for kind, (level, what, why) in _BETWEEN_TIERS.items():
        of_kind = [row for row in rows if row["finding"] == kind]
        if of_kind:
            text = f"{counted(len(of_kind), what)} {why}: {of_kind[0]['advice']}."
            examples = tuple(map(_between_text, of_kind[:MOST_EXAMPLES]))
            command = sources.words.of_tiers()
            yield ReportFinding(level, len(of_kind), text, examples, command)


_BETWEEN_TIERS: Final = {
    TierFinding.BETWEEN_TIERS: (FindingLevel.PROBLEM, "hole", "between the two tiers"),
    TierFinding.HOLE: (FindingLevel.PROBLEM, "hole", "in the log of both tiers"),
    TierFinding.DIFFERENCE: (FindingLevel.PROBLEM, "segment", "not the same in both tiers"),
    TierFinding.DAMAGE: (FindingLevel.PROBLEM, "segment", "damaged, and valid in no tier"),
    TierFinding.OVERLAP: (FindingLevel.WARNING, "segment", "with offsets that another one has"),
    TierFinding.UNKNOWN_EPOCHS: (FindingLevel.WARNING, "segment", "without known leader epochs"),
    TierFinding.EARLIER_LEADER: (FindingLevel.NOTE, "segment", "outside the log of both tiers"),
}


def _between_text(row: dict[str, Any]) -> str:
    last = "?" if row["last_offset"] is None else f"{row['last_offset']:,}"
    names = ", ".join(uri.rpartition("/")[2] for uri in row["segments"])
    return f"{name_of(row)}: offsets {row['first_offset']:,} to {last}, {names}"


def _holes(sources: FindingSources) -> Iterator[ReportFinding]:
    rows, before = sources.holes.to_pylist(), sources.holes_before
    earlier = None if before is None else set(map(hole_key, before.to_pylist()))
    for row in rows:
        row["is_new"] = earlier is not None and hole_key(row) not in earlier
    for kind, (level, why) in _HOLES.items():
        of_kind = [row for row in rows if row["hole"] == kind]
        if of_kind:
            offsets = sum(row["missing_offsets"] for row in of_kind)
            places = len({(row["log_dir"], row["topic"], row["partition"]) for row in of_kind})
            text = (
                f"{counted(offsets, 'offset')} missing between segments, in "
                f"{counted(len(of_kind), 'place')} of {counted(places, 'partition')}: {why}."
            )
            of_kind.sort(key=lambda row: (not row["is_new"], -int(row["missing_offsets"])))
            examples = tuple(
                new_first(hole_text(row), row["is_new"]) for row in of_kind[:MOST_EXAMPLES]
            )
            new = None if earlier is None else sum(row["is_new"] for row in of_kind)
            command = sources.words.of_holes()
            yield ReportFinding(level, len(of_kind), text, examples, command, new)


def _older_topics(sources: FindingSources) -> Iterator[ReportFinding]:
    """Yield a note on topics that were deleted and created again, and whose old logs are there."""
    again = [topic for topic in sources.topics if len(topic.topic_ids) > 1]
    if again:
        examples = tuple(
            f"{topic.topic}: {counted(one['segments'], 'segment')} of the topic id "
            f"{one['topic_id']}, {human_bytes(one['log_bytes'])}"
            for topic in again
            for one in topic.topic_ids
            if not one["newest"]
        )
        text = (
            f"{counted(len(again), 'topic')} with logs of an older topic of the same name, which "
            "was deleted."
        )
        command = sources.words.of_catalog()
        found = examples[:MOST_EXAMPLES]
        yield ReportFinding(FindingLevel.NOTE, len(examples), text, found, command)


def _damage(sources: FindingSources) -> Iterator[ReportFinding]:
    for kind, found in sources.segments.items():
        what = "unwritten index file" if kind == UNWRITTEN else f"{kind} log"
        text = f"{counted(found.segments, what)} ({human_bytes(found.bytes)}): {_DAMAGE[kind]}."
        source = sources.snapshot.source
        examples = tuple(one.text(source) for one in found.first[:MOST_EXAMPLES])
        level = FindingLevel.NOTE if kind == SegmentStatus.ARCHIVED else FindingLevel.PROBLEM
        command = shlex.join(["kip33", "dump", Location.of(found.first[0].log_uri).word])
        if kind in (SegmentStatus.ARCHIVED, UNWRITTEN):
            command = sources.words.of_catalog("segments")
        yield ReportFinding(level, found.segments, text, examples, command, found.new)


_REPLICAS: Final[Mapping[Kind, tuple[FindingLevel, str, str]]] = {
    Kind.CONFLICT: (
        FindingLevel.PROBLEM,
        "partition",
        "whose replicas have other bytes in the same leader epoch: which are right is not known",
    ),
    Kind.UNKNOWN: (
        FindingLevel.WARNING,
        "replica",
        "without known leader epochs: a later leader may never have had these records",
    ),
    Kind.UNSURE: (
        FindingLevel.WARNING,
        "replica",
        "with records of which no replica shows whether the log's leader had them",
    ),
    Kind.DIFFER: (
        FindingLevel.WARNING,
        "replica",
        "with records that a later leader never had: the replicas differ, and these are not read",
    ),
    Kind.BEHIND: (
        FindingLevel.NOTE,
        "replica",
        "with an earlier end than the log: another replica goes farther",
    ),
}


def _replicas(sources: FindingSources) -> Iterator[ReportFinding]:
    for kind, (level, what, why) in _REPLICAS.items():
        found = [note.text for note in sources.replicas if note.kind == kind]
        if found:
            text = f"{counted(len(found), what)} {why}."
            command = sources.words.of_catalog()
            yield ReportFinding(level, len(found), text, tuple(found[:MOST_EXAMPLES]), command)


def _overlaps(sources: FindingSources) -> Iterator[ReportFinding]:
    overlapping = {one.topic: sum(one.overlaps.values()) for one in sources.topics}
    count = sum(overlapping.values())
    if count:
        worst = sorted(overlapping, key=lambda topic: -overlapping[topic])[:MOST_EXAMPLES]
        text = f"{counted(count, 'segment')} with offsets that an earlier segment has as well."
        examples = [f"{topic}: {overlapping[topic]:,}" for topic in worst if overlapping[topic]]
        command = sources.words.of_catalog()
        yield ReportFinding(FindingLevel.WARNING, count, text, tuple(examples), command)


def _blocked(sources: FindingSources) -> Iterator[ReportFinding]:
    sizes, segments = (
        sources.partitions[f"blocked_{what}"].to_numpy() for what in ("bytes", "segments")
    )
    count = int(np.count_nonzero(segments))
    if count:
        worst = np.lexsort([-sizes, segments == 0])[: min(count, MOST_EXAMPLES)]
        rows = sources.partitions.take(pa.array(worst)).to_pylist()
        text = (
            f"{counted(count, 'blocked partition')}: "
            f"{counted(int(segments.sum()), 'expired segment')} "
            f"({human_bytes(int(sizes.sum()))}) cannot be deleted, because an older segment stays."
        )
        command = sources.words.of_retention()
        examples = tuple(map(block_sentence, rows))
        yield ReportFinding(FindingLevel.WARNING, count, text, examples, command)


_DOUBTS: Final[Mapping[Suspicion | Doubt, tuple[str, str]]] = {
    Suspicion.FUTURE: ("segment", "with a timestamp in the future"),
    Suspicion.SECONDS: ("segment", "with a timestamp in seconds instead of milliseconds"),
    Suspicion.MICROSECONDS: ("segment", "with a timestamp in microseconds instead of milliseconds"),
    Suspicion.NANOSECONDS: ("segment", "with a timestamp in nanoseconds instead of milliseconds"),
    Suspicion.BEFORE_1990: ("segment", "with a timestamp before 1990"),
    Suspicion.BACKFILL: (
        "segment",
        "with timestamps that had expired when the file was last written",
    ),
    Doubt.BY_FILE: ("segment", "without timestamps: the time of the file is used"),
    Doubt.UNVERIFIED: ("unverified segment", "whose log the build did not read"),
    Doubt.TIERED: (
        "segment",
        "of topics in tiered storage: not judged; give the catalog of that tier, too",
    ),
    Doubt.NOT_UPLOADED: (
        "segment",
        "not uploaded: a broker keeps them, and retention.ms may be over before they are",
    ),
    Doubt.OTHER_RECORDS: (
        "segment",
        "of which the remote tier has other records at the same offsets: which are right is not "
        "known",
    ),
}


def _doubts(sources: FindingSources) -> Iterator[ReportFinding]:
    below, words = f"{sources.snapshot.source}/", sources.words
    for kind, (what, why) in _DOUBTS.items():
        found = sources.sums.kinds[kind]
        if found.segments:
            text = f"{counted(found.segments, what)} {why}."
            examples = tuple(uri.removeprefix(below) for _, uri in found.largest)
            options = ("--ignore-future", "1h") if kind is Suspicion.FUTURE else ()
            is_suspected = isinstance(kind, Suspicion)
            closer = words.of_timestamps() if is_suspected else words.of_catalog("segments")
            command = words.of_retention(*options) or closer
            level = FindingLevel.NOTE if kind is Suspicion.BACKFILL else FindingLevel.WARNING
            yield ReportFinding(level, found.segments, text, examples, command)


def _healed(sources: FindingSources) -> Iterator[ReportFinding]:
    if healed := int(sources.snapshot.settings.get("healed", 0)):
        text = (
            f"{counted(healed, 'segment')} whose index files had been changed or were missing: the "
            "build wrote them again. Look for the program or the disk that changed them."
        )
        yield ReportFinding(FindingLevel.NOTE, healed, text, (), None)


def _orphans(sources: FindingSources) -> Iterator[ReportFinding]:
    orphaned = sources.snapshot.orphaned
    if orphaned and orphaned.rows:
        size = human_bytes(orphaned.index_bytes)
        text = f"{counted(orphaned.rows, 'index file')} of kip33 without a log ({size})."
        command = sources.words.of_catalog("orphans")
        yield ReportFinding(FindingLevel.NOTE, orphaned.rows, text, (), command)


def _deletable(sources: FindingSources) -> Iterator[ReportFinding]:
    segments, size = (
        int(sources.partitions[f"deletable_{what}"].to_numpy().sum())
        for what in ("segments", "bytes")
    )
    if segments:
        text = f"{counted(segments, 'expired segment')} ({human_bytes(size)}): retention can "
        text += "delete them."
        command = sources.words.of_retention("--forecast", "7d")
        yield ReportFinding(FindingLevel.NOTE, segments, text, (), command)
