r"""HDFS: through hdfs-native if it is installed, else through the cluster's own libhdfs.

hdfs-native talks to name nodes without a JVM. It supports high availability, Spark's tokens in
`HADOOP_TOKEN_FILE_LOCATION` and Kerberos, and it can rename over a file in one step, which is how
files are published. libhdfs has no such rename (pyarrow's `move` deletes first), so it can publish
new files but cannot replace one (`stores.own_files`).

With `hadoop.security.authentication=kerberos`, hdfs-native uses the machine's libgssapi_krb5. That
library looks for a ticket in `KRB5CCNAME`, or gets one with the keytab in `KRB5_CLIENT_KTNAME`.

hdfs-native prints a fault in Rust's debug form, including the Java trace that a name node sent.
Here it becomes an OSError with one line:

    RPCError("org.apache...AccessControlException", "Permission denied: user=a\n\tat org...")
    GSSAPIError(GssMajorCodes { ... "GSS_S_NO_CRED" ... }, 2529639053, "No credentials were ...")
"""

import io
import os
import re
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import urlsplit

import pyarrow as pa
from pyarrow import fs

from kip33.errors import LocationError, is_of_the_machine
from kip33.stores.settings import require_expanded

_OF_CLIENTS: Final = (  # settings of the name nodes' addresses and of authentication
    *("fs.defaultFS", "dfs.nameservices", "dfs.ha.namenodes.", "dfs.namenode.rpc-address"),
    *("hadoop.security.authentication", "hadoop.security.token.service.use_ip"),
)
_PANIC: Final = "PanicException"  # not an Exception; a truncated token file raises it, for example
_OF_SERVERS: Final = ("RPCError", "FatalRPCError")  # their first text is the name of a Java class
_TEXT: Final = re.compile(r'"((?:[^"\\]|\\.)*)"')
ATTEMPTS: Final = "7"  # tolerates 30 s or more without a name node; hdfs-native's default 15: 3 min
_ATTEMPTS_KEY: Final = "dfs.client.failover.max.attempts"
INSTALL: Final = (
    "pip install 'kip33[hdfs]', or give CLASSPATH, JAVA_HOME and HADOOP_HOME for libhdfs"
)


def open_hdfs(settings: Mapping[str, str], root: str) -> fs.FileSystem:
    """Return the filesystem of `hdfs://host:port`, a name service, or `hdfs://` (the default).

    Raises LocationError if no client is installed or the name service is unknown.
    """
    try:
        from hdfs_native import Client
    except ImportError:
        return _libhdfs(root)
    own = {key: value for key, value in settings.items() if not key.startswith("fs.s3a.")}
    for key in own:
        if key.startswith(_OF_CLIENTS):
            require_expanded(key, own[key])
    own.setdefault(_ATTEMPTS_KEY, ATTEMPTS)
    url = root if root != "hdfs://" else own.get("fs.defaultFS")
    if url and "HADOOP_TOKEN_FILE_LOCATION" in os.environ:
        url = _as_in_tokens(url, settings)
    try:
        return fs.PyFileSystem(HdfsHandler(Client(url, own)))
    except Exception as error:  # hdfs-native has its own exceptions, one per kind of fault
        raise LocationError(
            f"{root}: cannot be opened: {error}; is HADOOP_CONF_DIR set?"
        ) from error


def patience_of(settings: Mapping[str, str]) -> str:
    """Return how long name nodes are tried, for who waits for one."""
    attempts = settings.get(_ATTEMPTS_KEY, ATTEMPTS)
    how_long = ", for half a minute or more" if attempts == ATTEMPTS else ""
    return f"each request is tried {attempts} times{how_long}"


def _as_in_tokens(url: str, settings: Mapping[str, str]) -> str:
    """Return a name node's URL with its IP address, because Hadoop's tokens name it by address.

    hdfs-native finds a token by the exact text of the URL. Kerberos works with both forms: a name
    node announces its own principal.
    """
    parts = urlsplit(url)
    by_name = settings.get("hadoop.security.token.service.use_ip", "true").lower() == "false"
    if parts.scheme != "hdfs" or not parts.hostname or not parts.port or by_name:
        return url
    try:
        return f"hdfs://{socket.gethostbyname(parts.hostname)}:{parts.port}"
    except OSError:  # the client reports it, too
        return url


