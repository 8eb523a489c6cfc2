"""A bucket that only a caller's filesystem or options open: read, built on Spark, asked."""

from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations.arrow import ArrowFSWrapper
from pyarrow import fs

import kip33
from kip33.demo import COPIED_MS, make_archive
from kip33.stores import filesystems
from kip33.stores import settings as store_settings
from tests.integration.servers.s3 import S3Server
from tests.integration.stores.places import in_bucket

pytestmark = [pytest.mark.spark, pytest.mark.integration]


@pytest.fixture(autouse=True)
def _process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_settings._Process, "settings", {})
    monkeypatch.setattr(store_settings._Process, "options", {})
    monkeypatch.setattr(filesystems._ByRoot, "given", {})


def access(way: str, server: S3Server) -> dict[str, Any]:
    """Return what a caller gives to each function."""
    keys = {
        "region": "us-east-1",
        "access_key": server.access_key,
        "secret_key": server.secret_key,
    }
    if way == "options":
        return {"storage_options": keys | {"endpoint": f"http://{server.endpoint}"}}
    store = fs.S3FileSystem(endpoint_override=server.endpoint, scheme="http", **keys)
    return {"filesystem": ArrowFSWrapper(store) if way == "fsspec" else store}


@pytest.mark.parametrize("way", ["pyarrow", "fsspec", "options"])
def test_a_bucket_is_read_built_and_asked_by_what_is_given(
    way: str, s3_server: S3Server, spark: Any, tmp_path: Path
) -> None:
    from kip33.spark import build_index, verify_index

    place = in_bucket(tmp_path, s3_server, f"{way}-bucket")
    make_archive(tmp_path / "archive")
    place.put(tmp_path / "archive", "archive")
    given = access(way, s3_server)
    root = place.uri if way == "options" else place.uri.partition("://")[2]
    segments = kip33.list_segments(f"{root}/archive", **given)
    assert {kip33.build_time_index(one).status for one in segments} >= {"ok", "truncated"}
    build_index(spark, f"{root}/archive", f"{root}/indexes", now_ms=COPIED_MS, **given)
    opened = kip33.open_catalog(f"{root}/indexes/_catalog", **given)
    assert opened.segments().num_rows == len(segments)
    assert {row["log_uri"] for row in opened.segments().to_pylist()} == {
        one.log_uri for one in segments
    }
    rows = verify_index(spark, f"{root}/archive", f"{root}/indexes", **given)
    assert rows.where("verdict = 'identical'").count() > 0


def test_a_filesystem_of_this_process_is_refused_before_a_job(spark: Any, tmp_path: Path) -> None:
    import fsspec

    from kip33.spark import build_index

    make_archive(tmp_path / "archive")
    memory = fsspec.filesystem("memory")
    with pytest.raises(ValueError, match="cannot be sent to Spark's tasks"):
        build_index(spark, "/archive", tmp_path.as_uri(), now_ms=COPIED_MS, filesystem=memory)
