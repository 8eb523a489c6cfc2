"""The `filesystem=` and `storage_options=` arguments of the public functions.

    filesystem=pyarrow.fs.S3FileSystem(...)           path "bucket/indexes", URI s3://bucket/indexes
    filesystem=pyarrow.fs.SubTreeFileSystem(base, f)  a path below `base` on f
    filesystem=fsspec.filesystem("memory")            path "/indexes", URI memory:///indexes

A path is what the filesystem calls it. It becomes a `Location` with an absolute URI, because
catalogs, plans and tasks name places by URI. The filesystem is used for this root from then on in
this process (`kip33.stores.filesystems`).

    storage_options={"endpoint": "http://store:9000", "access_key": "...", "secret_key": "..."}
    storage_options={"fs.s3a.endpoint": "http://store:9000", "dfs.nameservices": "..."}

Keys are Hadoop's keys, or short names for the buckets of the call. Both apply to this process from
then on and override its settings, so that listed segments and an opened catalog find their store.
"""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from pyarrow import fs

from kip33.stores.filesystems import (
    BUCKET_SCHEMES,
    can_travel,
    forget_filesystem,
    given_filesystem,
    use_filesystem,
)
from kip33.stores.locations import SCHEMES, Location
from kip33.stores.settings import PREFIXES, SPARK_PREFIX, add_options


class FsspecFilesystem(Protocol):
    """What fsspec's `AbstractFileSystem` has; fsspec itself is not needed."""

    protocol: str | tuple[str, ...]

    def info(self, path: str) -> dict[str, Any]:
        """Return what the store says of a file."""


Filesystem: TypeAlias = fs.FileSystem | FsspecFilesystem
"""A `pyarrow.fs.FileSystem`, or one of fsspec."""

StorageOptions: TypeAlias = Mapping[str, str | bool | int]

_TIMES: Final = ("mtime", "LastModified", "last_modified", "updated")  # keys of fsspec's `info`
_SHORT_NAMES: Final = {
    "endpoint": "endpoint",
    "region": "endpoint.region",
    "access_key": "access.key",
    "secret_key": "secret.key",
    "token": "session.token",
}
_PROVIDER: Final = "org.apache.hadoop.fs.s3a.{}AWSCredentialsProvider"
_S3: Final = "s3a://"
_SCHEMES: Final = {  # pyarrow's type names, and fsspec's protocols
    **{"local": "file", "s3": "s3a", "gcs": "gs", "hdfs": "hdfs"},
    **{"file": "file", "s3a": "s3a", "gs": "gs"},
}
_SCHEME: Final = re.compile(r"[a-z][a-z0-9+.-]*")


class _Store(NamedTuple):
    """A filesystem without what only changes its paths."""

    filesystem: fs.FileSystem
    scheme: str  # of the URIs of its places
    above: str = ""  # the directory that a SubTreeFileSystem begins in
    fsspec: Any = None


def place_on(
    text: str | os.PathLike[str],
    storage_options: StorageOptions | None = None,
    filesystem: Filesystem | None = None,
) -> Location:
    """Return the place that a caller names; its options or filesystem apply from now on.

    ValueError for options and a filesystem at once, a filesystem that is not supported, and a URI
    of another scheme than the filesystem's; LocationError for a path that no URI can name.
    """
    return places_on([text], storage_options, filesystem)[0]


def places_on(
    texts: Sequence[str | os.PathLike[str]],
    storage_options: StorageOptions | None = None,
    filesystem: Filesystem | None = None,
) -> list[Location]:
    """Return the places of a call, as `place_on`; a URI of another scheme is not on `filesystem`.

    ValueError where no place is on it.
    """
    if filesystem is None:
        places = [Location.of(text) for text in texts]
        use_storage_options(storage_options, places)
        return places
    if storage_options:
        raise ValueError("storage_options and filesystem found, expected one of them")
    store = _store_of(filesystem)
    places = []
    for text in texts:
        raw = os.fspath(text)
        scheme, separator, _ = raw.partition("://")
        is_its = not separator or {"s3": "s3a"}.get(scheme, scheme) == store.scheme
        places.append(_place(raw, store) if is_its else Location.of(raw))
    roots = {place.root for place in places if place.root.startswith(f"{store.scheme}://")}
    if not roots:
        raise ValueError(
            f"filesystem: it has URIs of {store.scheme}://, {os.fspath(texts[0])} found; expected "
            "a path on this filesystem"
        )
    return places


