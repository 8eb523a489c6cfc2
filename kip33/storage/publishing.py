"""What becomes of a segment's index files (D10): the catalog's column `index_file`.

written   they are ours, and as the log gives them
kept      one at least is somebody else's, and was left
stale     they are ours, but one could not be replaced, removed or put beside the other:
          never reused, the next build tries again
null      there is none, or it could not be written
"""

from typing import Final, NamedTuple

from kip33.storage.files import publish, read_whole, reason, remove, size_of
from kip33.storage.locations import Location

WRITTEN: Final = "written"
KEPT: Final = "kept"
STALE: Final = "stale"
NOT_OURS: Final = "kip33 did not write it"


class Wanted(NamedTuple):
    """One index file and the bytes it should have; `good_entries` if it is to be left as it is."""

    place: Location
    data: bytes | None  # None: the log gives no index
    listed: bool  # whether a file was there before this build began
    good_entries: int | None = None


class Published:
    """What became of a segment's index files, the `.timeindex` first."""

    def __init__(self) -> None:
        """Begin with none."""
        self.notes: list[str] = []
        self._states: list[str | None] = []
        self._sizes: list[int | None] = []

    @property
    def state(self) -> str | None:
        """Return WRITTEN if all are ours, KEPT if one is not, None if one is not there.

        STALE if what is there is ours, but not all as it should be: the next build tries again.
        """
        states = set(self._states)
        if KEPT not in states and (STALE in states or states == {WRITTEN, None}):
            return STALE
        if not states or None in states:
            return None
        return WRITTEN if states == {WRITTEN} else KEPT

    @property
    def sizes(self) -> tuple[int | None, int | None]:
        """Return the bytes of `.timeindex` and `.index` as they are now, None for what is not."""
        time_index, offset_index = (*self._sizes, None, None)[:2]
        return time_index, offset_index

    def add(self, file: Wanted, *, ours: bool, overwrite: bool, proves_nothing: bool) -> None:
        """Publish, leave or withdraw one file; a fault of the store is a note.

        What was not there when the build began is ours as well: another attempt of this task, or a
        build beside this one, put it there.
        """
        built_before = ours
        ours = ours or not file.listed
        size: int | None = None
        try:
            if file.data is None:
                state, size = _withdraw(file.place, ours=ours, proves_nothing=proves_nothing)
            elif file.good_entries is not None:
                state, size = WRITTEN if ours else KEPT, size_of(file.place)
            else:
                state, size = self._place(file, file.data, ours=ours, overwrite=overwrite)
        except OSError as error:
            state = STALE if built_before else None
            what = "removed, though the log gives none" if file.data is None else "written"
            self.notes.append(f"{file.place.uri}: cannot be {what}: {reason(error)}")
        self._states.append(state)
        self._sizes.append(size)

    def _place(self, file: Wanted, data: bytes, *, ours: bool, overwrite: bool) -> tuple[str, int]:
        """Publish `data` unless the same bytes, or somebody else's file, are there."""
        place = file.place
        asks = file.listed or not place.is_object_store  # a put in place of our own costs less
        size = size_of(place) if asks else None
        if size == len(data) and read_whole(place, most_bytes=size) == data:
            return WRITTEN if ours or overwrite else KEPT, size
        if size is not None and not ours and not overwrite:
            self.notes.append(f"kept {place.uri}: {NOT_OURS}; --overwrite replaces it")
            return KEPT, size
        publish(place, data)
        return WRITTEN, len(data)


def _withdraw(
    place: Location, *, ours: bool, proves_nothing: bool
) -> tuple[str | None, int | None]:
    """Delete an index of ours that the log no longer gives; an unreadable log proves nothing."""
    size = size_of(place)
    if size is None or not ours:
        return None, None
    if proves_nothing:
        return WRITTEN, size  # it stays, and stays ours
    remove(place)
    return None, None