def _libhdfs(root: str) -> fs.FileSystem:
    try:
        return fs.HadoopFileSystem.from_uri(root if root != "hdfs://" else "hdfs://default")
    except (OSError, ValueError) as error:
        raise LocationError(f"{root}: cannot be opened: {error}; {INSTALL}") from error


class HdfsHandler(fs.FileSystemHandler):
    """A pyarrow filesystem on hdfs-native, whose own fsspec class has no modification times.

    A handler is not sent to other processes: `Location.filesystem` opens one in each.
    """

    def __init__(self, client: Any) -> None:
        self._client = client

    def get_type_name(self) -> str:
        """Return the name that pyarrow shows for this kind of filesystem."""
        return "hdfs-native"

    def normalize_path(self, path: str) -> str:
        """Return the path as it is."""
        return path

    def get_file_info(self, paths: str | list[str]) -> list[fs.FileInfo]:
        """Return the status of each path."""
        return [self._info(path) for path in ([paths] if isinstance(paths, str) else paths)]

    def get_file_info_selector(self, selector: fs.FileSelector) -> list[fs.FileInfo]:
        """Return the entries of a directory; FileNotFoundError, NotADirectoryError."""
        base = selector.base_dir
        found = self._info(base)
        if found.type == fs.FileType.NotFound:
            if selector.allow_not_found:
                return []
            raise FileNotFoundError(f"{base}: no such directory")
        if found.type == fs.FileType.File:
            raise NotADirectoryError(f"{base}: is a file, expected a directory")
        with _faults_as_os_errors():
            statuses = list(self._client.list_status(base, selector.recursive))
        return [_as_info(status) for status in statuses]

    def create_dir(self, path: str, recursive: bool) -> None:
        """Make a directory; an existing one is not an error."""
        with _faults_as_os_errors():
            self._client.mkdirs(path, 0o755, recursive)

    def delete_dir(self, path: str) -> None:
        """Delete a directory with its contents."""
        self._delete(path, recursive=True)

    def delete_empty_dir(self, path: str) -> None:
        """Delete a directory; OSError if it has entries, FileNotFoundError."""
        self._delete(path, recursive=False)

    def delete_dir_contents(self, path: str, missing_dir_ok: bool = False) -> None:
        """Delete the contents of a directory."""
        selector = fs.FileSelector(path, allow_not_found=missing_dir_ok)
        for info in self.get_file_info_selector(selector):
            self._delete(info.path, recursive=True)

    def delete_root_dir_contents(self) -> None:
        """Refuse: kip33 never deletes the root."""
        raise OSError("kip33 does not delete an entire file system")

    def delete_file(self, path: str) -> None:
        """Delete a file; FileNotFoundError, or IsADirectoryError."""
        found = self._info(path)
        if found.type == fs.FileType.Directory:
            raise IsADirectoryError(f"{path}: is a directory, expected a file")
        self._delete(path, recursive=False)

    def move(self, src: str, dest: str) -> None:
        """Rename in one step, over an existing file."""
        with _faults_as_os_errors():
            self._client.rename(src, dest, overwrite=True)

    def move_new(self, src: str, dest: str) -> None:
        """Rename in one step; OSError if there is a file."""
        with _faults_as_os_errors():
            self._client.rename(src, dest, overwrite=False)

    def copy_file(self, src: str, dest: str) -> None:
        """Write the bytes of one file as another."""
        with self.open_input_stream(src) as source, self.open_output_stream(dest, {}) as target:
            while data := source.read(1 << 20):
                target.write(data)

    def open_input_stream(self, path: str) -> pa.NativeFile:
        """Return a file to read from its start."""
        return self.open_input_file(path)

    def open_input_file(self, path: str) -> pa.NativeFile:
        """Return a file to read at any position."""
        with _faults_as_os_errors():
            return pa.PythonFile(_Reader(self._client.read(path)), mode="r")

    def open_output_stream(self, path: str, metadata: dict[str, str]) -> pa.NativeFile:
        """Return a new file to write, replacing an existing one."""
        from hdfs_native import WriteOptions

        options = WriteOptions()
        options.overwrite = True
        with _faults_as_os_errors():
            return pa.PythonFile(_Writer(self._client.create(path, options)), mode="w")

    def open_append_stream(self, path: str, metadata: dict[str, str]) -> pa.NativeFile:
        """Refuse: files are always published at once."""
        raise OSError("appending to files is not supported")

    def _info(self, path: str) -> fs.FileInfo:
        try:
            with _faults_as_os_errors():
                return _as_info(self._client.get_file_info(path))
        except FileNotFoundError:
            return fs.FileInfo(path, fs.FileType.NotFound)

    def _delete(self, path: str, *, recursive: bool) -> None:
        with _faults_as_os_errors():
            if not self._client.delete(path, recursive):
                raise FileNotFoundError(f"{path}: no such file")


