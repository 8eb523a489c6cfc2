"""How many requests a bucket gets for each small segment of a build."""

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from kip33.formats.partition_metadata import PARTITION_METADATA, PartitionMetadata
from tests.builders.segment_builder import Record, v2_batch
from tests.integration.servers.proxy import FaultProxy
from tests.integration.stores.places import Place, Ran

pytestmark = pytest.mark.integration
PARTITIONS, SEGMENTS = 3, 12
WORKERS = 2


TOPIC_ID = "bn9RMmT4REWVDFQzf3IUaQ"


def write_segments(root: Path, segments: range, topic_id: str | None = None) -> None:
    """Write small segments into each of a few partitions, and the topic's id if there is one."""
    for partition in range(PARTITIONS):
        folder = root / f"orders-{partition}"
        folder.mkdir(parents=True, exist_ok=True)
        for number in segments:
            (folder / f"{number:020d}.log").write_bytes(v2_batch(number, [Record(1000 + number)]))
        if topic_id:
            (folder / PARTITION_METADATA).write_bytes(PartitionMetadata(topic_id).to_bytes())


class Archive:
    """Small segments in a bucket, and builds of them whose requests are counted."""

    def __init__(self, place: Place, proxy: FaultProxy, folder: Path) -> None:
        self.place, self._proxy, self._folder = place, proxy, folder

    def add(self, segments: range, topic_id: str | None = None) -> None:
        tree = self._folder / f"from-{segments.start}"
        write_segments(tree, segments, topic_id)
        self.place.put(tree, "logs")
        time.sleep(2.5)  # a file younger than 2 s may still change, so it would be read again

    def build(self) -> Ran:
        self._proxy.requests.clear()
        return self.place.run(
            *("build", f"{self.place.uri}/logs", "--index-dir", f"{self.place.uri}/indexes"),
            *("--engine", "local", "--workers", WORKERS, "--parallelism", WORKERS),
            *("--format", "json"),
            conf={"spark.hadoop.fs.s3a.endpoint": f"http://{self._proxy.endpoint}"},
        )

    def requests(self, suffix: str) -> Counter[str]:
        """Return how many requests of each method the files of one kind got."""
        return Counter(
            request.method
            for request in self._proxy.requests
            if request.target.partition("?")[0].endswith(suffix)
        )

    def topic_ids(self) -> dict[str, int]:
        """Return the number of segments of each topic id in the catalog."""
        shown = self.place.run(
            "catalog", f"{self.place.uri}/indexes/_catalog", "--format", "json"
        ).record
        return {
            one["topic_id"]: one["segments"]
            for topic in shown["topics"]
            for one in topic["topic_ids"]
        }

    def listings(self) -> int:
        """Return how often folders of index files were listed after the first put."""
        targets = [(request.method, request.target) for request in self._proxy.requests]
        first = next(
            i for i, one in enumerate(targets) if one[0] == "PUT" and ".timeindex" in one[1]
        )
        return sum("prefix=indexes/orders-" in target for _, target in targets[first:])


@pytest.fixture
def archive(new_place: Callable[[str], Place], s3_proxy: FaultProxy, tmp_path: Path) -> Archive:
    return Archive(new_place("s3a"), s3_proxy, tmp_path)


def test_a_small_segment_of_a_new_archive_takes_three_requests(archive: Archive) -> None:
    archive.add(range(SEGMENTS))

    ran = archive.build()

    assert ran.code == 0, ran.err
    assert ran.record["written"] == PARTITIONS * SEGMENTS
    each = PARTITIONS * SEGMENTS
    assert archive.requests(".log") == {"HEAD": each, "GET": each}
    assert archive.requests(".timeindex") == {"PUT": each}
    assert PARTITIONS <= archive.listings() <= PARTITIONS * WORKERS
    again = archive.build()
    assert (again.record["reused"], again.record["indexed"]) == (each, 0)
    assert archive.requests(".log") == archive.requests(".timeindex") == {}


def test_new_segments_of_an_old_archive_are_asked_for_one_by_one(archive: Archive) -> None:
    archive.add(range(SEGMENTS))
    assert archive.build().code == 0
    archive.add(range(SEGMENTS, SEGMENTS + 4))

    ran = archive.build()

    assert ran.code == 0, ran.err
    new = PARTITIONS * 4
    assert archive.requests(".timeindex") >= Counter(PUT=new, HEAD=new)
    assert archive.listings() == 0


def test_a_topic_id_is_read_once_for_a_partition_and_not_again(archive: Archive) -> None:
    archive.add(range(SEGMENTS), TOPIC_ID)
    assert archive.build().code == 0
    assert archive.requests(PARTITION_METADATA)["GET"] == PARTITIONS
    assert archive.topic_ids() == {TOPIC_ID: PARTITIONS * SEGMENTS}

    assert archive.build().code == 0
    assert archive.requests(PARTITION_METADATA) == {}
    assert archive.topic_ids() == {TOPIC_ID: PARTITIONS * SEGMENTS}
