"""A control batch that a random run against Kafka 4.1.1 found: its body decodes up to a point.

Kafka reads bytes from the decoder as its records need them, so bytes before the damage are used.
"""

import zlib
from base64 import b64decode
from pathlib import Path

from kip33 import build_time_index

GZIP_WRONG_CHECKSUM = (
    "eNpjYICDDUDMziRofX0SgyKQycrAwNh9/mkGO5TWYkAHbPLdHBDW/8eJCQkJKSkzjp05cPzIjYNzJs1fFzBp4qqAiFkz"
    "56ydEDIlft7yCdPiF04InRUdsGZC/LQolmnnPNesCpFgyZKsMzQ+saGgwcJ/BvvC3xlrpjm2OHb3Mh9JZjHStbBw+CUp"
    "6WdovKPQ8F2inIve0sYoNgZ204wNF5jgzuAEYiHvIhldMI8lI1Wh8D8QAACpbUQH"
)


def test_a_body_whose_checksum_is_wrong_is_read_up_to_its_records_own_damage(
    tmp_path: Path,
) -> None:
    log = tmp_path / f"{0:020d}.log"
    log.write_bytes(zlib.decompress(b64decode(GZIP_WRONG_CHECKSUM)))
    index = build_time_index(str(log), index_interval_bytes=100)
    assert (index.status, index.valid_bytes) == ("truncated", 188)
    assert index.time_index_data == bytes.fromhex("0000018bcfe5682a 00000005")
