"""Checks of the directories that a user names, each failure one line."""

from pyarrow import fs

from kip33.errors import LocationError
from kip33.stores.files import one_line
from kip33.stores.locations import Location
from kip33.stores.own_files import make_folder


def require_writable(location: Location, what: str) -> None:
    """Make the directory `location`; LocationError, one line, if that fails.

    An object store has no directories: there only the first put shows whether it is writable.
    """
    if location.is_object_store:
        return
    try:
        make_folder(location)
    except OSError as error:
        raise LocationError(
            f"{location.uri}: {what} cannot be created: {one_line(error)}; fix it or choose another"
        ) from error


def require_directory(location: Location, what: str) -> None:
    """Raise LocationError, one line for the user, unless `location` is a directory."""
    try:
        info = location.filesystem().get_file_info(location.path)
    except OSError as error:
        raise LocationError(
            f"{location.uri}: {what} cannot be read: {one_line(error)}{_advice(location)}"
        ) from error
    if info.type == fs.FileType.NotFound:
        raise LocationError(f"{location.uri}: {what} does not exist")
    if info.type == fs.FileType.File:
        raise LocationError(f"{location.uri}: {what} is a file, expected a directory")


def _advice(location: Location) -> str:
    """Return what to check if a store does not answer; empty for a local disk."""
    if location.root.startswith("s3a://"):
        keys = "fs.s3a.endpoint, fs.s3a.access.key and fs.s3a.secret.key"
        return (
            f"; check {keys} (--conf spark.hadoop.KEY=VALUE) or the environment variables; with "
            "Spark Connect, give keys as storage_options: its sessions do not return them"
        )
    if location.root.startswith("hdfs://"):
        return "; check the name node's address, HADOOP_CONF_DIR and your ticket or token"
    return ""