class _Reader(io.RawIOBase):
    """A file to read; its faults are OSErrors."""

    def __init__(self, reader: Any) -> None:
        self._reader, self._position = reader, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def size(self) -> int:
        return len(self._reader)

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        begin = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self.size()}[whence]
        self._position = begin + offset
        return self._position

    def read(self, size: int = -1) -> bytes:
        left = max(0, self.size() - self._position)
        size = left if size < 0 else min(size, left)
        with _faults_as_os_errors():
            data = bytes(self._reader.read_range(self._position, size)) if size else b""
        self._position += len(data)
        return data


class _Writer(io.RawIOBase):
    """A file to write; its faults are OSErrors. It is complete after it is closed."""

    def __init__(self, writer: Any) -> None:
        self._writer = writer

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        with _faults_as_os_errors():
            return int(self._writer.write(data))

    def close(self) -> None:
        if not self.closed:
            super().close()
            with _faults_as_os_errors():
                self._writer.close()


def _as_info(status: Any) -> fs.FileInfo:
    """Return a status as pyarrow's; HDFS stores ms, pyarrow ns, which overflow in 2262."""
    kind = fs.FileType.Directory if status.isdir else fs.FileType.File
    size = None if status.isdir else status.length
    time_ns = min(status.modification_time * 1_000_000, 2**63 - 1)
    return fs.FileInfo(status.path, kind, size=size, mtime_ns=time_ns)


@contextmanager
def _faults_as_os_errors() -> Iterator[None]:
    """Raise the client's faults as OSErrors with one line, or as PermissionError."""
    try:
        yield
    except MemoryError:
        raise
    except OSError as error:
        if is_of_the_machine(error):
            raise
        raise type(error)(str(error).partition("\n")[0]) from None
    except BaseException as error:  # RuntimeError for most faults of a name node
        if not isinstance(error, Exception) and type(error).__name__ != _PANIC:
            raise
        kind = PermissionError if "AccessControlException" in str(error) else OSError
        raise kind(fault_text(error)) from None


def fault_text(error: BaseException) -> str:
    """Return the kind of fault and its last text, without the trace.

    >>> fault = 'RPCError("org.example.Expired", "\\\\"a\\\\" is over\\\\n\\\\tat")'
    >>> fault_text(RuntimeError(fault))
    'Expired: "a" is over'
    """
    shown = str(error)
    kind = shown.partition("(")[0]
    texts: list[str] = _TEXT.findall(shown)
    if not (kind.isidentifier() and texts):
        return f"{type(error).__name__}: {shown.splitlines()[0] if shown else ''}"
    if kind in _OF_SERVERS:
        kind = texts[0].rpartition(".")[2]
    return f"{kind}: " + texts[-1].partition("\\n")[0].replace('\\"', '"')