def texts_on(
    named: Sequence[str | os.PathLike[str] | None], options: Any
) -> tuple[list[str | None], list[Location]]:
    """Return the places of a call as texts, None for those that are not given, and the places.

    On a filesystem of the caller the texts are URIs. `options` has the `storage_options` and the
    `filesystem`; errors are those of `places_on`.
    """
    given = [one for one in named if one is not None]
    places = places_on(given, options["storage_options"], options["filesystem"])
    has_own = options["filesystem"] is not None
    texts = iter([place.uri for place in places] if has_own else [os.fspath(one) for one in given])
    return [None if one is None else next(texts) for one in named], places


def require_writable_store(places: Iterable[Location]) -> None:
    """Raise ValueError for a place whose given filesystem cannot replace a file atomically."""
    for place in places:
        store = given_filesystem(place.root)
        if store and not place.is_object_store and isinstance(store, fs.PyFileSystem):
            raise ValueError(
                f"{place.uri}: kip33 writes no files through this filesystem, it may not replace "
                "a file atomically; expected a local path, S3, GCS or HDFS"
            )


def require_for_tasks(places: Iterable[Location]) -> None:
    """Raise ValueError for a place whose given filesystem Spark's tasks cannot use."""
    for place in places:
        store = given_filesystem(place.root)
        if store and not can_travel(place.root, store):
            raise ValueError(
                f"{place.uri}: the filesystem cannot be sent to Spark's tasks (it does not pickle, "
                "or its files are in this process's memory); expected storage_options or a "
                "filesystem that pickles"
            )


def _place(text: str, store: _Store) -> Location:
    """Return the place of a path or URI on a store, which is used for its root from now on."""
    if store.scheme == "file":
        return Location.of(text if "://" in text else _below(store, text))
    if "://" not in text:
        text = _below(store, text)
        if store.fsspec is not None and store.scheme not in BUCKET_SCHEMES:
            text = _stripped(store, text)
        slash = "" if store.scheme in BUCKET_SCHEMES else "/"
        text = f"{store.scheme}://{slash}{text.lstrip('/')}"
    if store.scheme in SCHEMES:
        place = Location.of(text)
        use_filesystem(place.root, store.filesystem)
        return place
    root, path = _root_and_path(text)
    found = _stripped(store, text).rstrip("/") or "/"
    if found != path:
        raise ValueError(
            f"{text}: the filesystem calls it {found!r}, expected {path!r}; kip33 supports fsspec "
            "filesystems whose paths begin with / and have no host in them"
        )
    use_filesystem(root, store.filesystem)
    return Location.of(text)


def _below(store: _Store, text: str) -> str:
    """Return the path of a store itself for one below its directory."""
    if store.above and ".." in text.split("/"):
        raise ValueError(f"{text}: '..' found, expected a path below {store.above}")
    return f"{store.above}{text.lstrip('/')}" if store.above else text


def _root_and_path(uri: str) -> tuple[str, str]:
    scheme, _, rest = uri.partition("://")
    authority, slash, path = rest.partition("/")
    return f"{scheme}://{authority}", (slash + path).rstrip("/") or "/"


def _stripped(store: _Store, text: str) -> str:
    return str(store.fsspec._strip_protocol(text))


