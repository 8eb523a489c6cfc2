"""`rules.broker_directory` says what a broker does with what it finds in its log directory.

A broker makes some topics and stops. What a real directory may have is put there, and the broker
starts again, with one start for all that it survives, and one for each that it does not.
"""

import shutil
from pathlib import Path

import pytest

import kip33
from kip33.archive.log_directory import found_on_start
from kip33.rules.broker_directory import Find
from kip33.stores.locations import Location
from tests.integration.kafka.kafka_jars import KAFKA_3_9, KAFKA_VERSION, OracleError
from tests.integration.kafka.lost_cluster import nodes_or_skip
from tests.integration.kafka.nodes import Nodes
from tests.long_forms import short_and_long

pytestmark = [pytest.mark.kafka, pytest.mark.integration]

TOPICS = ("plain", "beyond", "without", "other")
OTHER_ID = "version: 0\ntopic_id: e4rNbTcjT_elpYRxU0Jgtw"
UNIQUE = "0123456789abcdef0123456789abcdef"

GARBAGE = b"garbage\n"
NO_START: dict[str, tuple[Find, bytes | None]] = {  # a path and its bytes, None: a directory
    "lost+found": (Find.NO_PARTITION, None),
    "plain-0/leader-epoch-checkpoint": (Find.DAMAGED_EPOCHS, GARBAGE),
    ".snapshot": (Find.NO_PARTITION, None),
    "orders-x": (Find.NO_PARTITION, None),
    "./plain-0/leader-epoch-checkpoint": (Find.DAMAGED_EPOCHS, bytes(20)),
    "plain-0/partition.metadata": (Find.DAMAGED_TOPIC_ID, GARBAGE),
    "./plain-0/partition.metadata": (Find.DAMAGED_TOPIC_ID, b"version: 0\ntopic_id: x\n"),
    "././plain-0/partition.metadata": (Find.DAMAGED_TOPIC_ID, b""),
    "plain-00": (Find.SAME_PARTITION, None),
    "recovery-point-offset-checkpoint": (Find.DAMAGED_CHECKPOINT, GARBAGE),
    "log-start-offset-checkpoint": (Find.DAMAGED_CHECKPOINT, GARBAGE),
    "replication-offset-checkpoint": (Find.DAMAGED_CHECKPOINT, GARBAGE),
    "meta.properties": (Find.DAMAGED_FORMAT, GARBAGE),
}


@pytest.fixture(scope="module", params=[KAFKA_VERSION, KAFKA_3_9])
def nodes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Nodes:
    """Return a stopped broker whose topics have ten records each."""
    nodes = nodes_or_skip(tmp_path_factory.mktemp("broker"), version=request.param)
    with nodes.running():
        nodes.run_steps(f"create {topic} 1 1" for topic in TOPICS)
        nodes.run_steps(f"send a none {topic} 0 1700000000000 0 10 10 5" for topic in TOPICS)
    shutil.copytree(nodes.log_dir(), nodes.root / "saved")
    return nodes


def as_it_was(nodes: Nodes) -> Path:
    """Return the log directory as the broker left it."""
    shutil.rmtree(nodes.log_dir())
    shutil.copytree(nodes.root / "saved", nodes.log_dir())
    return nodes.log_dir()


def found_in(log_dir: Path) -> list[tuple[Find, str | None]]:
    return [(one.find, one.partition) for one in found_on_start(Location.of(log_dir))]


@pytest.mark.parametrize("many", short_and_long(2, len(NO_START), "KIP33_FOUND"))
def test_a_broker_does_not_start(nodes: Nodes, many: int, subtests: pytest.Subtests) -> None:
    for name, (find, data) in list(NO_START.items())[:many]:
        with subtests.test(name):
            log_dir = as_it_was(nodes)
            assert found_in(log_dir) == []
            if data is not None:
                (log_dir / name).write_bytes(data)
            elif find == Find.SAME_PARTITION:
                shutil.copytree(log_dir / "plain-0", log_dir / name)
            else:
                (log_dir / name).mkdir()
            assert [what for what, _ in found_in(log_dir)] == [find]
            with pytest.raises(OracleError):
                nodes.start()
            nodes.stop()


def test_a_broker_starts_and_sets_logs_aside_or_deletes_them(nodes: Nodes) -> None:
    """Without an error. What it passes over is not found by kip33, either."""
    log_dir = as_it_was(nodes)
    (log_dir / "log-start-offset-checkpoint").write_text("0\n1\nbeyond 0 500\n")
    (log_dir / "without-0/partition.metadata").unlink()
    (log_dir / "other-0/partition.metadata").write_text(OTHER_ID)
    (log_dir / "plain-0/leader-epoch-checkpoint").write_bytes(b"")
    (log_dir / "remote-log-index-cache").mkdir()
    (log_dir / "a file").write_text("x")
    (log_dir / ".kafka_cleanshutdown").write_text("garbage")
    for kind in ("delete", "stray"):
        shutil.copytree(log_dir / "plain-0", log_dir / f"gone-0.{UNIQUE}-{kind}")
    assert found_in(log_dir) == [(Find.NO_TOPIC_ID, "without-0")]
    repaired = kip33.repair(log_dir)
    assert any("beyond-0: the log ends at 10, before" in line for line in repaired.on_start)
    nodes.start()
    nodes.stop()
    names = {path.name.partition(".")[0] for path in log_dir.glob("*-stray")}
    assert names == {"without-0", "other-0", "gone-0"}
    logs = sorted(path.name for path in (log_dir / "beyond-0").glob("*.log"))
    assert logs == [f"{500:020d}.log"]
    assert (log_dir / "plain-0" / f"{0:020d}.log").stat().st_size > 0
