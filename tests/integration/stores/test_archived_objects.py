"""Objects in S3 Glacier: a row that says what to do, and a build that reads them once restored.

moto answers as Amazon documents it: 403 InvalidObjectState for GetObject. Amazon's own S3 was not
asked.
"""

import itertools
import re
from contextlib import closing
from pathlib import Path

import pytest

from kip33.stores.s3 import open_bucket
from tests.builders.changing_archive import batches
from tests.integration.servers.moto import REGION, MotoServer
from tests.integration.stores.places import Place

pytestmark = pytest.mark.integration
COLD = f"logs/t-0/{0:020d}.log"
BUCKETS = itertools.count()
WARM = f"logs/t-0/{100:020d}.log"


@pytest.fixture
def place(moto_server: MotoServer, tmp_path: Path) -> Place:
    """Return a bucket with two segments, the first one archived."""
    bucket = f"cold-{next(BUCKETS)}"
    moto_server.make_bucket(bucket, {WARM: batches(100, 50)})
    with closing(moto_server.client("s3")) as s3:
        s3.put_object(Bucket=bucket, Key=COLD, Body=batches(0, 50), StorageClass="GLACIER")
    keys = moto_server.make_user(f"reader-of-{bucket}", "s3:*")
    settings = {
        "fs.s3a.endpoint": moto_server.url,
        "fs.s3a.endpoint.region": REGION,
        "fs.s3a.path.style.access": "true",
        "fs.s3a.access.key": keys.access_key,
        "fs.s3a.secret.key": keys.secret_key,
    }
    conf = {f"spark.hadoop.{key}": value for key, value in settings.items()}
    filesystem = open_bucket(settings, bucket)
    return Place("s3a", f"s3a://{bucket}", filesystem, bucket, tmp_path, conf)


def test_an_archived_log_is_a_row_until_it_is_restored(
    place: Place, moto_server: MotoServer
) -> None:
    build = ("build", f"{place.uri}/logs", "--index-dir", f"{place.uri}/indexes")
    first = place.run(*build, "--format", "json")
    assert first.code == 0, first.err
    assert first.record["by_status"] == {"archived": 1, "ok": 1}
    assert place.run(*build, "--fail-on", "unreadable").code == 0
    assert place.run(*build, "--fail-on", "archived").code == 3
    verified = place.run(
        *("verify", f"{place.uri}/logs", "--index-dir", f"{place.uri}/indexes"),
        *("--format", "jsonl"),
    )
    cold = verified.records[0]
    assert (cold["log_uri"], cold["verdict"]) == (f"{place.uri}/{COLD}", "archived")
    assert "archived: restore it first" in str(cold["log_error"])

    with closing(moto_server.client("s3")) as s3:
        s3.restore_object(Bucket=place.path, Key=COLD, RestoreRequest={"Days": 1})
    second = place.run(*build, "--format", "json")
    assert second.record["by_status"] == {"ok": 2}
    assert second.record["indexed"] >= 1


def test_retention_keeps_an_archived_log_and_counts_its_size(place: Place) -> None:
    built = place.run("build", f"{place.uri}/logs", "--index-dir", f"{place.uri}/indexes")
    assert built.code == 0, built.err
    catalog = f"{place.uri}/indexes/_catalog"
    question = ("retention", catalog, "--retention-ms", "1", "--active-segment", "kafka")
    judged = place.run(*question, "--format", "json")
    assert judged.code == 0, judged.err
    record = judged.record["summary"]
    assert (record["segments"], record["deletable_segments"]) == (2, 0)
    assert record["bytes"] == len(batches(0, 50)) + len(batches(100, 50))
    assert (record["blocked_segments"], record["doubtful_segments"]) == (1, 0)

    rows = place.run(*question, "--format", "jsonl").records
    assert "archived" in [row.get("blocking_reason") for row in rows]

    page = place.folder / "report.html"
    assert place.run("report", catalog, "--output", str(page)).code == 0
    assert "1 archived log" in page.read_text(encoding="utf-8")

    metrics = place.folder / "build.prom"
    again = ("build", f"{place.uri}/logs", "--index-dir", f"{place.uri}/indexes")
    assert place.run(*again, "--metrics", str(metrics)).code == 0
    [gauge] = re.findall(r'build_segments\{.*status="archived".*\} (.*)', metrics.read_text())
    assert float(gauge) == 1
