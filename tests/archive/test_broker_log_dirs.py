"""kip33 may put files, but no folders, into a broker's log directory."""

from pathlib import Path

import pytest

from kip33.archive.output_files import require_summary_place
from kip33.archive.plans import require_plan_place
from kip33.errors import LocationError
from kip33.stores.locations import Location


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    (tmp_path / "recovery-point-offset-checkpoint").touch()
    return tmp_path


def test_a_summary_and_a_plan_are_allowed_in_a_log_directory(log_dir: Path) -> None:
    require_summary_place(Location.of(log_dir / "summary.json"))
    require_plan_place(Location.of(log_dir / "plan.jsonl"))


def test_no_folder_is_made_for_them_in_a_log_directory(log_dir: Path) -> None:
    with pytest.raises(LocationError, match="the new folder of --summary is inside the log dir"):
        require_summary_place(Location.of(log_dir / "new/summary.json"))
    with pytest.raises(LocationError, match="the new folder of --plan is inside the log dir"):
        require_plan_place(Location.of(log_dir / "new/plan.jsonl"))
