"""Texts of catalogs of versions 1 to 4 become the codes and columns of this version."""

import json
from typing import Any

import pyarrow as pa
import pytest

from kip33.catalog.earlier_versions import in_this_version
from kip33.catalog.schema import BUILD_SETTINGS
from kip33.rules.segment_notes import SegmentNote

A, LOG = "file:///index/orders-0/0", "file:///logs/orders-0/0"
REMOVE = "stop the broker, remove that file, start the broker"
KEPT = "kip33 did not write it"
FIRST_SEEN = "as far as this catalog knows: it was there before this catalog first saw its log"

# Rows' `error` as version 4 wrote it, the notes in it, and what is left of it.
TEXTS: dict[str, tuple[list[str], str | None]] = {
    "at byte 9 of 20: the CRC; restore it": ([], "at byte 9 of 20: the CRC; restore it"),
    f"kept {A}.timeindex: {KEPT}; --overwrite replaces it": (["time_index_kept"], None),
    f"kept {A}.minutes: {KEPT}; --overwrite replaces it": (["time_index_kept"], None),
    f"kept {A}.index: {KEPT}, {FIRST_SEEN}; --overwrite replaces it": (
        ["offset_index_kept", "index_before_log"], None,
    ),
    f"kept {A}.timeindex: {KEPT}; --overwrite replaces it; kept {A}.index: {KEPT}; --overwrite "
    f"replaces it; kept {A}.txnindex: {KEPT}; --overwrite replaces it": (
        ["offset_index_kept", "transaction_index_kept", "time_index_kept"], None,
    ),
    f"kept {A}.snapshot: {KEPT}; --overwrite replaces it": ([], None),
    "the .txnindex that is there is not of kip33; the .txnindex is not written: unknown": (
        ["transaction_index_not_judged"], "the .txnindex is not written: unknown",
    ),
    "the header of a batch has a max timestamp below its base timestamp: a search by time may miss "
    "its records, in kip33 and in a broker": (["understated_timestamp"], None),
    f"{LOG}.index: another build wrote this file after this build listed its log, and the log has "
    "changed: the file is kept, and the next build reads the log again": (
        ["index_of_another_build"], None,
    ),
    f"{LOG}.index: cannot be given the owner 1:1, mode 0644 (not permitted); the file has 0:0, "
    "mode 0644, and a broker that runs as another user may not start: use chown and chmod, or run "
    "kip33 as the broker's user": (["owner_not_given"], None),
    f"at byte 9: the CRC; {LOG}.index keeps a broker from cutting this log to its 9 valid bytes: "
    f"{REMOVE}": (["index_hides_damage"], "at byte 9: the CRC"),
    f"{LOG}.index keeps a broker from writing the .txnindex of this log, so read_committed "
    f"consumers may read aborted records: {REMOVE}": (["index_hides_aborts"], None),
    f"{A}.timeindex: cannot be written: disk full; the .index is not written either: a broker "
    "rebuilds both if it finds no .index": (
        ["index_left_to_broker"], f"{A}.timeindex: cannot be written: disk full",
    ),
    "at byte 9: the CRC; no .index is written: a starting broker cuts this log to 9 bytes": (
        ["broker_cuts_log"], "at byte 9: the CRC",
    ),
    "too far; no .index is written: a broker that starts splits this segment, and nothing is "
    "lost": (["broker_splits_log"], "too far"),
    f"not above; {LOG}.index stays: without it a broker may not start, because it cannot recover "
    "this log": (["broker_starts_by_index"], "not above"),
    "not above; the .index is missing, and a broker may not start because it cannot recover this "
    "log: restore the log from a replica or a backup": (["broker_may_not_start"], "not above"),
}  # fmt: skip


def test_each_note_is_found_in_its_sentence_and_the_rest_stays_an_error(
    subtests: pytest.Subtests,
) -> None:
    rows = pa.table({"error": pa.array([*TEXTS, None], pa.string())})
    read = in_this_version(rows, ["error", "notes"], has_texts=True).to_pylist()
    for row, (text, (notes, error)) in zip(read[:-1], TEXTS.items(), strict=True):
        with subtests.test(text):
            assert (row["notes"] or [], row["error"]) == (notes, error)
    assert read[-1] == {"error": None, "notes": None}
    found = {note for notes, _ in TEXTS.values() for note in notes}
    assert found == set(SegmentNote), "each note of version 5 was a sentence of version 4"


IN_4 = {
    "dialect": "live", "index_interval_bytes": 4096, "segment_index_bytes": 36, "check_crc": True,
    "offset_index": True, "bytes_version": 1,
}  # fmt: skip


def settings_of(build: Any, time_index: Any = None) -> dict[str, Any]:
    texts = [None if one is None else json.dumps(one) for one in (build, time_index)]
    names = ["build_settings", "time_index_settings"]
    rows = pa.table(
        {name: pa.array([text], pa.string()) for name, text in zip(names, texts, strict=True)}
    )
    asked = [*BUILD_SETTINGS, "time_index_matches", "offset_index_matches", "file_time_offset"]
    (row,) = in_this_version(rows, asked, has_texts=True).to_pylist()
    return row


def test_json_settings_become_columns() -> None:
    none = {"time_index_matches": None, "offset_index_matches": None, "file_time_offset": None}
    later = {"untimestamped": "none"}
    assert settings_of(IN_4) == IN_4 | later | none
    assert settings_of(None) == dict.fromkeys((*BUILD_SETTINGS, *none)), "the log is read again"
    chosen = {"untimestamped": "first-offset"}
    written = IN_4 | chosen | {"producer_snapshots": True}
    matching = settings_of(written, IN_4 | {"file_time_offset": 2**40})
    assert matching == IN_4 | chosen | none | {
        "time_index_matches": True,
        "file_time_offset": 2**40,
    }


def test_settings_that_are_not_all_that_a_build_has_now_let_no_row_be_reused() -> None:
    of_0_1 = {name: value for name, value in IN_4.items() if name != "bytes_version"}
    for other in (of_0_1, IN_4 | {"another": 1}, {"dialect": "live", "bytes_version": 1}):
        assert settings_of(other)["bytes_version"] is None
        assert settings_of(other)["dialect"] == "live"