def _store_of(filesystem: Any) -> _Store:
    """Return the store behind subtrees and wrappers; ValueError for one that is not supported."""
    above = ""
    while True:
        if isinstance(filesystem, fs.SubTreeFileSystem):
            above = f"{filesystem.base_path.rstrip('/')}/{above}"
            filesystem = filesystem.base_fs
        elif isinstance(filesystem, fs.PyFileSystem) and hasattr(filesystem.handler, "fs"):
            filesystem = filesystem.handler.fs
        elif _protocol(filesystem) == "dir":
            above = f"{filesystem.path.rstrip('/')}/{above}"
            filesystem = filesystem.fs
        else:
            break
    if isinstance(filesystem, fs.FileSystem):
        scheme = _SCHEMES.get(filesystem.type_name)
        if scheme:
            return _Store(filesystem, scheme, above)
    elif protocol := _protocol(filesystem):
        scheme = _SCHEMES.get(protocol, protocol)
        if _SCHEME.fullmatch(scheme) and (scheme in _SCHEMES.values() or scheme not in SCHEMES):
            handled = fs.PyFileSystem(_FsspecHandler(filesystem))  # type: ignore[abstract]
            return _Store(handled, scheme, above, filesystem)
    found = getattr(filesystem, "type_name", type(filesystem).__name__)
    raise ValueError(
        f"filesystem: {found} found, expected a pyarrow filesystem (local, S3, GCS, HDFS or a "
        "SubTreeFileSystem of these) or one of fsspec"
    )


def _protocol(filesystem: Any) -> str | None:
    """Return the first protocol of an fsspec filesystem, None for anything else."""
    if isinstance(filesystem, fs.FileSystem) or not hasattr(filesystem, "_strip_protocol"):
        return None
    found = filesystem.protocol
    return str(found if isinstance(found, str) else found[0])


class _FsspecHandler(fs.FSSpecHandler):
    """An fsspec filesystem for pyarrow, with modification times and without cached listings.

    pyarrow's own handler gives no modification time but `mtime`, and lists from fsspec's cache.
    """

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


def use_storage_options(options: StorageOptions | None, places: Iterable[Location]) -> None:
    """Apply options to all stores that this process opens from now on; None changes nothing.

    A filesystem that was given for a store of `places` is no longer used for it.
    """
    if options:
        places = list(places)
        add_options(hadoop_options(options, places))
        for place in places:
            forget_filesystem(place.root)


def hadoop_options(options: StorageOptions, places: Iterable[Location]) -> dict[str, str]:
    """Return options by Hadoop's keys; short names apply to the S3 buckets of `places`.

    Raises ValueError for an unknown key, and for a short name if no place is on S3. The message
    shows no values.
    """
    named = {key: _text(value) for key, value in options.items()}
    short = {key: value for key, value in named.items() if key in _SHORT_NAMES}
    found = {key.removeprefix(SPARK_PREFIX): named[key] for key in named if key not in short}
    unknown = sorted(key for key in found if not key.startswith(PREFIXES))
    if unknown:
        raise ValueError(
            f"storage_options: {unknown[0]!r} found, expected {', '.join(_SHORT_NAMES)} or a key "
            "of Hadoop such as fs.s3a.endpoint"
        )
    buckets = {place.root.removeprefix(_S3) for place in places if place.root.startswith(_S3)}
    if short and not buckets:
        raise ValueError(
            f"storage_options: {min(short)!r} found and no s3:// URI, expected keys of Hadoop"
        )
    for bucket in sorted(buckets):
        of_bucket = {f"fs.s3a.bucket.{bucket}.{key}": v for key, v in _of_bucket(short).items()}
        found = of_bucket | found
    return found


def _of_bucket(short: Mapping[str, str]) -> dict[str, str]:
    """Return a bucket's settings, by keys without their prefix."""
    found = {_SHORT_NAMES[key]: value for key, value in short.items()}
    if "access_key" in short:  # overrides the provider of the process's settings
        provider = _PROVIDER.format("Temporary" if "token" in short else "Simple")
        found["aws.credentials.provider"] = provider
    if ".amazonaws." not in short.get("endpoint", ".amazonaws."):
        found["path.style.access"] = "true"
    return found


def _text(value: str | bool | int) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
