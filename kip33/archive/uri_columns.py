"""The URIs of many logs and of their index files, as Arrow columns."""

import re
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from kip33.archive.segment_paths import uri_beside
from kip33.formats.draft_indexes import TIME_INDEX_FILE
from kip33.stores.locations import INSIDES, UNQUOTED_PATH, Location

Column: TypeAlias = Any  # an Arrow chunked array, which the stubs type by element
_END_OF_LOG: Final = rf"(?:\.log)?(?:#(?:{'|'.join(map(re.escape, sorted(INSIDES)))}))?$"


def log_uris(source: Location, paths: Column, inside: Column) -> Column:
    """Return the URIs of logs from their paths below `source` and the parts of the files."""
    if source.is_local and not _are_unquoted(paths):
        chunks = [
            pa.array([source.child(path or "").uri for path in chunk.to_pylist()], pa.string())
            for batch in pa.table({"path": paths}).to_batches(max_chunksize=1 << 16)
            for chunk in batch.columns
        ]
        uris = pa.chunked_array(chunks, pa.string())
    else:
        uris = pc.binary_join_element_wise(_prefix(source), paths, "")
    if inside.null_count == len(inside):
        return uris
    return pc.coalesce(pc.binary_join_element_wise(uris, inside, "#"), uris)


def index_uris(
    log_uri: Column, source: Location, root: Location, time_index: str = TIME_INDEX_FILE
) -> Column:
    """Return the URIs below `root` of the time indexes of logs below `source`."""
    start = len(_prefix(source))
    if _are_plain(log_uri):
        below = pc.utf8_slice_codeunits(log_uri, start=start, stop=-len(".log"))
    else:
        whole = pc.utf8_slice_codeunits(log_uri, start=start)
        below = pc.replace_substring_regex(whole, _END_OF_LOG, "", max_replacements=1)
    return pc.binary_join_element_wise(_prefix(root), below, f".{time_index}", "")


def directories_of(paths: Column) -> Column:
    """Return the directory of each path of a file; empty: SOURCE itself."""
    return pc.replace_substring_regex(paths, r"/?[^/]*$", "")


def uris_beside(log_uri: Column) -> Column:
    """Return the URI of each log's own `.timeindex` in the archive."""
    if _are_plain(log_uri):
        stems = pc.utf8_slice_codeunits(log_uri, start=0, stop=-len(".log"))
        return pc.binary_join_element_wise(stems, ".timeindex", "")
    uris = [uri_beside(uri, "timeindex") for uri in log_uri.to_pylist()]
    return pa.chunked_array([uris], pa.string())


def _are_unquoted(paths: Column) -> bool:
    """Return whether all paths are the same in URIs. A local disk's are quoted, others' never."""
    if paths.null_count:
        return False
    return bool(pc.all(pc.match_substring_regex(paths, f"^{UNQUOTED_PATH}$"), min_count=0).as_py())


def _are_plain(log_uri: Column) -> bool:
    """Return whether every log is a separate file with Kafka's suffix."""
    return bool(pc.all(pc.ends_with(log_uri, ".log"), min_count=0).as_py()) and not bool(
        pc.any(pc.match_substring(log_uri, "#"), min_count=0).as_py()
    )


def _prefix(root: Location) -> str:
    return root.child("x").uri.removesuffix("x")
