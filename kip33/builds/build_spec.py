"""The settings of one build."""

import json
from functools import cache
from typing import NamedTuple, Self

from kip33.archive.directory import Segment
from kip33.archive.segment_paths import index_path
from kip33.rules.index_builder import BYTES_VERSION, IndexSettings, TopicSettings
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
        return _as_json(self.settings, self.offset_index)

    @property
    def index_settings(self) -> str:
        """Return the settings that determine the bytes of index files, as JSON in a fixed order."""
        return index_settings_json(self.settings)

    def index_location(self, segment: Segment) -> Location:
        """Return the place of the segment's `.timeindex`: the same path as below SOURCE."""
        return self.index_dir.child(index_path(segment.path, "timeindex"))


@cache
def _as_json(settings: IndexSettings, offset_index: bool) -> str:
    return json.dumps(
        {**settings._asdict(), "offset_index": offset_index, "bytes_version": BYTES_VERSION}
    )


@cache
def index_settings_json(settings: IndexSettings) -> str:
    """Return settings in the form of the catalog's columns `*_index_settings`."""
    return json.dumps(settings._asdict())
