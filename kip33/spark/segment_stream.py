"""`spark.readStream.format("kafka-segments")`: the history of logs, range after range.

An offset of the stream has the next offset of each partition, the leader epoch of the record before
it, and the snapshot of the catalog that this was read from. The first offset of the stream decides
the options, which choose records, and the size of shares. Where a range has few records at many
offsets, the offset at its end has its cuts:

    {"logs": {"orders:pV8dTGzTSz2UkqBhcn1lWA": {"0": 8500}},
     "epochs": {"orders:pV8dTGzTSz2UkqBhcn1lWA": {"0": 3}},
     "snapshot": "00000000000000000001-4f0c...", "cuts": {},
     "options": {"isolation": "read_committed", ..., "maxRecordsPerPartition": 1000000}}

A batch that Spark repeats has the same rows in the same shares: sinks that write the same files
again depend on it. If that is not possible, it fails.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from kip33.catalog.catalog import Catalog, catalog_at, choose, warn_caller
from kip33.formats.whole_bodies import RecordLimits
from kip33.records.log_ranges import (
    SHARE_RECORDS,
    LogOffsets,
    LogRange,
    end_offsets,
    first_offsets,
    held_back,
    in_order,
    last_epochs,
    limited,
    ranges_between,
    require_all_logs,
    require_same_segments,
    sparse_cuts,
    stream_shares,
    unread,
    with_transactions,
)
from kip33.records.partitions import PartitionSegments
from kip33.records.reading import Level
from kip33.records.record_request import FilterBounds
from kip33.spark.segment_tasks import RowSource
from kip33.spark.store_settings import Stores
from kip33.stores.filesystems import use_stores
from kip33.stores.locations import Location

try:  # PySpark 4.2
    from pyspark.sql.streaming import datasource as admission

    _AvailableNow: Any = admission.SupportsTriggerAvailableNow
except ImportError:
    admission = None  # type: ignore[assignment]
    _AvailableNow = object

_LOGS, _EPOCHS, _SNAPSHOT, _CUTS = "logs", "epochs", "snapshot", "cuts"
_OPTIONS, _SHARE = "options", "maxRecordsPerPartition"


class StreamOptions(NamedTuple):
    """The options that only a stream has."""

    max_offsets: int | None = None
    max_bytes: int | None = None
    share_records: int | None = None
    fail_on_data_loss: bool = True


class SegmentStream(DataSourceStreamReader, _AvailableNow):  # type: ignore[misc]
    """Reads the ranges of a stream; Spark makes it in a worker that plans, and in tasks."""

    def __init__(self, rows: RowSource, options: StreamOptions) -> None:
        """Take what is read; ValueError for what a stream cannot do."""
        if rows.reading.level != Level.RECORDS:
            raise ValueError(
                f"kafka-segments: readStream of level {rows.reading.level} found, expected records"
            )
        if admission is None and (options.max_offsets or options.max_bytes):
            raise ValueError(
                "kafka-segments: a limit per trigger found, which PySpark has from 4.2 on; remove "
                "it, or use a newer PySpark"
            )
        self._rows, self._options = rows, options
        self._shown: dict[str, Any] | None = None  # the newest offset that Spark has shown
        self._is_last = False  # what is listed now
        self._listed: tuple[str, list[PartitionSegments]] = "", []

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return where the logs begin."""
        snapshot, partitions = self._newest()
        return self._offset(first_offsets(partitions), snapshot, self._options_of({}), {}, {})

    def getDefaultReadLimit(self) -> Any:  # noqa: N802
        """Return a limit if the user gave one, which has Spark ask for what is within it."""
        offsets, size = self._options.max_offsets, self._options.max_bytes
        if offsets is not None:
            return admission.ReadMaxRows(offsets)
        return admission.ReadAllAvailable() if size is None else admission.ReadMaxBytes(size)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Keep the catalog as it is now: the stream ends where its logs do."""
        self._newest()
        self._is_last = True

    def latestOffset(  # noqa: N802
        self, start: dict[str, Any] | None = None, limit: Any = None
    ) -> dict[str, Any]:
        """Return the end of the next range; `start` if there are no new records.

        PySpark 4.1 gives no start. After a restart it asks first for the `partitions` of the newest
        offset of the checkpoint.
        """
        start = start or self._shown
        before = start or {}
        options = self._options_of(before)
        begun: LogOffsets = before.get(_LOGS, {})
        snapshot, partitions = self._newest(begun)
        ends = end_offsets(partitions, begun, only_committed=self._only_committed)
        for line in held_back(partitions, ends) if self._only_committed else ():
            warn_caller(line)
        if limit is not None and not isinstance(limit, admission.ReadAllAvailable):
            ends = limited(
                partitions,
                begun,
                ends,
                max_offsets=self._options.max_offsets,
                max_bytes=self._options.max_bytes,
            )
        if not start or ends != begun:
            cuts = sparse_cuts(partitions, begun, ends, options[_SHARE])
            return self._offset(ends, snapshot, options, cuts, before)
        self._ranges(partitions, start, start)  # a log that was cut may have nothing new
        return start

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the shares of a range, the same whenever it is asked for.

        Each is what one task reads, and the stores for it: neither is part of a plan's text.
        """
        options = self._options_of(start)
        self._options_of(end)
        self._shown = end
        _, partitions = self._newest(start[_LOGS])
        ranges = self._ranges(partitions, start, end)
        require_all_logs(start[_LOGS], end[_LOGS])
        for catalog, then in zip(self._catalogs(), end[_SNAPSHOT].split(","), strict=False):
            if then not in self._listed[0].split(","):
                require_same_segments(ranges, catalog, then)
        stores = self._rows.use_stores()
        how = (end[_CUTS], options[_SHARE])
        return [
            InputPartition((stores, share))
            for one in ranges
            for share in stream_shares(one, *how, only_committed=self._only_committed)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a share."""
        stores: Stores | None
        share: LogRange
        stores, share = partition.value
        if stores is not None:
            use_stores(*stores)
        limits = RecordLimits(first_offset=share.first_offset, last_offset=share.end_offset - 1)
        rows = self._rows._replace(reading=self._rows.reading.inside(FilterBounds(limits)))
        share.require_unchanged()
        yield from rows.rows([share.segments])

    @property
    def _only_committed(self) -> bool:
        return self._rows.reading.request.only_committed

    def _ranges(
        self, partitions: list[PartitionSegments], start: dict[str, Any], end: dict[str, Any]
    ) -> list[LogRange]:
        return ranges_between(
            partitions,
            start[_LOGS],
            end[_LOGS],
            start[_EPOCHS],
            fail_on_data_loss=self._options.fail_on_data_loss,
        )

    def _options_of(self, before: dict[str, Any]) -> dict[str, Any]:
        """The options that choose records and shares; ValueError if they were others before."""
        begun = before.get(_OPTIONS, {})
        options = self._rows.reading.request.options
        options[_SHARE] = self._options.share_records or begun.get(_SHARE, SHARE_RECORDS)
        for name, found in options.items():
            if found != (expected := begun.get(name, found)):
                raise ValueError(
                    f"kafka-segments: {name} {_shown(found)} found, expected {_shown(expected)}, "
                    "with which the checkpoint began; give this, or begin a new table with a new "
                    "checkpoint"
                )
        return options

    def _offset(
        self,
        logs: LogOffsets,
        snapshot: str,
        options: dict[str, Any],
        cuts: dict[str, list[int]],
        before: dict[str, Any],
    ) -> dict[str, Any]:
        epochs = last_epochs(self._listed[1], before.get(_LOGS, {}), logs, before.get(_EPOCHS, {}))
        own = {_SNAPSHOT: snapshot, _CUTS: cuts, _OPTIONS: options}
        return {_LOGS: logs, _EPOCHS: epochs, **own}

    def _catalogs(self) -> list[Catalog]:
        return [catalog_at(Location.of(place)) for place in self._rows.places]

    def _newest(self, begun: LogOffsets | None = None) -> tuple[str, list[PartitionSegments]]:
        """The names of the newest snapshots, and the partitions in them.

        From where the stream has `begun` to read, their open transactions are known.
        """
        names, partitions = self._listed
        if not self._is_last:
            self._rows.use_stores()
            newest = ",".join(choose(catalog, None).snapshot.name for catalog in self._catalogs())
            if newest != names:
                listed = self._rows.partitions()
                names, partitions = newest, in_order(listed)
                for line in unread(listed):
                    warn_caller(line)
        if begun is not None and self._only_committed:
            partitions = with_transactions(partitions, begun)
        self._listed = names, partitions
        return self._listed


def _shown(value: Any) -> Any:
    return "none" if value is None else value
