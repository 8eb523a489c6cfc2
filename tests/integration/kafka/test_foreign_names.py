"""What a broker does with files and folders in its log directory that are not its own."""

from pathlib import Path

import pytest

from tests.integration.kafka.broker import running_broker
from tests.integration.kafka.oracle import OracleError

# In the long form only: nothing of kip33 changes what Kafka does here.
pytestmark = [pytest.mark.kafka, pytest.mark.long]


def test_a_broker_passes_over_files_and_does_not_start_on_a_folder(tmp_path: Path) -> None:
    log_dir = tmp_path / "logs"
    log_dir.mkdir()
    (log_dir / "plan.jsonl").write_text("{}\n")
    with running_broker(tmp_path):
        pass
    assert (log_dir / "plan.jsonl").read_text() == "{}\n"
    (log_dir / "indexes").mkdir()
    with pytest.raises(OracleError, match="indexes"), running_broker(tmp_path):
        pass
