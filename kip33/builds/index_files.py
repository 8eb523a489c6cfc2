"""Who publishes the index files of a build."""

from typing import Final

from kip33.builds.build_options import BuildSpec
from kip33.indexing.published_files import IndexPublisher
from kip33.rules.publication import Owner

_IF_NOT_FLUSHED: Final = (
    "the snapshot is not committed: fix it and run the command again, or build with --no-fsync"
)


def publisher_of(build: BuildSpec) -> IndexPublisher:
    """Return who publishes the index files of a build."""
    return IndexPublisher(
        build.index_dir,
        in_place=build.in_place,
        others=Owner.REPLACED if build.overwrite else Owner.ANOTHERS,
        lists_puts=build.lists_puts,
        if_not_flushed=_IF_NOT_FLUSHED,
    )
