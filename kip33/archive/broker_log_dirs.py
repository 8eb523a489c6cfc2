"""Detect whether a place is inside a broker's log directory, by the files that brokers write there.

A broker treats every folder of its log directory as a partition, and does not start if a folder has
another name (`LogManager.loadLogs`). It ignores files. So kip33 must not put a folder there, but
may put a file there.
"""

import os
from typing import Final

from kip33.errors import LocationError, LockedError
from kip33.formats.partition_metadata import LOG_START_OFFSET_CHECKPOINT
from kip33.stores.locations import Location

RESTORE_STAGING: Final = ".kip33-restore"  # there until a restore has ended
RESTORE_JOURNAL: Final = ".kip33-restore.json"
OF_A_BROKER: Final = "meta.properties"  # in every log directory formatted by a broker
_BROKERS_FILES: Final = (
    OF_A_BROKER,
    "recovery-point-offset-checkpoint",
    LOG_START_OFFSET_CHECKPOINT,
    "replication-offset-checkpoint",
    "cleaner-offset-checkpoint",
    ".kafka_cleanshutdown",
)


def require_outside_brokers(place: Location, what: str) -> None:
    """Raise LocationError if the folder `place` is, or would be in, a broker's log directory.

    Its parents are checked, both as named and with links resolved. Brokers use only local file
    systems, so other stores are not checked. `what` is the folder's name in the message.
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


def require_no_restore(log_dir: Location) -> None:
    """Raise LockedError if a restore into a local log directory was begun and has not ended."""
    staged, _, below = log_dir.path.partition(f"/{RESTORE_STAGING}/")
    if below:  # a staged partition
        log_dir = log_dir._replace(path=staged)
    for name in (RESTORE_STAGING, RESTORE_JOURNAL):
        place = log_dir.child(name)
        if place.is_local and os.path.lexists(place.path):
            raise LockedError(
                f"{place.uri}: a restore into this log directory has not ended; end it with the "
                "same kip33 restore, or kip33 restore --to LOG_DIR --abandon"
            )


def inside_log_dir(place: Location, what: str, log_dir: Location, why: str = "") -> LocationError:
    """Return the error for a folder inside a log directory; `why` says how that was detected."""
    return LocationError(
        f"{place.uri}: {what} is inside the log directory {log_dir.uri}{why}; a broker "
        "does not start if its log directory has an unknown folder: choose a place "
        "outside"
    )
