"""Rows that leave a process have plain texts where kip33 has members of enumerations."""

from kip33.indexing.verification import SegmentVerdict
from kip33.rules.index_verdict import IndexVerdict
from kip33.rules.segment_summary import SegmentStatus


def test_rows_of_verdicts_have_no_members() -> None:
    verdict = SegmentVerdict(
        *("a.log", "a.timeindex", IndexVerdict.WRONG, None, 1, ("entry 0",), IndexVerdict.SPARSE),
        *(SegmentStatus.OK, None, None, 7, IndexVerdict.UNKNOWN),
    )
    row = verdict.as_row()
    assert row["verdict"] == "wrong" and row["problems"] == ["entry 0"]
    assert set(map(type, row.values())) == {str, int, list, type(None)}
