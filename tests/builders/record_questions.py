"""Random archives, and random questions of records for several engines."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import polars as pl

import kip33
from tests.builders.segment_builder import v0_message, v2_batch
from tests.records.test_pruning import build, damage, random_partition

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
COLUMNS = ("topic", "partition", "offset", "timestamp", "value", "_corrupt")
Row = tuple[Any, ...]


def random_archive(random: Random, root: Path, *, disorder_ms: int) -> tuple[Path, Path]:
    """Make an archive with damage, and a catalog of it with wrong indexes; return both."""
    archive = root / "archive"
    for name in ("orders-0", "orders-1", "clicks-0"):
        random_partition(random, archive / name, disorder_ms=disorder_ms)
        logs = sorted((archive / name).glob("*.log"))
        if random.random() < 0.5:
            with random.choice(logs).open("ab") as log:
                log.write(random.choice((b"\0" * 30, v2_batch(9_000, body=b"\xff", crc=7))))
        (archive / name / f"{20_000:020d}.log").write_bytes(v0_message(20_000, None, b"no time"))
    build(archive, random)
    for index in root.rglob("*.*index"):
        if random.random() < 0.4:
            damage(random, index)
    return archive, root / "indexes/_catalog"


def rows_of(source: Path, **options: Any) -> list[Row]:
    """Return the rows of `read_arrow`; times are ms."""
    return plain_rows(
        kip33.read_arrow(source, columns=COLUMNS, **({"on_error": "row"} | options)).read_all()
    )


def plain_rows(table: Any) -> list[Row]:
    """Return the rows of an Arrow table with COLUMNS; times are ms."""
    stamps = table["timestamp"].cast("timestamp[ms]").cast("int64")
    table = table.set_column(COLUMNS.index("timestamp"), "timestamp", stamps)
    return list(zip(*(table[name].to_pylist() for name in COLUMNS), strict=True))


class Condition(NamedTuple):
    """A column compared with a constant; a time is ms."""

    column: str
    operator: str
    value: Any

    def holds(self, row: Row) -> bool:
        found = row[COLUMNS.index(self.column)]
        if found is None:
            return False
        return {
            "=": lambda: found == self.value,
            "<": lambda: found < self.value,
            "<=": lambda: found <= self.value,
            ">": lambda: found > self.value,
            ">=": lambda: found >= self.value,
            "in": lambda: found in self.value,
        }[self.operator]()

    def polars(self) -> pl.Expr:
        column, value = pl.col(self.column), self.value
        if self.column == "timestamp":
            value = [time_of(v) for v in value] if self.operator == "in" else time_of(value)
        return {
            "=": lambda: column == value,
            "<": lambda: column < value,
            "<=": lambda: column <= value,
            ">": lambda: column > value,
            ">=": lambda: column >= value,
            "in": lambda: column.is_in(value),
        }[self.operator]()

    def sql(self, time: str, quote: str) -> str:
        """Return the condition; `time` is an expression of ms, such as `timestamp_millis({})`."""
        values = self.value if self.operator == "in" else [self.value]
        texts = [time.format(v) if self.column == "timestamp" else repr(v) for v in values]
        right = f"({', '.join(texts)})" if self.operator == "in" else texts[0]
        return f"{quote}{self.column}{quote} {self.operator} {right}"


def time_of(ms: int) -> datetime:
    return EPOCH + timedelta(milliseconds=ms)


def random_conditions(random: Random, every: list[Row]) -> list[Condition]:
    """Return one to three conditions, near to what rows have."""
    columns = random.sample(("topic", "partition", "offset", "offset", "timestamp"), k=3)
    return [random_condition(random, every, column) for column in columns[: random.randrange(1, 4)]]


def random_condition(random: Random, every: list[Row], column: str) -> Condition:
    there = [row[COLUMNS.index(column)] for row in every]
    there = [one for one in there if one is not None]
    if column == "topic":
        values = random.sample(["orders", "clicks", "nothing", "or*"], k=2)
    elif column == "partition":
        values = random.sample([0, 1, 7], k=2)
    else:
        values = [random.choice(there) + random.choice((-1, 0, 0, 1)) for _ in range(2)]
    operators = ("=", "in") if column in ("topic", "partition") else ("<", "<=", ">", ">=")
    operator = random.choice(operators if random.random() < 0.9 else ("=", "in"))
    return Condition(column, operator, values if operator == "in" else values[0])


def those(every: list[Row], conditions: list[Condition]) -> list[Row]:
    return [row for row in every if all(one.holds(row) for one in conditions)]
