"""Kafka itself, asked over pipes: the newest version, or the one that `Oracle` is given.

The Java side is `oracle/`; every request and every answer is one JSON line.
"""

import base64
import contextlib
import json
import os
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from tests.integration.kafka.kafka_jars import KAFKA_VERSION, JarFolder, OracleError, version_of

Request = dict[str, Any]


REFUSED = (-2, -2)


class JavaProcess:
    """One long-running JVM that answers a line with a line."""

    def __init__(
        self,
        jars: JarFolder,
        main_class: str = "kip33.oracle.OracleMain",
        options: Sequence[str] = (),
    ) -> None:
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115 (closed in `close`)
        self._process = subprocess.Popen(
            ["java", "-Xmx1g", *options, "-cp", jars.class_path, main_class],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            text=True,
            encoding="utf-8",
        )

    def ask(self, request: Request) -> Any:
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            self._complaints.seek(0)
            complaints = self._complaints.read().decode(errors="replace")
            raise OracleError(f"the JVM died on {str(request)[:300]}\n{complaints[-2000:]}")
        answer = json.loads(line)
        if isinstance(answer, dict) and "fault" in answer:
            raise OracleError(f"{answer['fault']} on {str(request)[:300]}")
        return answer

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait(timeout=300)
        self._process.stdout.close()
        self._complaints.close()


@dataclass(frozen=True)
class Recovered:
    """What `LogSegment.recover` left of one segment, as the broker's log loader takes it.

    `outcome` is recovered, emptied, split or load_failure; the indexes are None unless recovered.
    There is no `.txnindex` where no transaction was aborted.
    """

    outcome: str
    valid_bytes: int
    time_index: bytes | None
    offset_index: bytes | None
    transaction_index: bytes | None = None
    exception: str | None = None
    message: str | None = None


@dataclass(frozen=True)
class Dumped:
    """What DumpLogSegments printed, complained of, and threw."""

    printed: str
    complaints: str
    exception: str | None


@dataclass(frozen=True)
class Expired:
    """What one pass of retention deleted, by base offset, and what each segment was judged by."""

    deleted: list[int]
    largest_timestamps: dict[int, int]


@dataclass(frozen=True)
class Searched:
    """(offset, timestamp) for each target, None for "unknown"; what each segment was chosen by.

    REFUSED: a record is larger than max.decompressed.message.bytes.
    """

    found: list[tuple[int, int] | None]
    largest_timestamps: dict[int, int]


@dataclass(frozen=True)
class Truncated:
    """Whether Kafka truncated a log, and the log's offsets and producers afterwards, in memory."""

    truncated: bool
    end_offset: int
    log_start_offset: int
    producers: dict[int, int]  # their last sequences by id


