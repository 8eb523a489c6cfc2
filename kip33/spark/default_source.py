"""What Spark finds by itself: a wheel has this module as the package `pyspark_kip33`.

Spark 4 imports the packages `pyspark_*` in a Python worker and takes their `DefaultSource`.
"""

from kip33.spark.segment_source import SegmentSource


class DefaultSource(SegmentSource):
    """`kafka-segments` in a session that did not call `kip33.spark.register`."""
