"""The settings of one build."""

import json
from functools import cache
from typing import NamedTuple, Self

from kip33.archive.directory import Segment
from kip33.archive.listing import Column, index_uris
from kip33.archive.segment_paths import index_path
from kip33.rules.draft_entries import index_file_of
from kip33.rules.index_builder import BYTES_VERSION, IndexSettings, TopicSettings
from kip33.rules.untimestamped import FILE_TIME_OFFSET
from kip33.stores.locations import Location


class BuildSpec(NamedTuple):
    """The settings of one build; small and picklable, because it is sent to every task."""

    source: Location
    index_dir: Location  # the source itself if built in place
    settings: IndexSettings
    offset_index: bool = False
    overwrite: bool = False
    only_damaged: bool = False
    read_tail: bool = False
    layout: str = "kafka"
    by_topic: tuple[tuple[str, IndexSettings], ...] = ()  # topics with other settings
    fsync: bool = True  # flush written files to the disk before the next step
    producer_snapshots: bool = False
    lists_puts: bool = False  # list folders instead of asking for each new file: `listed_puts`

    @property
    def in_place(self) -> bool:
        """Return whether index files go beside the logs."""
        return self.index_dir == self.source

    def of_topic(self, topic: str | None) -> Self:
        """Return the build with the settings of one topic."""
        if not self.by_topic:
            return self
        return self._replace(settings=TopicSettings(self.settings, self.by_topic).of(topic))

    @property
    def build_settings(self) -> str:
        """Return the settings with which a row is built, as JSON in a fixed order."""
        return _as_json(self.settings, self.offset_index, self.producer_snapshots)

    @property
    def index_settings(self) -> str:
        """Return the settings that determine the bytes of index files, as JSON in a fixed order."""
        return index_settings_json(self.settings)

    @property
    def time_index(self) -> str:
        """Return how the names of the time indexes end: `timeindex`, or what a draft has."""
        return index_file_of(self.settings.dialect)

    def index_location(self, segment: Segment) -> Location:
        """Return the place of the segment's time index: the same path as below SOURCE."""
        return self.index_dir.child(index_path(segment.path, self.time_index))

    def index_uris(self, log_uris: Column) -> Column:
        """Return the URIs of the time indexes of logs."""
        return index_uris(log_uris, self.source, self.index_dir, self.time_index)


@cache
def _as_json(settings: IndexSettings, offset_index: bool, producer_snapshots: bool) -> str:
    record = {**settings.as_record(), "offset_index": offset_index, "bytes_version": BYTES_VERSION}
    if producer_snapshots:  # rows of builds without it keep their settings
        record["producer_snapshots"] = True
    return json.dumps(record)


@cache
def index_settings_json(settings: IndexSettings) -> str:
    """Return settings in the form of the catalog's columns `*_index_settings`."""
    return json.dumps(settings.as_record())


def file_time_settings_json(settings: IndexSettings, offset: int) -> str:
    """Return the settings of a `.timeindex` whose one entry has the log file's time."""
    return json.dumps(settings.as_record() | {FILE_TIME_OFFSET: offset})
