"""A small Kafka whose true logs are known, and archives of its disks, for tests of `which_log`.

Each world is one partition: 2 to 4 replicas, leaders elected from the in-sync replicas or not,
appends (a deposed leader goes on for a while), fetches that lag, truncation by leader epochs
(KIP-101, KIP-279), retention, DeleteRecords, compaction by each replica alone, uploads to a remote
tier. Then an archive: replicas copied at one time or at several, some missing, segments lost, cut
or unreadable, checkpoints missing or of another time, epochs unknown.

`history[E]` is the whole log of epoch E's leader. A record is right if it is the one of
`history[S]`, S the latest epoch of which the archive has a trace. The final log may be another one
if the archive has no trace of its leader; no rule can see that.

Worlds in which Kafka's own followers keep a record that their leader never had are left out: after
compaction a leader's epoch cache is not exact, so it answers a follower too late an end.
"""

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from kip33.rules.which_log import (
    NEVER,
    NOT_KNOWN,
    Certainty,
    ChosenLog,
    Copy,
    Kind,
    Segments,
    Status,
    which_log,
)


class Record(NamedTuple):
    offset: int
    uid: int
    key: int
    is_tombstone: bool


class Batch(NamedTuple):
    base: int
    last: int
    epoch: int
    records: tuple[Record, ...]


@dataclass
class Replica:
    name: int
    log: list[Batch] = field(default_factory=list)
    rolls: list[int] = field(default_factory=lambda: [0])  # base offsets of segments
    log_start: int = 0
    end: int = 0
    cache: list[tuple[int, int]] = field(default_factory=list)
    full: list[Record] = field(default_factory=list)  # never shortened at its start
    high_watermark: int = 0
    cleaned_until: int = 0
    synced: int = -1  # the epoch with whose leader it agreed
    leads: int = -1  # the epoch in which it takes itself for the leader
    is_alive: bool = True

    def copy(self) -> "Replica":
        return replace(
            self, log=self.log[:], rolls=self.rolls[:], cache=self.cache[:], full=self.full[:]
        )

    def assign(self, epoch: int, start: int) -> None:
        if not self.cache or epoch > self.cache[-1][0]:
            while self.cache and self.cache[-1][1] >= start:
                self.cache.pop()
            self.cache.append((epoch, start))

    def append(self, batch: Batch, most: int) -> None:
        here = sum(one.base >= self.rolls[-1] for one in reversed(self.log[-most - 1 :]))
        if here >= most or (here and batch.base >= self.rolls[-1] + 40):
            self.rolls.append(batch.base)
        self.log.append(batch)
        self.assign(batch.epoch, batch.base)
        self.end = batch.last + 1

    def truncate(self, end: int) -> None:
        if end >= self.end:  # Kafka cuts the epochs always
            self.cache = [one for one in self.cache if one[1] < self.end]
            return
        if end < self.rolls[0]:
            self.restart_at(end)
            return
        self.log = [one for one in self.log if one.last < end]
        self.rolls = [one for one in self.rolls if one < end] or [self.rolls[0]]
        self.cache = [one for one in self.cache if one[1] < end]
        self.end, self.full = end, self.full[:end]
        self.high_watermark = min(self.high_watermark, end)
        self.log_start = min(self.log_start, end)

    def restart_at(self, start: int, cache: list[tuple[int, int]] | None = None) -> None:
        self.log, self.rolls, self.cache = [], [start], list(cache or [])
        self.log_start = self.end = self.high_watermark = self.cleaned_until = start

    def end_for(self, epoch: int) -> tuple[int, int] | None:
        """LeaderEpochFileCache.endOffsetFor."""
        if not self.cache:
            return None
        if epoch == self.cache[-1][0]:
            return epoch, self.end
        higher = [one for one in self.cache if one[0] > epoch]
        floor = [one for one in self.cache if one[0] <= epoch]
        if not higher:
            return None
        return (floor[-1][0] if floor else epoch), higher[0][1]

    def agree_with(self, leader: "Replica") -> None:
        """AbstractFetcherThread: truncate until the leader's epochs and ends are its own."""
        while self.cache:
            answer = leader.end_for(self.cache[-1][0])
            if answer is None:
                self.truncate(min(self.high_watermark, self.end))
                return
            epoch, end = answer
            own = self.end_for(epoch)
            if own is None:
                self.truncate(min(end, self.end))
                return
            if own[0] == epoch:
                self.truncate(min(own[1], end, self.end))
                return
            before = self.end, len(self.cache)
            self.truncate(min(own[1], self.end))
            if (self.end, len(self.cache)) == before:
                raise AssertionError("truncation does not end")

    def start_from(self, start: int, epoch_cache: bool = True) -> None:
        self.log_start = start
        self.cleaned_until = max(self.cleaned_until, start)
        if epoch_cache and self.cache:
            before = [one for one in self.cache if one[1] <= start]
            rest = [one for one in self.cache if one[1] > start]
            self.cache = ([(before[-1][0], start)] if before else []) + rest


