"""A retention plan as a file of JSON objects, one per line.

    {"kind": "plan", "version": 1, "plan_id": "5c1e...", "created_ms": ..., ...}
    {"kind": "partition", "log_dir": "broker-1", "topic": "orders", "partition": 0, ...}
    {"kind": "segment", "log_dir": "broker-1", ..., "base_offset": 0, ..., "files": [...]}

A partition's line is before those of its segments. `archive.output_files` has the id. Each plan is
compared with the newest snapshot before it is carried out.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from kip33.archive.output_files import (
    PlanForm,
    is_plain_path,
    plan_id_of,
    plan_line,
    read_plan_lines,
    require_plain_path,
    require_plan_place,
    write_plan_lines,
)
from kip33.archive.segment_paths import PlannedFile
from kip33.errors import PlanError, PolicyError
from kip33.formats.names import SEGMENT_KINDS, SegmentFile, parse_partition_dir, parse_segment_file
from kip33.retention.plan import (
    Basis,
    LeftOut,
    PlannedPartition,
    PlannedSegment,
    RetentionPlan,
)
from kip33.rules.policies import Policies
from kip33.rules.retention import ActiveSegment, Boundary
from kip33.stores.files import one_line
from kip33.stores.locations import Location

PLAN_VERSION: Final = 1
PARTITION_KEY: Final = ("log_dir", "topic", "partition")
_FORM: Final = PlanForm(
    "plan",
    PLAN_VERSION,
    "a retention plan",
    "make another with `kip33 retention CATALOG --plan FILE`",
)


def with_plan_id(basis: Basis, partitions: Iterable[PlannedPartition]) -> RetentionPlan:
    """Return the plan with its id."""
    plan = RetentionPlan("", basis, tuple(partitions))
    plan_id = plan_id_of(plan_line(record) for record in _records(plan))
    return RetentionPlan(plan_id, basis, plan.partitions)


def write_plan(plan: RetentionPlan, place: Location) -> None:
    """Publish a plan atomically; the only file that it may replace is another plan.

    Raises LocationError if the name does not end in `.jsonl` or is another file's, PublishError if
    it cannot be written.
    """
    require_plan_place(place)
    write_plan_lines(_records(plan), place)


def read_plan(place: Location) -> RetentionPlan:
    """Return the plan in a file; PlanError, one line, if it is not exactly as it was written."""
    found = read_plan_lines(place, _FORM)
    try:
        basis = _basis(found.header)
        partitions = _partitions(basis, found.records())
    except (ValueError, TypeError, KeyError, AttributeError, PolicyError) as error:
        raise PlanError(f"{place.uri}: not written by kip33: {one_line(error)}") from error
    return RetentionPlan(found.header["plan_id"], basis, partitions)


def _records(plan: RetentionPlan) -> Iterator[dict[str, Any]]:
    basis = plan.basis
    yield {
        "kind": "plan",
        "version": PLAN_VERSION,
        "plan_id": plan.plan_id,
        "created_ms": basis.created_ms,
        "now_ms": basis.now_ms,
        "catalog": basis.catalog.uri,
        "snapshot": basis.snapshot,
        "source": basis.source.uri,
        "index_dir": basis.index_dir.uri if basis.index_dir else None,
        **plan.totals(),
        "active_segment": basis.active_segment,
        "boundary": basis.boundary,
        "trust_last_modified": basis.trust_last_modified,
        "policies": basis.policies.to_record(),
    }
    for partition in plan.partitions:
        key = dict(zip(PARTITION_KEY, partition.key, strict=True))
        left_out, index_directory = partition.left_out, partition.index_directory
        yield {
            "kind": "partition",
            **key,
            "directory": partition.directory.uri,
            "index_directory": index_directory.uri if index_directory else None,
            "log_start_offset": partition.log_start_offset,
            "first_kept_base_offset": partition.first_kept_base_offset,
            "segments": len(partition.segments),
            "bytes": partition.size_bytes,
            "left_out": left_out._asdict() if left_out else None,
        }
        for segment in partition.segments:
            yield {"kind": "segment", **key, **_segment_record(partition, segment)}


def _segment_record(partition: PlannedPartition, segment: PlannedSegment) -> dict[str, Any]:
    return {
        "base_offset": segment.base_offset,
        "largest_timestamp": segment.largest_timestamp,
        "largest_timestamp_source": segment.largest_timestamp_source,
        "reason": segment.reason,
        "expires_at_ms": segment.expires_at_ms,
        "bytes": segment.size_bytes,
        "files": [file_record(partition, file) for file in segment.files],
    }


def file_record(partition: PlannedPartition, file: PlannedFile) -> dict[str, Any]:
    """Return the record of a file in plan and journal."""
    return {
        "uri": partition.place(file).uri,
        "size_bytes": file.size_bytes,
        "last_modified_ns": file.last_modified_ns,
    }


def _basis(header: dict[str, Any]) -> Basis:
    basis = Basis(
        int(header["created_ms"]),
        int(header["now_ms"]),
        Location.of(header["catalog"]),
        str(header["snapshot"]),
        Location.of(header["source"]),
        Location.of(header["index_dir"]) if header["index_dir"] else None,
        Policies.from_record(header["policies"]),
        header["active_segment"],
        header["boundary"],
        bool(header["trust_last_modified"]),
    )
    is_known = basis.active_segment in tuple(ActiveSegment) and basis.boundary in tuple(Boundary)
    if not is_known:
        raise ValueError(f"unknown choices {basis.active_segment!r} and {basis.boundary!r}")
    return basis


def _partitions(basis: Basis, records: list[dict[str, Any]]) -> tuple[PlannedPartition, ...]:
    """Return the partitions with their segments; ValueError for a wrong order or place."""
    found: list[tuple[PlannedPartition, list[PlannedSegment]]] = []
    for record in records:
        if record["kind"] == "partition":
            found.append((_partition(basis, record), []))
            continue
        partition, segments = found[-1] if found else (None, [])
        if not partition or partition.key != tuple(record[name] for name in PARTITION_KEY):
            raise ValueError(f"base offset {record['base_offset']} has no line of its partition")
        segments.append(_segment(partition, record))
        offsets = [segment.base_offset for segment in segments[-2:]]
        if len(offsets) == 2 and offsets[0] >= offsets[1]:
            raise ValueError(
                f"{partition.directory.uri}: the segments are not in order of their offsets"
            )
    directories = [partition.directory for partition, _ in found]
    if len(set(directories)) < len(directories):
        raise ValueError("a partition appears twice")
    return tuple(partition._replace(segments=tuple(segments)) for partition, segments in found)


def _partition(basis: Basis, record: dict[str, Any]) -> PlannedPartition:
    log_dir, topic, number = (record[name] for name in PARTITION_KEY)
    index_uri, left_out = record["index_directory"], record["left_out"]
    partition = PlannedPartition(
        log_dir,
        topic,
        number,
        Location.of(record["directory"]),
        Location.of(index_uri) if index_uri else None,
        record["log_start_offset"],
        record["first_kept_base_offset"],
        (),
        LeftOut(**left_out) if left_out else None,
    )
    below = partition.below(basis.source)
    named = parse_partition_dir(partition.directory.name)
    if (
        partition.directory != (basis.source.child(below) if below else basis.source)
        or below.rpartition("/")[0] != log_dir
        or named != (topic, number, "")
    ):
        raise ValueError(f"{record['directory']}: not a directory of {topic}-{number} below SOURCE")
    if below:
        require_plain_path(partition.directory, [basis.source])
    index_directory = partition.index_directory
    if index_directory:
        has_its_path = not below or index_directory.path.endswith(f"/{below}")
        if not has_its_path or not is_plain_path(index_directory):
            raise ValueError(f"{index_uri}: not an index directory of {record['directory']}")
    return partition


def _segment(partition: PlannedPartition, record: dict[str, Any]) -> PlannedSegment:
    base_offset = int(record["base_offset"])
    files = tuple(_file(partition, base_offset, file) for file in record["files"])
    kinds = [SEGMENT_KINDS.index(file.name.rpartition(".")[2]) for file in files]
    if kinds != sorted(kinds) or kinds[:1] != [0] or 0 in kinds[1:] or files[0].in_index_dir:
        raise ValueError(f"base offset {base_offset}: expected the log first, then its index files")
    return PlannedSegment(
        base_offset,
        int(record["largest_timestamp"]),
        str(record["largest_timestamp_source"]),
        str(record["reason"]),
        record["expires_at_ms"],
        files,
    )


def _file(partition: PlannedPartition, base_offset: int, record: dict[str, Any]) -> PlannedFile:
    uri = record["uri"]
    file = PlannedFile(
        uri.rpartition("/")[2], int(record["size_bytes"]), int(record["last_modified_ns"])
    )
    if uri != partition.place(file).uri:
        file = file._replace(in_index_dir=True)
    named = parse_segment_file(file.name)
    expected = [SegmentFile(base_offset, kind) for kind in SEGMENT_KINDS]
    if uri != partition.place(file).uri or named not in expected:
        raise ValueError(
            f"{uri}: not a file of {partition.directory.uri}, base offset {base_offset}"
        )
    return file
