"""A store fails while a retention plan is applied; applied again, the plan ends right.

The store fails from one request on: every seventh of those that change something.
"""

import itertools
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs

from kip33.errors import Kip33Error
from kip33.retention.apply import Applied, apply_plan
from kip33.retention.apply_segment import RecordKind, StepOutcome
from kip33.retention.plan import RetentionPlan, read_plan
from kip33.stores.filesystems import forget_filesystem, use_filesystem
from kip33.stores.locations import Location
from tests.builders.changing_archive import CLICKS, ORDERS, ChangingArchive, batches
from tests.integration.servers.faults import Request
from tests.integration.servers.proxy import FaultProxy
from tests.integration.servers.s3 import S3Server
from tests.integration.stores.places import Place, in_bucket

pytestmark = pytest.mark.integration
SEGMENTS = 3  # of each partition; the last one stays
POLICY = '[defaults]\n"cleanup.policy" = "delete"\n"retention.ms" = "7d"\n'
STEP = 7  # changes between two faults
GONE = frozenset((StepOutcome.DELETED, StepOutcome.MOVED))


class PlannedBucket:
    """A bucket with an archive and a plan, and a client of it that a proxy can harm."""

    def __init__(self, place: Place, server: S3Server, proxy: FaultProxy) -> None:
        self.place, self.server, self.proxy = place, server, proxy
        self.root = Location.of(place.uri).root
        use_filesystem(self.root, place.filesystem)
        self.folder = server.root / place.path
        local = ChangingArchive(place.folder / "local")
        for partition in (ORDERS, CLICKS):
            for number in range(SEGMENTS):
                local.write(local.log(partition, 40 * number), batches(40 * number, 20))
        place.put(local.source, "source")
        self.run("build", "source", "--index-dir", f"{place.uri}/indexes", "--offset-index")
        plan = f"{place.uri}/plan.jsonl"
        policy = place.folder / "policy.toml"
        policy.write_text(POLICY)
        self.run("retention", "indexes/_catalog", "--policy", str(policy), "--plan", plan)
        self.plan: RetentionPlan = read_plan(Location.of(plan))
        self.before = self.files()
        self.copy = place.folder / "copy"
        shutil.copytree(self.folder, self.copy)
        self.changes = 0
        self.at = -1
        self.harm: Callable[[Request], None] = gone(self)
        proxy.before = self.look

    def run(self, command: str, name: str, *options: str) -> None:
        done = self.place.run(command, f"{self.place.uri}/{name}", *options)
        assert done.code == 0, done.err

    def harm_from(self, at: int) -> None:
        """Put every file back with its times and attributes; the store fails from a change on."""
        self.proxy.heal()
        self.changes, self.at = 0, at
        retries = fs.AwsStandardS3RetryStrategy(max_attempts=1)
        through = self.server.filesystem(
            endpoint_override=self.proxy.endpoint, retry_strategy=retries
        )
        use_filesystem(self.root, through)
        shutil.rmtree(self.folder)
        shutil.copytree(self.copy, self.folder)

    def look(self, request: Request) -> None:
        """Count a request that changes something, and harm it if it is the one."""
        if request.method in ("PUT", "DELETE"):
            self.changes += 1
            if self.changes - 1 == self.at:
                self.harm(request)

    def apply(self, trash: Location | None) -> Applied | str:
        """Apply the plan; return one line if the apply was refused or ended."""
        try:
            return apply_plan(
                self.plan, clock=lambda: self.plan.basis.now_ms, trash=trash, threads=1
            )
        except (Kip33Error, OSError) as error:
            return str(error)

    def files(self) -> dict[str, bytes]:
        names = (path for path in self.folder.rglob("*") if path.is_file())
        return {str(path.relative_to(self.folder)): path.read_bytes() for path in names}

    def planned(self) -> set[str]:
        """Return the planned files by their names in the bucket."""
        return {
            file.place.uri.removeprefix(f"{self.place.uri}/")
            for partition in self.plan.with_segments()
            for segment in partition.segments
            for file in segment.files
        }

    def require_sound(self, where: str, *, with_trash: bool) -> set[str]:
        """Check what is there; return the planned files that are gone."""
        files, planned = self.files(), self.planned()
        own = [name for name in self.before if not name.startswith("trash/")]
        gone = {name for name in own if name not in files}
        assert gone <= planned, f"{where}: {gone - planned}"
        assert all(files[name] == self.before[name] for name in own if name not in gone), where
        journal = self.journal(files)
        for partition in (ORDERS, CLICKS):
            logs = [f"source/{partition}/{40 * number:020d}.log" for number in range(SEGMENTS)]
            there = [log in files for log in logs]
            assert there == sorted(there), f"{where}: a gap"
            for number, log in enumerate(logs):
                kinds = [
                    str(one["outcome"] or one["kind"])
                    for one in journal
                    if (one["base_offset"], one["log_dir"]) == (40 * number, "b1")
                    and f"b1/{one['topic']}-{one['partition']}" == partition
                ]
                if log not in files:
                    assert RecordKind.INTENT in kinds, f"{where}: {log} is gone without an intent"
                assert sum(kind in GONE for kind in kinds) <= 1, f"{where}: deleted twice"
        if with_trash:
            for name in gone:
                copies = [
                    at
                    for at in files
                    if at.startswith("trash/") and at.endswith(name.partition("/")[2])
                ]
                assert [files[at] for at in copies] == [self.before[name]], f"{where}: {name}"
        return gone

    def wait(self) -> None:
        """Ten minutes pass: the lock of a run that could not remove it is dead."""
        for lock in self.folder.rglob("run-*.lock"):
            ended = lock.stat().st_mtime - 700
            os.utime(lock, (ended, ended))

    def journal(self, files: dict[str, bytes]) -> list[dict[str, Any]]:
        return [
            json.loads(data)
            for name, data in files.items()
            if "/retention/" in name and not name.endswith(".lock")
        ]


