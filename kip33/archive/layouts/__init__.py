"""The layouts of archives: which files below a SOURCE are the segments of which partition.

    kafka          a broker's log directory, or several side by side     `layouts.kafka`
    pinterest      a bucket of Pinterest's tiered storage                `layouts.kafka`
    aiven          Aiven's tiered storage plugin                         `layouts.aiven`
    local-tiered   Kafka's LocalTieredStorage                            `layouts.kafka`
    hdfs-rsm       HDFS's RemoteStorageManager, both forms               `layouts.hdfs_rsm`
    '{topic}/...'  a pattern with named fields                           `layouts.pattern`

A layout lists one directory (`Layout.list_directory`); `archive.listing` walks the tree with it.
`stores.containers` reads the files; `archive.segment_paths` finds the indexes of a log.
"""

from typing import Final

from kip33.archive.directory import Layout
from kip33.archive.layouts.aiven import AIVEN
from kip33.archive.layouts.hdfs_rsm import HDFS_RSM
from kip33.archive.layouts.kafka import KAFKA, LOCAL_TIERED, PINTEREST
from kip33.archive.layouts.pattern import pattern_layout

__all__ = ["KAFKA", "LAYOUTS", "Layout", "layout_of"]

LAYOUTS: Final = {
    layout.name: layout for layout in (KAFKA, PINTEREST, AIVEN, LOCAL_TIERED, HDFS_RSM)
}


def layout_of(text: str) -> Layout:
    """Return the layout with a name, or of a pattern; ValueError, one line, if it is neither."""
    if "{" in text or "}" in text:
        return pattern_layout(text)
    if text not in LAYOUTS:
        raise ValueError(
            f"layout {text!r}: expected {', '.join(LAYOUTS)}, or a pattern such as "
            "'{log_dir}/{topic}-{partition}/{base_offset}.log'"
        )
    return LAYOUTS[text]
