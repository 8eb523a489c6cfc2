"""Whether a place is inside the log directory of a broker, by the files that brokers keep there.

A broker takes every folder of its log directory for a partition, and does not start if a folder has
another name (`LogManager.loadLogs`). It passes over files. So a folder of ours must not be there,
but a file may.
"""

import os
from typing import Final

from kip33.errors import LocationError
from kip33.formats.offset_checkpoints import LOG_START_OFFSET_CHECKPOINT
from kip33.stores.locations import Location

OF_A_BROKER: Final = "meta.properties"  # in every log directory that a broker has formatted
_BROKERS_FILES: Final = (
    OF_A_BROKER,
    "recovery-point-offset-checkpoint",
    LOG_START_OFFSET_CHECKPOINT,
    "replication-offset-checkpoint",
    "cleaner-offset-checkpoint",
    ".kafka_cleanshutdown",
)


def require_outside_brokers(place: Location, what: str) -> None:
    """Raise LocationError where the folder `place` is, or would be in, a broker's log directory.

    Its parents are searched upwards, by their names and behind links. Brokers use local file
    systems only, so other stores are not searched. `what` is the folder's name in the message.
    """
    if not place.is_local:
        return
    for path in dict.fromkeys((place.path, os.path.realpath(place.path))):
        folder, parent = Location(place.root, path), ""
        while folder.path != parent:
            for name in _BROKERS_FILES:
                if os.path.lexists(folder.child(name).path):
                    raise inside_log_dir(place, what, folder, f", which holds {name}")
            parent = folder.path
            folder = folder.parent


def inside_log_dir(place: Location, what: str, log_dir: Location, why: str = "") -> LocationError:
    """Return the error that refuses a folder inside a log directory; `why` says how it is known."""
    return LocationError(
        f"{place.uri}: {what} is inside the log directory {log_dir.uri}{why}; a broker "
        "does not start if its log directory has an unknown folder: choose a place "
        "outside"
    )
