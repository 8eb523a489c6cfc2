"""FORMATS.md is executed: every hex block is decoded, every stated value compared."""

import re
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np

import kip33.formats
from kip33.drafts.designs import DRAFTS, INLINE_ENTRY, DraftBuilder
from kip33.formats import names
from kip33.formats.batch import BATCH, decode_header
from kip33.formats.codecs import decompress
from kip33.formats.partition_metadata import PartitionMetadata
from kip33.formats.producer_snapshot import ProducerSnapshot
from kip33.formats.records import iterate_records
from kip33.formats.time_index import OffsetIndex, TimeIndex
from kip33.formats.transaction_index import TransactionIndex
from tests.builders.segment_builder import crc32c, v2_batch
from tests.cases import each_case

PAGE = Path(kip33.formats.__file__).with_name("FORMATS.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```hex (?P<head>.*?)\n(?P<lines>.*?)^```", re.MULTILINE | re.DOTALL)
LINE = re.compile(r"(?P<hex>(?:[0-9a-f]{2}| )+?)(?: {2,}(?P<says>\S.*))?")
FIELD = re.compile(r"(?P<name>[a-z ]+) = (?P<value>0x[0-9a-f]+|-?\d+)")


class Line(NamedTuple):
    data: bytes
    says: str


class Block(NamedTuple):
    kind: str
    options: dict[str, int]
    lines: list[Line]
    results: list[str]

    @property
    def data(self) -> bytes:
        return b"".join(line.data for line in self.lines)

    @property
    def fields(self) -> list[tuple[str, int, Line]]:
        found = [(FIELD.fullmatch(line.says), line) for line in self.lines]
        return [
            (match["name"].replace(" ", "_"), int(match["value"], 0), line)
            for match, line in found
            if match
        ]


def blocks() -> list[Block]:
    return [block(match["head"], match["lines"].splitlines()) for match in BLOCK.finditer(PAGE)]


def block(head: str, text: list[str]) -> Block:
    kind, *options = head.split()
    lines = [LINE.fullmatch(line) for line in text if not line.startswith("=>")]
    assert all(lines), f"a line of {head!r} is no hex: {text}"
    return Block(
        kind,
        {name: int(value) for name, value in (option.split("=") for option in options)},
        [Line(bytes.fromhex(line["hex"]), line["says"] or "") for line in lines if line],
        [line.removeprefix("=>").strip() for line in text if line.startswith("=>")],
    )


def record_alone(data: bytes, **fields: int) -> Iterable[object]:
    """Return the record read back from a batch that the test's own builder puts around it."""
    return iterate_records(v2_batch(records_count=1, body=data, **fields))


def inflated(codec: str) -> Callable[[bytes], Iterable[object]]:
    return lambda data: [b"".join(decompress([data], codec, magic=2))]


class OffsetPositionTime(NamedTuple):
    """One entry of an inline index: absolute offset, position in bytes, ms since epoch."""

    offset: int
    position: int
    timestamp: int


def inline_entries(data: bytes, *, base_offset: int) -> list[OffsetPositionTime]:
    rows = np.frombuffer(data, INLINE_ENTRY).tolist()
    return [OffsetPositionTime(base_offset + offset, at, time) for offset, at, time in rows]


DECODERS: dict[str, Callable[..., Iterable[object]]] = {
    "entry": iterate_records,
    "record": record_alone,
    "time-index": TimeIndex.from_bytes,
    "offset-index": OffsetIndex.from_bytes,
    **dict.fromkeys(("minute-index", "minute-map-index", "bucket-index"), TimeIndex.from_bytes),
    "inline-index": inline_entries,
    "transaction-index": TransactionIndex.from_bytes,
    "partition-metadata": lambda data: [PartitionMetadata.from_bytes(data).topic_id],
    "producer-snapshot": lambda data: ProducerSnapshot.from_bytes(data).producers,
    **{codec: inflated(codec) for codec in ("gzip", "snappy", "lz4", "zstd")},
}


@each_case("block", blocks())
def test_block_decodes_to_what_it_says(block: Block) -> None:
    decoded = DECODERS[block.kind](block.data, **block.options)
    assert [repr(value) for value in decoded] == block.results


@each_case("block", blocks())
def test_each_line_says_its_own_bytes(block: Block) -> None:
    for name, value, line in block.fields:
        signed = int.from_bytes(line.data, signed=True) if name != "crc" else None
        assert value in (signed, int.from_bytes(line.data)), line
    for line in block.lines:
        for quoted in re.findall(r'"(.*?)"', line.says):
            assert line.data.endswith(quoted.encode()), line


@each_case("block", [b for b in blocks() if b.kind == "entry"])
def test_header_has_the_fields_of_the_page(block: Block) -> None:
    header = decode_header(block.data, 0)
    derived = {
        "size": header.size_bytes - 12,
        "last_offset_delta": header.last_offset - header.base_offset,
    }
    for name, value, _ in block.fields:
        read = derived[name] if name in derived else getattr(header, name)
        assert read == value, name
    assert header.size_bytes == len(block.data)
    crc = crc32c(block.data[21:]) if header.magic == 2 else zlib.crc32(block.data[16:])
    assert header.crc == crc


@each_case("name", [*DRAFTS])
def test_the_file_of_a_draft_is_that_of_the_log_on_the_page(name: str) -> None:
    listed = re.findall(r"^\| (\d+) to (\d+) \| (\d+) \| (\d+) \| (yes|no) \|$", PAGE, re.MULTILINE)
    batches = np.zeros(len(listed), BATCH)
    for batch, (first, last, position, timestamp, _) in zip(batches, listed, strict=True):
        batch["base_offset"], batch["last_offset"] = int(first), int(last)
        batch["position"], batch["max_timestamp"] = int(position), int(timestamp)
    builder = DraftBuilder(DRAFTS[name], base_offset=100)
    builder.append(batches, np.array([point == "yes" for *_, point in listed]))
    builder.close()
    assert builder.data == next(b.data for b in blocks() if b.kind == f"{name}-index")


def rows(title: str) -> list[tuple[str, str]]:
    table = PAGE[PAGE.index(f"| {title} | kip33 reads |") :].split("\n\n")[0]
    return re.findall(r"^\| `(\S+)` \| `(.+)` \|$", table, re.MULTILINE)


@each_case(("name", "value"), rows("file"))
def test_file_names_of_the_page(name: str, value: str) -> None:
    read = names.parse_segment_file(name) or names.parse_checkpoint_file(name)
    assert repr(read) == value


@each_case(("name", "value"), rows("directory"))
def test_directory_names_of_the_page(name: str, value: str) -> None:
    assert repr(names.parse_partition_dir(name)) == value


def test_the_page_has_an_example_of_every_kind() -> None:
    assert {block.kind for block in blocks()} == set(DECODERS)
    assert len(rows("file")) == 10
    assert len(rows("directory")) == 8


def test_modules_of_the_page_exist() -> None:
    folder = Path(kip33.formats.__file__).parent
    named = re.findall(r"`(\w+\.py)`", PAGE.split("\n## 1.")[0].partition("module |")[2])
    assert named and all((folder / name).is_file() for name in named)