class RemoteSegment(NamedTuple):
    base: int
    end: int
    batches: tuple[Batch, ...]


class Kinds(NamedTuple):
    """What may happen in a world."""

    unclean: bool
    compacts: bool
    retention: bool
    tiered: bool
    deletes_records: bool
    staggered: bool
    damage: float
    hide: float  # how often epochs are unknown


class World:
    def __init__(self, rng: random.Random, kinds: Kinds) -> None:
        self.rng, self.kinds = rng, kinds
        count = rng.choice((2, 2, 3, 3, 4))
        self.replicas = [Replica(name) for name in range(count)]
        self.most = [rng.randint(1, 6) for _ in self.replicas]
        self.insync = set(range(count))
        self.epoch, self.uids = rng.choice((0, 0, 3)), 0
        self.history: dict[int, list[Record]] = {}
        self.remote: list[RemoteSegment] = []
        self.leader = self.replicas[0]
        self._lead(self.leader)

    def _lead(self, replica: Replica) -> None:
        self.leader = replica
        replica.leads = replica.synced = self.epoch
        replica.assign(self.epoch, replica.end)
        self.history[self.epoch] = replica.full[:]
        replica.full = self.history[self.epoch]

    def append(self, replica: Replica) -> None:
        if replica.leads < 0 or not replica.is_alive:
            return
        rng, base, records = self.rng, replica.end, []
        for offset in range(base, base + (rng.choice((1, 1, 2, 3)))):
            self.uids += 1
            is_tombstone = self.kinds.compacts and rng.random() < 0.25
            records.append(Record(offset, self.uids, rng.randrange(6), is_tombstone))
        replica.full.extend(records)
        replica.append(
            Batch(base, records[-1].offset, replica.leads, tuple(records)), self.most[replica.name]
        )
        self._advance()

    def fetch(self, replica: Replica, most: int) -> None:
        leader = self.leader
        if replica is leader or not replica.is_alive or not leader.is_alive:
            return
        if replica.leads >= 0:
            replica.leads, replica.full = -1, replica.full[:]
        if replica.synced != self.epoch:
            replica.agree_with(leader)
            replica.synced = self.epoch
        if replica.end > leader.end:
            replica.truncate(leader.end)
        start = max(leader.rolls[0], leader.log_start)
        if replica.end < start:
            before = [one for one in leader.cache if one[1] < start]
            replica.restart_at(start, before if self.kinds.tiered else None)
            replica.log_start = leader.log_start
        for batch in [one for one in leader.log if one.last >= replica.end][:most]:
            if batch.base < replica.end:  # UnexpectedAppendOffsetException: start again
                replica.restart_at(batch.base, [one for one in leader.cache if one[1] < batch.base])
            replica.append(batch, self.most[replica.name])
        if leader.log and replica.end > leader.log[-1].last:
            replica.end = leader.end
        replica.full = leader.full[: replica.end]
        replica.high_watermark = min(leader.high_watermark, replica.end)
        if leader.log_start > replica.log_start:  # below it a follower may have a dead branch
            self._delete_before(replica, min(leader.log_start, replica.end))
        if replica.end >= leader.high_watermark:
            self.insync.add(replica.name)
        self._advance()

    def _delete_before(self, replica: Replica, start: int) -> None:
        while len(replica.rolls) > 1 and replica.rolls[1] <= start:
            replica.rolls.pop(0)
        replica.log = [one for one in replica.log if one.base >= replica.rolls[0]]
        replica.start_from(start)

    def _advance(self) -> None:
        if self.leader.is_alive and self.insync:
            ends = [one.end for one in self.replicas if one.name in self.insync]
            self.leader.high_watermark = max(self.leader.high_watermark, min(ends))

    def elect(self, is_clean: bool) -> None:
        rng, old = self.rng, self.leader
        able = [one for one in self.replicas if one is not old and one.is_alive]
        able = [one for one in able if (one.name in self.insync) == is_clean]
        if not able:
            return
        fate = rng.random()
        new = rng.choice(able)
        if fate < 0.3:
            old.is_alive = False
        elif fate < 0.6:  # it goes on as a leader until it fetches
            pass
        else:
            old.leads, old.full = -1, old.full[:]
        new.leads, new.full = -1, new.full[:]
        self.epoch += rng.choice((1, 1, 2))
        self.insync = {one.name for one in able if one.name in self.insync and is_clean} | {
            new.name
        }
        self._lead(new)
        self._advance()

    def expire(self, replica: Replica) -> None:
        if not replica.is_alive or len(replica.rolls) < 2:
            return
        if self.kinds.tiered:
            uploaded = self._uploaded(replica)
            if replica.rolls[1] <= uploaded:
                replica.rolls.pop(0)
                replica.log = [one for one in replica.log if one.base >= replica.rolls[0]]
        elif replica.rolls[1] <= replica.high_watermark:
            self._delete_before(replica, replica.rolls[1])

    def delete_records(self) -> None:
        leader = self.leader
        if leader.is_alive and leader.high_watermark > leader.log_start:
            self._delete_before(leader, self.rng.randint(leader.log_start, leader.high_watermark))

    def compact(self, replica: Replica) -> None:
        rng, active = self.rng, replica.rolls[-1]
        until = min(active, replica.high_watermark)
        if not replica.is_alive or until <= replica.log_start:
            return
        until = max((one for one in replica.rolls if one <= until), default=0)
        latest = {r.key: r.offset for b in replica.log if b.last < until for r in b.records}
        found: list[Batch] = []
        for batch in replica.log:
            if batch.last >= until:
                found.append(batch)
                continue
            kept = tuple(
                r
                for r in batch.records
                if latest[r.key] == r.offset
                and not (r.is_tombstone and r.offset < replica.cleaned_until and rng.random() < 0.5)
            )
            if kept or rng.random() < 0.15:
                found.append(batch._replace(records=kept))
        replica.log, replica.cleaned_until = found, until
        replica.rolls = [
            one
            for at, one in enumerate(replica.rolls)
            if at == 0 or one >= until or rng.random() < 0.5
        ]

    def _segments(self, replica: Replica) -> Iterator[tuple[int, int, list[Batch]]]:
        for base, end in zip(replica.rolls, [*replica.rolls[1:], NEVER], strict=True):
            yield base, end, [one for one in replica.log if base <= one.base < end]

    def _uploaded(self, leader: Replica) -> int:
        """RemoteLogManager.findHighestRemoteOffset."""
        starts = [start for _, start in leader.cache]
        for (epoch, start), end in reversed(
            list(zip(leader.cache, [*starts[1:], NEVER], strict=True))
        ):
            found = [
                b.last + 1
                for one in self.remote
                for b in one.batches
                if b.epoch == epoch and start <= b.base and b.last < end
            ]
            if found:
                return min(max(found), end)
        return 0

    def upload(self) -> None:
        leader = self.leader
        if not leader.is_alive:
            return
        uploaded = max(self._uploaded(leader), leader.rolls[0] if not self.remote else 0)
        for base, end, batches in self._segments(leader):
            if end != NEVER and end > uploaded and end <= leader.high_watermark and batches:
                self.remote.append(RemoteSegment(base, end, tuple(batches)))
                return

    def newest(self) -> dict[int, int]:
        """Return the latest offset of each key, in any log: what is older may be compacted away."""
        found: dict[int, int] = {}
        for records in self.history.values():
            for one in records:
                found[one.key] = max(one.offset, found.get(one.key, -1))
        return found

    def step(self) -> None:
        rng, kinds = self.rng, self.kinds
        what = rng.random()
        replica = rng.choice(self.replicas)
        if what < 0.34:
            self.append(self.leader)
        elif what < 0.42:
            self.append(replica)  # a deposed leader that does not know it
        elif what < 0.72:
            self.fetch(replica, rng.choice((1, 2, 4, 50)))
        elif what < 0.76:
            self.insync.discard(replica.name) if replica is not self.leader else None
            self._advance()
        elif what < 0.81:
            self.elect(is_clean=True)
        elif what < 0.84:
            self.elect(is_clean=not kinds.unclean)
        elif what < 0.87:
            replica.is_alive = True if replica is not self.leader else replica.is_alive
        elif what < 0.92 and kinds.retention:
            self.expire(replica)
        elif what < 0.93 and kinds.deletes_records:
            self.delete_records()
        elif what < 0.97 and kinds.compacts:
            self.compact(replica)
        elif kinds.tiered:
            self.upload()


