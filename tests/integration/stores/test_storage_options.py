"""A bucket that only `storage_options` open: segments, a catalog, a build and its DataFrame."""

from pathlib import Path
from typing import Any

import pytest

import kip33
from kip33.demo import COPIED_MS, make_archive
from kip33.stores import settings as store_settings
from tests.integration.servers.s3 import S3Server
from tests.integration.stores.places import in_bucket

pytestmark = [pytest.mark.spark, pytest.mark.integration]


@pytest.fixture(autouse=True)
def _process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_settings._Process, "settings", {})
    monkeypatch.setattr(store_settings._Process, "options", {})


def test_a_bucket_is_read_built_and_asked_by_its_options(
    s3_server: S3Server, spark: Any, tmp_path: Path
) -> None:
    from kip33.spark import build_index, verify_index

    place = in_bucket(tmp_path, s3_server, "options-bucket")
    make_archive(tmp_path / "archive")
    place.put(tmp_path / "archive", "archive")
    options = {
        "endpoint": f"http://{s3_server.endpoint}",
        "region": "us-east-1",
        "access_key": s3_server.access_key,
        "secret_key": s3_server.secret_key,
    }
    segments = kip33.list_segments(f"{place.uri}/archive", storage_options=options)
    assert {kip33.build_time_index(one).status for one in segments} >= {"ok", "truncated"}
    build_index(
        *(spark, f"{place.uri}/archive", f"{place.uri}/indexes"),
        now_ms=COPIED_MS,
        storage_options=options,
    )
    opened = kip33.open_catalog(f"{place.uri}/indexes/_catalog", storage_options=options)
    assert opened.segments().num_rows == len(segments)
    rows = verify_index(spark, f"{place.uri}/archive", f"{place.uri}/indexes")
    assert rows.where("verdict = 'identical'").count() > 0
