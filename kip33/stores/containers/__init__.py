"""Files that contain a log or its indexes in another form than plain bytes from start to end.

`Location.inside` names the part; in a URI it follows the last `#`:

    hdfs://h/base/t-0-ID/SEGMENT#rsm.log              a range of the file (`containers.rsm`)
    hdfs://h/base/t-0-ID/SEGMENT#rsm.timeindex
    s3a://b/t-ID/0/00..42-SEGMENT.log#aiven.log       described by a manifest (`containers.aiven`)
    s3a://b/t-ID/0/00..42-SEGMENT.indexes#aiven.timeindex

`kip33.stores.files` calls this package for such a location, so its own callers need not know
about containers. Every fault of a container is a FileReadError, like a fault of the store itself.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

from kip33.errors import READ_FAULTS, FileReadError, Kip33Error
from kip33.formats.byte_sources import ReadInto
from kip33.stores.containers import aiven, rsm
from kip33.stores.locations import Location, OpenFile

_OPENED: Final = {"rsm": rsm.opened, "aiven": aiven.opened}


@contextmanager
def opened_inside(place: Location, open_file: OpenFile) -> Iterator[tuple[ReadInto, int]]:
    """Open what `place.inside` names; yield (read_into, its size in bytes), as `files.opened` does.

    `open_file` opens the files of the store. Raises FileReadError if they cannot be read, and
    FileMissingError also if the container does not have this part.
    """
    container, _, kind = place.inside.partition(".")
    with ExitStack() as files:
        try:
            file = place._replace(inside="")
            with READ_FAULTS:
                found = files.enter_context(_OPENED[container](file, kind, open_file))
        except Kip33Error as error:
            raise FileReadError(f"{place.uri}: {error}") from error
        yield found
