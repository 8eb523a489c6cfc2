"""An fsspec filesystem as pyarrow calls it, with modification times and without cached listings."""

from typing import Any, Final

from pyarrow import fs

_TIMES: Final = ("mtime", "LastModified", "last_modified", "updated")  # keys of fsspec's `info`


class FsspecHandler(fs.FSSpecHandler):
    """pyarrow's handler gives no modification time but `mtime`, and lists from fsspec's cache."""

    fs: Any

    def get_file_info(self, paths: Any) -> Any:
        """Return what the store says now of each path."""
        for path in paths:
            self.fs.invalidate_cache(path)
        return super().get_file_info(paths)

    def get_file_info_selector(self, selector: fs.FileSelector) -> Any:
        """Return what is below a directory now."""
        self.fs.invalidate_cache(selector.base_dir)
        return super().get_file_info_selector(selector)

    def _create_file_info(self, path: str, info: dict[str, Any]) -> Any:
        timed = {**info, "mtime": self._modified(path, info)}
        return fs.FSSpecHandler._create_file_info(path, timed)  # type: ignore[attr-defined]

    def _modified(self, path: str, info: dict[str, Any]) -> Any:
        """Return a file's modification time, None where the filesystem has none."""
        for key in _TIMES:
            found = info.get(key)
            if isinstance(found, int | float) or hasattr(found, "timestamp"):  # a datetime
                return found
        if info["type"] != "file":
            return None
        try:
            return self.fs.modified(path)
        except NotImplementedError:
            return None