class Archived(NamedTuple):
    copy: int
    base: int
    end: int  # of the valid batches
    batches: list[Batch]
    status: Status
    shows_epochs: bool


class Archive(NamedTuple):
    copies: list[Copy]
    rows: list[Archived]
    segments: Segments
    latest_epoch: int  # of which it has a trace, -1 without


def digest_of(batches: list[Batch]) -> int:
    return hash(tuple(r.uid for b in batches for r in b.records)) & (2**62 - 1)


def epochs_of(batches: list[Batch]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for one in batches:
        if not found or one.epoch > found[-1][0]:
            found.append((one.epoch, one.base))
    return found


def archive_of(world: World, states: list[Replica], older: list[Replica]) -> Archive:
    rng, kinds = world.rng, world.kinds
    copies, rows, latest = [], [], -1
    present = [one for one in states if rng.random() < 0.8] or states[:1]
    hidden_before = rng.randint(0, 30) if kinds.hide and rng.random() < 0.3 else 0  # old formats
    for state in present:
        checkpoint: tuple[tuple[int, int], ...] = tuple(state.cache) if rng.random() < 0.6 else ()
        if checkpoint and rng.random() < 0.1 and kinds.staggered:
            checkpoint = tuple(older[state.name].cache)
        hides = rng.random() < kinds.hide
        number = len(copies)
        copies.append(Copy(f"b{state.name}", False, state.log_start, checkpoint))
        parts = [(base, end, batches) for base, end, batches in world._segments(state)]
        rows += _archived(rng, kinds, number, parts, hides, hidden_before)
    if world.remote:
        number = len(copies)
        copies.append(Copy("remote", True, world.leader.log_start))
        hides = rng.random() < kinds.hide
        for one in world.remote:
            part = (one.base, one.end, list(one.batches))
            rows += _archived(rng, kinds, number, [part], hides, hidden_before)
    rng.shuffle(rows)
    for copy in copies:
        latest = max([latest, *(epoch for epoch, _ in copy.checkpoint)])
    for row in rows:
        latest = max([latest, *(one.epoch for one in row.batches if row.status != Status.LOST)])
    return Archive(copies, rows, columns_of(rows), latest)


def _archived(
    rng: random.Random, kinds: Kinds, number: int, parts: list[Any], hides: bool, hidden_before: int
) -> Iterator[Archived]:
    for base, _, batches in parts:
        fate = rng.random()
        if fate < kinds.damage / 3:
            continue
        status = Status.OK
        if fate < kinds.damage * 2 / 3:
            status, batches = Status.LOST, []
        elif fate < kinds.damage and batches:
            status, batches = Status.CUT, batches[: rng.randrange(len(batches))]
        end = batches[-1].last + 1 if batches else base
        shows = not hides and not (batches and batches[-1].last < hidden_before)
        shows &= all(a.epoch <= b.epoch for a, b in pairwise(batches))
        yield Archived(number, base, end, batches, status, shows)


def columns_of(rows: list[Archived]) -> Segments:
    told = [epochs_of(one.batches) if one.shows_epochs else [] for one in rows]
    flat = [entry for one in told for entry in one]
    return Segments(
        *(np.array([one[at] for one in rows], np.int64) for at in (0, 1, 2)),
        np.array([sum(len(b.records) for b in one.batches) for one in rows], np.int64),
        np.array([one.status for one in rows], np.int64),
        np.array([digest_of(one.batches) if one.batches else NOT_KNOWN for one in rows], np.int64),
        np.array([0, *np.cumsum([len(one) for one in told])], np.int64),
        np.array([epoch for epoch, _ in flat], np.int64),
        np.array([offset for _, offset in flat], np.int64),
    )


def some_kinds(rng: random.Random) -> Kinds:
    compacts = rng.random() < 0.25
    tiered = not compacts and rng.random() < 0.35
    return Kinds(
        rng.random() < 0.6,
        compacts,
        rng.random() < 0.6,
        tiered,
        rng.random() < 0.15,
        rng.random() < 0.5,
        rng.choice((0.0, 0.0, 0.1, 0.3)),
        rng.choice((0.0, 0.0, 0.0, 0.2)),
    )


class Made(NamedTuple):
    seed: int
    world: World
    archive: Archive
    truth: list[Record]  # the log of the latest leader of which the archive has a trace
    final: list[Record]

    def is_true(self, record: Record) -> bool:
        return record in self.truth[record.offset : record.offset + 1]

    def answer(self, replica: str | None = None) -> ChosenLog:
        compacted = self.world.kinds.compacts or None
        return which_log(*self.archive[0:3:2], compacted=compacted, replica=replica)


def worlds(seeds: range, **forced: Any) -> Iterator[Made]:
    """The worlds of these seeds, without those that show nothing; `forced` are Kinds."""
    for seed in seeds:
        rng = random.Random(seed)
        kinds = some_kinds(rng)._replace(**forced)
        world = World(rng, kinds)
        steps = rng.choice((15, 30, 60, 120))
        copied_at = [
            rng.randrange(steps // 2, steps) if kinds.staggered else steps - 1
            for _ in world.replicas
        ]
        older_at = [rng.randrange(steps // 3, steps) for _ in world.replicas]
        states, older = dict[int, Replica](), dict[int, Replica]()
        for step in range(steps):
            world.step()
            for number, replica in enumerate(world.replicas):
                if copied_at[number] == step:
                    states[number] = replica.copy()
                if older_at[number] == step:
                    older[number] = replica.copy()
        order = range(len(world.replicas))
        archive = archive_of(world, [states[n] for n in order], [older[n] for n in order])
        if archive.latest_epoch >= 0 and all(
            has_its_leaders_log(one, world) for one in (*states.values(), *world.replicas)
        ):
            yield Made(
                seed, world, archive, world.history[archive.latest_epoch], world.leader.full[:]
            )


def has_its_leaders_log(replica: Replica, world: World) -> bool:
    """Log matching: what shares an epoch shares all before it."""
    return all(
        record in world.history[replica.log[-1].epoch][record.offset : record.offset + 1]
        for batch in replica.log
        for record in batch.records
        if record.offset >= replica.log_start
    )


def records_of(archive: Archive, answer: ChosenLog) -> Iterator[tuple[Record, Certainty]]:
    """The records of an answer, in order; each offset of a segment is read once at most."""
    at = -1
    for one in answer.slices:
        row = archive.rows[one.segment]
        assert row.copy == one.copy and at <= one.from_offset < one.until_offset, answer
        assert row.status != Status.LOST and row.base <= one.from_offset, answer
        assert one.until_offset <= row.end, answer
        at = one.until_offset
        for batch in row.batches:
            for record in batch.records:
                if one.from_offset <= record.offset < one.until_offset:
                    yield record, one.certainty


def archived_records(archive: Archive) -> Iterator[tuple[int, Record]]:
    """The records of all copies that can be read, each with its copy."""
    for row in archive.rows:
        for batch in row.batches if row.status != Status.LOST else ():
            for record in batch.records:
                if record.offset >= archive.copies[row.copy].log_start:
                    yield row.copy, record


def figures(made: Made, answer: ChosenLog) -> Counter[str]:
    """Numbers of records and offsets by how they are answered; those of FAULTS must be 0."""
    found: Counter[str] = Counter()
    world, archive, final = made.world, made.archive, made.final
    given: dict[int, Record] = {}
    for record, certainty in records_of(archive, answer):
        given[record.offset] = record
        is_true = made.is_true(record)
        name = "sure" if certainty <= Certainty.COMPACTED else certainty.name.lower()
        found[f"{name}: {'true' if is_true else 'wrong'}"] += 1
        is_final = record in final[record.offset : record.offset + 1]
        found["sure: not of the last leader, who has no trace"] += (
            name == "sure" and is_true and not is_final
        )
    newest: dict[int, int] = {}  # what is older than its key's newest may be compacted away
    for records in world.history.values() if world.kinds.compacts else ():
        for record in records:
            newest[record.key] = max(record.offset, newest.get(record.key, NOT_KNOWN))
    different: dict[int, set[int]] = {}
    for copy, one in archived_records(archive):
        kinds = {n.kind for n in answer.notes if n.from_offset <= one.offset < n.until_offset}
        different.setdefault(one.offset, set()).add(one.uid)
        if len(different[one.offset]) > 1 and not kinds & PARTED:
            found["differ without a note"] += 1
        if not made.is_true(one):
            continue
        is_needed = newest.get(one.key, one.offset) <= one.offset
        if given.get(one.offset) != one and is_needed:
            is_noted = bool(kinds & {*PARTED, Kind.POSSIBLE})
            name = "a tombstone" if one.is_tombstone else "a record"
            found[f"missed: {name} {'with' if is_noted else 'without'} a note"] += 1
        # Notes on remote copies are about one segment of several.
        if not archive.copies[copy].is_remote and Kind.UNKNOWN not in {
            n.kind for n in answer.notes
        }:
            found["dead, but true"] += any(
                note.kind == Kind.DIFFER
                and note.copy == copy
                and note.from_offset <= one.offset < note.until_offset
                for note in answer.notes
            )
    found["offsets where copies differ"] = sum(len(uids) > 1 for uids in different.values())
    return found


PARTED = {Kind.DIFFER, Kind.UNSURE, Kind.UNKNOWN, Kind.CONFLICT}
FAULTS = (
    *("sure: wrong", "dead, but true", "differ without a note"),
    "missed: a record without a note",
)
