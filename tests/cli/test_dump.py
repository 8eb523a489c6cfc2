"""`kip33 dump`: every kind of file, as rows and as a table."""

from pathlib import Path

from kip33 import TimeIndex, build_time_index
from kip33.demo import START_MS
from tests.builders.segment_builder import (
    Record,
    end_txn_marker,
    segment,
    v0_message,
    v1_message,
    v2_batch,
    with_broken_crc,
    wrapper,
)
from tests.cli.console import Command, directory_named, file_named

FIRST = "00000000000000000000"
TWO_ENTRIES = bytes.fromhex("0000018bcfe5680000000003 0000018bcfe568fa00000009")
EARLIER_ENTRY = bytes.fromhex("0000018bcfe567ff00000004")


ZEROS = "entries of zeros follow"


def test_dump_of_a_time_index(command: Command) -> None:
    """Its entries, two of which are stale, and zeros behind them."""
    data = TWO_ENTRIES + EARLIER_ENTRY + TWO_ENTRIES[12:] + bytes(24)
    name = file_named("00000000000000000100.timeindex", data)
    columns = ("file", "kind", "entry", "timestamp", "time", "offset", "untrue")
    times = ("2023-11-14T22:13:20.000Z", "2023-11-14T22:13:20.250Z", "2023-11-14T22:13:19.999Z")
    reasons = "out of order after the entry before", "follows an entry that is out of order"

    *entries, tail = command("dump", name, "--format", "jsonl").lines
    table = command("dump", name).stdout.splitlines()

    assert [tuple(row.get(column) for column in columns) for row in entries] == [
        (name, "time_entry", 0, START_MS, times[0], 103, None),
        (name, "time_entry", 1, START_MS + 250, times[1], 109, None),
        (name, "time_entry", 2, START_MS - 1, times[2], 104, reasons[0]),
        (name, "time_entry", 3, START_MS + 250, times[1], 109, reasons[1]),
    ]
    assert tail == {"file": name, "kind": "tail", "entries": 2, "note": ZEROS}
    assert table[0].split() == ["entry", "timestamp", "time", "offset"]
    assert table[2].split() == ["1", "1700000000250", "2023-11-14T22:13:20.250Z", "109"]
    assert [line.partition("  <- ")[2] for line in table[1:5]] == ["", "", *reasons]
    assert table[5:] == [f"tail: 2 {ZEROS}"]


def test_dump_compares_an_index_with_the_log_beside_it(command: Command) -> None:
    log = Path(
        file_named(f"{FIRST}.log", segment([v2_batch(i, [Record(1000 + i)]) for i in range(6)]))
    )
    index = build_time_index(str(log), index_interval_bytes=0)

    def marks_of(suffix: str, data: bytes, *options: str) -> list[tuple[object, object]]:
        log.with_suffix(suffix).write_bytes(data)
        lines = command("dump", log.with_suffix(suffix), "--format", "jsonl", *options).lines
        return [(row.get("entry"), row.get("untrue", row.get("note"))) for row in lines]

    times, places = index.time_index_data or b"", index.offset_index_data or b""
    assert marks_of(".timeindex", times) == [(number, None) for number in range(5)]
    assert marks_of(".index", places) == [(number, None) for number in range(5)]
    assert marks_of(".timeindex", times[:12] + EARLIER_ENTRY + times[24:] + bytes(48)) == [
        (0, None),
        (1, "no batch is the first to reach that"),
        (2, None),
        (3, None),
        (4, None),
        (None, ZEROS),
    ]
    changed = places[:8] + places[8:15] + b"\x01" + places[16:]
    assert marks_of(".index", changed)[:3] == [(0, None), (1, "no batch begins there"), (2, None)]

    kip33 = build_time_index(str(log), dialect="kip33").time_index_data or b""
    assert marks_of(".timeindex", kip33, "--dialect", "kip33") == [(0, None)]
    assert marks_of(".timeindex", kip33) == [
        (0, "the batch that reaches it ends at offset 5"),
        (None, "every entry is correct in another dialect; is this a file of --dialect kip33?"),
    ]


def test_dump_says_where_a_broker_would_fail_to_load(command: Command) -> None:
    """A control batch whose record has no key: recovery throws, and the dump ends there."""
    marker = v2_batch(1, [Record(START_MS)], control=True, transactional=True, producer_id=5)
    log = file_named(f"{FIRST}.log", segment([v2_batch(0, [Record(START_MS)]), marker]))

    *batches, last = command("dump", log, "--format", "jsonl").lines

    assert [row["base_offset"] for row in batches] == [0, 1]
    assert last["kind"] == "load_failure"
    assert "the record has no key; Kafka fails to load" in last["note"]


def test_dump_of_an_offset_index(command: Command) -> None:
    entries = bytes.fromhex("00000009 00000100 00000013 00001111")
    name = file_named("00000000000000000100.index", entries + bytes(16))
    assert [
        (row["kind"], row.get("entry"), row.get("offset"), row.get("position"))
        for row in command("dump", name, "--format", "jsonl").lines
    ] == [
        ("offset_entry", 0, 109, 256),
        ("offset_entry", 1, 119, 0x1111),
        ("tail", None, None, None),
    ]
    table = command("dump", name).stdout.splitlines()
    assert table[0].split() == ["entry", "offset", "position"]
    assert table[2].split() == ["1", "119", "4369"]


