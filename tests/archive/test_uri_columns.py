"""The URIs of a column of paths are those of its locations."""

import pyarrow as pa
import pytest

from kip33.archive.listing import log_uris
from kip33.stores.locations import Location

PLAIN = ["b1/orders-0/00000000000000000000.log", "orders_1-2/~a.log", ""]


@pytest.mark.parametrize("source", ["/archive", "/an archive/é", "/", "s3://bucket/a b"])
@pytest.mark.parametrize("others", [[], ["a b/%20.log"], ["line\n"], ["é#.log"]])
def test_log_uris_are_those_of_the_locations(source: str, others: list[str]) -> None:
    place, paths = Location.of(source), [*PLAIN, *others]
    found = log_uris(place, pa.chunked_array([paths]), pa.chunked_array([pa.nulls(len(paths))]))
    assert found.to_pylist() == [place.child(path).uri for path in paths]
    assert [Location.of(uri).uri for uri in found.to_pylist()[:2]] == found.to_pylist()[:2]
