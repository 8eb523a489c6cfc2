"""Where bytes live: a path or URI becomes a `pyarrow.fs` filesystem and a path on it.

    /archive, ./archive, file:///archive    local disk
    s3://bucket/key, s3a://bucket/key       S3 and compatible stores; stored as s3a://
    hdfs://host:port/path, hdfs:///path     HDFS (`kip33.stores.hdfs`); `///`: default name node
    gs://, abfs://                          passed to pyarrow unchanged (untested)

A caller's filesystem goes before these, and may have a scheme of its own
(`kip33.stores.filesystem_option`).

A URI that ends in `#` and one of INSIDES means a part of that file (`kip33.stores.containers`).

This module only chooses one of pyarrow's filesystems. A `Location` is sent to executors as its URI;
the filesystem is opened there.
"""

import os
import re
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager
from functools import lru_cache
from typing import Any, Final, NamedTuple, Self, TypeAlias
from urllib.parse import SplitResult, quote, unquote, urlsplit

from pyarrow import fs

from kip33.errors import LocationError, without_secrets
from kip33.formats.byte_sources import ReadInto
from kip33.stores.filesystems import BUCKET_SCHEMES, given_filesystem
from kip33.stores.hdfs import open_hdfs, patience_of
from kip33.stores.s3 import keys_period, name_of_bucket, open_bucket
from kip33.stores.settings import generation, settings
from kip33.stores.watch import StoreName, watched

SCHEMES: Final = ("file", "s3", "s3a", "hdfs", "gs", "abfs", "abfss")
_BUCKET: Final = re.compile(r"[A-Za-z0-9._-]+")
KEYS_IN_URI: Final = (  # a path may have `:` and `@`, too, but not the name of a bucket
    r"^(?:((?:s3[an]?|gs)://)[^\s/@]*:[^\s@]*@|([A-Za-z][A-Za-z0-9+.-]*://)[^\s/@]*:[^\s/@]*@)"
)
UNQUOTED_PATH: Final = r"[A-Za-z0-9_.~/-]*"  # what `quote` does not change
_UNQUOTED: Final = re.compile(UNQUOTED_PATH)
_PLAIN_FILE: Final = re.compile(rf"file://(/{UNQUOTED_PATH})")  # the URI of such a path
INSIDES: Final = frozenset(
    f"{container}.{kind}"
    for container in ("aiven", "rsm")
    for kind in ("log", "timeindex", "index")
)
"""The parts of a file that a URI can name: a container's name and one of Kafka's suffixes."""


class Location(NamedTuple):
    """A place: `uri` is absolute, `path` is the path on the filesystem of `root`."""

    root: str  # scheme and authority: "file://", "s3a://bucket", "hdfs://host:8020"
    path: str  # without a slash at its end
    inside: str = ""  # the part of the file, one of INSIDES; empty: the file itself

    @classmethod
    def of(cls, text: str | os.PathLike[str]) -> Self:
        """Return the location of a local path or URI; LocationError for an unknown scheme."""
        raw = os.fspath(text)
        if not raw:
            raise LocationError("the path is empty: expected a local path or a URI")
        _require_text(raw)
        if "://" not in raw:
            path = os.path.abspath(raw)  # noqa: PTH100 - links stay links
            _require_text(path)
            return cls("file://", path)
        if plain := _PLAIN_FILE.fullmatch(raw):  # most URIs of a build; parsing takes much longer
            return cls("file://", plain[1].rstrip("/") or "/")
        raw, inside = split_uri(raw)
        parts = _split(raw)
        is_given = given_filesystem(f"{parts.scheme}://{parts.netloc}") is not None
        if parts.scheme not in SCHEMES and not is_given:
            raise LocationError(
                f"{without_secrets(raw)}: unknown scheme {parts.scheme}://, expected a local path "
                "or one of " + ", ".join(f"{scheme}://" for scheme in SCHEMES)
            )
        if parts.scheme == "file" and parts.netloc not in ("", "localhost"):
            raise LocationError(f"{raw}: expected a path on this machine, file:///...")
        if parts.scheme == "file":
            path = unquote(parts.path, errors="surrogateescape").rstrip("/") or "/"
            _require_text(path)
            return cls("file://", path, inside)
        # hdfs:/// is the default name node
        if not parts.netloc and parts.scheme != "hdfs" and parts.scheme in SCHEMES:
            raise LocationError(f"{raw}: expected a bucket after {parts.scheme}://")
        _require_authority(parts)
        scheme = "s3a" if parts.scheme == "s3" else parts.scheme
        path = raw.split("://", 1)[1][len(parts.netloc) :].rstrip("/")
        if scheme in BUCKET_SCHEMES:  # an object store's path begins with its bucket
            path = parts.netloc + path
        return cls(f"{scheme}://{parts.netloc}", path or "/", inside)

    @property
    def uri(self) -> str:
        """Return the absolute URI: `file:///archive/orders-0`, `s3a://bucket/orders-0`."""
        path = self.path
        if self.is_local and not _UNQUOTED.fullmatch(path):
            path = quote(path)
        scheme, _, _ = self.root.partition("://")
        before = f"{scheme}://" if scheme in BUCKET_SCHEMES else self.root
        return f"{before}{path}#{self.inside}" if self.inside else before + path

    @property
    def word(self) -> str:
        """Return what a command takes from any directory: a local path, else the URI."""
        return self.path if self.is_local and not self.inside else self.uri

    @property
    def is_local(self) -> bool:
        """Return whether this is a path on this machine."""
        return self.root == "file://"

    @property
    def is_object_store(self) -> bool:
        """Return whether this is on an object store: files are put, directories do not exist."""
        return self.root.startswith(("s3a://", "gs://"))

    @property
    def name(self) -> str:
        """Return the last part of the path."""
        return self.path.rsplit("/", 1)[-1]

    @property
    def parent(self) -> "Location":
        """Return the directory that contains this."""
        return Location(self.root, self.path.rsplit("/", 1)[0] or "/")

    def child(self, relative: str) -> "Location":
        """Return the location `relative` below this one."""
        return Location(self.root, f"{self.path.rstrip('/')}/{relative}")

    def contains(self, other: "Location") -> bool:
        """Return whether `other` is this or is below it; links are resolved on a local disk."""
        if self.root != other.root:
            return False
        mine, theirs = self.path, other.path
        if self.is_local:
            mine, theirs = os.path.realpath(mine), os.path.realpath(theirs)
        return theirs == mine or theirs.startswith(mine.rstrip("/") + "/")

    def filesystem(self) -> fs.FileSystem:
        """Return the filesystem, one per root and process; LocationError if it cannot be opened."""
        store: fs.FileSystem = _filesystem(self.root)
        return store


