"""Thousands of searches in generated logs whose damaged index files are recorded as ours.

An answer that differs from a loop over all records without a note is a fault.
"""

import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import NamedTuple

from kip33.rules.index_builder import IndexSettings
from kip33.rules.search import LATEST, MAX_TIMESTAMP, Exactness
from kip33.search.answers import SearchOptions
from kip33.search.partition_search import search_partition
from kip33.search.searched_segment import SearchedSegment
from tests.builders.damaged_indexes import damaged
from tests.builders.generated_segments import Written, plain_batch, wire_of
from tests.builders.index_mutants import cut, flip_bit
from tests.builders.searched_segments import Partition, brute, of_file, write_segment

DIALECTS = ("recover", "recover", "live", "kip33")
INTERVALS = (0, 100, 300, 1000, 4096)
QUESTIONS_A_LOG = 40
INDEX_FILES = (("time_index", ".timeindex", 12), ("offset_index", ".index", 8))
SUBTLE = ("bit flipped", "field changed", "swapped", "invented", "invented", "one dropped")


class Case(NamedTuple):
    """One partition on disk, its rows, and all records that were written."""

    name: str
    rows: list[SearchedSegment]
    records: list[tuple[int, int]]


def timestamps(random: Random, count: int) -> list[int]:
    """Return realistic timestamps: rising, some late, clocks ahead, a few values, missing ones."""
    kind = random.choice(("rising", "jitter", "ahead", "few", "steps", "spread", "falling"))
    times: list[int] = []
    for i in range(count):
        near = 1000 + 3 * i
        times.append(
            {
                "rising": near,
                "jitter": near + random.randint(-60, 60),
                "ahead": near + (random.random() < 0.03) * 900,
                "few": random.randint(1, 6),
                "steps": 100 * (i // 50) + random.randint(0, 9) + (i % 50 == 0) * 300,
                "spread": random.randint(0, 5000),
                "falling": 9000 - near,
            }[kind]
        )
    return times


def log_of(random: Random, base_offset: int) -> list[Written]:
    entries: list[Written] = []
    offset = base_offset
    times = timestamps(random, random.choice((5, 40, 200, 500)))
    value = bytes(random.choice((0, 30, 200)))
    while times:
        count = random.choice((1, 1, 2, 5))
        entries.append(plain_batch(offset, times[:count], value))
        times = times[count:]
        offset += count + random.choice((0, 0, 0, 0, 3))
    return entries


def damaged_indexes(
    random: Random, folder: Path, row: SearchedSegment, settings: Sequence[IndexSettings]
) -> SearchedSegment:
    """Damage one or both index files; the row says that a build wrote them like that."""
    path = folder / f"{row.base_offset:020d}"
    columns = {}
    which = random.choice(("time", "time", "offset", "both", "none"))
    for (name, suffix, width), of_pass in zip(INDEX_FILES, settings, strict=True):
        place = path.with_suffix(suffix)
        if which in ("both", name.split("_")[0]):
            data = place.read_bytes()
            changed, _ = damaged(random, damaged(random, data, width, SUBTLE)[0], width, SUBTLE)
            place.write_bytes(changed[: len(data)].ljust(len(data), b"\0"))  # of the same size
        columns |= of_file(name, place, of_pass)
    first, second = settings
    if first != second:  # a row has the settings of one build
        columns["offset_index_matches"] = None
    return row._replace(**columns | {"dialect": first.dialect})


def cases(random: Random, folder: Path) -> Iterator[Case]:
    """Yield one log with the index files of one or two passes, first intact, then damaged."""
    base = random.choice((0, 0, 1000))
    entries = log_of(random, base)
    first, second = (
        IndexSettings(random.choice(DIALECTS), random.choice(INTERVALS)) for _ in range(2)
    )
    second = random.choice((first, first, second))

    def write(of_pass: IndexSettings) -> SearchedSegment:
        dialect, interval = of_pass.dialect, of_pass.index_interval_bytes
        wire = wire_of(entries)
        return write_segment(folder, base, wire, dialect=dialect, interval_bytes=interval)

    for _ in range(4):
        row = write(second)
        if second != first:
            offsets = folder / f"{base:020d}.index"
            kept = offsets.read_bytes()
            row = write(first)
            offsets.write_bytes(kept)
        row = damaged_indexes(random, folder, row, (first, second))
        name = f"{first}, {second}" if second != first else f"{first}"
        yield Case(name, [row], Partition(((base, tuple(entries)),)).records)


def broken_case(random: Random, folder: Path) -> Case:
    """Return segments of which one has a flipped bit or has lost its end."""
    base, rows, records = 0, [], []
    broken = random.randrange(4)
    for place in range(random.randint(1, 4)):
        entries = log_of(random, base)
        interval = random.choice(INTERVALS)
        row = write_segment(folder, base, wire_of(entries), interval_bytes=interval)
        while place == broken and row.status == "ok":  # a cut between batches is not detected
            log = bytearray(wire_of(entries))
            random.choice((flip_bit, cut))(random, log)
            if log:
                row = write_segment(folder, base, bytes(log), interval_bytes=interval)
        rows.append(row)
        if random.random() < 0.05:
            rows[-1] = rows[-1]._replace(status="unreadable", last_offset=None, max_timestamp=None)
        records += Partition(((base, tuple(entries)),)).records
        base = entries[-1].last_offset + 1
    return Case(" ".join(row.status for row in rows), rows, records)


def ask_broken(random: Random, case: Case) -> Iterator[tuple[str, str | None]]:
    """Yield the outcome of each question: times, the end of the log, and its largest timestamp."""
    times = sorted({time for _, time in case.records})
    end, largest = case.records[-1][0] + 1, max(times)
    first = next(offset for offset, time in case.records if time == largest)
    for index_only in (False, True):
        targets = [max(0, random.choice(times) + random.choice((-1, 0, 1))) for _ in range(8)]
        found = search_partition(
            case.rows, [*targets, LATEST, MAX_TIMESTAMP], SearchOptions(index_only=index_only)
        )
        expected = [brute(case.records, target)[0] for target in targets] + [end, first]
        for answer, right in zip(found, expected, strict=True):
            is_right = answer.offset == right
            if (
                answer.exactness == Exactness.INDEX
                and answer.offset is not None
                and right is not None
            ):
                is_right = answer.offset <= right
            if is_right or answer.passed_over:
                yield f"{'right' if is_right else 'other'}, {answer.exactness}", None
            else:
                yield "wrong", f"{case.name}: {answer}, not {right}"


def ask(random: Random, case: Case) -> Iterator[tuple[str, str | None]]:
    """Yield the outcome of each question and what is wrong with the answer."""
    times = sorted({time for _, time in case.records})
    for _ in range(QUESTIONS_A_LOG // 4):
        target = max(0, random.choice(times) + random.choice((-1, 0, 0, 1)))
        [answer] = search_partition(case.rows, [target])
        expected = brute(case.records, target)
        outcome = "noted" if answer.note else "no note"
        if answer[1:3] == expected[:2]:
            yield f"right, {outcome}", None
        else:
            yield "wrong", f"{case.name}: {target}: {answer}, not {expected}"


def run(seed: str, questions: int, *, broken: bool) -> tuple[Counter[str], list[str]]:
    """Return the number of each outcome, and the faults; `broken` is for logs that lost records."""
    outcomes: Counter[str] = Counter()
    faults: list[str] = []
    number = 0
    while sum(outcomes.values()) < questions:
        random = Random(f"{seed} broken {number}" if broken else f"{seed} {number}")
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            for case in [broken_case(random, folder)] if broken else cases(random, folder):
                for outcome, fault in ask_broken(random, case) if broken else ask(random, case):
                    outcomes[outcome] += 1
                    faults += [f"log {number} of seed {seed}: {fault}"] if fault else []
        number += 1
    return outcomes, faults
