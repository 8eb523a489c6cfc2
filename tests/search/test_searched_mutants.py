"""An index is never trusted: damaged index files that are recorded as ours change no answer."""

import os

import pytest

from kip33.search import index_lookup
from tests.builders.searched_mutants import run
from tests.long_forms import short_and_long

SEED = os.environ.get("KIP33_SEED", "2")


@pytest.mark.parametrize("questions", short_and_long(120, 5_000, "KIP33_SEARCHED_QUESTIONS"))
@pytest.mark.parametrize("walked", [0, index_lookup.WALKED_BYTES])
def test_every_wrong_answer_has_a_note(
    questions: int, walked: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where no stretch of log is too short to be jumped over."""
    monkeypatch.setattr(index_lookup, "WALKED_BYTES", walked)
    if not walked:
        monkeypatch.setattr(index_lookup, "ENTRY_PROOF_BYTES", 0)

    outcomes, faults = run(f"{SEED}/{walked}", questions, broken=False)

    with capsys.disabled():
        print(f"\nKIP33_SEED={SEED}: {dict(sorted(outcomes.items()))}", end=" ")
    assert faults == []
    assert outcomes["right, no note"] > questions / 3
    assert outcomes["right, noted"] > questions / 30


@pytest.mark.parametrize("questions", short_and_long(120, 5_000, "KIP33_SEARCHED_QUESTIONS"))
def test_no_answer_is_called_exact_that_lost_records_could_change(
    questions: int, capsys: pytest.CaptureFixture[str]
) -> None:
    outcomes, faults = run(SEED, questions, broken=True)

    with capsys.disabled():
        print(f"\nKIP33_SEED={SEED}: {dict(sorted(outcomes.items()))}", end=" ")
    assert faults == []
    assert outcomes["right, record"] > questions / 4
    assert outcomes["other, unsure"] > questions / 40
