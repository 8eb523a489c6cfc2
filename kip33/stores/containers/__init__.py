"""Files that hold a segment's log or indexes otherwise than as plain bytes from start to end.

A `Location` says with `inside` what is meant; in a URI it stands behind the last `#`:

    hdfs://h/base/t-0-ID/SEGMENT#rsm.log              a range of the file (`containers.rsm`)
    hdfs://h/base/t-0-ID/SEGMENT#rsm.timeindex
    s3a://b/t-ID/0/00..42-SEGMENT.log#aiven.log       as the manifest says (`containers.aiven`)
    s3a://b/t-ID/0/00..42-SEGMENT.indexes#aiven.timeindex

`kip33.stores.files` comes here for such a place, so that nobody else has to know. Whatever is
wrong with a container is an OSError, as a store's own faults are.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

from kip33.errors import Kip33Error
from kip33.formats.byte_sources import ReadInto
from kip33.stores.containers import aiven, rsm
from kip33.stores.locations import Location, OpenFile

_OPENED: Final = {"rsm": rsm.opened, "aiven": aiven.opened}


@contextmanager
def opened_inside(place: Location, open_file: OpenFile) -> Iterator[tuple[ReadInto, int]]:
    """Open what `place.inside` names; yield (read_into, its size in bytes), as `files.opened` does.

    `open_file` opens the files as they lie in the store. OSError where that cannot be read;
    FileNotFoundError also where the container has no such part.
    """
    container, _, kind = place.inside.partition(".")
    with ExitStack() as files:
        try:
            file = place._replace(inside="")
            found = files.enter_context(_OPENED[container](file, kind, open_file))
        except Kip33Error as error:
            raise OSError(f"{place.uri}: {error}") from error
        yield found