def test_dump_of_a_log_shows_batches_records_and_damage(command: Command) -> None:
    zeroed = v2_batch(11, codec="gzip", body=bytes(40), records_count=3, last_offset_delta=2)
    entries = [
        v0_message(0, b"k", b"value"),
        wrapper(2, [v1_message(0, 1000, None), v1_message(1, 1001)], codec="gzip"),
        v2_batch(3, [Record(1002, b"key", b"v", (("h", b""),)), Record(1005, None, None)]),
        v2_batch(5, last_offset_delta=4, max_timestamp=1005),
        end_txn_marker(10, 1006, producer_id=7, producer_epoch=1, commit=False),
        zeroed,
        with_broken_crc(v2_batch(14, [Record(1008)])),
    ]
    log = file_named(f"{FIRST}.log", segment(entries))

    plain = command("dump", log, "--format", "jsonl")
    assert (plain.exit_code, plain.stderr) == (0, "")
    batches, [damage] = plain.lines[:-1], plain.lines[-1:]
    columns = ("base_offset", "last_offset", "records", "magic", "codec", "producer_id", "flags")
    assert [tuple(row[name] for name in columns) for row in batches] == [
        (0, 0, 1, 0, "none", None, []),
        (2, 2, None, 1, "gzip", None, []),
        (3, 4, 2, 2, "none", None, []),
        (5, 9, 0, 2, "none", None, []),
        (10, 10, 1, 2, "none", 7, ["transactional", "control"]),
        (11, 13, 3, 2, "gzip", None, []),
    ]
    assert [row["position"] for row in batches] == [
        sum(map(len, entries[:i])) for i in range(len(entries) - 1)
    ]
    assert damage["valid_bytes"] == sum(map(len, entries[:-1]))
    assert (damage["kind"], "CRC" in damage["note"]) == ("damage", True)

    detailed = command("dump", log, "--records", "--format", "jsonl").lines
    assert [row for row in detailed if row["kind"] in ("batch", "damage")] == plain.lines
    columns = ("offset", "timestamp", "key_bytes", "value_bytes", "headers", "control")
    records = [row for row in detailed if row["kind"] == "record"]
    assert [tuple(row[name] for name in columns) for row in records] == [
        (0, None, 1, 5, 0, None),
        (1, 1000, None, 0, 0, None),
        (2, 1001, None, 0, 0, None),
        (3, 1002, 3, 1, 1, None),
        (4, 1005, None, None, 0, None),
        (10, 1006, 4, 6, 0, "ABORT"),
    ]
    [undecodable] = [row for row in detailed if row["kind"] == "undecodable"]
    assert undecodable["position"] == sum(map(len, entries[:5]))
    assert undecodable["note"]

    table = command("dump", log, "--records").stdout.splitlines()
    assert table[0].split()[:3] == ["position", "size_bytes", "base_offset"]
    assert table[-1].startswith("damage: ")
    assert len(table) == len(detailed) + 2  # two heads of columns


def test_dump_shows_the_batches_behind_a_wrong_crc(command: Command) -> None:
    good = [v2_batch(offset, [Record(1008)]) for offset in (3, 5, 7)]
    lost = [with_broken_crc(v2_batch(offset, [Record(1008)])) for offset in (4, 6)]
    log = file_named(
        f"{FIRST}.log", segment([good[0], lost[0], good[1], lost[1], good[2], b"torn"])
    )

    rows = command("dump", log, "--records", "--format", "jsonl").lines

    kinds = ["batch", "record", "damage"] * 3
    assert [row["kind"] for row in rows] == kinds
    damage = [row for row in rows if row["kind"] == "damage"]
    assert {row["valid_bytes"] for row in damage} == {len(good[0])}
    ends = [row["note"].partition("left out: ")[2] for row in damage]
    assert ends == ["bytes 68 to 135, at most offset 4", "bytes 204 to 271, at most offset 6", ""]
    assert [row["base_offset"] for row in rows if row["kind"] == "batch"] == [3, 5, 7]


def test_dump_shows_keys_and_values_on_request(command: Command) -> None:
    records = [Record(1_000, b"key", "grün".encode()), Record(1_001, b"\xff", None)]
    log = file_named(f"{FIRST}.log", segment([v2_batch(0, records)]))

    _, *rows = command("dump", log, "--records", "--payload", "--format", "jsonl").lines
    plain = command("dump", log, "--records", "--format", "jsonl").lines

    for row in plain[1:]:
        assert not {"key", "value", "key_base64", "value_base64"} & row.keys()
    payloads = [{name: row[name] for name in list(row)[-2:]} for row in rows]
    assert payloads == [{"key": "key", "value": "grün"}, {"key_base64": "/w==", "value": None}]
    table = command("dump", log, "--records", "--payload").stdout.splitlines()
    assert [line.split()[-2:] for line in table[2:]] == [
        *(["key", "value"], ["key", "grün"], [r"\xff", "-"])
    ]


def test_dump_of_several_files_names_each(command: Command) -> None:
    log = f"archive/broker-1/payments-0/{FIRST}.log"
    index = file_named(f"{FIRST}.timeindex", build_time_index(log).time_index_data)
    lines = command("dump", index, log).stdout.splitlines()
    assert [line for line in lines if line.endswith(":")] == [f"{index}:", f"{log}:"]
    entries = TimeIndex.from_bytes(Path(index).read_bytes(), base_offset=0)
    assert lines.index(f"{log}:") == len(entries) + 2


def test_dump_of_an_index_beside_a_log_that_cannot_be_read(command: Command) -> None:
    directory_named(f"{FIRST}.log")
    name = file_named(f"{FIRST}.timeindex", TWO_ENTRIES)
    rows = command("dump", name, "--format", "jsonl").lines
    assert [row.get("untrue") for row in rows] == [None, None]
