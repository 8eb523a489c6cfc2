"""How archives are laid out: which files below a SOURCE are whose segments.

    kafka          a broker's log directory, or several side by side     `layouts.kafka`
    pinterest      a bucket of Pinterest's tiered storage                `layouts.pinterest`
    aiven          Aiven's tiered storage plugin                         `layouts.aiven`
    local-tiered   Kafka's LocalTieredStorage                            `layouts.local_tiered`
    hdfs-rsm       HDFS's RemoteStorageManager, both forms               `layouts.hdfs_rsm`
    '{topic}/...'  a pattern with named fields                           `layouts.pattern`

A layout lists one directory (`Layout.list_directory`); `storage.listing` walks the tree with it.
What a file holds is `storage.containers`; where the indexes of a log are, `storage.segment_files`.
"""

from typing import Final

from kip33.errors import CatalogError, PlanError
from kip33.storage.layouts.aiven import AIVEN
from kip33.storage.layouts.hdfs_rsm import HDFS_RSM
from kip33.storage.layouts.kafka import KAFKA
from kip33.storage.layouts.layout import Layout
from kip33.storage.layouts.local_tiered import LOCAL_TIERED
from kip33.storage.layouts.pattern import pattern_layout
from kip33.storage.layouts.pinterest import PINTEREST
from kip33.storage.snapshots import Snapshot

__all__ = ["KAFKA", "LAYOUTS", "Layout", "layout_of", "require_deletable", "require_layout"]

LAYOUTS: Final = {
    layout.name: layout for layout in (KAFKA, PINTEREST, AIVEN, LOCAL_TIERED, HDFS_RSM)
}


def layout_of(text: str) -> Layout:
    """Return the layout of a name or pattern; ValueError, one line, where it is neither."""
    if "{" in text or "}" in text:
        return pattern_layout(text)
    if text not in LAYOUTS:
        raise ValueError(
            f"layout {text!r}: {', '.join(LAYOUTS)} expected, or a pattern such as "
            "'{log_dir}/{topic}-{partition}/{base_offset}.log'"
        )
    return LAYOUTS[text]


def require_layout(newest: Snapshot | None, layout: str, catalog_uri: str) -> None:
    """Raise CatalogError where a catalog's newest snapshot was built by another layout."""
    if newest and newest.layout != layout:
        raise CatalogError(
            f"{catalog_uri}: built with --layout {newest.layout!r}, not {layout!r}; "
            "one layout per catalog: give another --catalog"
        )


def require_deletable(snapshot: Snapshot) -> None:
    """Raise PlanError where the files of a snapshot are not a plan's to delete."""
    why = layout_of(snapshot.layout).why_not_deleted
    if why:
        raise PlanError(
            f"snapshot {snapshot.name} has the layout {snapshot.layout!r}: nothing is planned or "
            f"deleted there, {why}; without --plan it is judged all the same"
        )
