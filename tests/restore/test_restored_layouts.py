"""`kip33 restore` from every layout: the same bytes as from a log directory."""

from pathlib import Path

import pytest

from kip33.local.local_engine import LocalEngine
from kip33.restore.restore_apply import restore
from kip33.restore.restore_request import RestoreRequest
from kip33.rules.index_builder import IndexSettings, TopicSettings
from kip33.stores.locations import Location
from tests.builders.layouts import WRITERS, Stored, uuid22
from tests.builders.partition_copies import INTERVAL_BYTES, files_of
from tests.restore.test_restore import log_of

SETTINGS = TopicSettings(IndexSettings("recover", INTERVAL_BYTES))


def segments() -> list[Stored]:
    return [
        *(Stored("orders", 0, base, log_of(base, leader_epoch=base // 30)) for base in (0, 30, 60)),
        Stored("orders", 1, 500, log_of(500)),
    ]


def restored(source: Path, log_dir: Path, layout: str) -> dict[str, dict[str, bytes]]:
    request = RestoreRequest(
        source=Location.of(source),
        log_dir=Location.of(log_dir),
        layout=layout,
        settings=SETTINGS,
    )
    summary = restore(request, LocalEngine())
    assert summary["partitions_refused"] == 0, summary
    return {name: files_of(log_dir / name) for name in ("orders-0", "orders-1")}


def test_the_same_files_as_from_a_log_directory(tmp_path: Path, subtests: pytest.Subtests) -> None:
    WRITERS["kafka"][1](tmp_path / "logs", segments())
    expected = restored(tmp_path / "logs", tmp_path / "expected", "kafka")
    for name in WRITERS.keys() - {"kafka"}:
        layout, write, _ = WRITERS[name]
        with subtests.test(name):
            write(tmp_path / name, segments())
            found = restored(tmp_path / name, tmp_path / f"{name} data", layout)
            for partition, files in found.items():
                metadata = files.pop("partition.metadata", None)
                assert files == expected[partition]
                assert metadata is None or uuid22("orders").encode() in metadata


def test_of_two_uploads_the_complete_one_is_restored(tmp_path: Path) -> None:
    WRITERS["local-tiered"][1](
        tmp_path / "archive",
        [*segments(), Stored("orders", 0, 30, log_of(30, 1, leader_epoch=1), upload=1)],
    )
    files = restored(tmp_path / "archive", tmp_path / "data", "local-tiered")["orders-0"]
    assert files[f"{30:020d}.log"] == log_of(30, leader_epoch=1)