@pytest.fixture
def bucket(
    s3_server: S3Server, s3_proxy: FaultProxy, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[PlannedBucket]:
    """Return a bucket; this process reaches it through the proxy and tries once."""
    place = in_bucket(tmp_path, s3_server, f"plan-{abs(hash(request.node.name))}")
    planned = PlannedBucket(place, s3_server, s3_proxy)
    yield planned
    forget_filesystem(planned.root)


def gone(bucket: PlannedBucket) -> Callable[[Request], None]:
    """The server does not answer any more."""
    return lambda _: bucket.proxy.refuse()


def slow_down(bucket: PlannedBucket) -> Callable[[Request], None]:
    """The server answers 503 from the next request on."""
    return lambda _: bucket.proxy.fail_next(10_000)


def expired(bucket: PlannedBucket) -> Callable[[Request], None]:
    """The key is not valid any more."""
    return lambda _: bucket.proxy.fail_next(10_000, status=403, code="ExpiredToken")


def answer_lost(bucket: PlannedBucket) -> Callable[[Request], None]:
    """A deletion is done, then the server does not answer any more."""

    def delete(request: Request) -> None:
        file = bucket.folder.parent / request.target.lstrip("/").partition("?")[0]
        if request.method == "DELETE" and file.is_file():
            file.unlink()
        bucket.proxy.refuse()

    return delete


def no_deletions(bucket: PlannedBucket) -> Callable[[Request], None]:
    """The server answers all but deletions."""
    return lambda _: bucket.proxy.fail_next(10_000, method="DELETE")


CASES = [
    pytest.param(harm, with_trash, id=f"{harm.__name__}, {'moved' if with_trash else 'deleted'}")
    for harm in (gone, no_deletions, slow_down, expired, answer_lost)
    for with_trash in (False, True)
]


@pytest.mark.parametrize(("harm", "with_trash"), CASES)
def test_a_store_that_fails_at_any_change(
    bucket: PlannedBucket, harm: Callable[..., Any], with_trash: bool
) -> None:
    trash = Location.of(f"{bucket.place.uri}/trash") if with_trash else None
    bucket.harm = harm(bucket)
    said = set()
    for at in itertools.count(0, STEP):
        bucket.harm_from(at)
        where = f"from change {at} on"
        first = bucket.apply(trash)
        if not isinstance(first, str) and first.stopped == 0:
            break
        use_filesystem(bucket.root, bucket.place.filesystem)
        bucket.wait()
        bucket.require_sound(where, with_trash=with_trash)
        lines = [first] if isinstance(first, str) else [p.why for p in first.partitions if p.why]
        said |= set(filter(None, lines))
        assert all("\n" not in line for line in said)
        assert all(line.startswith(f"{bucket.place.uri}/") for line in said), said
        assert all(line.endswith(" again") for line in said), said
        again = bucket.apply(trash)
        assert not isinstance(again, str), f"{where}: {again}"
        assert again.stopped == 0, f"{where}: {again}"
        assert bucket.require_sound(where, with_trash=with_trash) == bucket.planned(), where
    assert at > 5