class Oracle:
    """One version of Kafka, and a 3.9.1 client for v0 and v1, started once.

    Which verbs a version has is said in the README: `lead` is of 3.6 alone, 3.1 only recovers.
    `options` are those of its JVMs.
    """

    def __init__(self, version: str = KAFKA_VERSION, *, options: Sequence[str] = ()) -> None:
        self.version = version
        folders = JarFolder.of_version(version), JarFolder.of_legacy_client()
        for folder in folders:
            folder.build()
        self._kafka = JavaProcess(folders[0], options=options)
        self._legacy = JavaProcess(folders[1], "kip33.oracle.write.WriterMain", options)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def is_at_least(self, major: int, minor: int) -> bool:
        """Return whether the version is that one or a later one."""
        return version_of(self.version) >= (major, minor)

    def close(self) -> None:
        self._kafka.close()
        self._legacy.close()

    def _ask(self, verb: str, directory: Path, **fields: Any) -> Any:
        return self._kafka.ask({"do": verb, "directory": str(directory)} | fields)

    def write(self, batches: Iterable[Request]) -> list[bytes]:
        """Return each batch's wire bytes, written by Kafka's own builders.

        The fields of a batch are those of `BatchWriter.java`. v0 and v1 go to the 3.9.1 client,
        and so does all that a broker of 3.x is to read.
        """
        newest = 2 if self.is_at_least(4, 0) else 3
        batches = list(batches)
        written: list[bytes] = [b""] * len(batches)
        for process, legacy in ((self._legacy, True), (self._kafka, False)):
            places = [i for i, b in enumerate(batches) if (b.get("magic", 2) < newest) == legacy]
            if places:
                answer = process.ask({"do": "write", "batches": [batches[i] for i in places]})
                for place, text in zip(places, answer, strict=True):
                    written[place] = base64.b64decode(text)
        return written

    def recover(
        self,
        log: bytes,
        directory: Path,
        *,
        base_offset: int,
        index_interval_bytes: int = 4096,
        segment_index_bytes: int = 10485760,
        existing_time_index: bytes | None = None,
        existing_offset_index: bytes | None = None,
        sparse_bytes: int | None = None,
    ) -> Recovered:
        """Recover `log`, written into `directory`, and read what Kafka left there.

        With `sparse_bytes` the segment is a file of that many zeros, which takes no space.
        """
        name = f"{base_offset:020d}"
        before = {".log": log, ".timeindex": existing_time_index, ".index": existing_offset_index}
        for suffix, content in before.items():
            if content is not None:
                (directory / f"{name}{suffix}").write_bytes(content)
        if sparse_bytes is not None:
            os.truncate(directory / f"{name}.log", sparse_bytes)
        answer = self._ask(
            "recover",
            directory,
            base_offset=base_offset,
            index_interval_bytes=index_interval_bytes,
            segment_index_bytes=segment_index_bytes,
        )
        recovered = answer["outcome"] == "recovered"
        left = _taken(directory, base_offset, ".timeindex", ".index", ".txnindex")
        if recovered:
            size = len(log) if sparse_bytes is None else sparse_bytes
            assert answer["truncated_bytes"] == size - answer["valid_bytes"]
        return Recovered(
            outcome=answer["outcome"],
            valid_bytes=answer["valid_bytes"],
            time_index=left[".timeindex"] if recovered else None,
            offset_index=left[".index"] if recovered else None,
            transaction_index=left.get(".txnindex") if recovered else None,
            exception=answer.get("exception"),
            message=answer.get("message"),
        )

    def append_live(
        self,
        log: bytes,
        directory: Path,
        *,
        base_offset: int,
        index_interval_bytes: int,
    ) -> tuple[bytes, bytes]:
        """Append `log` batch by batch, roll, and return the live `.timeindex` and `.index`."""
        (directory / "batches").write_bytes(log)
        (directory / f"{base_offset:020d}.log").write_bytes(b"")
        self._ask(
            "live",
            directory,
            base_offset=base_offset,
            index_interval_bytes=index_interval_bytes,
            segment_index_bytes=10485760,
        )
        left = _taken(directory, base_offset, ".timeindex", ".index")
        return left[".timeindex"], left[".index"]

    def lead(
        self,
        batches: bytes,
        directory: Path,
        *,
        base_offset: int,
        timestamp_type: str,
        index_interval_bytes: int,
    ) -> tuple[bytes, bytes, bytes]:
        """Append as a 3.6 leader does; return its `.log`, and the live `.timeindex` and `.index`.

        The leader gives offsets anew, from the base on, and under LogAppendTime timestamps too.
        """
        _taken(directory, base_offset)
        (directory / "batches").write_bytes(batches)
        answer = self._ask(
            "lead",
            directory,
            base_offset=base_offset,
            timestamp_type=timestamp_type,
            index_interval_bytes=index_interval_bytes,
        )
        assert all(answer["accepted"])
        left = _taken(directory, base_offset, ".log", ".timeindex", ".index")
        return left[".log"], left[".timeindex"], left[".index"]

    def offer(
        self,
        batches: bytes,
        directory: Path,
        **settings: Any,
    ) -> tuple[bytes, list[bool]]:
        """Offer batches to a leader of 3.6, each when its clock shows one of `clocks`.

        Returns the log of the accepted ones, and whether the timestamps of each were accepted.
        """
        (directory / "batches").write_bytes(batches)
        answer = self._ask("lead", directory, base_offset=0, index_interval_bytes=4096, **settings)
        return _taken(directory, 0, ".log")[".log"], answer["accepted"]

    def expire(
        self,
        directory: Path,
        *,
        now_ms: int,
        retention_ms: int = -1,
        retention_bytes: int = -1,
        cleanup_policy: str = "delete",
        log_start_offset: int = 0,
    ) -> Expired:
        """Load the log in `directory`, `<topic>-<partition>`, and run `deleteOldSegments` once.

        The shutdown before was clean: indexes beside the logs are believed, a segment without
        `.index` is recovered. The high watermark is the log's end. Deleted files are gone.
        """
        answer = self._ask(
            "expire",
            directory,
            now_ms=now_ms,
            retention_ms=retention_ms,
            retention_bytes=retention_bytes,
            cleanup_policy=cleanup_policy,
            log_start_offset=log_start_offset,
        )
        largest = {int(base): time for base, time in answer["largest_timestamps"].items()}
        return Expired(answer["deleted"], largest)

    def search(
        self,
        directory: Path,
        targets_ms: Sequence[int],
        *,
        log_start_offset: int = 0,
        max_decompressed_message_bytes: int | None = None,
    ) -> Searched:
        """Load the log in `directory` as `expire` does, and ask for the offset of each target."""
        where: dict[str, Any] = {"now_ms": 0, "log_start_offset": log_start_offset}
        if (most := max_decompressed_message_bytes) is not None:
            where |= {"settings": {"max.decompressed.message.bytes": str(most)}}
        answer = self._ask("search", directory, **where, targets=list(targets_ms))
        found = [None if one is None else (*one, *REFUSED)[:2] for one in answer["found"]]
        largest = {int(base): time for base, time in answer["largest_timestamps"].items()}
        return Searched(found, largest)

    def load(self, directory: Path) -> None:
        """Load the log in `directory` as a broker does after a clean shutdown.

        Each segment without `.index` is recovered, in order. Kafka leaves its files there.
        """
        self._ask("search", directory, now_ms=0, targets=[])

    def should_roll(self, directory: Path, cases: Sequence[Request]) -> list[bool]:
        """Return `LogSegment.shouldRoll` for each case; the fields are those of `Rolling.java`."""
        return self._ask("should_roll", directory, cases=list(cases))

    def append(self, directory: Path, log: bytes, **settings: int) -> list[dict[str, int]]:
        """Append each batch of `log` to an empty log in `directory`, `<topic>-<partition>`.

        Returns the segments: base offset, size in bytes, and entries of both indexes. The clock
        stands still; `settings` are those of `Rolling.java`.
        """
        batches = directory.parent / f"{directory.name}.batches"
        batches.write_bytes(log)
        directory.mkdir()
        return self._ask("append", directory, batches=str(batches), **settings)

    def truncate(
        self,
        directory: Path,
        offset: int | None,
        *,
        now_ms: int,
        index_interval_bytes: int,
        log_start_offset: int = 0,
        clean: bool = True,
        producer_expiration_ms: int = 2**31 - 1,
    ) -> Truncated:
        """Load the log in `directory`, truncate it, and close it as a broker that stops does.

        Without an offset it is only loaded and closed; without `clean` all segments are recovered.
        Each segment's largest timestamp is in memory, as in a broker that has checked retention.
        """
        answer = self._ask(
            "truncate",
            directory,
            now_ms=now_ms,
            index_interval_bytes=index_interval_bytes,
            log_start_offset=log_start_offset,
            clean=clean,
            load_timestamps=True,
            producer_expiration_ms=producer_expiration_ms,
            **({} if offset is None else {"offset": offset}),
        )
        producers = {int(one): sequence for one, sequence in answer["producers"].items()}
        return Truncated(
            answer["truncated"], answer["end_offset"], answer["log_start_offset"], producers
        )

    def breached_remotely(
        self, cases: Sequence[tuple[int, int, int]], directory: Path
    ) -> list[bool]:
        """Return whether time retention wants a segment in tiered storage, for each case.

        A case is now, retention.ms and the segment's largest timestamp.
        """
        return self._ask("expire_remote", directory, cases=list(cases))

    def copies_next(
        self, directory: Path, *, now_ms: int, uploaded: int, settings: dict[str, str]
    ) -> tuple[list[int], int]:
        """Return which segments of a log a leader uploads next, and the bytes "only local".

        `uploaded` is the last offset in the remote tier, -1 for none.
        """
        settings = {"remote.storage.enable": "true"} | settings
        answer = self._ask(
            "copy_remote", directory, now_ms=now_ms, uploaded=uploaded, settings=settings
        )
        return answer["next"], answer["only_local_bytes"]

    def bench(self, segments: Sequence[Request], *, passes: int) -> dict[str, list[list[int]]]:
        """Recover `segments` again and again: nanoseconds, one list a pass, one number a segment.

        A segment is `directory`, `base_offset` and, unless Kafka's defaults,
        `index_interval_bytes` and `segment_index_bytes`.
        """
        return self._kafka.ask({"do": "bench", "segments": list(segments), "passes": passes})

    def records(self, log: Path) -> dict[str, Any]:
        """Read a log as a consumer does: `batches`, each with `records` and `failed`."""
        return self._kafka.ask({"do": "records", "file": str(log)})

    def bench_records(self, log: Path, *, passes: int) -> dict[str, Any]:
        """Read all records again and again: `ns`, one number a pass, and the number `records`."""
        return self._kafka.ask({"do": "bench_records", "file": str(log), "passes": passes})

    def dump(self, file: Path, *options: str) -> Dumped:
        """Run DumpLogSegments on one `.log`, `.index` or `.timeindex`."""
        answer = self._kafka.ask({"do": "dump", "file": str(file), "options": list(options)})
        return Dumped(answer["printed"], answer["complaints"], answer.get("exception"))


def _taken(directory: Path, base_offset: int, *suffixes: str) -> dict[str, bytes]:
    """Return the files of a segment with these suffixes, and remove all of its files."""
    files = list(directory.glob(f"{base_offset:020d}.*"))
    found = {file.suffix: file.read_bytes() for file in files if file.suffix in suffixes}
    for file in files:
        file.unlink()
    return found
