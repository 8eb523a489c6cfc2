"""The folders that index files were written to, flushed before a catalog row names them."""

from typing import Any

from kip33.errors import PublishError
from kip33.storage.durable_files import flush_filesystems
from kip33.storage.files import reason
from kip33.storage.locations import Location


class WrittenFolders:
    """The folders of some rows' index files."""

    def __init__(self) -> None:
        """Begin with none."""
        self._uris: set[str] = set()

    def add(self, row: dict[str, Any]) -> None:
        """Add the folder that the index files of a catalog row lie in."""
        uri = row.get("index_uri")
        if uri and uri.startswith("file:"):
            self._uris.add(uri.rpartition("/")[0])

    def flush(self) -> None:
        """Wait until the files are on the disk; PublishError where they cannot be."""
        try:
            flush_filesystems(Location.of(uri) for uri in sorted(self._uris))
        except OSError as error:
            raise PublishError(
                f"index files cannot be flushed to the disk: {reason(error)}; the snapshot is not "
                "committed: fix that and run it again, or build with --no-fsync"
            ) from error
