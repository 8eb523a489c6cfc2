"""The filesystems that callers gave to this process, by the root of their places.

They come from `filesystem=` of the public functions (`kip33.stores.filesystem_option`). As settings
do, they belong to the process; tasks get them in a broadcast. A filesystem of S3 or GCS is kept for
its bucket. It is used for other buckets as well while it is the only one of its scheme and no
`storage_options` name settings of S3. The driver decides this, and its tasks follow: they see the
options only as part of all settings, and Spark itself sets some of S3.
"""

import pickle
from collections.abc import Mapping
from typing import Final

from pyarrow import fs

from kip33.stores.settings import added_options, use_settings

BUCKET_SCHEMES: Final = ("s3a", "gs")
_NO_BUCKET: Final = tuple(f"{scheme}://" for scheme in BUCKET_SCHEMES)
_S3_KEYS: Final = "fs.s3a."
_THIS_PROCESS_ONLY: Final = ("memory://",)  # pickled, they come out empty


class _ByRoot:
    given: Mapping[str, fs.FileSystem] = {}
    # In a task: what its driver uses for other buckets, by the URI of no bucket (`s3a://`).
    other_buckets: Mapping[str, fs.FileSystem] | None = None


def use_filesystem(root: str, filesystem: fs.FileSystem) -> None:
    """Use a filesystem for the places of a root from now on."""
    _ByRoot.given = {**_ByRoot.given, root: filesystem}


def use_stores(settings: Mapping[str, str], given: Mapping[str, fs.FileSystem]) -> None:
    """Use a driver's settings and filesystems, and no others, in this process, one of its tasks."""
    use_settings(settings)
    _ByRoot.given = {root: store for root, store in given.items() if root not in _NO_BUCKET}
    _ByRoot.other_buckets = {root: store for root, store in given.items() if root in _NO_BUCKET}


def forget_filesystem(root: str) -> None:
    """Use the settings again for the places of a root."""
    _ByRoot.given = {other: store for other, store in _ByRoot.given.items() if other != root}


def given_filesystem(root: str) -> fs.FileSystem | None:
    """Return the filesystem that a caller gave for a root, None where settings decide."""
    if not _ByRoot.given:
        return None
    found = _ByRoot.given.get(root)
    scheme = root.partition("://")[0]
    if found is not None or scheme not in BUCKET_SCHEMES:
        return found
    return _for_other_buckets(f"{scheme}://")


def _for_other_buckets(no_bucket: str) -> fs.FileSystem | None:
    if _ByRoot.other_buckets is not None:
        return _ByRoot.other_buckets.get(no_bucket)
    if any(key.startswith(_S3_KEYS) for key in added_options()):
        return None
    of_scheme = [store for root, store in _ByRoot.given.items() if root.startswith(no_bucket)]
    is_one = all(store == of_scheme[0] for store in of_scheme)
    return of_scheme[0] if of_scheme and is_one else None


def filesystems_for_tasks() -> Mapping[str, fs.FileSystem]:
    """Return the filesystems, by root, that other processes can use as well: for `use_stores`.

    The root without a bucket (`s3a://`) has the one for all buckets that are not named.
    """
    others = {root: store for root in _NO_BUCKET if (store := _for_other_buckets(root))}
    everything = {**_ByRoot.given, **others}
    return {root: store for root, store in everything.items() if can_travel(root, store)}


def can_travel(root: str, filesystem: fs.FileSystem) -> bool:
    """Return whether another process can use a filesystem: it pickles, and keeps its files."""
    if root.startswith(_THIS_PROCESS_ONLY):
        return False
    try:
        pickle.dumps(filesystem)
    except Exception:  # of any library: what it raises is not known
        return False
    return True