def _require_text(path: str) -> None:
    """Raise LocationError for a path that no URI can name: bytes that are not UTF-8, or a NUL."""
    if not path.isascii():
        try:
            path.encode()
        except UnicodeEncodeError as error:
            raise LocationError(
                f"{path!a}: the name is not UTF-8; rename it, or use a link with another name"
            ) from error
    if "\0" in path:
        raise LocationError(f"{path!a}: the path has a NUL character; remove it")


def _require_authority(parts: SplitResult) -> None:
    """Raise LocationError for a URI with keys (the message hides them) or without a bucket."""
    user, at, host = parts.netloc.rpartition("@")
    is_bucket = parts.scheme in ("s3", "s3a", "gs")
    has_port = ":" in host and not is_bucket and host.rpartition(":")[2].isdecimal()
    if (at and (is_bucket or ":" in user)) or (":" in host and not has_port):
        raise LocationError(
            f"{parts.scheme}://: a key or password in a URI would appear in catalogs "
            "and logs; expected a bucket or a host: give keys by --config "
            "(fs.s3a.access.key)"
        )
    if is_bucket and parts.netloc and not _BUCKET.fullmatch(host):
        raise LocationError(
            f"{parts.scheme}://{ascii(host)[1:-1]}: not a bucket name; expected "
            "letters, digits, dots, dashes and underscores"
        )


def _split(uri: str) -> SplitResult:
    """Return a URI's parts; LocationError if it cannot be parsed."""
    try:
        return urlsplit(uri)
    except ValueError as error:
        raise LocationError(f"{without_secrets(uri)}: not a valid URI: {error}") from error


def split_uri(uri: str) -> tuple[str, str]:
    """Return the URI of a file and the part of it that is meant, empty for the file itself."""
    file, _, inside = uri.rpartition("#")
    return (file, inside) if inside in INSIDES else (uri, "")


_LOCAL: Final = fs.LocalFileSystem()


def _filesystem(root: str) -> Any:
    if root == "file://":
        return _LOCAL
    if given := given_filesystem(root):
        return given
    scheme = root.partition("://")[0]
    return watched(
        lambda: _opened_once(root, generation(), _period(root)),
        lambda: _name_of(root, generation()),
        f"{scheme}://" if scheme in BUCKET_SCHEMES else root,
    )


@lru_cache(maxsize=64)
def _name_of(root: str, of_generation: int) -> StoreName:
    """Return what is said of a store that does not answer."""
    scheme, _, authority = root.partition("://")
    if scheme == "s3a":
        return name_of_bucket(settings(), authority)
    return StoreName(root, patience_of(settings()) if scheme == "hdfs" else "")


def _period(root: str) -> int:
    """Return the period of a role's keys: keys expire, so each period opens a new filesystem."""
    scheme, _, bucket = root.partition("://")
    return keys_period(settings(), bucket, now_s=time.time()) if scheme == "s3a" else 0


_OPENING: Final[dict[tuple[str, int, int], "Future[fs.FileSystem]"]] = {}


def _opened_once(root: str, of_generation: int, of_period: int) -> fs.FileSystem:
    """Return the filesystem of a root; threads that come while it is opened share the outcome.

    A second client would not only be waste. hdfs-native shares the connections to data nodes among
    its clients, but each belongs to the client that made it: when that one is dropped, reads of
    others that use its connections fail.
    """
    key = (root, of_generation, of_period)
    mine: Future[fs.FileSystem] = Future()
    opening = _OPENING.setdefault(key, mine)
    if opening is mine:
        try:
            mine.set_result(_opened(*key))
        except BaseException as error:
            mine.set_exception(error)
        finally:
            del _OPENING[key]
    return opening.result()


@lru_cache(maxsize=64)
def _opened(root: str, of_generation: int, of_period: int) -> fs.FileSystem:
    """Return the filesystem of a root; changed settings are a new generation and open a new one."""
    scheme, _, authority = root.partition("://")
    if scheme == "s3a":
        return open_bucket(settings(), authority)
    if scheme == "hdfs":
        return open_hdfs(settings(), root)
    try:
        return fs.FileSystem.from_uri(root)[0]
    except (OSError, ValueError) as error:
        raise LocationError(f"{root}: cannot be opened: {error}") from error


OpenFile: TypeAlias = Callable[[Location], AbstractContextManager[tuple[ReadInto, int]]]
"""Opens a file of a store: `stores.files.opened`."""
