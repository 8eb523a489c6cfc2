"""Control batches that a random run against Kafka 4.1.1 found: a body that decodes up to a point.

Kafka reads bytes from the decoder as its records need them, so bytes before the damage are used.
"""

import zlib
from base64 import b64decode
from pathlib import Path

from kip33 import build_time_index
from tests.cases import each_case

GZIP_WRONG_CHECKSUM = (
    "eNpjYICDDUDMziRofX0SgyKQycrAwNh9/mkGO5TWYkAHbPLdHBDW/8eJCQkJKSkzjp05cPzIjYNzJs1fFzBp4qqAiFkz"
    "56ydEDIlft7yCdPiF04InRUdsGZC/LQolmnnPNesCpFgyZKsMzQ+saGgwcJ/BvvC3xlrpjm2OHb3Mh9JZjHStbBw+CUp"
    "6WdovKPQ8F2inIve0sYoNgZ204wNF5jgzuAEYiHvIhldMI8lI1Wh8D8QAACpbUQH"
)
ZSTD_CUT_SHORT = (
    "eNpjYAADXyB2ATGYJpSGf2FQATH/owEGKIDzGDW26v9liGhgYOAB8RgZGGFKGPygmIGJu+TSBgYmbOZhmM7YFOznGBAQ"
    "CVLMCMWc7BI8MD4Y+DMwsG8Dm8zGE8nBwAGSw+5CJFGmH7Igda9kFXISqyoVUvLTFUoyUhUKSzOTsxWSivLL8xTS8isU"
    "skpzC4oV8stSi8DSo2pH1Y6qHVU7qnZULYlqAXDrsH8="
)
SNAPPY_CUT_IN_A_LENGTH = (
    "eNpjYAADRiD2BzGYrk1ZzcegBGLW/4cAGM0AVQrnMTYF+zkGBETCDABhTnYJHij/TdC15Ie8lTFyM2fcmX2oYVuN+m2D1G"
    "0yLie5Hosm9Hb/2/VNKiC89qi/TE/whVXr5oq3PqlsK6kVqbiSxLJwzpOZy35kJ4uknNv8u+ix00rXvCvz+zV/3DI5q/Tv"
    "6pupB6dxqpQU37LdKFqu6elc9Gxx4B9+Ho7Tp1RfP60+diOU4/70sKMVhfJGb1bommsVJG1s/sDZ9H15q8Sz6WefVL086W"
    "eWe53XZ8nyuQkiM38F7s3daL07dqpQQMbugw9yc4vWfl8Z9p3JblvB5wlFi9PFpAFPkIGb"
)


@each_case(
    ("packed", "base_offset", "interval_bytes", "valid_bytes", "time_index"),
    {
        "a gzip body whose checksum is wrong is read up to its records' own damage": (
            GZIP_WRONG_CHECKSUM,
            *(0, 100, 188, "0000018bcfe5682a00000005"),
        ),
        "a zstd body that is cut short is read up to the record it counts": (
            ZSTD_CUT_SHORT,
            *(77, 1, 80, ""),
        ),
        "a snappy body that is cut inside a block's length just ends there": (
            SNAPPY_CUT_IN_A_LENGTH,
            *(0, 100, 91, "7fffffffffffffff00000001"),
        ),
    },
)
def test_damage_behind_what_recovery_reads(
    tmp_path: Path,
    packed: str,
    base_offset: int,
    interval_bytes: int,
    valid_bytes: int,
    time_index: str,
) -> None:
    log = tmp_path / f"{base_offset:020d}.log"
    log.write_bytes(zlib.decompress(b64decode(packed)))
    index = build_time_index(str(log), index_interval_bytes=interval_bytes)
    assert (index.status, index.valid_bytes) == ("truncated", valid_bytes)
    assert index.time_index_data == bytes.fromhex(time_index)
